"""Pages of the site that are not in docs/ (a hook of MkDocs, see mkdocs.yml): files of the root."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OF_THE_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them; a page of that name in docs/ is taken as it is."""
    made = {OF_THE_ROOT[name]: (ROOT / name).read_text() for name in ("CHANGELOG.md", "CONTRIBUTING.md")}
    for name, text in made.items():
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that leave docs/: a page where there is one, else the file's path in the repository as text."""
    here = Path(config.docs_dir) if page.file.abs_src_path else ROOT  # made pages are written as if in the root

    def follow(found: re.Match[str]) -> str:
        label, target = found[1], (here / found[2]).resolve()
        if target.is_relative_to(config.docs_dir):
            return f"[{label}]({target.relative_to(config.docs_dir)}{found[3] or ''})"
        if not target.exists():
            raise PluginError(f"{page.file.src_uri} links to {found[2]}, which does not exist")
        path = str(target.relative_to(ROOT))
        if path in OF_THE_ROOT:
            return f"[{label}]({OF_THE_ROOT[path]}{found[3] or ''})"
        return f"`{path}`" if label.strip("`") in path else f"{label} (`{path}`)"

    return _LINK.sub(follow, markdown)
