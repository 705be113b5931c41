"""What in an order matters."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.search.bandit.effects import precedence
from shoal.search.bandit.gp import FiniteGP, Posterior
from shoal.search.bandit.orders import all_ranks, pair_signs

RANKS = all_ranks(4)


def test_one_pair_that_matters() -> None:
    """Orders with thing 2 before thing 0 are worth 3 more: that effect is 3, and no other pair gets any of it."""
    values = np.where(RANKS[:, 2] < RANKS[:, 0], 3.0, 0.0)
    found = precedence(RANKS, Posterior(values, np.zeros((24, 24)), "", 0.0))
    assert (found[0].first, found[0].second) == (2, 0)
    assert [effect.value for effect in found] == pytest.approx([3.0, 0, 0, 0, 0, 0], abs=1e-10)
    assert [effect.std for effect in found] == [0.0] * 6


def test_weights_of_a_precedence_surface_come_back() -> None:
    """A surface made of one weight per pair: each effect is twice its weight, in its direction."""
    weights = np.array([0.5, -1.0, 2.0, 0.25, -0.75, 1.5])
    found = precedence(RANKS, Posterior(7 + pair_signs(RANKS) @ weights, np.zeros((24, 24)), "", 0.0))
    assert [effect.value for effect in found] == pytest.approx(sorted(2 * abs(weights), reverse=True))
    firsts = {(effect.first, effect.second) for effect in found}
    assert firsts == {(0, 1), (2, 0), (0, 3), (1, 2), (3, 1), (2, 3)}


def test_deviation_against_draws() -> None:
    """The standard deviation of an effect is that of effects of draws from the posterior."""
    posterior = FiniteGP(RANKS).posterior([0, 7, 20], [1.0, 2.0, 0.0], [0.1] * 3)
    draws = np.random.default_rng(0).multivariate_normal(posterior.mean, posterior.covariance, 400)
    exact = {frozenset((effect.first, effect.second)): effect for effect in precedence(RANKS, posterior)}
    found: dict[frozenset[int], list[float]] = {pair: [] for pair in exact}
    for draw in draws:
        for effect in precedence(RANKS, Posterior(draw, posterior.covariance, "", 0.0)):
            pair = frozenset((effect.first, effect.second))
            found[pair].append(effect.value if effect.first == exact[pair].first else -effect.value)
    for pair, values in found.items():
        assert np.mean(values) == pytest.approx(exact[pair].value, abs=0.15)
        assert np.std(values) == pytest.approx(exact[pair].std, rel=0.12)
