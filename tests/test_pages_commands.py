"""What the two pages that people read first tell them to type is run as they would run it: in order, in one folder,
with fewer steps. Then the Python of the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from shoal import cli
from test_docs import command_lines
from test_pages_run import python_of

ROOT = Path(__file__).parents[1]
SMALL = ["--steps", "2048", "--backend", "serial"]
# What is added to a line, or put in the place of its words, by how it begins.
SHORTER: dict[str, list[str]] = {
    "train --resume": ["--steps", "4096"],
    "train": SMALL,
    "evaluate": ["--episodes", "4"],
    "play": [],
}
INSTEAD = {"--seeds 5": "--seeds 2 --parallel 2 --held-out 2"}
SHORT_CODE = {'"CartPole-v1", seed=1)': '"CartPole-v1", seed=1, steps=2_048, backend="serial")'}
NOT_OURS = ("pip install", "source")  # what a test must not do to the machine that it runs on


def short(words: list[str]) -> list[str]:
    """A line of a page with fewer steps, episodes and seeds.

    >>> short(["train", "CartPole-v1", "--seeds", "5"])[-8:-4]
    ['--parallel', '2', '--held-out', '2']
    """
    line = shlex.join(words)
    for long, instead in INSTEAD.items():
        line = line.replace(long, instead)
    more = next(more for begin, more in SHORTER.items() if line.startswith(begin))
    return [*shlex.split(line), *more]


@pytest.mark.parametrize(("page", "least"), [("../README.md", 2), ("tutorial.md", 7)])
def test_the_commands_and_the_code_of_a_page_run(
    page: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other: the second is of the run that the first made."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / page).read_text()
    lines = command_lines(text)
    if any(words[0] == "play" for words in lines):
        pytest.importorskip("pygame")  # to watch CartPole
    assert len(lines) >= least
    for words in lines:
        with pytest.raises(SystemExit) as ended:
            cli.main(short(words))
        assert not ended.value.code, (words, capsys.readouterr().err)
    code = re.sub(r"steps=[\d_]+", "steps=2_048", python_of(page))
    for long, instead in SHORT_CODE.items():
        code = code.replace(long, instead)
    exec(compile(code, page, "exec"), {"__name__": "page"})


@pytest.mark.parametrize("page", ["../README.md", "tutorial.md"])
def test_the_other_commands_of_a_page_are_there(page: str) -> None:
    """`make TARGET` is a target; anything else that is to be typed is known to this test."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    text = (ROOT / "docs" / page).read_text()
    typed = [
        line.strip()
        for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if re.match(r"(make|pip|source|python|git|cd) ", line.strip())
    ]
    assert typed
    for line in typed:
        if line.startswith("make "):
            assert line.split()[1] in targets, line
        else:
            assert line.startswith(NOT_OURS), line
