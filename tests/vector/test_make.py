"""`make_vec`: what it takes, what it refuses, and that workers find what only the caller knows."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from shoal.compiled.vector import CompiledVectorEnv
from shoal.core.protocols import parts_of
from shoal.testing.faults import TickEnv
from shoal.vector.make import make_vec
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers.process import ProcessVectorEnv


@pytest.mark.parametrize(("backend", "kind"), [("serial", SerialVectorEnv), ("process", ProcessVectorEnv)])
def test_by_id(backend: str, kind: type[Any]) -> None:
    """An id gives the backend asked for, with the id's time limit."""
    env = make_vec("CartPole-v1", 3, backend=backend)
    assert isinstance(env, kind)
    assert env.num_envs == 3
    assert env.spec is not None
    assert env.spec.max_episode_steps == 500
    env.close()


def test_by_factory_list_and_kwargs() -> None:
    """A factory is called with env_kwargs; a list gives as many environments as it is long."""
    env = make_vec(TickEnv, 2, backend="serial", env_kwargs={"length": 3})
    assert env.call("length") == (3, 3)  # type: ignore[attr-defined]
    env = make_vec([lambda: TickEnv(1), lambda: TickEnv(2)], backend="serial")
    assert env.call("length") == (1, 2)  # type: ignore[attr-defined]
    pendulum = make_vec("Pendulum-v1", 1, backend="serial", env_kwargs={"g": 3.0})
    assert pendulum.call("g") == (3.0,)  # type: ignore[attr-defined]


def test_compiled_by_id_and_by_class() -> None:
    """A compiled environment is recognised by id, by class and by object; `auto` takes it as compiled."""
    import shoal  # noqa: F401  (registers the ids)
    from shoal.environments.cartpole import CartPole

    for env in ("shoal/CartPole-v1", CartPole, CartPole()):
        said: list[str] = []
        made = make_vec(env, 4, say=said.append)
        assert isinstance(made, CompiledVectorEnv)
        assert "compiled" in said[0]
    with pytest.raises(ValueError, match="compiled or auto"):
        make_vec(CartPole, 4, backend="serial")


def test_an_environment_with_telling_names_is_not_taken_for_compiled() -> None:
    """`state` and `observe` are common names: only a CompiledEnv is a CompiledEnv."""

    class Ordinary(TickEnv):
        state = None

        def observe(self) -> None: ...

    env = make_vec(Ordinary, 2, backend="serial")
    assert isinstance(env, SerialVectorEnv)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("CartPole-v1", 2, "gpu"), ValueError, "auto, serial, process, split, compiled"),
        (("CartPole-v1", 2, "compiled"), ValueError, "not a compiled environment"),
        (("CartPole-v1", 0, "serial"), ValueError, "at least 1"),
        (("CartPol-v1", 2, "serial"), ValueError, "Did you mean CartPole-v1"),
        (("no_such_module:Env-v0", 2, "serial"), ValueError, "no environment"),
        ((TickEnv(), 2, "serial"), TypeError, "got the environment"),
        (([TickEnv] * 3, 2, "serial"), ValueError, "3 factories for 2"),
        (([], 1, "serial"), TypeError, "list of functions"),
        (([3], 1, "serial"), TypeError, "list of functions"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refused(arguments: tuple[Any, int, str], error: type[Exception], message: str) -> None:
    """What cannot be made says what was expected."""
    env, num_envs, backend = arguments
    with pytest.raises(error, match=message):
        make_vec(env, num_envs, backend=backend)


def test_kwargs_beside_a_list_are_refused() -> None:
    """They would be dropped silently otherwise."""
    with pytest.raises(ValueError, match="no env_kwargs"):
        make_vec([TickEnv], 1, backend="serial", env_kwargs={"length": 3})


def test_a_vector_environment_passes_through() -> None:
    """It is returned as it is, and that is said."""
    given = gym.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    said: list[str] = []
    assert make_vec(given, 7, say=said.append) is given
    assert "as it is" in said[0]


@pytest.mark.parametrize("entry_point", ["Mine", "'__main__:Mine'"])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_an_id_registered_in_the_script_reaches_the_workers(method: str, entry_point: str, tmp_path: Path) -> None:
    """A worker has never run the caller's script, yet makes the environment that the script registered."""
    path = tmp_path / "script.py"
    path.write_text(
        textwrap.dedent(f"""
        import gymnasium as gym
        from shoal.testing.faults import TickEnv
        from shoal.vector.make import make_vec

        class Mine(TickEnv):
            def __init__(self, length=5):
                super().__init__(length)

        gym.register("Mine-v0", entry_point={entry_point}, max_episode_steps=4)
        envs = make_vec("Mine-v0", 4, backend="process", workers=2, start_method="{method}", env_kwargs={{"length": 9}})
        print(envs.call("length"), envs.spec.id)
        envs.close()
        """)
    )
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=200)
    assert done.stdout == "(9, 9, 9, 9) Mine-v0\n", done.stderr


def test_slices_of_serial() -> None:
    """`double` gives serial two slices too, so that a run does not change with its backend."""
    env: Any = make_vec(TickEnv, 4, backend="serial", slices="double")
    assert len(env.slices) == 2
    assert np.array_equal(env.reset(seed=0)[0], make_vec(TickEnv, 4, backend="serial").reset(seed=0)[0])


def test_slices_that_serial_cannot_have() -> None:
    """`ready` is refused; where --backend auto ends in this process, it says that they are without effect."""
    with pytest.raises(ValueError, match="--backend serial steps one after the other: expected --slices lockstep"):
        make_vec(TickEnv, 4, backend="serial", slices="ready")
    said: list[str] = []
    with closing(make_vec(TickEnv, 4, workers=1, slices="ready", say=said.append)) as envs:
        assert not parts_of(envs).by_readiness
    assert "--slices ready is without effect" in said[-1]
