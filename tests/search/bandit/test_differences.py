"""Whether items differ at all: against known tests, and on data where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from shoal.search.bandit.differences import repeated_pulls, single_pulls


def test_repeated_pulls_are_the_analysis_of_variance() -> None:
    """F and p as scipy's f_oneway has them, for groups of unequal size."""
    rng = np.random.default_rng(0)
    groups = [rng.normal(shift, 1.0, size) for shift, size in ((0, 3), (0.5, 5), (1.5, 4))]
    found = repeated_pulls(groups)
    expected = stats.f_oneway(*groups)
    assert found is not None
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p == pytest.approx(expected.pvalue)


def test_cochran_by_hand() -> None:
    """Values 0 and 2 with errors 1: the centre is 1, Q = 2, p = P(chi2_1 > 2) = 0.157; between (2 - 1) / 1 = 1."""
    found = single_pulls([0.0, 2.0], [1.0, 1.0])
    assert found is not None
    assert found.statistic == pytest.approx(2.0)
    assert found.p == pytest.approx(0.1573, abs=1e-4)
    assert found.between_std == pytest.approx(1.0)
    assert found.alike


@pytest.mark.parametrize("between", [0.0, 1.0])
def test_verdicts_are_right_as_often_as_they_claim(between: float) -> None:
    """Of 300 sets, alike ones are called different in about 5 %, clearly different ones nearly always; the interval of
    the share holds the true share in about 95 %."""
    rng = np.random.default_rng(1)
    called, held = 0, 0
    for _ in range(300):
        groups = rng.normal(0, between, (24, 1)) + rng.normal(0, 1.0, (24, 4))
        found = repeated_pulls(groups.tolist())
        assert found is not None
        called += not found.alike
        held += found.share_low <= between**2 / (between**2 + 1) <= found.share_high
    assert (called > 290) if between else (called < 30)
    assert held > 275


def test_single_pulls_of_alike_items_are_called_alike() -> None:
    """At the nominal rate."""
    rng = np.random.default_rng(2)
    found = [single_pulls(rng.normal(0, 0.3, 20).tolist(), [0.3] * 20) for _ in range(300)]
    assert 3 < sum(one is not None and not one.alike for one in found) < 30


def test_too_little_says_nothing() -> None:
    """One item, no repetitions, or errors of 0: no test."""
    assert single_pulls([1.0], [0.1]) is None
    assert single_pulls([1.0, 2.0], [0.1, 0.0]) is None
    assert repeated_pulls([[1.0], [2.0]]) is None


def test_pulls_without_noise_that_differ() -> None:
    """Repetitions that are equal to the bit: all variance lies between items, and the figures stay finite."""
    found = repeated_pulls([[1.0, 1.0], [2.0, 2.0]])
    assert found is not None
    assert found.p == 0.0
    assert found.share == 1.0
    assert np.isfinite(found.statistic)
