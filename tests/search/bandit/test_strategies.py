"""Ask and tell: GP-UCB, random search and successive halving behind the same two methods."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.search.surfaces import FAMILIES, pulls_to_top, surface
from shoal.search.bandit.gp import FiniteGP
from shoal.search.bandit.orders import all_ranks, kendall
from shoal.search.bandit.strategies import NAMES, Halving, RandomSearch, Told, make, ranking, rounds
from shoal.search.bandit.ucb import UCB, srinivas

RANKS = all_ranks(4)
VALUES = -kendall(RANKS, RANKS[17:18])[:, 0]  # the best order is number 17


def play(name: str, seed: int, pulls: int) -> list[int]:
    strategy = make(name, RANKS, budget=pulls, seed=seed)
    asked = []
    for _ in range(pulls):
        asked.append(strategy.ask())
        strategy.tell(asked[-1], float(VALUES[asked[-1]]), 0.1, True)
    return asked


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_pulls(name: str) -> None:
    """A strategy is a function of its seed and of what it was told; another seed asks otherwise."""
    assert play(name, 3, 12) == play(name, 3, 12)
    assert play(name, 3, 12) != play(name, 4, 12)


@pytest.mark.parametrize("name", NAMES)
def test_all_strategies_ask_for_items_of_the_set(name: str) -> None:
    """Also beyond the budget, and with several asked before the first is told."""
    strategy = make(name, RANKS, budget=10, seed=0)
    asked = [strategy.ask() for _ in range(4)]
    for _ in range(40):
        item = asked.pop(0)
        strategy.tell(item, float(VALUES[item]), 0.1, True)
        asked.append(strategy.ask())
    assert all(isinstance(item, int) and 0 <= item < 24 for item in asked)


def test_strategies_of_a_seed_begin_with_the_same_item() -> None:
    """What they differ in later is what they learnt."""
    assert all(len({play(name, seed, 1)[0] for name in NAMES}) == 1 for seed in range(5))


def test_random_search_pulls_every_item_once_before_any_twice() -> None:
    """Without replacement, sweep after sweep, in different orders."""
    search = RandomSearch(24, seed=1)
    first, second = ([search.ask() for _ in range(24)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(24))
    assert first != second


def test_ucb_finds_the_best_of_a_smooth_surface_quickly() -> None:
    """On minus the distance to a hidden order, 10 pulls of 24 reach it for every seed."""
    assert all(17 in play("ucb", seed, 10) for seed in range(8))


def test_first_pull_of_ucb_is_any_item_and_second_is_far_from_it() -> None:
    """With nothing known the seed decides; then the most uncertain order is the reverse of the first."""
    firsts = set()
    for seed in range(10):
        strategy = UCB(FiniteGP(RANKS), seed)
        first = strategy.ask()
        strategy.tell(first, 1.0, 0.1)
        assert kendall(RANKS[first : first + 1], RANKS[[strategy.ask()]])[0, 0] == 6
        firsts.add(first)
    assert len(firsts) > 4


def test_pulls_under_way_are_not_asked_for_again() -> None:
    """A batch of asks spreads: what is under way counts as known."""
    strategy = UCB(FiniteGP(RANKS), 0)
    for item in (0, 23, 5):
        strategy.tell(item, float(VALUES[item]), 0.01)
    batch = [strategy.ask() for _ in range(6)]
    assert len(set(batch)) == 6


def test_items_are_pulled_again_only_when_all_have_been() -> None:
    """Twenty-four pulls are of 24 items; the next is of one of them."""
    strategy = UCB(FiniteGP(RANKS), 0)
    for _ in range(25):
        item = strategy.ask()
        strategy.tell(item, float(VALUES[item]), 0.3)
    assert len({pull.item for pull in strategy.told[:24]}) == 24


def test_a_failed_pull_lowers_the_chance_of_its_neighbours() -> None:
    """It says nothing of the value, but of whether the gate can be passed there."""
    strategy = UCB(FiniteGP(RANKS), 0)
    strategy.tell(0, -10.0, 0.1, True)
    before = strategy.gp.posterior([0], [-10.0], [0.1]).mean
    assert (strategy.chance_to_pass() == 1).all()
    strategy.tell(17, 50.0, 0.1, False)  # a score that was earned by not keeping to the order
    chance = strategy.chance_to_pass()
    passed = [pull for pull in strategy.told if pull.passed]
    now = strategy.gp.posterior(*([getattr(pull, name) for pull in passed] for name in ("item", "mean", "se")))
    assert (now.mean == before).all()
    assert chance[17] == chance.min() < 0.6
    near, far = kendall(RANKS, RANKS[17:18])[:, 0].argsort()[[1, -1]]
    assert chance[near] < chance[far] <= 1
    assert strategy.ask() != 17


def test_when_every_pull_fails_the_search_goes_on_elsewhere() -> None:
    """No value has ever been seen, yet asks spread over the set instead of sticking."""
    strategy = UCB(FiniteGP(RANKS), 0)
    asked = []
    for _ in range(10):
        asked.append(strategy.ask())
        strategy.tell(asked[-1], 0.0, 0.1, False)
    assert len(set(asked)) >= 8


def test_srinivas_by_hand() -> None:
    """2 log(120 * 4 * pi^2 / 0.6) = 2 log(7895.7) = 17.95 at the second pull, unscaled; a fifth of it by default."""
    assert srinivas(120, 2, scale=1.0) == pytest.approx(17.948, abs=1e-3)
    assert srinivas(120, 2) == pytest.approx(17.948 / 5, abs=1e-3)


def test_halving_by_hand() -> None:
    """20 pulls pay for a field of 11: 11 + 5 + 2 + 1 = 19, and the last one stays."""
    search = Halving(24, budget=20, seed=0)
    asked = []
    for _ in range(21):
        asked.append(search.ask())
        search.tell(asked[-1], float(VALUES[asked[-1]]), 0.1, True)
    field = asked[:11]
    by_value = sorted(field, key=lambda item: -VALUES[item])
    worst_kept, best_dropped = VALUES[by_value[4]], VALUES[by_value[5]]
    assert len(set(field)) == 11
    assert all(VALUES[item] >= best_dropped for item in asked[11:16])
    assert VALUES[asked[18]] == VALUES[field].max() >= worst_kept
    assert asked[18] == asked[19] == asked[20]
    assert rounds(11) == [11, 5, 2, 1]


def test_ranking_puts_failed_items_last_and_averages_pulls() -> None:
    """Item 2 failed although it scored highest; item 0 averages 2, item 1 has 3."""
    told = [Told(0, 1.0, 0.1, True), Told(1, 3.0, 0.1, True), Told(0, 3.0, 0.1, True), Told(2, 9.0, 0.1, False)]
    assert ranking(told) == [1, 0, 2]


def test_unknown_strategy_is_named() -> None:
    """The message lists what there is."""
    with pytest.raises(ValueError, match="ucb, random, halving, got 'greedy'"):
        make("greedy", RANKS, budget=5, seed=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_surfaces_are_standard_and_differ_by_seed(family: str) -> None:
    """Mean 0, standard deviation 1, one value per order."""
    values = surface(family, 0)
    assert values.shape == (120,)
    assert values.mean() == pytest.approx(0, abs=1e-12)
    assert values.std() == pytest.approx(1)
    assert not np.allclose(values, surface(family, 1))


def test_precedence_surface_of_the_reverse_is_the_negative() -> None:
    """Reversing an order loses every pair that it had won."""
    values, ranks = surface("precedence", 4), all_ranks(5)
    reverse = [int(np.flatnonzero((ranks == 4 - row).all(1))[0]) for row in ranks]
    assert np.allclose(values[reverse], -values)


def test_pulls_to_top_counts_from_one() -> None:
    """A strategy that asks in a fixed order hits the top at its place; one that never does gets the whole set + 1."""

    class Fixed:
        def __init__(self, items: list[int]) -> None:
            self.items = items

        def ask(self) -> int:
            return self.items.pop(0)

        def tell(self, item: int, mean: float, se: float, passed: bool = True) -> None: ...

    values = np.arange(20.0)
    assert pulls_to_top(Fixed([3, 4, 19]), values, 0) == 3
    assert pulls_to_top(Fixed([0] * 20), values, 0) == 21


@pytest.mark.parametrize("family", ["mallows", "precedence"])
def test_ucb_needs_fewer_pulls_than_random_search(family: str) -> None:
    """Short form of benchmarks/search/bandit_synthetic.py: 25 surfaces, the same for both."""
    points = all_ranks(5)
    pulls = {"ucb": [], "random": []}  # type: dict[str, list[int]]
    for seed in range(25):
        values = surface(family, seed, length_scale=10.0)
        for name, found in pulls.items():
            found.append(pulls_to_top(make(name, points, budget=120, seed=seed), values, seed))
    assert np.mean(pulls["ucb"]) <= 0.8 * np.mean(pulls["random"])  # a median of 25 moves by a pull with the seeds
