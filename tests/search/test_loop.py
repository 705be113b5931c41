"""Ask, pull, tell: the same pulls follow whatever the processes do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_domain import BEST, Toy, config, essence, pulls

from shoal.runs.folder import Run
from shoal.runs.lock import Lock
from shoal.search.bandit.orders import kendall
from shoal.search.domain import Domain, domain_class
from shoal.search.gridworld import Gridworld
from shoal.search.loop import search


@pytest.fixture
def page() -> None:
    """Asked for by tests that look at the page."""


@pytest.fixture(autouse=True)
def no_page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take longer than all pulls of a toy together: only tests that look at them draw them."""
    if "page" not in request.fixturenames:
        monkeypatch.setattr("shoal.search.sections.write_page", lambda folder, *rest: folder.path / "report.html")


@pytest.mark.usefixtures("page")
def test_search_finds_the_best_order_and_reports_it(tmp_path: Path) -> None:
    """Ten pulls of 24 find the hidden order; the summary names it with its interval."""
    found = search(config(tmp_path))
    best = found.summary.best
    assert best is not None
    assert best["item"] == BEST
    assert best["low"] < 0.2 < best["high"] + 0.5
    assert found.summary.pulls == 10
    assert Path(found.report).exists()
    assert Run(tmp_path / "s").status == "finished"


def test_pulls_are_of_distinct_orders_with_distinct_seeds(tmp_path: Path) -> None:
    """Twenty workflows are twenty orders; no two trainings share their random numbers."""
    search(config(tmp_path, workflows=20))
    found = pulls(tmp_path)
    assert len({record.request.item for record in found}) == 20
    assert len({record.request.seed for record in found}) == 20


def test_a_pull_starts_from_the_nearest_order_trained(tmp_path: Path) -> None:
    """The first from the base; a later one from the nearest that passed, of equally near ones from the best."""
    search(config(tmp_path), {"fail_every": 5})
    found = pulls(tmp_path)
    points = Toy(config(tmp_path)).points
    assert found[0].request.start == "base"
    for number, record in enumerate(found[1:], start=1):
        passed = [other for other in found[:number] if other.pull.passed]
        if not passed:
            assert record.request.start == "base"
            continue
        distances = kendall(points[[record.request.item]], points[[other.request.item for other in passed]])[0]
        near = [other for other, far in zip(passed, distances, strict=True) if far == distances.min()]
        assert record.request.start == max(near, key=lambda other: other.pull.mean).pull.weights


@pytest.mark.parametrize(("start", "history"), [("base", "base"), ("scratch", "")])
def test_other_starts(tmp_path: Path, start: str, history: str) -> None:
    """Every pull from the base, or from nothing."""
    search(config(tmp_path, start=start, workflows=4))
    assert {record.pull.details["history"] for record in pulls(tmp_path)} == {history}


def test_failed_pulls_are_recorded_and_told(tmp_path: Path) -> None:
    """They stay in the folder with their scores, none is recommended, and the search goes on elsewhere."""
    found = search(config(tmp_path), {"fail_every": 2})
    records = pulls(tmp_path)
    failed = [record for record in records if not record.pull.passed]
    assert failed
    assert all(record.request.item % 2 == 0 for record in failed)
    assert found.summary.passed == 10 - len(failed)
    assert found.summary.best is not None
    assert found.summary.best["item"] % 2 == 1


@pytest.mark.usefixtures("page")
def test_when_nothing_passes_nothing_is_recommended(tmp_path: Path) -> None:
    """And the page says so."""
    found = search(config(tmp_path, workflows=5), {"fail_every": 1})
    assert found.summary.best is None
    assert "No pull passed the gate" in Path(found.report).read_text()


def test_parallel_pulls_do_not_depend_on_who_finishes_first(tmp_path: Path) -> None:
    """Three at a time, twice, on a busy machine: the same pulls; pull k knows of pulls up to k - 3 alone."""
    search(config(tmp_path / "a", workflows=7, parallel=3))
    search(config(tmp_path / "b", workflows=7, parallel=3), {"pull_s": 0.2})
    one, other = pulls(tmp_path / "a"), pulls(tmp_path / "b")
    assert essence(one) == essence(other)
    for record in one:
        if record.request.start != "base":
            started_from = int(str(record.request.start).split("/")[1].split("-")[0])
            assert started_from <= record.request.number - 3


def test_a_pull_that_raises_stops_the_search_and_resuming_tries_again(tmp_path: Path) -> None:
    """Its finished pulls are kept; the message names the pull and carries its traceback."""
    third = _third_item(tmp_path / "probe", parallel=1)
    with pytest.raises(ArithmeticError, match="is broken"):
        search(config(tmp_path), {"broken": third})
    assert Run(tmp_path / "s").status == "failed"
    assert len(pulls(tmp_path)) == 2
    _repair(tmp_path / "s")
    search(resume=tmp_path / "s")
    assert len(pulls(tmp_path)) == 10


def test_a_worker_that_raises_is_quoted(tmp_path: Path) -> None:
    """In a process of its own too."""
    third = _third_item(tmp_path / "probe", parallel=2)
    with pytest.raises(RuntimeError, match=r"(?s)pull 3 .*ArithmeticError: item \d+ is broken"):
        search(config(tmp_path, parallel=2), {"broken": third})


def _third_item(folder: Path, parallel: int) -> int:
    search(config(folder, workflows=3, parallel=parallel))
    return pulls(folder)[2].request.item


def _repair(folder: Path) -> None:
    stored = json.loads((folder / "config.json").read_text())
    stored["options"]["broken"] = -1
    (folder / "config.json").write_text(json.dumps(stored))


def test_more_pulls_continue_a_finished_search(tmp_path: Path) -> None:
    """Six pulls and then four more are the ten of a search that was never stopped."""
    search(config(tmp_path / "a"))
    search(config(tmp_path / "b", workflows=6))
    search(config(tmp_path / "b"), resume=tmp_path / "b" / "s")
    assert essence(pulls(tmp_path / "a")) == essence(pulls(tmp_path / "b"))


@pytest.mark.parametrize("changes", [{"seed": 4}, {"strategy": "random"}, {"num_envs": 26}, {"parallel": 2}])
def test_resuming_with_other_settings_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Other pulls would follow."""
    search(config(tmp_path, workflows=2))
    with pytest.raises(ValueError, match="start a new search"):
        search(config(tmp_path, workflows=2, **changes), resume=tmp_path / "s")


def test_a_folder_changed_by_hand_is_refused(tmp_path: Path) -> None:
    """A stored pull that the search would not have asked for stops it."""
    search(config(tmp_path, workflows=3))
    file = next(tmp_path.glob("s/pulls/001-*/pull.json"))
    stored = json.loads(file.read_text())
    stored["request"]["seed"] += 1
    file.write_text(json.dumps(stored))
    with pytest.raises(ValueError, match="changed by hand"):
        search(resume=tmp_path / "s")


def test_only_one_process_writes_to_a_search(tmp_path: Path) -> None:
    """A second search on the same folder is refused, naming the first."""
    search(config(tmp_path, workflows=2))
    lock = Lock(tmp_path / "s" / "lock")
    lock.acquire()
    try:
        with pytest.raises(RuntimeError, match=f"process {os.getpid()}"):
            search(resume=tmp_path / "s")
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"workflows": 0}, "--workflows as a whole number of at least 1"),
        ({"compliance_threshold": 1.5}, "--compliance-threshold as a finite number at least 0 and at most 1"),
        ({"strategy": "greedy"}, "ucb | random | halving"),
        ({"domain": "chess"}, "cage2, gridworld"),
        ({"options": {"speed": 3}}, "has no option 'speed'; it has pull_s"),
    ],
)
def test_wrong_settings_are_named_before_a_folder_is_made(tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    """And nothing is left behind."""
    options = changes.pop("options", {})
    with pytest.raises(ValueError) as caught:
        search(config(tmp_path, **changes), options)
    assert what in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("strategy", ["random", "halving"])
def test_other_strategies_search_too(tmp_path: Path, strategy: str) -> None:
    """Behind the same interface; a page is written for each."""
    found = search(config(tmp_path, strategy=strategy, universal=True))
    assert found.summary.pulls == 10
    assert found.summary.regret is not None
    assert found.summary.regret["of"] == 24


def test_pull_seeds_do_not_collide() -> None:
    """Two searches of neighbouring seeds share no pull seed."""
    from shoal.core.seeds import derived_seed

    seeds = [derived_seed(seed, number) for seed in range(50) for number in range(50)]
    assert len(set(seeds)) == len(seeds)
    assert np.max(seeds) < 2**31


def test_what_a_domain_does_not_say_has_a_default(tmp_path: Path) -> None:
    """A class derived from Domain need only pull; what else it says is told by the class."""
    domain = Toy(config(tmp_path))
    assert (domain.judged, domain.played, domain.look, domain.immaterial) == ("decisions", "", "", ())
    assert dict(domain.DEFAULTS) == {}
    assert Domain.prepare(domain, tmp_path, print) is None
    assert Domain.ranking(domain, tmp_path, print) is None
    assert not domain.scores_again
    with pytest.raises(NotImplementedError, match="Toy does not score a policy again"):
        domain.score_again(0, tmp_path, 0)
    assert Gridworld(config(tmp_path)).scores_again


def test_a_domain_is_one_by_inheritance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class with methods of the same names is none, nor is one without options of its own."""

    class Alike:
        Options, pull, episode = Toy.Options, Toy.pull, Toy.episode

    class Without(Toy):
        Options = object

    monkeypatch.setattr("toy_domain.Alike", Alike, raising=False)
    monkeypatch.setattr("toy_domain.Without", Without, raising=False)
    for name, said in (("Alike", "which is not"), ("Without", "which has no such Options"), ("Nope", "has no Nope")):
        with pytest.raises(ValueError, match=rf"expected toy_domain:{name} as a domain, a class derived .*{said}"):
            domain_class(f"toy_domain:{name}")
