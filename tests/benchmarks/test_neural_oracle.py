"""The studies of the neural oracle on a few days: what they compare, and what their rows say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.harness import tables
from benchmarks.rides import neural_oracle, neural_refit, neural_training, price_head
from shoal.rides.options import RidesOptions


def test_the_benchmark_times_all_sizes_and_judges_64_states() -> None:
    """1 to 4,096 days of 5 to 45 requests, on one thread and on two."""
    given = neural_oracle.parsed([])
    assert tuple(given.requests) == (5, 10, 20, 30, 45)
    assert tuple(given.batches) == (1, 64, 256, 1024, 4096)
    assert neural_oracle.THREADS == (1, 2)
    assert given.states == 64


def timed_part(size: int) -> dict[str, Any]:
    """A size of the report: 1 and 256 days, on one thread and on two."""
    plan = {"gap_percent": 2.0, "gap_p95_percent": 4.0, "standard_error": 0.1, "finished_percent": 100.0, "broken": 0}
    names = ("insertion", "neural, greedy", "neural, best of 8 orders", "neural, best of 8 samples")
    price = {"rank_correlation": 0.9, "sign_errors_percent": 5.0, "lost_min": 0.1, "cpu_ms_a_state": 1.0, "states": 64}
    return {
        "requests": size,
        "plans": [{"oracle": name, **plan} for name in names],
        "offers": [{"oracle": "pooled", **price}],
        "speed": [
            {"oracle": name, "days": days, "threads": threads, "cpu_ms": size * days * 0.5, "wall_ms": size * days / 4}
            for name in names[:2] for threads in (1, 2) for days in (1, 256)
        ],
        "one_call_for_64": {"together_cpu_ms": 1.0, "singly_cpu_ms": 44.0, "ratio": 44.0},
    }  # fmt: skip


def test_the_target_of_a_call_is_wall_time_on_two_threads() -> None:
    """CPU time stands beside it, for every size; offers have a row for every size too."""
    report = {"days": 20, "threads": [1, 2], "sizes": [timed_part(5), timed_part(30)]}
    result = {"report": report, "finished": {"5": [4, 4], "30": [4, 3]}}
    rows = {row.name: row for row in neural_oracle.summarise(result)}
    call = rows["neural, greedy: wall time of 256 days of 30 requests in one call, 2 threads"]
    assert (call.target, call.value) == (250, 1920)
    assert [name for name, row in rows.items() if row.target == 250] == [call.name]
    for size in (5, 30):
        for days in (1, 256):
            assert rows[f"neural, greedy: CPU time of {days} days of {size} requests in one call"].value > 0
        assert "64 states" in rows[f"16 offers by pooled, {size} requests: rank correlation"].note
    assert rows["64 days in 64 calls: CPU time over that of one call"].target == 40

    class Stored:
        def data(self, name: str) -> dict[str, object]:
            return result

    table = tables.decoding_times(Stored()).splitlines()  # type: ignore[arg-type]
    assert table[2] == "| requests a day | 1 day | 256 days |"
    assert table[5] == "| 30 | 15 ms (8 ms) | 3,840 ms (1,920 ms) |"
    times = tables.routing_times(Stored()).splitlines()  # type: ignore[arg-type]
    assert "| neural, greedy | 15 ms | 3,840 ms |" in times


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
