"""Verdicts on runs of known figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import arms, run

from shoal.comparison.api import check_poolable
from shoal.comparison.facts import AXES, RunFacts, facts_of
from shoal.comparison.metrics import Frame, time_to
from shoal.comparison.verdicts import INSUFFICIENT, NO_EVIDENCE, judge
from shoal.comparison.words import amount, budgets, data_of, detectable, level, lines_of, measurable, sentence
from shoal.runs.folder import Run


def drawn(rng: np.random.Generator) -> float:
    return float(rng.normal(100.0, 10.0))


def by_name(found: dict[str, list[RunFacts]], threshold: float | None = 80.0, primary: str = "final") -> dict:
    return {one.metric: one for one in judge(found, threshold, primary)}


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_below_five_seeds_there_are_figures_and_no_verdict(seeds: int) -> None:
    found = by_name(arms(seeds, np.random.default_rng(0), drawn, effect=1_000.0))
    assert {one.verdict for one in found.values()} == {INSUFFICIENT}
    assert found["final"].second.value > 1_000
    assert "least for a verdict" in found["final"].note


def test_five_to_nine_seeds_give_a_provisional_verdict() -> None:
    found = by_name(arms(6, np.random.default_rng(0), drawn, effect=1_000.0))
    assert found["final"].verdict == "better"
    assert "provisional" in found["final"].note


def test_what_a_run_of_each_arm_has_had_is_told() -> None:
    """On average over those that finished: whoever reads it sees whether the budgets matched."""
    rng = np.random.default_rng(0)
    found = arms(2, rng, drawn)
    found["b"] = [replace(one, steps=2_500, seconds=4.0) for one in found["b"]]
    found["b"].append(replace(run("b", 9, None, rng), status="failed", steps=10))
    assert budgets(found)[1] == "a run of b: 2,500 steps, 80 gradient steps, 4.0 s"


def test_worse_is_told_from_better_and_less_time_is_better() -> None:
    """A claim's direction is its own: less time to a threshold is better, noise is neither."""
    rng = np.random.default_rng(0)
    found = arms(12, rng, drawn, effect=-50.0)
    found["b"] = [RunFacts(**{**vars(one), "seconds": one.seconds / 4, "noise": 50 * one.noise}) for one in found["b"]]
    verdicts = by_name(found)
    assert verdicts["final"].verdict == "worse"
    assert verdicts["throughput"].verdict == "better"
    assert verdicts["noise"].verdict == "higher"
    assert verdicts["updates"].verdict == NO_EVIDENCE


def test_a_run_that_never_reaches_the_threshold_is_kept_as_censored() -> None:
    """It counts as long as all runs were watched, and the share that did is told."""
    rng = np.random.default_rng(0)
    found = arms(10, rng, drawn)
    slow = found["b"][0]
    slow.curve.returns[:] = [0.0] * 20
    frame = Frame.of([one for group in found.values() for one in group], 80.0)
    assert time_to(slow, "steps", frame) == frame.horizon["steps"] == 2000
    assert judge(found, 80.0)[1].second.runs == 10
    assert any(line.startswith("  within 2,000 steps: a 10 of 10, b 9 of 10") for line in told(found))


def test_nobody_reached_it() -> None:
    found = by_name(arms(10, np.random.default_rng(0), drawn), threshold=1e9)
    assert found["steps"].verdict == INSUFFICIENT
    assert found["steps"].note.startswith("no run reached 1e+09")


def test_the_horizon_is_no_time_to_the_threshold() -> None:
    """An arm that never came there has none; a mean with some such runs is a lower bound: in table, words and JSON."""
    rng = np.random.default_rng(0)
    found = arms(10, rng, drawn)
    for one in found["b"]:
        one.curve.returns[:] = [0.0] * 20
    for one in found["a"][:3]:
        one.curve.returns[:] = [0.0] * 20
    verdicts = by_name(found)
    for axis in AXES:
        one = verdicts[axis]
        assert level(one, "second") == "not reached"
        assert level(one, "first").startswith("> ")
        hits = one.to_json()["reached"][0]
        assert 0 < hits <= 7
        assert level(one, "first").endswith(f" ({hits} of 10)")
        assert (one.to_json()["reached"], one.to_json()["second"]["runs"]) == ((hits, 0), 10)
        assert f"not all runs reached it (a: {hits} of 10, b: none of 10)" in sentence(one)
    assert level(verdicts["final"], "second") != "not reached"
    assert verdicts["final"].to_json()["reached"] is None
    row = next(line for line in told(found) if line.startswith("  steps to the threshold  "))
    assert "not reached" in row
    assert "2,000" not in row.partition("not reached")[0].replace("> 2,000", "")


def test_where_nobody_reached_it_the_table_shows_no_time() -> None:
    found = by_name(arms(2, np.random.default_rng(0), drawn), threshold=1e9)
    assert {level(found[axis], which) for axis in AXES for which in ("first", "second")} == {"not reached"}
    assert {amount(found[axis]) for axis in AXES} == {"-"}


def test_runs_that_differ_by_rounding_alone_say_nothing_of_what_could_be_seen() -> None:
    """Two runs each with the same return in an arm: no "0.00000000" as the smallest difference to be seen."""
    rng = np.random.default_rng(0)
    found = {name: [run(name, seed, end, rng) for seed in range(2)] for name, end in (("a", 100.1), ("b", 90.3))}
    one = by_name(found)["final"]
    assert one.effect.detectable < 1e-9
    assert detectable(one) == "-"
    assert not measurable(one)


def test_a_crashed_run_is_listed_and_counts_as_no_better_than_the_worst() -> None:
    rng = np.random.default_rng(0)
    found = arms(10, rng, drawn, effect=1.0)
    found["b"][3] = run("b", 3, None, rng, status="failed", reason="NaN in the weights")
    verdicts = by_name(found)
    assert verdicts["final"].second.runs == 10
    assert verdicts["throughput"].second.runs == 9
    assert "not finished: b-3 (b, seed 3) failed: NaN in the weights" in told(found)


def test_seconds_of_two_machines_are_not_compared() -> None:
    rng = np.random.default_rng(0)
    found = arms(10, rng, drawn)
    found["b"] = [run("b", seed, drawn(rng), rng, machine="another") for seed in range(10)]
    verdicts = by_name(found)
    told = "the runs were made on different machines or cores: another; m"
    assert {verdicts[name].note for name in ("seconds", "throughput")} == {told}
    assert verdicts["steps"].verdict == NO_EVIDENCE


def test_the_declared_claim_is_not_corrected_for_the_others() -> None:
    """Whichever it is; one that is none is refused."""
    found = arms(12, np.random.default_rng(0), drawn, effect=12.0)
    first, other = by_name(found), by_name(found, primary="noise")
    assert first["final"].p == pytest.approx(first["final"].effect.p)
    assert other["final"].p > other["final"].effect.p
    with pytest.raises(ValueError, match="expected the primary metric as one of final, steps"):
        judge(found, primary="luck")


def test_no_evidence_says_what_could_have_been_seen() -> None:
    found = arms(10, np.random.default_rng(0), drawn)
    line = next(line for line in told(found) if line.startswith("* final performance") and ": " in line)
    assert "no evidence of a difference" in line
    assert "would have been found in 80 % of such comparisons" in line


def test_runs_that_are_all_alike_are_no_evidence_of_anything() -> None:
    """At a ceiling every run has the same value: nothing is said of an effect that could have been seen."""
    rng = np.random.default_rng(0)
    found = {name: [run(name, seed, 500.0, rng) for seed in range(10)] for name in ("a", "b")}
    line = next(line for line in told(found) if line.startswith("* final performance") and ": " in line)
    assert "no evidence of a difference" in line
    assert "the same value" in line
    assert "80 %" not in line


def test_a_gap_is_neither_good_nor_bad() -> None:
    """Training returns lag behind: a gap below 0 is no better generalisation."""
    rng = np.random.default_rng(0)
    found = arms(12, rng, drawn)
    found["b"] = [RunFacts(**{**vars(one), "sampled": one.sampled + 500.0}) for one in found["b"]]
    assert by_name(found)["gap"].verdict == "lower"


def kept(folder: Path, name: str, riders: Path) -> RunFacts:
    config = {"task": "t", "env_kwargs": json.dumps({"riders": str(riders)}), "vector": {"num_envs": 8}}
    with Run.create(folder, name, {**config, "ppo": {}, "run": {"seed": 0}}, "shoal train t", "t") as made:
        return facts_of(made, "a", 0)


def test_runs_of_other_data_are_not_pooled(tmp_path: Path) -> None:
    """The same options, the same file name, and other riders in it: another experiment."""
    riders = tmp_path / "riders.csv"
    riders.write_text("one")
    first, again = (kept(tmp_path / "runs", name, riders) for name in ("first", "again"))
    riders.write_text("two")
    other = kept(tmp_path / "runs", "other", riders)
    assert first.settings == again.settings != other.settings
    with pytest.raises(ValueError, match="never pooled"):
        check_poolable({"a": [first, other]})


def told(found: dict[str, list[RunFacts]]) -> list[str]:
    frame = Frame.of([one for group in found.values() for one in group], 80.0)
    verdicts = judge(found, 80.0)
    assert data_of("T", found, verdicts, frame, "final")["verdicts"][0]["primary"]
    return lines_of("T", found, verdicts, frame, "final")
