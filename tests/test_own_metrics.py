"""Numbers of an environment's last info: as means over episodes wherever metrics go, with the same bits everywhere."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import shoal
from shoal.cli import main
from shoal.runs.folder import Run

SMALL: dict[str, Any] = {
    "num_envs": 4, "rollout_steps": 16, "minibatch_size": 32, "update_epochs": 2, "hidden": (8,), "epochs": 5,
    "seed": 3, "target_return": None,
}  # fmt: skip


class Telling(gym.Env[Any, Any]):
    """Says much when an episode of 4 to 7 steps ends, some of it no number; and other things at every step."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
        self.number = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left, self.rights = int(self.np_random.integers(4, 8)), 0
        self.lucky = bool(self.np_random.integers(2))
        return np.zeros(2, np.float32), {"of_reset": 7}

    def step(self, action: Any) -> Any:
        self.left -= 1
        self.rights += int(action)
        info: dict[str, Any] = {"rights": self.rights, "left": self.left}
        if self.left == 0:
            info |= {
                "won": self.lucky, "score": np.float32(self.rights), "zero_d": np.array(self.rights),
                "text": "done", "many": np.arange(3), "nothing": None, "huge": 10**400,
                "broken": float("nan") if self.lucky else 2.0, "inner": {"depth": self.rights + 0.5},
            }  # fmt: skip
            if self.lucky:
                info["seldom"] = 1
        return np.zeros(2, np.float32), 1.0, self.left == 0, False, info


def trained(folder: Path, name: str, env: Any = Telling, **options: Any) -> Any:
    where = {} if "resume" in options else {"runs_dir": str(folder), "name": name, **SMALL}
    return shoal.train(env=env, stream=io.StringIO(), **{**where, **options})


def rows(run: str) -> list[dict[str, Any]]:
    found = Run.open(run, Path()).metrics()
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in found]


def infos(row: dict[str, Any]) -> dict[str, float]:
    return {name.removeprefix("info/"): value for name, value in row.items() if name.startswith("info/")}


class Modest(Telling):
    """Says nothing that Gymnasium's own batches cannot hold."""

    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        info.pop("huge", None)
        return *rest, info


def sync(mode: AutoresetMode) -> Any:
    return gym.vector.SyncVectorEnv([Modest] * 4, autoreset_mode=mode)


@pytest.fixture(autouse=True)
def unreported(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Pages are written where they are looked at."""
    if "report" not in request.node.name and "hostile" not in request.node.name:
        monkeypatch.setattr("shoal.training.write_report", lambda run: None)


def test_the_means_are_those_of_the_episodes(tmp_path: Path) -> None:
    """Counted by hand from the same episodes, played by the same actions."""
    run = trained(tmp_path, "a", backend="serial", epochs=1, num_envs=1, rollout_steps=64).run

    class Recorder(shoal.Callback):
        def on_rollout(self, training: Any, rollout: Any) -> None:
            self.actions, self.ended = rollout.actions[:, 0].tolist(), rollout.ended[:, 0].tolist()

    recorder = Recorder()
    trained(tmp_path, "b", backend="serial", epochs=1, num_envs=1, rollout_steps=64, callbacks=[recorder])
    scores, total = [], 0
    for action, ended in zip(recorder.actions, recorder.ended, strict=True):
        total += action
        if ended:
            scores.append(total)
            total = 0
    found = infos(rows(run)[-1])
    mean = sum(scores) / len(scores)
    assert found["score"] == found["rights"] == found["zero_d"] == pytest.approx(mean)
    assert set(found) == {"rights", "left", "won", "score", "zero_d", "broken", "seldom"}
    assert found["left"] == 0
    assert found["broken"] == 2.0
    assert found["seldom"] == 1.0
    assert 0 < found["won"] < 1


@pytest.mark.parametrize(
    "how", ["process", pytest.param("split", marks=pytest.mark.slow), "double", "SAME_STEP", "NEXT_STEP", "DISABLED"]
)
def test_they_are_the_same_on_every_backend(tmp_path: Path, how: str) -> None:
    """Workers, slices, and Gymnasium's own batches in each mode of autoreset."""
    if how.isupper():
        options: dict[str, Any] = {"env": sync(AutoresetMode[how])}
    else:
        options = {"backend": "serial", "slices": "double"} if how == "double" else {"backend": how, "workers": 2}
    other = trained(tmp_path, "other", log_info="score,won,inner.depth", **options).run
    last = infos(rows(other)[-1])
    assert set(last) == {"score", "won", "inner.depth"}
    assert last["inner.depth"] == last["score"] + 0.5
    if how in ("process", "split"):
        assert rows(other) == rows(trained(tmp_path, "serial", backend="serial", log_info="score,won,inner.depth").run)


def test_a_run_that_goes_on_has_the_same_means(tmp_path: Path) -> None:
    """To the last digit."""
    whole = trained(tmp_path, "whole", backend="serial", save_interval=1, keep=99).run
    stopped = tmp_path / "stopped"
    shutil.copytree(whole, stopped)
    for epoch in (3, 4, 5):
        shutil.rmtree(stopped / "checkpoints" / f"epoch-{epoch:08d}")
    trained(tmp_path, "", resume=stopped)
    assert rows(str(stopped)) == rows(whole)
    assert infos(rows(whole)[-1])


def test_names_that_are_no_numbers_or_not_there_are_told(tmp_path: Path) -> None:
    """Once, with what there is; `none` records nothing."""
    run = trained(tmp_path, "a", backend="serial", log_info="scores,text,broken", epochs=20).run
    told = [event["text"] for event in Run(Path(run)).events() if event["event"] == "alarm"]
    assert any("alarm, info text: it is no finite number in some episodes" in one for one in told)
    assert any("alarm, info broken: it is no finite number" in one for one in told)
    (missing,) = [one for one in told if "info scores" in one]
    assert "no episode has ended with a number of that name; the numbers are: rights, left, won, score" in missing
    assert set(infos(rows(run)[-1])) == {"broken"}
    assert not infos(rows(trained(tmp_path, "b", backend="serial", log_info="none").run)[-1])
    options = {**SMALL, "epochs": 60, "log_info": "score", "runs_dir": str(tmp_path)}
    silent = shoal.train("shoal/CartPole-v1", stream=io.StringIO(), **options).run
    told = [event["text"] for event in Run(Path(silent)).events() if event["event"] == "alarm"]
    assert any("info score: no episode has ended with a number of that name" in one for one in told)


def test_they_reach_console_trackers_evaluation_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command line."""
    pytest.importorskip("tensorboard")
    (tmp_path / "telling_env.py").write_text(
        "import gymnasium as gym\nfrom tests.test_own_metrics import Telling\ngym.register('Telling-v0', Telling)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    flags = (
        "--num-envs 4 --rollout-steps 16 --minibatch-size 32 --hidden 8 --epochs 5 --backend serial --log-interval 1"
    )
    more = "--name a --log-info won,score --track tensorboard --evaluate-every 5 --evaluate-episodes 3 --keep 1"
    said = io.StringIO()
    monkeypatch.setattr("sys.stderr", said)
    with pytest.raises(SystemExit, match="0"):
        main(["train", "telling_env:Telling-v0", *flags.split(), *more.split()])
    lines = said.getvalue()
    assert "| won " in lines
    assert "| score " in lines
    assert "\n  won  " in lines
    assert "| rights" not in lines
    last = rows("runs/a")[-1]
    assert set(infos(last)) == {"won", "score"}
    assert "held_out/info/score" in last
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = EventAccumulator("runs/a/tensorboard").Reload()
    assert seen.Scalars("info/score")[-1].value == pytest.approx(last["info/score"])
    shown = io.StringIO()
    monkeypatch.setattr("sys.stdout", shown)
    with pytest.raises(SystemExit, match="0"):
        main(["evaluate", "a", "--episodes", "3", "--json", "--import", "telling_env"])
    assert set(json.loads(shown.getvalue())["deterministic"]["infos"]) == {"won", "score"}
    with pytest.raises(SystemExit, match="0"):
        main(["evaluate", "a", "--episodes", "3", "--import", "telling_env"])
    assert "won: " in shown.getvalue()
    assert "means of the episodes' last infos" in shown.getvalue()
    page = Path("runs/a/report.html").read_text()
    assert "won, mean of the last 100 episodes" in page
    assert "<th>score</th>" in page


def test_an_info_of_a_hostile_name_does_no_harm(tmp_path: Path) -> None:
    """Control characters on the console, markup on the page, a thousand names in the file."""

    class Hostile(Telling):
        def step(self, action: Any) -> Any:
            *rest, _info = super().step(action)
            return *rest, {"<script>alert(1)</script>": 1.0, "\x1b[2J": 2, 7: 3, **{f"n{i}": i for i in range(1000)}}

    stream = io.StringIO()
    result = shoal.train(env=Hostile, stream=stream, backend="serial", runs_dir=str(tmp_path), **SMALL)
    assert len(infos(rows(result.run)[-1])) == 32
    assert "\x1b[2J" not in stream.getvalue()
    assert "<script>alert" not in (Path(result.run) / "report.html").read_text()
