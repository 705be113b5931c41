"""The tool tested on itself: it finds what is there, and seldom what is not."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import arms

from shoal.comparison.statistics import effect, estimate, holm, iqm
from shoal.comparison.verdicts import INSUFFICIENT, NO_EVIDENCE, judge

COMPARISONS = 200


def normal(rng: np.random.Generator) -> float:
    return float(rng.normal(100.0, 10.0))


def skewed(rng: np.random.Generator) -> float:
    return float(rng.lognormal(0.0, 1.0))


@pytest.mark.parametrize(("draw", "seeds"), [(normal, 10), (skewed, 10), (normal, 20)])
def test_a_comparison_of_an_arm_with_itself_finds_a_difference_in_at_most_7_of_100(draw, seeds) -> None:
    """Both for the declared claim and for all others together."""
    rng = np.random.default_rng(0)
    declared = others = 0
    for _ in range(COMPARISONS):
        verdicts = judge(arms(seeds, rng, draw), threshold=80.0)
        assert not [one for one in verdicts if one.verdict == INSUFFICIENT]
        declared += verdicts[0].primary and verdicts[0].verdict != NO_EVIDENCE
        others += any(one.verdict != NO_EVIDENCE for one in verdicts[1:])
    assert declared / COMPARISONS <= 0.07
    assert others / COMPARISONS <= 0.07


def test_an_effect_of_one_standard_deviation_is_found_at_20_seeds_in_80_of_100() -> None:
    rng = np.random.default_rng(1)
    found = [judge(arms(20, rng, normal, effect=10.0), threshold=80.0)[0].verdict for _ in range(COMPARISONS)]
    assert found.count("better") / COMPARISONS >= 0.80
    assert found.count("worse") == 0


def test_intervals_of_a_skewed_distribution_cover_the_truth_at_10_seeds() -> None:
    """The interquartile mean of a log-normal distribution, and the difference of two."""
    rng = np.random.default_rng(2)
    truth = float(iqm(np.random.default_rng(3).lognormal(size=2_000_000)))
    draws = rng.lognormal(size=(1_000, 2, 10))
    own = [estimate(pair[0], iqm) for pair in draws]
    both = [effect(pair[0], pair[1], iqm, paired=True) for pair in draws]
    assert np.mean([one.low <= truth <= one.high for one in own]) >= 0.90
    assert 0.90 <= np.mean([one.low <= 0.0 <= one.high for one in both]) <= 0.98


def test_the_smallest_effect_that_could_be_seen_is_seen_in_about_80_of_100() -> None:
    """What a verdict of no evidence says of its design holds."""
    rng = np.random.default_rng(4)
    told = np.mean([effect(*rng.normal(size=(2, 20)), iqm, paired=True).detectable for _ in range(100)])
    shifted = [effect(a, b + told, iqm, paired=True).low > 0 for a, b in rng.normal(size=(400, 2, 20))]
    assert 0.70 <= np.mean(shifted) <= 0.92


def test_pairs_see_more_where_seeds_matter() -> None:
    """The same seeds in both arms: what they have in common is no noise."""
    rng = np.random.default_rng(5)
    seeds = rng.normal(0.0, 10.0, 12)
    a, b = seeds + rng.normal(size=12), seeds + 3.0 + rng.normal(size=12)
    paired, apart = effect(a, b, iqm, paired=True), effect(a, b, iqm, paired=False)
    assert paired.low > 0
    assert apart.low < 0
    assert paired.p < 0.05 < apart.p


def test_holm_is_as_published() -> None:
    """Holm (1979): sorted, times what is left, never falling."""
    assert holm([0.04, 0.001, 0.02, 0.6]) == pytest.approx([0.08, 0.004, 0.06, 0.6])


def test_the_interquartile_mean_weighs_what_the_quarters_cut() -> None:
    """Of 10 values the third and the eighth count by half."""
    values = np.arange(10.0) ** 2
    assert float(iqm(values)) == pytest.approx((0.5 * 4 + 9 + 16 + 25 + 36 + 0.5 * 49) / 5)
