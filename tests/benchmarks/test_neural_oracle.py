"""The studies of the neural oracle on a few days: what they compare, and what their rows say."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.rides import neural_refit, neural_training, price_head
from shoal.rides.options import RidesOptions


def test_both_trainings_differ_by_their_oracle_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neural_training, "NUM_ENVS", 4)
    monkeypatch.setattr(neural_training, "OWN", neural_training.OWN | {"customers": 30, "background": False})
    said: list[str] = []
    result = neural_training.measured(
        neural_training.parsed(["--epochs", "1", "--days", "2", "--pyvrp", "0"]), said.append
    )
    curves = {name: training["curve"] for name, training in result["trainings"].items()}
    assert [len(curve) for curve in curves.values()] == [1, 1]
    assert "oracle/taken" in curves["neural"][0]
    assert "oracle/taken" not in curves["incremental"][0]
    rows = {row.name: row for row in neural_training.summarise(result)}
    difference = rows["trained over neural less over incremental, net gain a day by the incremental search"]
    gains = [np.mean(result["net_min"][name]["own"]) for name in ("neural", "incremental")]
    assert difference.value == pytest.approx(gains[0] - gains[1], abs=1e-3)
    assert "fell back" in rows["training over neural: CPU time an epoch"].note


def test_a_head_learns_and_is_judged_beside_the_others() -> None:
    said: list[str] = []
    result = price_head.measured(price_head.parsed(["--days", "2", "--test-days", "1", "--passes", "3"]), said.append)
    errors = [float(line.split("pooled prices ")[1].split(",")[0]) for line in said if line.startswith("pass")]
    assert errors[2] < errors[0]
    assert errors[-1] < errors[3]
    rows = {row.name: row for row in price_head.summarise(result)}
    assert (result["states"], result["test_states"]) == (60, 30)
    assert rows[f"{price_head.HEAD}: CPU time over that of 8 futures"].value is not None
    names = {price_head.HEAD, price_head.QUARTER, price_head.TAUGHT, "8 futures", "pooled"}
    assert {one["name"] for one in result["judged"]} >= names


def test_who_knows_the_target_loses_nothing() -> None:
    rng = np.random.default_rng(0)
    target, p_accept = rng.normal(5, 3, (20, 16)), rng.random((20, 16))
    found = price_head.judge("target", target, target, p_accept, RidesOptions(), 1.0, 4)
    assert (found["r2"], found["loss_min"], found["wrong_signs_percent"]) == (1.0, 0.0, 0.0)
    assert all(part == {"r2": 1.0, "wrong_signs_percent": 0.0} for part in found["kinds"].values())
    mirrored = price_head.judge("mirror", -target, target, p_accept, RidesOptions(), 1.0, 4)
    assert mirrored["loss_min"] > 1
    assert mirrored["loss_min"] == pytest.approx(np.mean(mirrored["loss_a_day"]), abs=1e-3)
    assert mirrored["kinds"]["later"]["r2"] < 0


def test_weights_fitted_anew_are_judged_on_the_same_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly fitted at all, they plan like insertion: worse than those that ship, and the rows say so."""
    monkeypatch.setattr(neural_refit, "SIZES", (5, 12))
    monkeypatch.setattr("shoal.rides.fit.imitation.BOOK_DAYS", 32)
    monkeypatch.setattr("shoal.rides.fit.oracle._HELD_OUT_DAYS", 4)
    given = neural_refit.parsed(["--hours", "0.0001", "--days", "12", "--finished", "6"])
    result = neural_refit.measured(given, lambda line: None)
    rows = {row.name: row for row in neural_refit.summarise(result)}
    assert rows["12 requests: gap of weights fitted anew less that of those that ship"].value > 0
    assert rows["5 requests: days finished by weights fitted anew"].value == 100
    assert result["took"]["steps"] > 0
    for part in result["sizes"]:
        assert min(map(min, part["gap_percent"].values())) == 0
