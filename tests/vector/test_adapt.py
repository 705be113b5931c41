"""One way to step any vector environment: what each autoreset mode means, worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from shoal.core.errors import ShapeError
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.adapt import Outcome, Stepper, autoreset_mode
from shoal.vector.serial import SerialVectorEnv


def _stepper(env: VectorEnv[Any, Any, Any], seed: Any) -> tuple[Stepper, list[Any]]:
    stepper = Stepper(env)
    out = stepper.layout.allocate(env.num_envs)
    stepper.reset(seed, out)
    return stepper, out


def _step(stepper: Stepper, out: list[Any]) -> Outcome:
    return stepper.step(np.ones(stepper.env.num_envs, int), out)


def _tick(length: int) -> Any:
    return lambda: TickEnv(length)


def test_next_step_by_hand() -> None:
    """NEXT_STEP: the final observation stays in the row, and the step after it is marked as no transition."""
    env = SyncVectorEnv([_tick(2), _tick(3)], autoreset_mode=AutoresetMode.NEXT_STEP)
    stepper, out = _stepper(env, [2, 1])  # environment 0 is truncated at 2, environment 1 terminated at 3
    first, second, third, fourth = (_step(stepper, out) for _ in range(4))
    assert first.valid is not None
    assert first.valid.all()
    assert second.truncated.tolist() == [True, False]
    assert second.final is not None
    rows, (final,) = second.final
    assert rows.tolist() == [0]
    assert final[0, 0] == 2
    assert third.valid is not None
    assert third.valid.tolist() == [False, True]  # environment 0 only reset
    assert third.rewards[0] == 0
    assert third.terminated.tolist() == [False, True]
    assert third.final is None  # terminated: nothing to bootstrap from
    assert fourth.valid is not None
    assert fourth.valid.tolist() == [True, False]


def test_next_step_rows_show_what_the_policy_sees() -> None:
    """NEXT_STEP: the row holds the final observation, and after the dummy step the next episode's first."""
    env = SyncVectorEnv([_tick(2)], autoreset_mode=AutoresetMode.NEXT_STEP)
    stepper, out = _stepper(env, [2])
    clocks = []
    for _ in range(4):
        _step(stepper, out)
        clocks.append(int(out[0][0, 0]))
    assert clocks == [1, 2, 0, 1]


def test_disabled_by_hand() -> None:
    """DISABLED: the finished environment is reset by mask at once, the other is left alone, the final one is kept."""
    env = SyncVectorEnv([_tick(2), _tick(9)], autoreset_mode=AutoresetMode.DISABLED)
    stepper, out = _stepper(env, [2, 2])
    _step(stepper, out)
    outcome = _step(stepper, out)
    assert outcome.truncated.tolist() == [True, False]
    assert outcome.valid is None
    assert out[0][:, 0].tolist() == [0, 2]
    assert outcome.final is not None
    assert outcome.final[1][0][0, 0] == 2
    _step(stepper, out)
    assert out[0][:, 0].tolist() == [1, 3]


@pytest.mark.parametrize("kind", ["gymnasium", "serial", "wrapped"])
def test_same_step_by_hand(kind: str) -> None:
    """SAME_STEP: the row shows the next episode, the true final observation comes beside it, only where cut short."""
    if kind == "gymnasium":
        env: Any = SyncVectorEnv([_tick(2), _tick(2)], autoreset_mode=AutoresetMode.SAME_STEP)
    else:
        env = SerialVectorEnv([_tick(2), _tick(2)])
        env = VectorWrapper(env) if kind == "wrapped" else env
    stepper, out = _stepper(env, [2, 1])
    assert _step(stepper, out).final is None
    outcome = _step(stepper, out)
    assert outcome.truncated.tolist() == [True, False]
    assert outcome.terminated.tolist() == [False, True]
    assert out[0][:, 0].tolist() == [0, 0]
    assert outcome.final is not None
    rows, (final,) = outcome.final
    assert rows.tolist() == [0]
    assert final[:, 0].tolist() == [2]
    assert outcome.valid is None
    assert outcome.broken is None


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "wrapped"])
def test_restarts_are_broken_episodes(wrapped: bool) -> None:
    """A restarted environment is reported as broken, also through a wrapper."""
    env: Any = SerialVectorEnv([TickEnv, lambda: FaultyEnv("raise-step", at_step=2)], on_fault="restart")
    stepper, out = _stepper(VectorWrapper(env) if wrapped else env, 0)
    assert _step(stepper, out).broken is None
    outcome = _step(stepper, out)
    assert outcome.broken is not None
    assert outcome.broken.tolist() == [False, True]
    assert _step(stepper, out).broken is None


class _Odd(VectorWrapper[Any, Any, Any, Any, Any]):
    def __init__(self, how: str) -> None:
        super().__init__(SyncVectorEnv([_tick(1)] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
        self.how = how

    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = super().step(actions)
        if self.how == "observation":
            obs = obs[0]  # NumPy would broadcast it over the batch
        if self.how == "reward":
            rewards = rewards[0]
        if self.how == "final":
            del infos["final_obs"]
        return obs, rewards, terminated, truncated, infos


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("observation", ShapeError, r"shape \(2, 4\), got \(4,\)"),
        ("reward", ShapeError, r"rewards of shape \(2,\), got \(\)"),
        ("final", ValueError, "final_obs"),
    ],
)
def test_a_foreign_environment_is_not_broadcast(how: str, error: type[Exception], message: str) -> None:
    """Wrong shapes from a user's own vector environment, or a missing final observation, are named."""
    stepper, out = _stepper(_Odd(how), [2, 2])
    with pytest.raises(error, match=message):
        _step(stepper, out)


@pytest.mark.parametrize("mode", [None, "nonsense", 3])
def test_mode_must_be_known(mode: Any) -> None:
    """Without a known autoreset mode the error says where to set it."""
    env = VectorEnv()
    env.metadata = {"autoreset_mode": mode}
    with pytest.raises(ValueError, match="set it on the environment"):
        autoreset_mode(env)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_mode_may_be_text(mode: AutoresetMode) -> None:
    """The enum's value is taken for the enum."""
    env = VectorEnv()
    env.metadata = {"autoreset_mode": mode.value}
    assert autoreset_mode(env) == mode
