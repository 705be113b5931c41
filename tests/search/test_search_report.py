"""The page of a search: self-contained, escaped, and honest about what it does not know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_domain import BEST, Toy, config

from browser import check_page, opened
from hostile import HOSTILE, check_harmless, spoiled
from shoal.search.domain import Pull, Ranking
from shoal.search.folder import Record, Request
from shoal.search.loop import search
from shoal.search.sections import own_regret, write_again
from shoal.search.summary import best_of, difference_of, posterior_of, summarise, verdict


def records(values: dict[int, list[float]], se: float = 0.1, failed: tuple[int, ...] = ()) -> list[Record]:
    """Pulls with given scores."""
    found = []
    for item, scores in values.items():
        for score in scores:
            request = Request(len(found), item, f"item {item}", 0, None)
            found.append(Record(request, Pull(score, se, item not in failed), 1.0, 1.0))
    return found


def test_the_page_stands_alone(tmp_path: Path) -> None:
    """Everything that the issue asks for is on it, nothing is loaded from elsewhere, names are escaped."""
    found = search(config(tmp_path, universal=True), {"fail_every": 5})
    page = Path(found.report).read_text()
    for part in (
        "posterior mean",
        "next pick of GP-UCB",
        "random search",
        "successive halving",
        "Compliance",
        "An episode",
    ):
        assert part in page
    assert "&lt;cdab&gt;" in page or "&lt;" in page
    assert "<cdab>" not in page
    assert not re.search(r"(src|href)=[\"']?https?:", page)
    check_harmless(page)
    assert page.count("data-chart=") == 3
    assert found.summary.regret is not None
    assert found.summary.regret["place"] == 1


def test_shoal_report_writes_the_page_of_a_search(tmp_path: Path) -> None:
    """`shoal report FOLDER` takes a search as well as a run."""
    from shoal.cli import main

    found = search(config(tmp_path, workflows=3))
    page = Path(found.report)
    before = page.read_text()
    page.unlink()
    with pytest.raises(SystemExit) as end:
        main(["report", str(page.parent)])
    assert not end.value.code
    assert page.read_text() == before


def test_no_value_of_a_search_becomes_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value of a pull, one at a time: the page is harmless, or refused."""
    import json

    found = search(config(tmp_path, workflows=3))
    folder = Path(found.report).parent
    check_harmless(Path(found.report).read_text())
    monkeypatch.setattr("shoal.search.sections.svg_of", lambda figure: "<svg ></svg>")  # a second each
    pull = sorted(folder.glob("pulls/*/pull.json"))[0]
    written = 0
    for bad in spoiled(json.loads(pull.read_text())):
        pull.write_text(json.dumps(bad))
        try:
            page = write_again(folder).read_text()
        except (ValueError, TypeError, KeyError, AttributeError, OSError):
            continue
        written += 1
        check_harmless(page)
    assert written > 3


def test_a_search_in_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent, self-contained, as wide as a phone; where every name in it is an attack, these are read as text."""
    folder = Path(search(config(tmp_path, workflows=3)).report).parent
    made = Toy.__init__

    def hostile(self: Toy, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        self.names = [f"{HOSTILE}{name}" for name in self.names]
        self.things, self.key = [f"{HOSTILE}{thing}" for thing in self.things], HOSTILE

    monkeypatch.setattr(Toy, "__init__", hostile)
    (folder / "command.txt").write_text(f"shoal search {HOSTILE}")
    with opened() as browser:
        check_page(browser, write_again(folder))
        assert browser.run("document.body.textContent").count(HOSTILE) > 3
        assert browser.run("document.querySelectorAll('script').length") == 1
        assert browser.run("document.querySelectorAll('svg[data-chart]').length") > 1


def test_the_kernel_stands_under_settings(tmp_path: Path) -> None:
    """What a reader of the answer does not need is folded away."""
    found = search(config(tmp_path, workflows=3))
    page = Path(found.report).read_text()
    assert page.index("id='settings'") < page.index("kernel of the model")
    assert "kernel" not in page[page.index('class="answer"') : page.index("<nav")]


def test_without_a_table_no_regret_is_claimed(tmp_path: Path) -> None:
    """The page says what would give one."""
    found = search(config(tmp_path, workflows=3))
    page = Path(found.report).read_text()
    assert "No regret is shown" in page
    assert "successive halving" not in page


def test_own_regret_by_hand() -> None:
    """Worth 0, 5 and 3; pulled in the order 0, 2, 1: regrets 5, 2, 0."""
    told = records({0: [0.1], 2: [2.9], 1: [5.2]})
    assert own_regret(told, np.array([0.0, 5.0, 3.0])) == [5.0, 2.0, 0.0]


def test_alike_orders_are_called_alike() -> None:
    """Scores that differ by noise alone: the sentence says that any order will do."""
    rng = np.random.default_rng(0)
    alike = difference_of(records({item: [float(rng.normal(0, 0.1))] for item in range(15)}))
    assert "are alike" in verdict(alike)
    assert "Any of them will do" in verdict(alike)
    unlike = difference_of(records({item: [float(item)] for item in range(15)}))
    assert "differ by more than the noise of evaluation" in verdict(unlike)
    assert "Too few" in verdict(difference_of(records({0: [1.0]})))


def test_repetitions_tell_training_noise_from_differences() -> None:
    """Spread that trainings of one order show as well is no difference between orders, however small their errors."""
    rng = np.random.default_rng(3)
    noisy = {item: rng.normal(0, 1.0, 2).tolist() for item in range(10)}
    found = difference_of(records(noisy, se=0.01))
    assert found is not None
    assert found.test == "one-way analysis of variance"
    assert found.alike


def test_the_best_is_of_those_that_passed(tmp_path: Path) -> None:
    """By posterior mean; a higher score that failed its gate is not recommended."""
    domain = Toy(config(tmp_path))
    told = records({0: [9.0], BEST: [5.0], 3: [1.0]}, failed=(0,))
    best = best_of(told, posterior_of(domain, told))
    assert best is not None
    assert best.request.item == BEST
    summary = summarise(domain, config(tmp_path), told, Ranking("truth", domain.values.tolist(), [0.1] * 24))
    assert summary.passed == 2
    assert summary.regret is not None
    assert summary.regret["simple_regret"] == 0.0


def test_a_page_can_be_written_again(tmp_path: Path) -> None:
    """From the folder alone, to the same text."""
    found = search(config(tmp_path, workflows=4))
    before = Path(found.report).read_text()
    assert str(write_again("s", runs_dir=tmp_path)) == found.report
    assert _without_ids(Path(found.report).read_text()) == _without_ids(before)


def _without_ids(page: str) -> str:
    """matplotlib names clip paths at random."""
    return re.sub(r"(id=\"|#)[a-zA-Z]?[0-9a-f]{10,}", "", page)
