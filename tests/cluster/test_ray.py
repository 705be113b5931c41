"""`--backend ray` does what `serial` does: the same contract, the same numbers, the same weights."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from drill import Drill, Uneven
from gymnasium.vector import AutoresetMode

import shoal
from shoal.config import PPOConfig, TrainConfig, VectorConfig, to_dict
from shoal.learn.weights import weights_of
from shoal.testing.contract import check_vector_env
from shoal.vector.make import make_vec
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers import ray_rows
from shoal.vector.workers.ray import RayVectorEnv
from shoal.vector.workers.ray_instance import Instance

pytestmark = pytest.mark.usefixtures("ray")
N = 5


@pytest.fixture(params=["shared", "sent"])
def rows_are(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Actors of a local instance see the owner's memory, those of a cluster are sent their rows."""
    if request.param == "sent":
        monkeypatch.setattr(Instance, "folder", None)
    return str(request.param)


def trajectory(env: Any, steps: int = 60, reset_at: int = 30) -> list[Any]:
    """All that came out of a batch, with a reset of some environments on the way."""
    kept = [env.reset(seed=3)]
    env.action_space.seed(4)
    for t in range(steps):
        if t == reset_at:
            kept.append(env.reset(options={"reset_mask": np.arange(env.num_envs) % 2 == 0}))
        kept.append(env.step(env.action_space.sample()))
    env.close()
    return kept


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, whatever it is."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray) and a.dtype == object:
        return same(a.tolist(), b.tolist())
    return bool(np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f"))


@pytest.mark.parametrize(
    ("actors", "mode"),
    [(1, AutoresetMode.SAME_STEP), (2, AutoresetMode.NEXT_STEP), (3, AutoresetMode.SAME_STEP)],
)
def test_same_numbers_as_serial(actors: int, mode: AutoresetMode, rows_are: str) -> None:
    """Row 18: infos, final observations and all, for any number of actors and whoever is done first."""
    factories = [Uneven] * N
    envs = RayVectorEnv(factories, workers=actors, autoreset_mode=mode)
    assert [one.shares for one in envs._actors] == [rows_are == "shared" and sys.platform == "linux"] * actors
    there = trajectory(envs)
    assert same(there, trajectory(SerialVectorEnv(factories, autoreset_mode=mode)))


@pytest.mark.parametrize(
    ("observation", "action", "actors"),
    [("masked", "multi", 2), ("nested", "dict", 1), ("image", "box", 1), ("double", "start", 1)],
)
def test_contract(observation: str, action: str, actors: int) -> None:
    """What every backend promises, for odd spaces too."""

    def one() -> gym.Env[Any, Any]:
        return Drill(observation, action)

    report = check_vector_env(lambda: RayVectorEnv([one] * N, workers=actors), reference=one, steps=60)
    assert report.seen == {"terminated", "truncated"}


@pytest.mark.usefixtures("rows_are")
def test_rows_go_straight_into_the_rollout() -> None:
    """With `allocate` the rows are copied once, or written there by the actors."""
    envs = RayVectorEnv([lambda: Drill("image")] * 3000, workers=3)
    serial = SerialVectorEnv([lambda: Drill("image")] * 3000)
    rows = [envs.allocate(4), serial.allocate(4)]
    assert rows[0] is not None
    assert rows[1] is not None
    for batch in (envs, serial):
        batch.reset(seed=1)
    for t in range(4):
        for batch, (leaf,) in zip((envs, serial), rows, strict=True):
            batch.step(np.full(3000, t), out=leaf[t])
    assert envs.block.observations[0] is not envs.block._own[0]
    assert np.array_equal(rows[0][0], rows[1][0])
    envs.close()
    serial.close()


def test_call_and_set_attr() -> None:
    """Values come in the order of the environments."""
    envs = RayVectorEnv([lambda i=i: Drill(infos=bool(i % 2)) for i in range(N)], workers=2)
    assert envs.call("with_infos") == (False, True, False, True, False)
    envs.set_attr("with_infos", [True, False, True, False, True])
    assert envs.get_attr("with_infos") == (True, False, True, False, True)
    with pytest.raises(Exception, match="nothing_of_the_kind"):
        envs.call("nothing_of_the_kind")
    assert envs.reset(seed=0)[0].shape == (N, 3)
    envs.close()


@pytest.mark.usefixtures("rows_are")
def test_state_comes_back_by_replay() -> None:
    """A batch goes on elsewhere, to the bit, from the state of another."""
    envs = RayVectorEnv([Drill] * N, workers=2)
    envs.reset(seed=5)
    for t in range(7):
        envs.step(np.full(N, t % 4))
    state = envs.get_state()
    expected = [envs.step(np.full(N, t % 4))[:4] for t in range(9)]
    envs.close()
    for make in (lambda: RayVectorEnv([Drill] * N, workers=3), lambda: SerialVectorEnv([Drill] * N)):
        other: Any = make()
        assert other.set_state(state) == []
        assert same([other.step(np.full(N, t % 4))[:4] for t in range(9)], expected)
        other.close()


def test_same_weights_as_serial(tmp_path: Path) -> None:
    """After 5 epochs of training, by one actor; and where three go on with what two began."""
    common: dict[str, Any] = {
        "num_envs": 6, "rollout_steps": 32, "seed": 4, "epochs": 5, "runs_dir": str(tmp_path), "save_interval": 2,
        "lr_schedule": "constant",
    }  # fmt: skip
    expected = hash_of(shoal.train("CartPole-v1", backend="serial", **common).run)
    assert hash_of(shoal.train("CartPole-v1", backend="ray", workers=1, **common).run) == expected
    half = shoal.train("CartPole-v1", backend="ray", workers=2, **common | {"epochs": 2})
    on = shoal.train(resume=half.run, epochs=5, workers=3)
    assert hash_of(on.run) == expected


def hash_of(run: str) -> str:
    """Of the weights that a run ended with."""
    weights = weights_of(shoal.load_policy(run).agent.network)
    return hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()


def test_a_compiled_environment_is_refused() -> None:
    """One call steps all of them: there is nothing to spread."""
    with pytest.raises(ValueError, match="expected --backend compiled or auto, got ray"):
        make_vec("shoal/CartPole-v1", 4, backend="ray")
    with pytest.raises(ValueError, match="expected --slices lockstep, got double"):
        make_vec("CartPole-v1", 4, backend="ray", slices="double")


def test_no_cluster_at_the_address() -> None:
    """One sentence that says what to do."""
    from shoal.vector.workers import ray_instance

    class Refusing:
        def init(self, **_: Any) -> None:
            raise ConnectionError("nobody answers\n and more")

    with pytest.raises(RuntimeError, match=r"--ray-address 10.0.0.9:1: .* \(nobody answers\). Start one"):
        ray_instance._connect(Refusing(), "10.0.0.9:1")


def test_options_of_the_cluster_change_no_stored_settings() -> None:
    """At their defaults they are not written down: hashes of settings that were stored stay."""
    written = to_dict(TrainConfig())["vector"]
    assert not {"ray_address", "min_envs"} & set(written)
    given = TrainConfig(vector=VectorConfig(backend="ray", ray_address="auto", on_fault="restart", min_envs=3))
    assert to_dict(given)["vector"]["ray_address"] == "auto"
    assert to_dict(given)["vector"]["min_envs"] == 3
    assert {"ray_address", "min_envs"} <= set(to_dict(TrainConfig(), full=True)["vector"])
    assert "encoder" not in to_dict(PPOConfig())
    with pytest.raises(ValueError, match="--min-envs is for --on-fault restart"):
        VectorConfig(min_envs=3)
    with pytest.raises(ValueError, match="--ray-address is for --backend ray"):
        VectorConfig(ray_address="auto")


def test_rows_of_another_version_are_refused() -> None:
    """A number of bytes that does not fit is never taken for rows."""
    packed = ray_rows.pack([np.zeros(3), np.zeros(3, bool)])
    with pytest.raises(ValueError, match="expected 3 bytes of rows from an actor, got 27"):
        ray_rows.unpack(packed, [np.zeros(3, bool)])
    with pytest.raises(ValueError, match="reshape"):
        ray_rows.unpack(packed[:-1], [np.zeros(3), np.zeros(3, bool)])
