"""`shoal rides oracle report`: every figure is of plans that were judged, and the claims follow from the figures."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from shoal.cli import main
from shoal.rides.options import RidesOptions
from shoal.rides.oracle_report.command import claims
from shoal.rides.oracle_report.gaps import GREEDY, INSERTION, Planned, gaps, planned
from shoal.rides.oracle_report.offers import PATIENCE_S, compared, states, truth
from shoal.rides.routing.neural.network import RoutingNetwork
from shoal.rides.routing.neural.standing import standing
from shoal.rides.routing.neural.weights import save_network
from shoal.rides.routing.problem import NO_CHANGE, OFFER_MIN, Status
from shoal.rides.world.world import make_world


def _run(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "oracle.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_network(RoutingNetwork(), file)
    return file


def test_a_report_from_the_shell(weights, tmp_path, capsys):
    """Tables for people, the same as JSON, in a file, and in the card beside the weights."""
    out = tmp_path / "report.json"
    words = ["rides", "oracle", "report", "--weights", weights, "--requests", 6, 10, "--days", 6, "--states", 3]
    words += ["--pyvrp", 30, "--best-of", 2, "--batches", 1, 3, "--timed", 10, "--threads", 1, 2]
    picture = tmp_path / "report.png"
    assert _run(*words, "--out", out, "--card", "--figure", picture) == 0
    said = capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert json.loads(weights.with_suffix(".json").read_text())["report"] == found
    assert [part["requests"] for part in found["sizes"]] == [6, 10]
    for part in found["sizes"]:
        rows = {row["oracle"]: row for row in part["plans"]}
        assert min(row["gap_percent"] for row in rows.values()) >= 0
        assert rows["incremental, 3,000"]["gap_percent"] <= rows[INSERTION]["gap_percent"]
        assert all((row["broken"], row["finished_percent"]) == (0, 100) for row in rows.values())
        assert rows["neural, best of 2 orders"]["gap_percent"] <= rows[GREEDY]["gap_percent"]
        timed = {(row["days"], row["threads"]) for row in part["speed"]}
        assert timed == ({(1, 1), (3, 1), (1, 2), (3, 2)} if part["requests"] == 10 else set())
        assert all(min(row["cpu_ms"], row["wall_ms"]) > 0 for row in part["speed"])
        offers = {row["oracle"]: row for row in part["offers"]}
        assert all(row["states"] == 3 for row in offers.values())
        assert offers["pooled"]["error_min"] <= offers[GREEDY]["error_min"]
    assert found["sizes"][1]["one_call_for_64"]["ratio"] > 1
    assert "holds  breaks no rule on days of 10 requests" in said
    assert "finds shorter routes than plain insertion at 10 requests" in said
    assert f"report  {out}" in said
    assert f"figure  {picture}" in said
    assert len(np.unique(imread(picture)[..., :3].reshape(-1, 3), axis=0)) > 10  # lines in colours of their own
    assert "wrong signs %" in said


def test_a_plan_that_breaks_a_rule_is_not_finished():
    """The checker decides, not the oracle that made the plan."""
    world = make_world(RidesOptions(customers=4))
    days = np.stack([world.days("held_out", again=True).draw(seed).requests for seed in range(3)])

    def backwards(some):
        return [[[1, 0], [2, 3], [4, 5], [6, 7], []] for _ in some]

    found = planned(world.problem, days, backwards)
    assert (found.broken, found.finished.any()) == (3, False)
    [row] = gaps({"backwards": found})
    assert (row["gap_percent"], row["finished_percent"]) == (None, 0)


def test_gaps_worked_by_hand():
    """The best of all is the measure; a day that an oracle did not finish is not in its gap, and is counted."""
    yes = np.array([True, True])
    rows = gaps({
        "a": Planned(np.array([100, 300]), yes, 0, 1.0),
        "b": Planned(np.array([110, 200]), yes, 0, 1.0),
        "c": Planned(np.array([50, 220]), np.array([False, True]), 1, 1.0),
    })  # fmt: skip
    assert [round(row["gap_percent"], 6) for row in rows] == [25.0, 5.0, 10.0]
    assert [row["finished_percent"] for row in rows] == [100, 100, 50]


def test_prices_worked_by_hand():
    """Offers that truly save more than they cost in patience, prices that say the opposite, and one unpriced offer."""
    true_s = np.full((1, 16), 10_000)
    true_s[0, 0] -= 600
    known = np.zeros((1, 16), np.int8)
    right = compared(true_s, known, true_s, known)
    assert (right["sign_errors_percent"], right["lost_min"], right["error_min"]) == (0, 0, 0)
    assert right["rank_correlation"] == pytest.approx(1)
    assert right["true_savings_percent"] == pytest.approx(100 / 15)
    flat = compared(np.full((1, 16), 9_000), known, true_s, known)  # finds no saving anywhere: does not ask
    assert flat["sign_errors_percent"] == pytest.approx(100 / 15)
    assert flat["lost_min"] == pytest.approx((600 - PATIENCE_S[0]) / 60)
    unknown = known.copy()
    unknown[0, 0] = Status.UNKNOWN
    assert compared(true_s, unknown, true_s, known)["sign_errors_percent"] == pytest.approx(100 / 15)
    unknown[0, NO_CHANGE] = Status.UNKNOWN
    assert compared(true_s, unknown, true_s, known)["states"] == 0


def test_what_serves_narrow_windows_serves_wider_ones():
    world = make_world(RidesOptions(customers=8))
    days = np.stack([world.days("held_out", again=True).draw(seed).requests for seed in range(3)])
    cost_s, status = truth(world.problem, *states(world.problem, days))
    assert (status == Status.OK).all()
    assert (cost_s[:, [NO_CHANGE]] >= cost_s).all()
    assert (cost_s.min(1) == cost_s[:, OFFER_MIN == 60][:, 0]).all()


def _part(size, greedy, insertion, finished=100.0, broken=0):
    row = {"gap_percent": greedy, "finished_percent": finished, "broken": broken}
    return {
        "requests": size,
        "plans": [{"oracle": GREEDY, **row}, {"oracle": INSERTION, **row, "gap_percent": insertion}],
    }


def test_claims_follow_from_figures():
    good = claims([_part(10, 2.0, 5.0), _part(30, 9.0, 11.0)])
    assert all(good.values())
    assert len(good) == 7
    for poor in (_part(30, 12.0, 11.0), _part(30, 2.0, 11.0, finished=90.0), _part(30, 2.0, 11.0, broken=1)):
        assert not all(claims([poor]).values())
    assert not all(claims([_part(20, None, 11.0, finished=0.0)]).values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--days", 1], "expected --days of at least 2, got 1"),
        (["--requests", 46], "expected --requests as numbers of 1 to 45, got 46"),
        (["--threads", 1, 0], "expected --threads as numbers of 1 to 1,024, got 1 0"),
        (["--best-of", 0], "expected --best-of of at least 1, got 0"),
        (["--figure", "r.txt"], "expected --figure as a file that ends in .png, .svg or .pdf, got 'r.txt'"),
        (["--out", "r.txt"], "expected --out as a file that ends in .json, got 'r.txt'"),
        (["--weights", "none.safetensors"], "--oracle-weights none.safetensors: expected a file, there is none"),
    ],
)
def test_mistakes_are_told(words, message, capsys):
    assert _run("rides", "oracle", "report", *words) == 2
    assert message in capsys.readouterr().err


def test_the_training_says_what_the_report_bears_out(weights, tmp_path, capsys):
    """No report, a report of other weights, claims that fail, claims that hold; and a run says it."""
    file = tmp_path / "w.safetensors"
    file.write_bytes(weights.read_bytes())
    card = file.with_suffix(".json")
    assert "nothing is known of the plans of w.safetensors" in standing(file)
    good = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "sizes": [_part(30, 4.0, 11.0)]}
    card.write_text(json.dumps({"report": good | {"claims": claims(good["sizes"])}}))
    assert standing(file) == (
        "--oracle neural: with w.safetensors routes of 30 requests are 4.0 % above the best known; insertion 11.0 %"
    )
    poor = good | {"sizes": [_part(30, 14.0, 11.0)]}
    card.write_text(json.dumps({"report": poor | {"claims": claims(poor["sizes"])}}))
    assert "is experimental with w.safetensors: its report does not show that it finds shorter" in standing(file)
    words = ["train", "rides", "--num-envs", "1", "--epochs", "1", "--oracle", "neural", "--oracle-weights", file]
    words += ["--customers", "3", "--futures", "0", "--start", "none", "--prices", "insertion", "--held-out-days", "0"]
    assert _run(*words, "--runs-dir", tmp_path) == 0
    said = capsys.readouterr()
    assert "--oracle neural is experimental with w.safetensors" in said.out + said.err
    card.write_text(json.dumps({"report": good | {"claims": {}, "sha256": "another"}}))
    assert "nothing is known" in standing(file)
