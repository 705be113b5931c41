"""The compiled environment: options, seeds, horizons, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.cage2.simulator.env import Cage2, make, make_vec
from shoal.cage2.simulator.memory import MEMORY_FEATURES
from shoal.cage2.simulator.step import STATE, advance, start
from shoal.compiled.random import RNG, begin
from shoal.core.seeds import Stream, env_keys


def run(num_envs: int, threads: int = 1, steps: int = 60, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Observations uint8[step, env, 52] and rewards of random play that depends on the environment alone."""
    envs = make_vec(num_envs, threads=threads, features="plain", mask="none", **options)
    envs.reset(seed=3)
    actions = np.random.default_rng(1).integers(0, 145, (steps, 8))
    shown, paid = [], []
    for t in range(steps):
        obs, rewards, *_ = envs.step(np.resize(actions[t], num_envs))
        shown.append(obs[:8].copy())
        paid.append(rewards[:8].copy())
    envs.close()
    return np.array(shown), np.array(paid)


@pytest.mark.parametrize("red", ["bline", "meander", "mixed"])
def test_same_seed_same_episode_for_any_number_of_environments_and_threads(red: str) -> None:
    """The first eight of 8, of 64 and of 64 on two threads see and earn the same."""
    few, many, threaded = (run(n, threads=t, red=red, horizon=25) for n, t in ((8, 1), (64, 1), (64, 2)))
    for other in (many, threaded):
        np.testing.assert_array_equal(few[0], other[0])
        np.testing.assert_array_equal(few[1], other[1])


def test_compiled_and_plain_python_agree_to_the_byte() -> None:
    """One episode of each red agent, stepped by the kernel and by the plain functions."""
    for red, name in enumerate(("bline", "meander")):
        envs = make_vec(1, red=name, horizon=200, features="plain", mask="none")
        envs.reset(seed=5)
        s = np.zeros(1, STATE).view(np.recarray)[0]
        rng = np.zeros(1, RNG).view(np.recarray)[0]
        actions = np.random.default_rng(2).integers(0, 145, 150)
        with np.errstate(over="ignore"):
            begin(rng, env_keys(5, 1, Stream.TRAIN)[0], np.uint64(0))
            rng.counter = np.uint64(2)  # reset drew the red agent and the horizon
            start(s, red)
            for action in actions:
                _, rewards, *_ = envs.step(np.array([action]))
                cost = advance(s, rng, int(action))
                assert np.float32(-cost / 10) == rewards[0]
                for field in STATE.names or ():
                    np.testing.assert_array_equal(s[field], envs.state["game"][field][0], err_msg=field)


@pytest.mark.parametrize("horizon", [1, 30])
def test_the_horizon_terminates(horizon: int) -> None:
    """An episode ends at its horizon as a termination, never a truncation, and the next one begins."""
    envs = make_vec(4, horizon=horizon, red="bline", features="plain", mask="none")
    envs.reset(seed=0)
    for t in range(1, 2 * horizon + 1):
        obs, _, terminated, truncated, _ = envs.step(np.zeros(4, np.int64))
        assert terminated.all() == (t % horizon == 0) == terminated.any()
        assert not truncated.any()
        if terminated.any():
            assert not obs.any()


def test_several_horizons_are_drawn_evenly() -> None:
    """With (30, 50, 100) a third of the episodes has each length."""
    envs = make_vec(3000, horizon=(30, 50, 100), features="plain", mask="none")
    envs.reset(seed=0)
    counts = np.unique(envs.state["horizon"], return_counts=True)
    assert counts[0].tolist() == [30, 50, 100]
    assert (np.abs(counts[1] - 1000) < 100).all()


def test_mixed_draws_red_by_its_shares() -> None:
    """mix gives the shares of bline, meander and sleep; they need not sum to one."""
    envs = make_vec(4000, red="mixed", mix=(2, 1, 1), features="plain", mask="none")
    envs.reset(seed=0)
    shares = np.bincount(envs.state["game"]["red"], minlength=3) / 4000
    np.testing.assert_allclose(shares, (0.5, 0.25, 0.25), atol=0.03)


def test_memory_begins_with_the_52_bits() -> None:
    """The plain observation is the prefix of the one with memory, and the mask allows what is useful."""
    plain = make_vec(16, red="mixed", horizon=40, features="plain", mask="none")
    memory = make_vec(16, red="mixed", horizon=40, features="memory", mask="useful")
    plain.reset(seed=9)
    obs, _ = memory.reset(seed=9)
    rng = np.random.default_rng(0)
    for _ in range(100):
        actions = np.array([rng.choice(np.flatnonzero(row)) for row in obs["action_mask"]])
        bits, rewards, *_ = plain.step(actions)
        obs, same_rewards, *_ = memory.step(actions)
        assert obs["obs"].shape == (16, MEMORY_FEATURES)
        np.testing.assert_array_equal(bits, obs["obs"][:, :52])
        np.testing.assert_array_equal(rewards, same_rewards)


def test_blue_that_does_nothing_pays_nothing_to_a_sleeping_red() -> None:
    """Sleep against sleep is silent."""
    shown, paid = run(8, red="sleep", steps=1)
    assert shown.shape == (1, 8, 52)
    assert set(paid.ravel().tolist()) <= {0.0, -1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"red": "purple"}, "red: expected one of bline, meander, sleep, mixed; got 'purple'"),
        ({"horizon": 0}, "horizon: expected 1 to 30000 steps, got 0"),
        ({"horizon": -3}, "horizon: expected 1 to 30000 steps, got -3"),
        ({"horizon": ()}, "horizon: expected 1 to 8 numbers"),
        ({"features": "all"}, "features: expected plain or memory, got 'all'"),
        ({"mask": "some"}, "mask: expected none or useful, got 'some'"),
        ({"mix": (1, 2)}, "mix: expected three shares"),
        ({"mix": (0, 0, 0)}, "mix: expected three shares"),
        ({"mix": (float("nan"), 1, 1)}, "mix: expected three shares"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    """A wrong option is a ValueError that says what it may be."""
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make(**options)


def test_variants_have_their_spaces() -> None:
    """Box without a mask, Dict with one."""
    assert isinstance(make(features="plain", mask="none"), Cage2)
    space = make(features="memory", mask="useful").observation_space
    assert space["obs"].shape == (MEMORY_FEATURES,)  # type: ignore[index]
    assert space["action_mask"].shape == (145,)  # type: ignore[index]
