"""The page of a comparison: what it says, that it is harmless, and that `shoal report` writes it again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import run

from browser import opened
from hostile import HOSTILE, check_harmless
from shoal import cli
from shoal.comparison.api import read
from shoal.comparison.folder import ComparisonFolder, Job
from shoal.comparison.plan import Arm, Plan
from shoal.config import to_dict
from shoal.tasks.presets import config_for

SEEDS = 10


def folder_of(
    root: Path,
    names: tuple[str, ...] = ("num_envs=4", "num_envs=8"),
    effect: float = 30.0,
    threshold: float | None = None,
) -> Path:
    """A comparison of runs that nobody trained; the second arm is better, its last run crashed."""
    arms = tuple(
        Arm(name, to_dict(config_for("CartPole-v1", num_envs=4 * (place + 1)))) for place, name in enumerate(names)
    )
    plan = Plan(task="CartPole-v1", arms=arms, seeds=SEEDS, seed=0, held_out=100, match="samples", primary="final",
                threshold=threshold, code="c", imports=())  # fmt: skip
    folder = ComparisonFolder.create(plan, str(root), "c", f"shoal compare {HOSTILE}")
    rng = np.random.default_rng(3)
    with folder.run:
        for arm, name in enumerate(names):
            for place in range(SEEDS):
                broken = arm == 1 and place == SEEDS - 1
                more: dict[str, Any] = {"status": "failed", "reason": HOSTILE} if broken else {}
                final = None if broken else rng.normal(60 + arm * effect, 5.0)
                facts = run(name, plan.run_seed(place), final, rng, **more)
                folder.keep(Job(arm, place), plan, facts)
        read(folder)
    return folder.path


def test_the_page_opens_with_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In words, with each arm's score; three axes, an effect for every claim, every run, and what differs."""
    path = folder_of(tmp_path)
    page = (path / "report.html").read_text()
    answer = page[page.index('<p class="answer">') :].partition("</p>")[0]
    assert "final performance (held-out return, IQM): better." in answer
    assert "num_envs=8 against num_envs=4" in answer
    assert page.count("data-chart=") == 3
    assert page.count("class='band") == 6
    for unit in ("environment steps", "gradient steps", "seconds"):
        assert f"mean return by {unit}" in page
    forest = page[page.index("id='effects'") : page.index("id='every-run'")]
    assert forest.count("data-tip=") == 10
    assert page[page.index("id='every-run'") :].count("<circle class='dot'") == 2 * SEEDS - 1
    assert "Each counts as no better than the worst run that did finish." in page
    assert "<td>num_envs</td><td>4</td><td>8</td>" in page
    (path / "report.html").unlink()
    with pytest.raises(SystemExit) as end:
        cli.main(["report", "c", "--runs-dir", str(tmp_path)])
    assert end.value.code == 0
    assert str(path / "report.html") in capsys.readouterr().out
    assert (path / "report.html").read_text() == page


def test_the_page_says_which_arm_reached_the_threshold(tmp_path: Path) -> None:
    """Not reached, or how many of its runs did: the length of the training is never shown as a time that it took."""
    nobody = (folder_of(tmp_path / "nobody", threshold=1e9) / "report.html").read_text()
    assert nobody.count("<td>not reached</td>") == 2 * 3
    some = (folder_of(tmp_path / "some", threshold=70.0) / "report.html").read_text()
    assert re.search(r"<td>&gt; [\d,]+ \(9 of 10\)</td>", some)  # the run that crashed is the tenth


def test_no_name_of_a_comparison_becomes_markup(tmp_path: Path) -> None:
    """Arms, commands and errors are text."""
    path = folder_of(tmp_path, names=(HOSTILE, f"{HOSTILE}2"))
    check_harmless((path / "report.html").read_text())


def test_a_comparison_in_a_browser(tmp_path: Path) -> None:
    """Silent, self-contained, as wide as a phone; an effect says what it is when the keyboard comes to it."""
    path = folder_of(tmp_path, names=(HOSTILE, f"{HOSTILE}2")) / "report.html"
    with opened() as browser:
        for width in (1280, 390):
            browser.open(path, width, dark=width < 600)
            assert browser.faults == []
            assert browser.requests == [path.resolve().as_uri()]
            assert not browser.wider_than_the_screen()
        browser.run("document.querySelector('#effects [data-tip]').focus()")
        assert "final performance" in browser.run("document.querySelector('.tip').textContent")
        browser.key("Escape")
        assert browser.run("document.querySelector('.tip').hidden") is True
