"""Strategies replayed over a table of trainings."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.search.bandit.orders import all_ranks, kendall
from shoal.search.replay import Table, Training, contest, replay

POINTS = all_ranks(4)
VALUES = -kendall(POINTS, POINTS[[9]])[:, 0]


def test_regret_by_hand() -> None:
    """Two items worth 1 and 5, random search: regret 4 until the better has been pulled, then 0."""
    table = Table.of_values([1.0, 5.0], [0.0, 0.0])
    curve = replay("random", np.array([[0, 1], [1, 0]]), table, 4, seed=0)
    assert set(curve.tolist()) <= {0.0, 4.0}
    assert curve[1:].tolist() == [0.0, 0.0, 0.0]


def test_an_item_is_judged_by_trainings_that_were_not_pulled() -> None:
    """Of four trainings two are pulled and two judge; no training does both, and every one is in one half."""
    table = Table([[Training(10.0 * item + i, 1.0) for i in range(4)] for item in range(3)])
    pulls, values = table.split(seed=5)
    for item in range(3):
        pulled = {training.mean for training in pulls[item]}
        judging = {10.0 * item + i for i in range(4)} - pulled
        assert len(pulled) == 2
        assert values[item] == np.mean(list(judging))


def test_items_of_one_kind_share_their_trainings() -> None:
    """No training judges one item and is pulled for another of the same kind."""
    table = Table([[Training(10.0 * kind + i, 1.0) for i in range(4)] for kind in range(2)], kinds=[0, 1, 0, 1, 1])
    pulls, values = table.split(seed=2)
    assert values[0] == values[2]
    assert values[1] == values[3] == values[4]
    assert values[0] == (0 + 1 + 2 + 3 - sum(training.mean for training in pulls[0])) / 2
    assert replay("random", np.eye(5), table, 5, 0).shape == (5,)


def test_halves_differ_between_seeds_and_are_shared_by_strategies() -> None:
    """A seed decides the split, whatever the strategy."""
    table = Table([[Training(float(i), 1.0) for i in range(6)] for _ in range(4)])
    assert any((table.split(0)[1] != table.split(seed)[1]).any() for seed in range(1, 5))
    assert (table.split(3)[1] == table.split(3)[1]).all()


def test_items_that_failed_are_not_in_the_lead() -> None:
    """The best score failed its gate: the lead stays with the worse one that passed."""
    table = Table([[Training(9.0, 0.1, False)], [Training(1.0, 0.1)]])
    curve = replay("random", np.array([[0, 1], [1, 0]]), table, 2, seed=1)
    assert curve[-1] == 8.0


def test_ucb_regrets_less_than_random_search_on_a_smooth_table() -> None:
    """Noisy trainings of 24 orders, 10 searches of 12 pulls."""
    rng = np.random.default_rng(0)
    table = Table([[Training(value + 0.3 * rng.standard_normal(), 0.3) for _ in range(4)] for value in VALUES])
    curves = contest(POINTS, table, 12, range(10))
    assert set(curves) == {"ucb", "random", "halving"}
    assert curves["ucb"].shape == (10, 12)
    assert curves["ucb"].mean() < curves["random"].mean()
    assert (curves["ucb"] >= 0).all()


def test_same_seed_same_replay() -> None:
    """Also where the table's values are pulled with noise."""
    table = Table.of_values(VALUES.tolist(), [0.5] * 24)
    assert (replay("ucb", POINTS, table, 6, 3) == replay("ucb", POINTS, table, 6, 3)).all()


def test_a_table_with_gaps_is_refused() -> None:
    """Naming the item without a training."""
    with pytest.raises(ValueError, match=r"got none of \[1\]"):
        Table([[Training(1.0, 0.1)], []])
