"""Pictures through the user's doors: the flags, the settings of Atari and MiniGrid, deployment, resuming."""

from __future__ import annotations

import functools
import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from shoal import cli, evaluate, load_policy, train
from shoal.config import to_dict
from shoal.core.errors import ShapeError
from shoal.held_out import held_out_seeds
from shoal.runs import checkpoint
from shoal.tasks.presets import config_for
from shoal.vector.preprocess import Preprocess

sys.path.append(str(Path(__file__).parent / "learn"))
from flashes import Flashes

RECIPE: dict[str, Any] = {"frame_skip": 2, "grey": True, "resize": 12, "frame_stack": 3}
SHORT: dict[str, Any] = {
    "num_envs": 4, "rollout_steps": 8, "minibatch_size": 16, "update_epochs": 1, "torch_threads": 1, "seed": 3,
    "hidden": (), "encoder": "impala-small", "lr_schedule": "constant",
}  # fmt: skip
SMALL = ["--num-envs", "2", "--rollout-steps", "8", "--minibatch-size", "16", "--torch-threads", "1", "--seed", "1"]


def run_of(folder: Path, env: Any, **options: Any) -> str:
    given = {**SHORT, **RECIPE, "epochs": 2, "runs_dir": str(folder), **options}
    return train(env=env, stream=StringIO(), **given).run


def weights(run: str) -> dict[str, np.ndarray]:
    return {k: v for k, v in checkpoint.load_latest(Path(run) / "checkpoints").tensors.items() if "env" not in k}


def shoal(args: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(args)
    assert ended.value.code in (0, None)


@pytest.mark.parametrize(
    "env", [Flashes, functools.partial(Flashes, (3, 16, 24)), functools.partial(Flashes, parts=True)]
)
def test_the_same_bits_on_every_backend_and_after_a_resume(tmp_path: Path, env: Any) -> None:
    """Channels last, first, and a part of a Dict; the resumed run is in the middle of episodes, stacks included."""
    whole = run_of(tmp_path, env, name="whole", backend="serial", epochs=3)
    others = [
        run_of(tmp_path, env, name="one", backend="process", workers=1, epochs=3),
        run_of(tmp_path, env, name="two", backend="process", workers=2, epochs=3),
        run_of(tmp_path, env, name="split", backend="split", workers=2, epochs=3),
        run_of(tmp_path, env, name="parted", backend="process", workers=2, epochs=1),
    ]
    train(resume=others[-1], env=env, epochs=3, backend="serial", stream=StringIO())
    assert json.loads((Path(whole) / "config.json").read_text())["frame_stack"] == 3
    expected = weights(whole)
    for other in others:
        found = weights(other)
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[key], expected[key]) for key in expected), other
    events = Path(others[-1]) / "events.jsonl"
    assert "inexact" not in (events.read_text() if events.exists() else "")
    with pytest.raises(ValueError, match="frame_stack= is 3 in the run to resume, 2 was asked for"):
        train(resume=whole, env=env, frame_stack=2, stream=StringIO())


def test_evaluation_and_deployment_see_what_training_saw(tmp_path: Path) -> None:
    """`evaluate` applies the recipe; `policy.wrap` and `policy.observer` do it for others; raw observations are told
    what is missing."""
    run = run_of(tmp_path, Flashes, backend="serial")
    score = evaluate(run, env=Flashes, episodes=3)
    policy = load_policy(run)
    env = policy.wrap(Flashes())
    assert env.observation_space.shape == policy.agent.features.layout.leaves[0][1] == (12, 12, 3)
    observer, raw, total, over = policy.observer(Flashes().observation_space), Flashes(), 0.0, False
    seed = held_out_seeds(3, 1, policy.seed_scheme)[0]
    observation, first = env.reset(seed=seed)[0], observer.first(raw.reset(seed=seed)[0])
    np.testing.assert_array_equal(observation, first)
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        total, over = total + reward, terminated or truncated
    assert total == score["deterministic"]["returns"][0]
    with pytest.raises(
        ShapeError, match=r"--frame-skip 2 --grey --resize 12 --frame-stack 3: take .* policy.wrap\(env"
    ):
        policy(raw.reset(seed=0)[0])
    with pytest.raises(ValueError, match="expected observations that become"):
        policy.wrap(Flashes((16, 24, 3), parts=True))


def test_rewards_are_clipped_for_learning_alone(tmp_path: Path) -> None:
    """Sums of several rewards stay in the returns; targets are of signs."""
    runs = [run_of(tmp_path, Flashes, name=f"c{clip}", backend="serial", clip_rewards=clip) for clip in (False, True)]
    one, other = (json.loads((Path(run) / "metrics.jsonl").read_text().splitlines()[-1]) for run in runs)
    assert any(
        not np.array_equal(a, b) for a, b in zip(weights(runs[0]).values(), weights(runs[1]).values(), strict=True)
    )
    first = [json.loads((Path(run) / "metrics.jsonl").read_text().splitlines()[0]) for run in runs]
    assert first[0]["return/mean_100"] == first[1]["return/mean_100"]
    assert one["return/mean_100"] != other["return/mean_100"] or one["loss/value"] != other["loss/value"]


def test_atari_out_of_the_box(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`shoal train ALE/Pong-v5`, scored, watched, resumed, reported and deployed; frames are skipped once."""
    ale_py = pytest.importorskip("ale_py")
    folder = ["--runs-dir", str(tmp_path)]
    game = ["ALE/Pong-v5", "--env-kwargs", '{"difficulty": 0}', "--name", "pong", *SMALL, *folder]
    shoal(["train", *game, "--epochs", "1", "--backend", "process", "--workers", "2"])
    config = json.loads((tmp_path / "pong" / "config.json").read_text())
    assert (config["frame_skip"], config["frame_stack"], config["resize"], config["grey"]) == (4, 4, 84, True)
    assert json.loads(config["env_kwargs"]) == {"frameskip": 1, "obs_type": "grayscale", "difficulty": 0}
    assert config["ppo"]["clip_rewards"]
    assert config["ppo"]["encoder"] == "nature"
    shoal(["evaluate", "pong", "--episodes", "1", "--max-episode-steps", "12", *folder])
    shoal(["play", "pong", "--episodes", "1", "--max-episode-steps", "3", *folder])
    shoal(["train", "--resume", "pong", "--epochs", "2", *folder])
    assert "inexact" not in capsys.readouterr().out
    (tmp_path / "pong" / "report.html").unlink()
    shoal(["report", "pong", *folder])
    assert (tmp_path / "pong" / "report.html").exists()
    policy = load_policy("pong", runs_dir=tmp_path)
    gym.register_envs(ale_py)
    raw = gym.make("ALE/Pong-v5", frameskip=1, obs_type="grayscale")
    assert raw.unwrapped.ale.getFloat("repeat_action_probability") == 0.25  # type: ignore[attr-defined]
    env = policy.wrap(raw)
    observation, _ = env.reset(seed=0)
    assert observation.shape == (84, 84, 4)
    before = raw.unwrapped.ale.getEpisodeFrameNumber()  # type: ignore[attr-defined]
    env.step(policy(observation))
    assert raw.unwrapped.ale.getEpisodeFrameNumber() - before == 4  # type: ignore[attr-defined]
    env.close()


def test_minigrid_out_of_the_box(tmp_path: Path) -> None:
    """With the module named or not; a run is scored without naming it again; its own wrapper takes the place of
    --leave-out."""
    pytest.importorskip("minigrid")
    folder = ["--runs-dir", str(tmp_path), "--epochs", "1", "--backend", "serial"]
    for number, task in enumerate(("minigrid:MiniGrid-Empty-5x5-v0", "MiniGrid-DoorKey-5x5-v0")):
        shoal(["train", task, "--name", f"m{number}", *SMALL, *folder])
        assert json.loads((tmp_path / f"m{number}" / "config.json").read_text())["leave_out"] == ["mission"]
        assert evaluate(f"m{number}", episodes=2, runs_dir=tmp_path)["episodes"] == 2
    policy = load_policy("m0", runs_dir=tmp_path)
    env = policy.wrap(gym.make("MiniGrid-Empty-5x5-v0"))
    assert policy(env.reset(seed=0)[0]) in range(7)
    image = ["--wrapper", "minigrid.wrappers:ImgObsWrapper", "--encoder", "impala-small"]
    shoal(["train", "MiniGrid-Empty-5x5-v0", "--name", "image", *image, *SMALL, *folder])
    assert evaluate("image", episodes=1, runs_dir=tmp_path)["episodes"] == 1
    assert load_policy("image", runs_dir=tmp_path).agent.features.layout.space.shape == (7, 7, 3)


def test_car_racing_trains(tmp_path: Path) -> None:
    """A picture and continuous actions, seen small, grey and by twos."""
    pytest.importorskip("Box2D")
    few = ["--num-envs", "1", "--rollout-steps", "4", "--minibatch-size", "4", "--update-epochs", "1", "--epochs", "1"]
    shoal(["train", "CarRacing-v3", *few, "--name", "car", "--backend", "serial", "--runs-dir", str(tmp_path)])
    policy = load_policy("car", runs_dir=tmp_path)
    assert policy.agent.features.layout.space.shape == (64, 64, 2)
    assert policy.action_space.shape == (3,)


def test_text_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A part that is no array is refused with the flag that leaves it out."""
    pytest.importorskip("minigrid")
    wrapper = ["--wrapper", "gymnasium.wrappers:RecordEpisodeStatistics", "--backend", "serial"]
    with pytest.raises(SystemExit):
        cli.main(["train", "MiniGrid-Empty-5x5-v0", *wrapper, "--runs-dir", str(tmp_path)])
    assert "or add --leave-out mission" in capsys.readouterr().err


def test_settings_of_games() -> None:
    """By the beginning of an id, with the module named or not; flags win; what a preset gives is recorded."""
    atari = config_for("ALE/Breakout-v5", frame_stack=2)
    assert Preprocess.of(atari) == Preprocess(4, True, 84, 2)
    assert json.loads(config_for("ale_py:ALE/Pong-v5", env_kwargs='{"frameskip": 2}').env_kwargs)["frameskip"] == 2
    assert config_for("minigrid:MiniGrid-Empty-5x5-v0").run.steps == config_for("MiniGrid-Empty-5x5-v0").run.steps
    racing = config_for("CarRacing-v3")
    assert (racing.frame_stack, racing.resize, racing.grey) == (2, 64, True)
    assert "frame_stack" not in to_dict(config_for("CartPole-v1"))
