"""Pages of the site that are not in docs/ (a hook of MkDocs, see mkdocs.yml): the results, and files of the root."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

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
    made["results.md"] = results_page(ROOT / "benchmarks" / "results")
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


def results_page(folder: Path) -> str:
    """Every stored figure with its target, command, commit and machine, as Markdown."""
    parts = [
        "# Results",
        "The figures stored in `benchmarks/results`, each with its target and the command that measured it. "
        "A missed target is named as such. `python -m benchmarks all` measures again on your machine.",
    ]
    for path in sorted(folder.glob("*.json")):
        stored = json.loads(path.read_text())
        rows = [row for row in stored.get("rows", []) if isinstance(row, dict) and "name" in row]
        if not rows:
            continue
        commit = f", commit {stored['commit'][:7]}" if stored.get("commit") else ""
        parts.append(f"## {path.stem}")
        parts.append(f"`{stored.get('command')}`, {stored.get('date')}, {stored.get('machine')}{commit}.")
        lines = ["| what | figure | target | |", "|---|---|---|---|", *(_line(row) for row in rows)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _line(row: dict[str, Any]) -> str:
    target, met = row.get("target", row.get("bar")), row.get("met", row.get("holds"))
    side = "at most " if row.get("better") == "lower" else "at least "
    verdict = "" if target is None or met is None else "met" if met else "**missed**"
    shown = [row["name"], f"{_figure(row.get('value'))} {row.get('unit', '')}"]
    shown += ["" if target is None else side + _figure(target), verdict]
    return "| " + " | ".join(cell.strip().replace("|", "\\|") for cell in shown) + " |"


def _figure(value: Any) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.4g}"
    return "-" if value is None else f"{value:,.0f}" if isinstance(value, int | float) else str(value)
