"""cage2's workflows as a domain of the search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shoal.cage2.workflows.domain import Cage2
from shoal.cage2.workflows.orders import ORDERS, PAIR_BITS, classes, name_of
from shoal.search.bandit.orders import check_ranks, kendall
from shoal.search.options import SearchConfig


def test_points_give_the_same_distances_as_the_task() -> None:
    """Kendall's distance of the search is that of workflow.py, for all 120 x 120 pairs."""
    domain = Cage2(SearchConfig(), orders="120")
    check_ranks(domain.points)
    assert (kendall(domain.points) == (PAIR_BITS[:, None] != PAIR_BITS[None]).sum(-1)).all()
    assert len(set(domain.names)) == len(set(domain.codes)) == 120


def test_24_stands_for_the_classes() -> None:
    """One order of each class, and a class's distance leaves the defender out; it is what is searched by default."""
    domain = Cage2(SearchConfig())
    assert sorted(domain.numbers) == sorted(members[0] for members in classes())
    check_ranks(domain.points)
    bits = PAIR_BITS[domain.numbers]  # all have the defender last
    assert (kendall(domain.points) == (bits[:, None] != bits[None]).sum(-1)).all()


def test_names_say_the_order() -> None:
    """First first, as the task's own names have it."""
    domain = Cage2(SearchConfig(), orders="120")
    item = ORDERS.index(("user", "op_host", "op_server", "enterprise", "defender"))
    assert domain.names[item] == ("user hosts > operational hosts > operational server > enterprise servers > defender")
    assert domain.codes[item] == "UHSED"
    assert name_of(domain.numbers[item]) == "user,op_host,op_server,enterprise,defender"


def test_wrong_options_are_named() -> None:
    """With what they may be."""
    with pytest.raises(ValueError, match=r"--red: expected bline \| meander"):
        Cage2(SearchConfig(), red="blue")


def test_a_short_pull_is_scored_and_can_be_drawn(tmp_path: Path) -> None:
    """Two updates of four environments: figures are finite, conduct is there, the same seed gives the same pull."""
    config = SearchConfig(num_envs=4, episodes_per_env=2, min_episodes=1)
    domain = Cage2(config, orders="24")
    one, two = (
        domain.pull(5, start=None, seed=3, folder=tmp_path / name, say=lambda text: None) for name in ("one", "two")
    )
    assert np.isfinite(one.mean)
    assert one.se > 0
    assert set(one.details) >= {"compliance", "coverage", "wasted", "believed_compliance", "episodes", "stopped"}
    assert (one.mean, one.se, one.passed, one.details) == (two.mean, two.se, two.passed, two.details)
    text, figure = domain.episode(5, Path(one.weights))
    assert "against bline" in text
    assert len(figure.axes) == 2
