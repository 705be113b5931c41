"""The branch test: four worlds of a day that differ in one offer alone, and credits of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.rides import credit_arms, credit_branch


def test_days_are_branched_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ten days of a brief training, twice five: nothing is branched twice; a credit of everybody asked generously and
    that of days negotiated again do not depend on the world."""
    own = {"futures": 0, "held_out_days": 0, "start": "none", "iterations": 2}
    monkeypatch.setattr(credit_arms, "EXAMINED", 1)
    arm = credit_arms.Arm(own, "myopic", None, {"episodes": 4, "num_envs": 4})
    for module in (credit_arms, credit_branch):
        monkeypatch.setattr(module, "ARMS", {"scratch": arm})
    monkeypatch.setattr(credit_branch, "BATCH", 5)
    kept: list[int] = []

    def measure(days: int) -> dict[str, np.ndarray]:
        return credit_branch.measure(
            days, "scratch", 1, tmp_path, lambda text: None, lambda found: kept.append(len(found["truth"]))
        )

    first = measure(5)
    monkeypatch.setattr(credit_branch, "_branched", lambda *given: pytest.fail("branched again"))
    again = measure(5)
    assert kept == [5, 5]
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert first["truth"].any()
    assert np.array_equal(first["0 1.0"], first["1 1.0"])
    assert not np.array_equal(first["0 0.0"], first["1 0.0"])
    rows = {row.name: row for row in credit_branch.summarise(first, "policy")}
    apart = rows["rides credit, policy, 0% of later riders asked generously: credit with the change apart from without"]
    assert apart.value == pytest.approx(abs(float((first["0 0.0"] - first["1 0.0"]).mean())))


def test_noise_lowers_the_slope_but_not_that_of_what_two_estimates_have_in_common() -> None:
    """An estimate with as much noise as signal has half the slope; two of them averaged two thirds."""
    rng = np.random.default_rng(0)
    gain = rng.normal(size=20_000)
    first, second = gain + rng.normal(size=(2, gain.size))
    slope = "p: slope of the true gain"
    assert credit_branch._against("p", first, gain, None)[1].value == pytest.approx(0.5, abs=0.02)
    mean = {row.name: row.value for row in credit_branch._against("p", (first + second) / 2, gain, None)}
    assert mean[slope] == pytest.approx(2 / 3, abs=0.02)
    assert credit_branch._in_common("p", first, second, gain).value == pytest.approx(1, abs=0.03)
