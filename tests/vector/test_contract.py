"""Every backend keeps the vector contract; a backend that breaks it is found out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from drill import Drill, Uneven
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from shoal.testing.contract import ContractBroken, check_vector_env
from shoal.vector.make import make_vec
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers.process import ProcessVectorEnv
from shoal.vector.workers.split import SplitVectorEnv

N = 5


def _factories(observation: str = "box", action: str = "discrete") -> list[Callable[[], gym.Env[Any, Any]]]:
    return [lambda: Drill(observation, action)] * N  # closures: only cloudpickle can send them


BACKENDS: dict[str, Callable[..., VectorEnv[Any, Any, Any]]] = {
    "serial": SerialVectorEnv,
    "serial-double": lambda factories: SerialVectorEnv(factories, slices=2),
    "process-1": lambda factories: ProcessVectorEnv(factories, workers=1),
    "process-2": lambda factories: ProcessVectorEnv(factories, workers=2),
    "process-3": lambda factories: ProcessVectorEnv(factories, workers=3),
    "process-double": lambda factories: ProcessVectorEnv(factories, workers=2, slices="double"),
    "process-ready": lambda factories: ProcessVectorEnv(factories, workers=2, slices="ready"),
    "process-spawn": lambda factories: ProcessVectorEnv(factories, workers=2, start_method="spawn"),
    "process-fork": lambda factories: ProcessVectorEnv(factories, workers=2, start_method="fork"),
    "process-forkserver": lambda factories: ProcessVectorEnv(factories, workers=2, start_method="forkserver"),
    "split-1": lambda factories: SplitVectorEnv(factories, workers=1),
    "split-2": lambda factories: SplitVectorEnv(factories, workers=2, here=1),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_keeps_the_contract(backend: str) -> None:
    """Spaces, arrays, seeds, final observations, infos, autoreset, masked reset and close hold on every backend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # fork after torch: asked for here
        warnings.simplefilter("ignore", DeprecationWarning)
        report = check_vector_env(lambda: BACKENDS[backend](_factories()), reference=Drill)
    assert report.seen == {"terminated", "truncated"}
    assert "episodes" in report.checked


@pytest.mark.parametrize("action", ["start", "multi", "binary", "box", "dict", "tuple"])
@pytest.mark.parametrize("backend", ["serial", "process-double", "split-1"])
def test_action_spaces(backend: str, action: str) -> None:
    """Actions of every kind of space reach the environment as the space describes them."""
    check_vector_env(
        lambda: BACKENDS[backend](_factories("box", action)), reference=lambda: Drill("box", action), steps=30
    )


@pytest.mark.parametrize("observation", ["double", "image", "discrete", "masked", "nested"])
@pytest.mark.parametrize("backend", ["serial", "process-2", "split-2"])
def test_observation_spaces(backend: str, observation: str) -> None:
    """Observations of every kind of space, Dict with action_mask included, come through unchanged."""
    check_vector_env(lambda: BACKENDS[backend](_factories(observation)), reference=lambda: Drill(observation), steps=30)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv], ids=lambda kind: kind.__name__)
def test_gymnasium_backends_pass_through(kind: Any, mode: AutoresetMode) -> None:
    """Gymnasium's own vector environments are returned as they are and keep the contract in every autoreset mode."""

    def make() -> Any:
        given = kind(_factories(), autoreset_mode=mode)
        assert make_vec(given) is given
        return given

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Gymnasium forks
        report = check_vector_env(make, reference=Drill, refuses_after_close=False)
    assert report.seen == {"terminated", "truncated"}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["shoal/CartPole-v1", "shoal/GridWorld-v0"])
def test_compiled_backends_keep_the_contract(name: str, threads: int) -> None:
    """Compiled environments keep the same contract, for any number of threads."""
    import shoal.tasks.registration

    shoal.tasks.registration.register()
    report = check_vector_env(
        lambda: make_vec(name, N, backend="compiled", env_threads=threads),
        reference=lambda: gym.make(name),
        steps=150,
        refuses_after_close=False,
    )
    assert report.seen


def _trajectory(env: VectorEnv[Any, Any, Any], steps: int = 60) -> list[Any]:
    kept = [env.reset(seed=3)[0]]
    env.action_space.seed(4)
    for _ in range(steps):
        obs, rewards, terminated, truncated, infos = env.step(env.action_space.sample())
        finals = [None if final is None else final.tolist() for final in infos.get("final_obs", [])]
        kept += [obs, rewards, terminated, truncated, finals]
    env.close()
    return [value if isinstance(value, list) else value.tolist() for value in kept]


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "serial"])
def test_same_seed_same_trajectories_on_every_backend(backend: str) -> None:
    """Row 18: the same seed gives the same numbers whatever the backend, the workers, the slices or the timing."""
    factories = [Uneven] * N
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert _trajectory(BACKENDS[backend](factories)) == _trajectory(SerialVectorEnv(factories))


def test_trajectories_do_not_depend_on_the_neighbours() -> None:
    """Environment i behaves alike in a batch of 2 and of 6."""
    few, many = SerialVectorEnv([Drill] * 2), SerialVectorEnv([Drill] * 6)
    few.reset(seed=3), many.reset(seed=3)
    for t in range(40):
        a, b = few.step(np.full(2, t % 4)), many.step(np.full(6, t % 4))
        for left, right in zip(a[:4], b[:4], strict=True):
            assert np.array_equal(left, right[:2])


class _Broken(VectorWrapper[Any, Any, Any, Any, Any]):
    """A vector environment with one fault."""

    def __init__(self, how: str) -> None:
        super().__init__(SerialVectorEnv(_factories()))
        self.how = how
        if how == "mode":
            self.metadata = {}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        obs, infos = super().reset(seed=None if self.how == "seed" else seed, options=options)
        if self.how == "mask" and options:
            obs = obs + 1
        return obs.astype(np.float64) if self.how == "dtype" else obs, infos

    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = super().step(actions)
        if self.how == "swap":
            terminated, truncated = truncated, terminated
        if self.how == "final" and "final_obs" in infos:
            infos["final_obs"] = [None if final is None else obs[i] for i, final in enumerate(infos["final_obs"])]
        if self.how == "no-final":
            infos.pop("_final_obs", None)
        if self.how == "reward":
            rewards = rewards[:, None]
        if self.how == "info":
            infos.pop("_count", None)
        return obs, rewards, terminated, truncated, infos


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("mode", "autoreset_mode"),
        ("dtype", "expected observations as float32"),
        ("reward", r"shape \(5,\)"),
        ("seed", "the same trajectories with the same seed"),
        ("swap", "terminated, truncated"),
        ("final", "the observation .* at step"),
        ("no-final", "_final_obs"),
        ("info", "_count"),
        ("mask", "untouched by a reset"),
    ],
)
def test_contract_finds_a_broken_environment(how: str, message: str) -> None:
    """Each kind of broken promise is reported, with what was expected."""
    reference = None if how == "no-final" else Drill
    with pytest.raises((ContractBroken, ValueError), match=message):
        check_vector_env(lambda: _Broken(how), reference=reference)


def test_contract_finds_an_environment_that_ignores_close() -> None:
    """A step after close must not go through."""
    with pytest.raises(ContractBroken, match="after close"):
        check_vector_env(lambda: SyncVectorEnv(_factories(), autoreset_mode=AutoresetMode.SAME_STEP))


def test_contract_wants_an_end_of_an_episode() -> None:
    """With too few steps nothing is claimed about the ends of episodes."""
    with pytest.raises(ContractBroken, match="give more steps"):
        check_vector_env(lambda: SerialVectorEnv(_factories()), steps=1)
