"""Baselines: against the real CybORG's distribution, and the decoy-first heuristic's score."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shoal.cage2.defenders.play import DEFENDERS, Defender, play
from shoal.cage2.leaderboard import rollout, summarise
from shoal.cage2.simulator.env import make_vec
from shoal.cage2.simulator.red_agents import REDS

RED_OF = {"B_line": "bline", "Meander": "meander", "Sleep": "sleep"}
DEFENDER_OF = {"random": "random", "sleep": "sleep", "heuristic": "noisy", "D1": "d1", "D2": "d2"}


def test_totals_have_the_real_distribution(data: Path) -> None:
    """15 rows x 3 horizons against the real CybORG, 2,000 episodes a row; exact where there is no spread."""
    reference = json.loads((data / "distribution_refs_real.json").read_text())
    assert len(reference) == 15
    for row, real in reference.items():
        red, defender = row.split("|")
        totals = play(DEFENDER_OF[defender], RED_OF[red], episodes=2000, seed=1)
        for column, horizon in enumerate(("30", "50", "100")):
            ours, theirs = totals[:, column], real[horizon]
            if theirs["std"] == 0:
                assert (ours == theirs["mean"]).all(), row
                continue
            error = np.hypot(ours.std(ddof=1) / np.sqrt(len(ours)), theirs["se"])
            assert abs(ours.mean() - theirs["mean"]) < 3.5 * error, f"{row} at {horizon}"


def test_decoy_first_scores_at_least_minus_52() -> None:
    """The nine-cell sum over 4,000 episodes a cell; no episode is a disaster."""
    returns = {red: play("decoy-first", red, episodes=4000, seed=11) for red in REDS}
    score = summarise(returns)
    assert score["sum"]["mean"] > -52
    assert min(cell["worst"] for cell in score["cells"]) > -60
    assert (returns["sleep"] == 0).all()


def test_the_final_rules_give_the_final_scores() -> None:
    """What the challenge published of sleeping and of random Blue, 1,000 episodes a cell, and decoy-first in the real
    CybORG of those rules, 300 episodes: within the errors of both."""
    for name, real, error in (("random", -2015.61, 30.93 / 1.96), ("sleep", -3112.2, 6.67 / 1.96),
                              ("decoy-first", -50.49, 0.95 / 1.96)):  # fmt: skip
        found = summarise({red: play(name, red, 2000, seed=5, rules="final") for red in REDS})["sum"]
        assert abs(found["mean"] - real) < 3.5 * np.hypot(found["se"], error), name


@pytest.mark.parametrize("red", ["bline", "meander"])
def test_a_vector_environment_plays_by_the_final_rules_too(red: str) -> None:
    """A Blue that restores at random fares otherwise under each of the two, in kernel and environment alike."""
    present, final = (play("random", red, 4000, seed=3, rules=rules)[:, 2] for rules in ("present", "final"))
    outside = rollout("random", red, 2000, rules="final")[:, 2]
    error = np.hypot(final.std() / np.sqrt(4000), outside.std() / np.sqrt(2000))
    assert abs(final.mean() - outside.mean()) < 4 * error
    assert not np.array_equal(present, final)
    with pytest.raises(ValueError, match="rules: expected present or final"):
        make_vec(1, rules="older")


@pytest.mark.parametrize("name", ["d2", "decoy-first"])
def test_a_defender_beside_an_environment_plays_as_in_the_kernel(name: str) -> None:
    """Means of the two ways to play agree within their errors (they draw different episodes)."""
    inside = play(name, "meander", episodes=2000, seed=2)[:, 2]
    defender = Defender(name, 500)
    outside = rollout(defender.act, "meander", 500, features="plain", mask="none", num_envs=500)[:, 2]
    error = np.hypot(inside.std() / np.sqrt(2000), outside.std() / np.sqrt(500))
    assert abs(inside.mean() - outside.mean()) < 4 * error


def test_episode_i_depends_on_seed_and_i_alone() -> None:
    """Ten episodes are the first ten of thirty, and another seed gives others."""
    few, many = play("noisy", "bline", 10, seed=4), play("noisy", "bline", 30, seed=4)
    np.testing.assert_array_equal(few, many[:10])
    assert not np.array_equal(few, play("noisy", "bline", 10, seed=5))


def test_shorter_horizons_are_prefixes() -> None:
    """The 30-step returns do not depend on what else is asked."""
    both = play("d1", "bline", 20, horizons=(30, 100))
    np.testing.assert_array_equal(both[:, 0], play("d1", "bline", 20, horizons=(30,))[:, 0])


def test_a_defender_sees_observations_only() -> None:
    """The same bits give the same actions, whatever lies behind them."""
    envs = make_vec(4, red="bline", features="plain", mask="none")
    obs, _ = envs.reset(seed=0)
    one, two = Defender("decoy-first", 4), Defender("decoy-first", 4)
    begun = np.ones(4, bool)
    for _ in range(50):
        actions = one.act(obs, begun)
        np.testing.assert_array_equal(actions, two.act(obs.astype(np.float32), begun))
        obs, *_ = envs.step(actions)
        begun = np.zeros(4, bool)


def test_bad_names_are_listed() -> None:
    """Unknown defenders and reds, and empty requests, are errors that say what may be asked."""
    with pytest.raises(ValueError, match="defender: expected one of sleep, random"):
        play("hero", "bline", 1)
    with pytest.raises(ValueError, match="red: expected one of bline"):
        play("sleep", "mixed", 1)
    with pytest.raises(ValueError, match="episodes: expected at least 1"):
        play("sleep", "bline", 0)
    with pytest.raises(ValueError, match="horizons: expected ascending"):
        play("sleep", "bline", 1, horizons=(50, 30))
    assert len(DEFENDERS) == 7


def test_summary_of_known_numbers() -> None:
    """Means, intervals and tails of a hand-made set; a missing red is named."""
    returns = {red: np.array([[-1.0, -2.0, -3.0], [-3.0, -4.0, -5.0]]) for red in REDS}
    score = summarise(returns)
    assert score["sum"]["mean"] == pytest.approx(3 * (-2 - 3 - 4))
    assert score["cells"][0]["worst"] == -3.0
    assert "26ce1c1" in score["rules"]
    with pytest.raises(ValueError, match="missing sleep"):
        summarise({"bline": returns["bline"], "meander": returns["meander"]})


def test_a_defender_whose_action_was_not_taken():
    """It remembers the one that was: who slept instead has its first decoy still to deploy."""
    bits, begun = np.zeros((1, 52), np.uint8), np.array([True])
    told, untold = Defender("decoy-first", 1), Defender("decoy-first", 1)
    first = int(told.act(bits, begun)[0])
    assert untold.act(bits, begun)[0] == first
    told.took(np.array([0]))
    begun = np.array([False])
    assert told.act(bits, begun)[0] == first
    assert untold.act(bits, begun)[0] != first
