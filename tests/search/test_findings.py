"""What a search says it found: ties, what the others lack, figures that are not more than they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_domain import Toy, config

from shoal.cage2.workflows.domain import Cage2
from shoal.search.bandit.orders import all_ranks
from shoal.search.domain import Fresh, Pull
from shoal.search.findings import group, sentence
from shoal.search.folder import Record, Request
from shoal.search.options import SearchConfig
from shoal.search.summary import answer_lines, difference_of, effects_of, posterior_of, summarise, verdict

THINGS = ("enterprise", "op_server", "op_host", "user")


def told(scores: dict[str, tuple[float, float]]) -> list[Record]:
    """Pulls of orders written by initials, first first, with score and 95 % half-width."""
    ranks = [tuple(row) for row in all_ranks(4).tolist()]
    found = []
    for number, (order, (mean, half)) in enumerate(scores.items()):
        item = ranks.index(tuple(order.index(letter) for letter in "ESHU"))
        found.append(Record(Request(number, item, order, 0, None), Pull(mean, half / 1.96, True), 1.0, 1.0))
    return found


# The six pulls of a search as it was run, without the defender.
REVIEW = {
    "UHSE": (-16.03, 0.56), "ESHU": (-12.57, 0.34), "EUSH": (-12.37, 0.32), "SEUH": (-12.16, 0.31),
    "ESUH": (-12.77, 0.33),
}  # fmt: skip


def test_ties_are_said_as_ties_and_the_cost_of_the_rest() -> None:
    """A score that is ahead by less than the spread of several alike ones is not ahead."""
    records = told(REVIEW)
    found = group(records)
    assert found is not None
    assert len(found.tied) == 4
    said = sentence(records, all_ranks(4), THINGS)
    assert said.startswith("4 of 5 orders tie near -12.4")
    assert "user first costs 3.58; the pulls do not tell which of its precedences does it" in said


def test_a_single_precedence_is_named() -> None:
    """One that all of the worse have and none of the tied."""
    good = dict.fromkeys(("EUSH", "EUHS", "SEUH", "ESHU", "HEUS"), (-12.0, 0.1))
    bad = dict.fromkeys(("UESH", "SUEH", "HUES"), (-15.0, 0.1))
    assert sentence(told(good | bad), all_ranks(4), THINGS).endswith("user before enterprise costs 3.00 on average.")
    few = told({"ESHU": (-12.0, 0.1), "ESUH": (-15.0, 0.1)})
    assert "user before op_host costs 3.00, if that is why: the pulls are few" in sentence(few, all_ranks(4), THINGS)


def test_no_reason_is_invented() -> None:
    """Worse orders that share nothing; all alike; a single pull; none that passed."""
    mixed = told({"ESHU": (5.0, 0.1), "SEHU": (1.0, 0.1), "ESUH": (2.0, 0.1)})
    assert "no single precedence explains it" in sentence(mixed, all_ranks(4), THINGS)
    assert "1 of 3 orders is ahead" in sentence(mixed, all_ranks(4), THINGS)
    alike = told({"ESHU": (5.0, 0.5), "UHSE": (5.1, 0.5)})
    assert "All 2 orders that passed tie near 5.05" in sentence(alike, all_ranks(4), THINGS)
    assert "nothing to compare" in sentence(alike[:1], all_ranks(4), THINGS)
    failed = [Record(alike[0].request, Pull(5.0, 0.1, False), 1.0, 1.0)]
    assert "no order can be recommended" in sentence(failed, all_ranks(4), THINGS)


def test_alike_orders_tie_as_often_as_is_claimed() -> None:
    """Of 200 searches among eight alike orders, about 5 % see a difference: not one in three, as pairs would."""
    import numpy as np

    rng = np.random.default_rng(0)
    orders = ("ESHU", "ESUH", "EHSU", "EHUS", "EUSH", "EUHS", "SEHU", "SEUH")
    seen = 0
    for scores in rng.normal(0, 1, (200, len(orders))):
        found = group(told({order: (score, 1.96) for order, score in zip(orders, scores, strict=True)}))
        assert found is not None
        seen += bool(found.worse)
    assert seen < 24


def test_figures_are_not_more_than_they_are() -> None:
    """A p-value has an end, a share lies within its interval, and less than all is not called all."""
    difference = difference_of(told({order: (10.0 * mean, 0.1) for order, (mean, _) in REVIEW.items()}))
    assert difference is not None
    assert difference.share_low <= difference.share <= difference.share_high < 1
    said = verdict(difference)
    assert "p < 0.001" in said
    assert "over 99 % of the variance" in said
    assert "100 %" not in said
    for width in (0.2, 0.5, 1.0, 3.0):  # from all to nothing
        one = difference_of(told({order: (mean, width) for order, (mean, _) in REVIEW.items()}))
        assert one is not None
        assert one.share_low <= one.share <= one.share_high


def test_what_changes_nothing_is_said_to_matter_nowhere() -> None:
    """Among all 120 orders the defender's place is worth 0 by construction."""
    domain = Cage2(SearchConfig(), orders="120")
    records = [
        Record(Request(n, item, domain.names[item], 0, None), Pull(-12.0 - n, 0.1, True), 1.0, 1.0)
        for n, item in enumerate((0, 50, 100))
    ]
    effects = effects_of(domain, posterior_of(domain, records))
    assert len(effects) == 6
    assert not any("defender" in (effect["first"], effect["second"]) for effect in effects)
    assert "defender" not in sentence(records, domain.points[:, 1:].argsort(1).argsort(1), domain.things[1:])


def test_the_fresh_score_comes_first(tmp_path: Path) -> None:
    """The search's own score chose the order; the answer says both and where they were played."""
    domain = Toy(config(tmp_path))
    record = Record(Request(0, 3, domain.names[3], 0, None), Pull(5.0, 0.1, True), 1.0, 1.0, Fresh(4.0, 0.05, 2000))
    lines = answer_lines(summarise(domain, config(tmp_path), [record]), domain.score)
    assert "4.00 [3.90, 4.10] on 2,000 fresh episodes (5.00 [4.80, 5.20] on those that chose it)" in lines[1]


@pytest.mark.parametrize("orders", ["24", "120"])
def test_the_rules_stand_on_the_answer(orders: str) -> None:
    """A reward of cage2 says nothing without them."""
    domain = Cage2(SearchConfig(), orders=orders)
    record = Record(Request(0, 3, domain.names[3], 0, None), Pull(-12.0, 0.1, True), 1.0, 1.0)
    assert "cage-challenge-2@26ce1c1" in answer_lines(summarise(domain, SearchConfig(), [record]), domain.score)[-1]
