"""`make results`: writes the published figures from benchmarks/results into the pages, through templates.

    python -m benchmarks.harness.pages            docs/results.md, README.md and every page with a block of figures
    python -m benchmarks.harness.pages --check    says what is wrong, writes nothing

docs/results.md is made from benchmarks/pages/results.md. In other pages, what stands between
`<!-- figures: NAME, ... -->` and `<!-- end of figures -->` is made from benchmarks/pages/NAME.md. A template is
Markdown with Jinja in it; what it may call are the functions of figures.py and tables.py:

    {{ about("tanh") }}                                        command, machine, day, commit and file of a result
    {{ line("tanh", "torch.tanh", "what the reader calls it") }}      a line of a table: label, value, target
    {{ every("tanh") }}                                        a table of all its rows
    {{ figure("tanh", "torch.tanh") }}, {{ target(...) }}        a value and a target alone
    {% if stored("tanh") %} ... {% endif %}                    a section that appears once the result is stored
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.harness import plots, tables
from benchmarks.harness.figures import PageError, Results, number

ROOT = Path(__file__).resolve().parents[2]
RESULTS = "docs/results.md"
_BLOCK = re.compile(r"(<!-- figures: (\w+)[^\n]*-->\n).*?(<!-- end of figures -->)", re.DOTALL)


def made(root: Path = ROOT) -> tuple[dict[str, str], list[str]]:
    """Pages and pictures as the results give them, by their path from the root; and what is wanting, in words."""
    results = Results(root, "../")
    pages = {RESULTS: _rendered(results, "results")}
    templates = {"results"}
    for path in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        name = path.relative_to(root).as_posix()
        text = path.read_text() if name != RESULTS else ""
        if blocks := [found[2] for found in _BLOCK.finditer(text)]:
            here = Results(root, "../" * name.count("/"))
            templates |= set(blocks)
            pages[name] = _BLOCK.sub(partial(_filled, here), text)
    pages |= {path: picture for path, draw in plots.PICTURES.items() if (picture := draw(results)) is not None}
    unused = {path.stem for path in (root / "benchmarks" / "pages").glob("*.md")} - templates
    wanting = [f"benchmarks/pages/{name}.md is of no page: expected <!-- figures: {name} --> in one" for name in unused]
    return pages, [*_without_section(results), *_not_shown(results), *sorted(wanting)]


def wrong(root: Path = ROOT) -> list[str]:
    """What is wrong with the pages, each with what to do."""
    pages, wanting = made(root)
    for name, text in pages.items():
        path = root / name
        before = path.read_text() if path.exists() else ""
        if before != text:
            lines = difflib.unified_diff(before.splitlines(), text.splitlines(), name, "made now", lineterm="", n=0)
            wanting.append(f"{name} is not what benchmarks/results gives: run `make results`\n" + "\n".join(lines))
    return wanting


def _filled(results: Results, block: re.Match[str]) -> str:
    return block[1] + _rendered(results, block[2]) + block[3]


def _rendered(results: Results, name: str) -> str:
    import jinja2  # not with `python -m benchmarks`, which has no need of it

    folder = results.root / "benchmarks" / "pages"
    if not (folder / f"{name}.md").exists():
        raise PageError(f"expected the template benchmarks/pages/{name}.md, there is none")
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    env.globals |= {"number": number} | {call: getattr(results, call) for call in CALLS}
    env.globals |= {table.__name__: partial(table, results) for table in tables.TABLES}
    try:
        return env.get_template(f"{name}.md").render().replace("|  |", "| |")
    except jinja2.TemplateSyntaxError as error:
        raise PageError(f"benchmarks/pages/{error.name}, line {error.lineno}: {error.message}") from error
    except (PageError, KeyError, jinja2.UndefinedError) as error:
        frames = [Path(frame.filename).name + f", line {frame.lineno}" for frame in traceback.extract_tb(
            error.__traceback__) if Path(frame.filename).parent == folder]  # fmt: skip
        said = f"no {error} in the file" if isinstance(error, KeyError) else str(error)
        raise PageError(f"benchmarks/pages/{frames[-1]}: {said}") from error


CALLS = ("stored", "data", "rows", "row", "link", "about", "machine", "command", "figure", "target", "line", "every")


def _without_section(results: Results) -> Iterator[str]:
    for path in sorted(results.folder.glob("*.json")):
        if path.stem not in results.named:
            yield (
                f"benchmarks/results/{path.name} has no section in {RESULTS}: add one to benchmarks/pages/results.md, "
                f"below the heading where it belongs, and run `make results`. The least is\n\n"
                f'### What is measured\n\n{{{{ about("{path.stem}") }}}}\n\n{{{{ every("{path.stem}") }}}}\n'
            )


def _not_shown(results: Results) -> Iterator[str]:
    """A target is never left out; a row that another file lent counts where that file's is shown."""
    values = {(name, value) for _, name, value in results.shown}
    for path in sorted(results.folder.glob("*.json")):
        if path.stem in results.named:
            for row in results.data(path.stem).get("rows", []):
                judged = row.get("target", row.get("bar")) is not None
                if judged and (row["name"], row["value"]) not in values:
                    yield (
                        f"{RESULTS} does not show {row['name']!r} of benchmarks/results/{path.name}, which has a "
                        f"target: add a line to its section in benchmarks/pages/results.md"
                    )


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where the pages are right now; 1 with what is wrong."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.harness.pages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args(arguments)
    try:
        if not given.check:
            for name, text in made()[0].items():
                if not (ROOT / name).exists() or (ROOT / name).read_text() != text:
                    (ROOT / name).write_text(text)
                    print(f"wrote {name}")
        found = wrong()
    except PageError as error:
        found = [str(error)]
    for one in found:
        print(f"results: {one}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
