"""How riders answer: the logit of the specification and the strict rule."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS, OFFER_EARLIER_MIN, OFFER_LATER_MIN
from shoal.rides.world.answers import (
    COEFFICIENTS,
    PRIOR,
    PURPOSE_EFFECT,
    PURPOSE_MIX,
    PURPOSES,
    Kind,
    accept_probability,
    answer_probability,
    rule_accepts,
)

OFFERS = (OFFER_EARLIER_MIN, OFFER_LATER_MIN)


def test_worked_probabilities() -> None:
    """Early-only, 20 earlier and 10 later, to school: 2.6 - 2 x 0.3 - 1.95 - 0.1 + 0.2 = 0.15."""
    got = accept_probability(Kind.EARLY, 0.2, PURPOSES.index("school"), 20, 10)
    assert got == pytest.approx(1 / (1 + np.exp(-0.15)))
    got = accept_probability(Kind.LATE, 0.0, PURPOSES.index("leisure"), 10, 30)  # 2.9 - 2.4 - 0.75 + 0.6
    assert got == pytest.approx(1 / (1 + np.exp(-0.35)))


@pytest.mark.parametrize("kind", list(Kind))
def test_no_change_is_always_accepted(kind: Kind) -> None:
    """Whatever the rider and the trip, by the logit and by the rule; and no real offer is certain."""
    chance = accept_probability(kind, -5.0, np.arange(5)[:, None], *OFFERS)
    assert (chance[:, NO_CHANGE] == 1.0).all()
    assert (np.delete(chance, NO_CHANGE, axis=1) < 1.0).all()
    assert rule_accepts(kind, *OFFERS)[NO_CHANGE]


def test_more_minutes_are_never_more_welcome() -> None:
    """For every type P falls along both axes of the 4 x 4 menu."""
    chance = accept_probability(np.arange(4)[:, None], 0.0, 0, *OFFERS).reshape(4, 4, 4)
    assert (np.diff(chance, axis=1) > 0).all()  # rows go from 30 earlier to 0 earlier
    assert (np.diff(chance, axis=2) < 0).all()


def test_the_rule() -> None:
    """Early-only accepts iff later is 0, late-only iff earlier is 0, inflexible neither, both always."""
    earlier, later = OFFERS
    accepts = rule_accepts(np.arange(4)[:, None], earlier, later)
    assert (accepts[Kind.EARLY] == (later == 0)).all()
    assert (accepts[Kind.LATE] == (earlier == 0)).all()
    assert (accepts[Kind.INFLEXIBLE] == ((earlier == 0) & (later == 0))).all()
    assert accepts[Kind.BOTH].all()


def test_purpose_averages_to_nothing() -> None:
    """Over the mix of trips the purposes cancel; medical and work are less willing, leisure and shopping more."""
    assert PURPOSE_MIX.sum() == pytest.approx(1)
    assert pytest.approx(0, abs=1e-12) == PURPOSE_MIX @ PURPOSE_EFFECT
    effect = dict(zip(PURPOSES, PURPOSE_EFFECT, strict=True))
    assert max(effect["medical"], effect["work"]) < 0 < min(effect["leisure"], effect["shopping"])


def test_coefficients_are_the_specified_ones() -> None:
    """(b0, be, bl) by type, and the prior 13 : 8 : 6 : 3."""
    assert COEFFICIENTS.tolist() == [[2.6, 0.3, 1.95], [2.9, 2.4, 0.25], [-1.2, 0.8, 0.8], [3.0, 0.25, 0.25]]
    assert pytest.approx([13, 8, 6, 3]) == PRIOR * 30


def test_agreement_with_the_rule_is_about_83_5_percent() -> None:
    """Under uniform offers, by quadrature over the rider effect: 84.2 % of 16 offers, 83.1 % of the 15 real ones."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    kind, purpose = np.arange(4)[:, None, None, None], np.arange(5)[:, None]
    chance = accept_probability(kind, 0.4 * nodes[:, None, None], purpose, *OFFERS)
    agree = np.where(rule_accepts(kind, *OFFERS), chance, 1 - chance)
    by_offer = np.einsum("kepo,k,e,p->o", agree, PRIOR, weights / weights.sum(), PURPOSE_MIX)
    assert by_offer.mean() == pytest.approx(0.835, abs=0.01)
    assert np.delete(by_offer, NO_CHANGE).mean() == pytest.approx(0.835, abs=0.01)
    assert by_offer[NO_CHANGE] == pytest.approx(1.0)


def test_acceptance_option() -> None:
    """`rule` is the strict rule as 0 and 1 in the full shape; an unknown word is refused by name."""
    rule = answer_probability("rule", Kind.EARLY, np.zeros((3, 1)), np.zeros((3, 1), int), *OFFERS)
    assert rule.shape == (3, NUM_OFFERS)
    assert (rule[2] == rule_accepts(Kind.EARLY, *OFFERS)).all()
    logit = answer_probability("logit", Kind.EARLY, 0.0, 0, *OFFERS)
    assert (logit == accept_probability(Kind.EARLY, 0.0, 0, *OFFERS)).all()
    with pytest.raises(ValueError, match="one of logit, rule, got 'soft'"):
        answer_probability("soft", 0, 0.0, 0, 10, 0)
