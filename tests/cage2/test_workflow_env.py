"""Environments under an order: what they show, count and pay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.cage2.options import Cage2Options, environment
from shoal.cage2.simulator.env import make, make_vec
from shoal.cage2.simulator.memory import MEMORY_FEATURES, PLAIN_FEATURES
from shoal.cage2.simulator.network import NUM_HOSTS, REMOVE, RESTORE, USER0, belief
from shoal.cage2.task import Cage2Task
from shoal.cage2.workflows.aligned import OrderedVectorEnv, compliance_by_env
from shoal.cage2.workflows.alignment import Alignment
from shoal.cage2.workflows.ordered import AT_DUE, AT_ORDER, AT_SUSPECTED, ORDERED_FEATURES, ordered_feature_names
from shoal.cage2.workflows.orders import ORDERS, PAIR_BITS, classes, fixed_host, judge
from shoal.core.seeds import Stream
from shoal.vector.make import make_vec as make_any

ORDER = "user,enterprise,op_server,op_host,defender"


def actions_of(steps: int, num_envs: int, seed: int = 0) -> np.ndarray:
    """Random actions of which half are fixes, Defender's and User0's among them: int64[steps, N]."""
    rng = np.random.default_rng(seed)
    kinds = np.where(rng.random((steps, num_envs)) < 0.5, REMOVE, RESTORE)
    fixes = 2 + kinds * NUM_HOSTS + rng.integers(0, NUM_HOSTS, (steps, num_envs))
    return np.where(rng.random((steps, num_envs)) < 0.5, fixes, rng.integers(0, 145, (steps, num_envs)))


def run(
    num_envs: int = 8, steps: int = 100, alignment: Alignment | None = None, threads: int = 1, **options: Any
) -> Any:
    """Step random actions that depend on the environment alone: (episodes, rewards float32[steps, N], envs)."""
    envs = OrderedVectorEnv(make(mask="none", **options), num_envs, threads, alignment=alignment)
    envs.reset(seed=3)
    actions = (
        np.resize(actions_of(steps, 8), (steps, num_envs))
        if num_envs == 8
        else np.tile(actions_of(steps, 8), num_envs // 8)
    )
    rewards = np.array([envs.step(row)[1] for row in actions])
    return envs.take_episodes(), rewards, envs


@pytest.mark.parametrize("red", ["bline", "meander"])
def test_the_kernel_counts_what_the_definition_says(red: str) -> None:
    """Every step of random play, counted again in Python from the state before it."""
    envs = OrderedVectorEnv(make(mask="none", order="drawn", red=red, horizon=(20, 40)), 8)
    envs.reset(seed=1)
    expected: list[list[int]] = []
    open_counts = np.zeros((8, 10), np.int64)
    ends: list[tuple[int, ...]] = []
    for row in actions_of(80, 8):
        state = envs.state.copy()
        orders = state["order"].copy()
        for i, action in enumerate(row):
            game = state["game"][i]
            sessions = int(game["user_removable"] | game["user_fixed"] | game["privileged"]) & ~(1 << USER0)
            believed = sum(1 << h for h in range(1, NUM_HOSTS) if h != USER0 and belief(game["bits"], h))
            host = fixed_host(int(action))
            for half, held in enumerate((sessions, believed)):
                open_counts[i, 5 * half + 3] += bin(held).count("1")
                if host >= 0:
                    open_counts[i, 5 * half + judge(int(orders[i]), held, host) - 1] += 1
                    open_counts[i, 5 * half + 4] += held >> host & 1
        _, _, terminated, truncated, _ = envs.step(row)
        for i in np.flatnonzero(terminated | truncated):
            ends.append((i, int(orders[i])))
            expected.append(open_counts[i].tolist())
            open_counts[i] = 0
    found = envs.take_episodes()
    assert [(int(e["env"]), int(e["order"])) for e in found] == ends
    assert len(found) > 16
    for episode, numbers in zip(found, expected, strict=True):
        assert [*episode["tally"]["true"].tolist(), *episode["tally"]["believed"].tolist()] == numbers
    assert len(envs.take_episodes()) == 0


@pytest.mark.parametrize("red", ["bline", "meander"])
def test_compliance_is_equal_within_a_class(red: str) -> None:
    """The five places of Defender count the same, by the truth and by belief, whatever Blue does."""
    for group in classes()[::7]:
        counted = [run(red=red, order=number)[0]["tally"].tobytes() for number in group]
        assert len(set(counted)) == 1
    other = [run(red=red, order=group[0])[0]["tally"].tobytes() for group in classes()]
    assert len(set(other)) > 4  # and the classes do differ


def test_same_counts_for_any_number_of_environments_and_threads() -> None:
    """The first eight of 8, of 64, and of 64 on two threads."""
    few, many, threaded = (run(n, threads=t, order=ORDER, red="meander")[0] for n, t in ((8, 1), (64, 1), (64, 2)))
    np.testing.assert_array_equal(few, many[many["env"] < 8])
    np.testing.assert_array_equal(many, threaded)


@pytest.mark.parametrize("features", ["plain", "memory"])
def test_an_order_changes_nothing_but_what_is_shown_of_it(features: str) -> None:
    """The same seed gives the same episode with and without an order; the order's bits follow the old features."""
    size = {"plain": PLAIN_FEATURES, "memory": MEMORY_FEATURES}[features]
    plain = make_vec(4, red="mixed", features=features, mask="none")
    ordered = make_vec(4, red="mixed", features=features, mask="none", order=ORDER)
    first, second = plain.reset(seed=7)[0], ordered.reset(seed=7)[0]
    assert first.shape == (4, size)
    for row in actions_of(60, 4):
        np.testing.assert_array_equal(first, second[:, :size])
        np.testing.assert_array_equal(
            second[:, size : size + 10], np.tile(PAIR_BITS[ORDERS.index(tuple(ORDER.split(",")))], (4, 1))
        )
        first, paid, *_ = plain.step(row)
        second, same, *_ = ordered.step(row)
        np.testing.assert_array_equal(paid, same)


def test_drawn_orders_are_drawn_evenly_and_shown() -> None:
    """Each of the 120 in about its share of episodes, with its own bits in the observation."""
    envs = make_vec(6000, red="bline", order="drawn", mask="none")
    shown = envs.reset(seed=0)[0]
    counts = np.bincount(envs.state["order"], minlength=120)
    assert counts.min() > 20
    assert counts.max() < 90
    np.testing.assert_array_equal(shown[:, AT_ORDER : AT_ORDER + 10], PAIR_BITS[envs.state["order"]])
    assert shown.shape[1] == ORDERED_FEATURES == len(ordered_feature_names())


def test_the_obedient_mask_leaves_only_fixes_that_keep_to_the_order() -> None:
    """Among the suspected hosts, those that no suspected one outranks; all other actions stay as they were."""
    useful, obedient = (make_vec(16, red="meander", order="drawn", mask=mask) for mask in ("useful", "obedient"))
    a, b = useful.reset(seed=2)[0], obedient.reset(seed=2)[0]
    some = 0
    for row in actions_of(60, 16):
        fix = np.zeros(145, np.bool_)
        fix[[n for n in range(145) if fixed_host(n) >= 0]] = True
        np.testing.assert_array_equal(a["action_mask"][:, ~fix], b["action_mask"][:, ~fix])
        for i in range(16):
            allowed = {fixed_host(n) for n in np.flatnonzero(b["action_mask"][i] & fix)}
            due = {h for h in range(NUM_HOSTS) if b["obs"][i, AT_DUE + h]}
            suspected = sum(1 << h for h in range(NUM_HOSTS) if b["obs"][i, AT_SUSPECTED + h])
            assert allowed == due
            assert all(judge(int(obedient.state["order"][i]), suspected, h) == 1 for h in due)
            some += len(due)
        a, b = useful.step(row)[0], obedient.step(row)[0]
    assert some > 100


def test_the_multiplier_costs_each_violation_and_leaves_the_own_return_alone() -> None:
    """Rewards differ by the weight times the violations; what is reported as own return does not differ."""
    alone, paid, _ = run(order=ORDER, red="meander")
    priced, shaped, _ = run(order=ORDER, red="meander", alignment=Alignment("lagrange", weight=3.0))
    np.testing.assert_array_equal(alone, priced)
    np.testing.assert_allclose((paid - shaped).sum(0), 3.0 * alone["tally"]["true"]["violations"], rtol=1e-5)
    np.testing.assert_allclose(paid.sum(0, dtype=np.float64), alone["cost"] / -10, atol=1e-3)
    assert alone["tally"]["true"]["violations"].sum() > 10


def test_the_reward_method_pays_the_change_of_the_rate() -> None:
    """Over an episode the terms add up to lambda times (rate - 1): nothing for a fix as such, nothing for idleness."""
    alone, paid, _ = run(order=ORDER, red="meander")
    _, shaped, _ = run(order=ORDER, red="meander", alignment=Alignment("reward", weight=8.0))
    true = alone["tally"]["true"]
    rate = true["compliant"] / (true["compliant"] + true["violations"])
    np.testing.assert_allclose((shaped - paid).sum(0), 8.0 * (rate - 1.0), atol=1e-3)


def test_the_multiplier_rises_below_the_target_and_falls_above() -> None:
    """In proportion to the distance, within its bounds; where no fix was judged it rests."""
    rule = Alignment("lagrange", target=0.95, weight=1.0, rate=10.0, most=2.0)
    assert rule.moved(1.0, 0.90) == pytest.approx(1.5)
    assert rule.moved(1.0, 1.00) == pytest.approx(0.5)
    assert rule.moved(1.0, 0.0) == 2.0
    assert rule.moved(0.1, 1.0) == 0.0
    assert rule.moved(1.0, None) == 1.0
    assert Alignment("reward", weight=8.0).moved(8.0, 0.2) == 8.0
    with pytest.raises(ValueError, match="alignment: expected one of"):
        Alignment("bonus")  # type: ignore[arg-type]


def test_after_a_rollout_the_counters_are_metrics() -> None:
    """Compliance, coverage, wasted fixes and the own return of the episodes that ended; then they are forgotten."""
    episodes, _, envs = run(order=ORDER, red="bline", alignment=Alignment("lagrange", weight=1.0))
    row = envs.account(episodes)
    true = episodes["tally"]["true"]
    each = true["compliant"] / (true["compliant"] + true["violations"])
    assert row["workflow/compliance"] == pytest.approx(each.mean())
    assert row["workflow/return"] == pytest.approx(episodes["cost"].mean() / -10)
    assert row["workflow/worst_environment"] == pytest.approx(each.min())
    assert row["workflow/coverage"] == pytest.approx((true["answered"] / true["held_steps"]).mean())
    assert envs.weight > 1.0
    assert envs.after_rollout(0.5)["workflow/episodes"] == 0
    assert compliance_by_env(episodes) == pytest.approx(dict(enumerate(each)))


def test_a_saved_state_goes_on_to_the_same_counts() -> None:
    """In the middle of an episode, with the multiplier."""
    whole, _, _ = run(order=ORDER, red="meander", alignment=Alignment("lagrange", weight=2.0))
    actions = actions_of(100, 8)
    first = OrderedVectorEnv(
        make(mask="none", order=ORDER, red="meander"), 8, alignment=Alignment("lagrange", weight=2.0)
    )
    first.reset(seed=3)
    for row in actions[:50]:
        first.step(row)
    first.weight = 1.25
    second = OrderedVectorEnv(make(mask="none", order=ORDER, red="meander"), 8)
    second.reset(seed=9)
    second.set_state(first.get_state())
    for row in actions[50:]:
        second.step(row)
    np.testing.assert_array_equal(second.take_episodes(), whole)
    assert second.weight == 1.25


def test_a_reset_forgets_unfinished_episodes() -> None:
    """What was counted before it does not leak into the next episode."""
    envs = OrderedVectorEnv(make(mask="none", order=ORDER, red="meander"), 8)
    envs.reset(seed=5)
    for row in actions_of(30, 8, seed=1):
        envs.step(row)
    envs.reset(seed=3)
    for row in actions_of(100, 8):
        envs.step(row)
    np.testing.assert_array_equal(envs.take_episodes(), run(order=ORDER, red="meander")[0])


def test_training_gets_the_alignment_and_evaluation_does_not() -> None:
    """By the options of `shoal train cage2 --order ...`, through the path that training takes."""
    made = environment(**vars(Cage2Options(order=ORDER, red="bline")))
    for stream, method in ((Stream.TRAIN, "lagrange"), (Stream.EVALUATE, "none")):
        envs = make_any(made, 2, stream=stream)
        assert isinstance(envs, OrderedVectorEnv)
        assert envs.alignment.method == method
        envs.close()
    rows = {row[1] for row in Cage2Task().console_rows(Cage2Options(order=ORDER))}
    assert rows >= {"workflow/compliance", "workflow/return"}
    assert not Cage2Task().console_rows(Cage2Options())
    with pytest.raises(ValueError, match="order: expected none with simulator cyborg"):
        environment("cyborg", order=ORDER)


def test_wrong_options_are_refused_by_name() -> None:
    """A mask that needs an order, an order that is none, an environment without one."""
    with pytest.raises(ValueError, match="obedient needs an order"):
        make(mask="obedient")
    with pytest.raises(ValueError, match="order: expected the five unit types"):
        make(order="user,first")
    with pytest.raises(ValueError, match="under an order"):
        make(order=ORDER, mask="obedient", features="plain")
    with pytest.raises(TypeError, match="expected an environment under an order"):
        OrderedVectorEnv(make(), 1)
