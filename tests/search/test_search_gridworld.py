"""The visiting grid world: hand-worked rewards, the follower, and a pull that learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shoal.compiled.vector import CompiledVectorEnv
from shoal.environments import visiting
from shoal.environments.visiting import CORNERS, ORDERS, REGION, SIZE, Visiting
from shoal.runs import checkpoint
from shoal.search.bandit.orders import all_ranks, kendall
from shoal.search.domain import default_config
from shoal.search.gridworld import Gridworld
from shoal.search.options import SearchConfig
from shoal.testing.contract import check_vector_env

UP, RIGHT, DOWN, LEFT = range(4)


def world(order: int = 0, hidden: int = 0, **options: float) -> CompiledVectorEnv:
    envs = CompiledVectorEnv(Visiting(order, hidden, **({"slip": 0.0} | options)), 1)
    envs.reset(seed=0)
    return envs


def put(envs: CompiledVectorEnv, row: int, column: int, visited: int = 0) -> None:
    envs.state["row"], envs.state["column"], envs.state["visited"] = row, column, visited


def step(envs: CompiledVectorEnv, action: int) -> tuple[float, bool]:
    _, rewards, terminated, _, _ = envs.step(np.array([action]))
    return float(rewards[0]), bool(terminated[0])


def test_a_first_visit_pays_one_less_a_step() -> None:
    """Stepping into the north-west region from its side."""
    envs = world()
    put(envs, 0, REGION)
    assert step(envs, LEFT)[0] == pytest.approx(1 - 0.01)
    assert step(envs, LEFT)[0] == pytest.approx(-0.01)  # and only once
    assert int(envs.state["visited"][0]) == 1


@pytest.mark.parametrize(("hidden", "pay"), [(0, 1 + 1), (ORDERS.index((1, 0, 2, 3)), 1 - 1)])
def test_pairs_pay_by_the_hidden_order(hidden: int, pay: float) -> None:
    """North-east after north-west: right when the hidden order has them so, wrong when it has them the other way."""
    envs = world(hidden=hidden)
    put(envs, 0, SIZE - REGION - 1, visited=0b0001)
    assert step(envs, RIGHT)[0] == pytest.approx(pay - 0.01)


def test_a_whole_episode_is_worth_ten_minus_twice_the_distance() -> None:
    """Visiting in an order at distance d from the hidden one pays 10 - 2 d, without the way: for all 24 orders."""
    ranks = all_ranks(4)
    for order, sequence in enumerate(ORDERS):
        envs = world(order=order, hidden=5)
        total, visited = 0.0, 0
        for region in sequence:
            row, column = CORNERS[region]
            inside = DOWN if row else UP
            put(envs, row - 1 if row else REGION, column, visited)
            reward, ended = step(envs, inside)
            total += reward + 0.01
            visited |= 1 << region
        assert ended
        assert total == pytest.approx(10 - 2 * kendall(ranks[[order]], ranks[[5]])[0, 0], abs=1e-5)


def test_visits_are_counted_against_the_order_given() -> None:
    """The next of the order is compliant, any other region out of order; the last observation tells."""
    envs = world(order=0)
    put(envs, 0, SIZE - REGION - 1)
    step(envs, RIGHT)  # north-east before north-west
    put(envs, 0, REGION, visited=0b0010)
    observations, *_ = envs.step(np.array([LEFT]))
    compliant, violations, visits = visiting.conduct(observations)
    assert (int(compliant[0]), int(violations[0]), int(visits[0])) == (1, 1, 2)


def test_walls_and_the_horizon() -> None:
    """Nobody leaves the grid; after 500 steps an episode is truncated, not terminated."""
    envs = world()
    put(envs, 10, 0)
    step(envs, LEFT)
    assert int(envs.state["column"][0]) == 0
    for _ in range(498):
        _, _, terminated, truncated, _ = envs.step(np.array([LEFT]))
        assert not terminated[0]
    assert not truncated[0]
    _, _, terminated, truncated, _ = envs.step(np.array([LEFT]))
    assert truncated[0]
    assert not terminated[0]


def test_alignment_is_a_training_aid_alone() -> None:
    """With align 2 a step towards the next region adds 0.04 and a visit in order 2; without it, nothing."""
    envs = world(align=2.0)
    put(envs, 10, 10)
    assert step(envs, UP)[0] == pytest.approx(-0.01 + 0.04)
    assert step(envs, DOWN)[0] == pytest.approx(-0.01 - 0.04)
    put(envs, 0, REGION)
    assert step(envs, LEFT)[0] == pytest.approx(1 - 0.01 + 0.04 + 2.0)


def test_it_keeps_the_contract_of_vector_environments() -> None:
    """As every backend must."""
    check_vector_env(lambda: CompiledVectorEnv(Visiting(3, 7), 3), steps=1100, refuses_after_close=False)


@pytest.mark.parametrize("options", [{"order": 24}, {"hidden": -1}, {"slip": 1.5}])
def test_wrong_options_are_named(options: dict[str, float]) -> None:
    """With what was expected."""
    with pytest.raises(ValueError, match="expected"):
        Visiting(**options)


def test_the_follower_keeps_every_order(tmp_path: Path) -> None:
    """All 24: each visit in order, all regions visited; and its values put the hidden order first."""
    domain = Gridworld(SearchConfig(domain="gridworld"), world=2)
    for order in range(24):
        _, conduct = domain._play(order, visiting.follow, 0, 20)
        assert conduct["compliance"]["mean"] == 1.0
        assert conduct["coverage"]["mean"] == 1.0
    ranking = domain.ranking(tmp_path, lambda text: None)
    assert int(np.argmax(ranking.means)) == domain.hidden
    assert np.corrcoef(ranking.means, -kendall(domain.points, domain.points[[domain.hidden]])[:, 0])[0, 1] > 0.98


def test_a_pull_learns_its_order(tmp_path: Path) -> None:
    """A few seconds of training pass the gate, and the world pays; an episode of it can be drawn.

    With 50 episodes of each environment half of all seeds pass; with gridworld's default 10 of 10 did."""
    domain = Gridworld(default_config("gridworld"))
    assert domain.config.episodes_per_env == 300
    found = domain.pull(domain.hidden, start=None, seed=7, folder=tmp_path, say=lambda text: None)
    assert found.passed
    assert found.mean > 5
    text, figure = domain.episode(domain.hidden, Path(found.weights))
    assert domain.names[domain.hidden] in text
    assert figure.axes


def test_a_pull_is_the_same_twice_and_depends_on_its_start(tmp_path: Path) -> None:
    """The same seed and start give the same score to the bit; other weights to start from give another."""
    config = SearchConfig(domain="gridworld", num_envs=4, episodes_per_env=1, min_episodes=1)
    domain, found = Gridworld(config), []
    for name, start in (("one", None), ("two", None), ("three", tmp_path / "one" / "weights")):
        (tmp_path / name).mkdir()
        found.append(domain.pull(3, start=start, seed=7, folder=tmp_path / name, say=lambda text: None))
    assert (found[0].mean, found[0].se, found[0].details) == (found[1].mean, found[1].se, found[1].details)
    fresh, warm = (checkpoint.load_latest(Path(pull.weights)).tensors for pull in (found[0], found[2]))
    assert any((fresh[name] != warm[name]).any() for name in fresh)
