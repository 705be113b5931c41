"""The documentation names code that exists."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from shoal.cli import commands as cli
from shoal.cli import evaluate as cli_evaluate
from shoal.cli import parsing as cli_parsing
from shoal.tasks import load_all

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def defined(path: Path) -> set[str]:
    """Functions, classes and methods of a module: `name`, or `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_functions_named_by_a_page_exist(page: Path) -> None:
    """`learn/gae.py:gae` in a page is a function of src/shoal/learn/gae.py."""
    for path, name in re.findall(r"`([a-z_0-9/]+\.py):([A-Za-z_.]+)`", page.read_text()):
        file = ROOT / "src" / "shoal" / path
        assert file.exists(), f"{page.name} names {path}"
        assert name in defined(file), f"{page.name} names {name} of {path}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Relative links and pictures exist."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


# -- command lines -----------------------------------------------------------------------------------


class Understood(BaseException):
    """Raised in place of the work, once a command line has been parsed: no handler of errors takes it for one."""


def command_lines(page: str) -> list[list[str]]:
    """The words of each `shoal ...` line of fenced blocks, without what the page says beside it."""
    found = []
    for block in re.findall(r"^ *```\w*\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL):
        for line in re.sub(r"\s*\\\n\s*", " ", block).splitlines():
            match = re.match(r" *(?:\$ )?(?:\w+=\S+ )*shoal (\S.*)", line)
            if match:
                command = re.split(r"\s{2,}|\s#\s|\s\|\s|\s&&\s|\s>\s", match[1])[0]
                found.append(shlex.split(command))
    return found


def as_new(words: list[str]) -> list[str]:
    """`train --resume RUN` and `search --resume FOLDER` take the flags of a new one, and their folder is not here."""
    if "--resume" not in words:
        return words
    at = words.index("--resume")
    return [words[0], {"train": "CartPole-v1", "search": "cage2"}[words[0]], *words[1:at], *words[at + 2 :]]


def complaint(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str | None:
    """What shoal says against a command line; None where it would begin to work."""
    # A run that is not here may be of any task, which brings the flags.
    for task in load_all()[0] if words[:1] == ["evaluate"] and words[1:2] != ["rides"] else [None]:
        with monkeypatch.context() as patch:
            if task is not None:
                patch.setattr(cli_evaluate, "task_of", lambda runs, runs_dir, task=task: task)
            try:
                cli.main(as_new(words))
            except Understood:
                return None
            except SystemExit as end:
                said = capsys.readouterr().err
                if not end.code:  # --help, --version
                    return None
    return said


@pytest.fixture
def only_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands go as far as their flags are understood."""

    def only(real: Callable[..., Any]) -> Callable[..., NoReturn]:
        def parsed(*args: Any, **options: Any) -> NoReturn:
            real(*args, **options)
            raise Understood

        return parsed

    for name, module in list(sys.modules.items()):
        for parser in ("parse", "parse_both"):
            real = getattr(cli_parsing, parser)
            if name.startswith("shoal.cli") and getattr(module, parser, None) is real and module is not cli_parsing:
                monkeypatch.setattr(module, parser, only(real))
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.usefixtures("only_parsing")
@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_command_lines_of_a_page_are_understood(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verbs and flags exist; RUN and runs/... need not."""
    wrong = {" ".join(words): complaint(words, monkeypatch, capsys) for words in command_lines(page.read_text())}
    assert not {line: said for line, said in wrong.items() if said is not None}


@pytest.mark.usefixtures("only_parsing")
@pytest.mark.parametrize(
    "line",
    [
        "trian CartPole-v1",
        "train CartPole-v1 --num-environments 8",
        "train --resume RUN --stepz 5",
        "evaluate RUN --day 60",
        "evaluate rides --polices myopic",
        "search cage2 --order 120",
        "cage2 play d1 --pictures e.png",
        "cage2 replay --rule final a.npz",
        "rides offer RUN --rows 12",
        "tune CartPole-v1 --second 1",
        "report RUN --out a.html",
    ],
)
def test_a_wrong_command_line_would_be_found(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In whichever verb it is, and with words beside it."""
    (words,) = command_lines(f"```\nshoal {line}     what it does\n```\n")
    assert complaint(words, monkeypatch, capsys)


def test_the_pages_have_command_lines() -> None:
    """The lines are found."""
    assert sum(len(command_lines(page.read_text())) for page in PAGES) > 25
    words = ["train", "a", "--b", "1", "--c", "2"]
    assert command_lines("```\nX=1 shoal train a --b 1 \\\n  --c 2   # why\n```") == [words]


def test_the_page_on_compiled_environments_is_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its class is that of the example; it compiles, keeps a batch's contract, trains, runs as plain Python."""
    import shoal
    from shoal.testing import check_vector_env

    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "compiled.md").read_text(), flags=re.S)
    ferry, training, slippery, by_hand = blocks
    assert ferry[ferry.index("class Ferry") :].strip() in (ROOT / "examples" / "compiled_env.py").read_text()
    assert "shoal.train(" in training
    page: dict[str, Any] = {"__name__": "page"}
    for block in (ferry, slippery, by_hand):
        exec(block, page)
    assert capsys.readouterr().out.strip()
    check_vector_env(lambda: shoal.make_vec(page["Ferry"], 4))
    result = shoal.train("ferry", env=page["Ferry"], num_envs=16, steps=4_000, runs_dir=str(tmp_path))
    assert result.status == "finished"
