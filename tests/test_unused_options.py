"""An option that was asked for and would be without effect is refused with the cure, or said; never ignored."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal import cli
from shoal.comparison import api
from shoal.config import TrainConfig
from shoal.runs.folder import Run
from shoal.starting import check_used, without_unused
from shoal.tasks.presets import config_for
from shoal.testing.faults import TickEnv

SMALL: dict[str, Any] = {"num_envs": 2, "rollout_steps": 16, "minibatch_size": 16, "hidden": (8,), "torch_threads": 1}
FLAGS = ["--num-envs", "2", "--rollout-steps", "16", "--minibatch-size", "16", "--hidden", "8", "--steps", "64"]
IN_WORKERS = "is for environments in worker processes"
REFUSED = [
    ("CartPole-v1", {"backend": "serial", "workers": 2}, f"--workers 2 {IN_WORKERS}", "take --backend process"),
    ("CartPole-v1", {"backend": "serial", "env_threads": 2}, "--env-threads 2 is for compiled", "leave it out"),
    ("CartPole-v1", {"backend": "process", "env_threads": "auto"}, "--env-threads auto is for comp", "--workers take"),
    ("CartPole-v1", {"backend": "serial", "slices": "ready"}, "--slices ready acts for each worker", "leave it out"),
    ("CartPole-v1", {"max_restarts": 3}, "--max-restarts 3 is for --on-fault restart", "add that"),
    ("CartPole-v1", {"restart_window": 3}, "--restart-window 3 is for --on-fault restart", "add that"),
    ("CartPole-v1", {"backend": "process", "ray_address": "auto"}, "--ray-address auto is for --backend ray", "add"),
    ("CartPole-v1", {"backend": "ray", "start_method": "fork"}, "--start-method fork is for worker proc", "Ray starts"),
    ("CartPole-v1", {"rank_timeout": 60.0}, "--rank-timeout 60.0 is for several ranks", "use torchrun"),
    ("shoal/CartPole-v1", {"workers": 2}, f"--workers 2 {IN_WORKERS}", "(--env-threads takes more cores)"),
    ("shoal/CartPole-v1", {"step_timeout": 9.0}, f"--step-timeout 9.0 {IN_WORKERS}", "in one call: leave it out"),
    ("shoal/CartPole-v1", {"start_method": "fork"}, f"--start-method fork {IN_WORKERS}", "in one call: leave it out"),
    (
        "cage2",
        {"build_timeout": 9.0},
        f"--build-timeout 9.0 {IN_WORKERS}",
        "and cage2 steps all of its own in one call",
    ),
    ("shoal/CartPole-v1", {"slices": "double"}, "--slices double cuts a batch", "leave it out"),
]
TAKEN = [
    ("CartPole-v1", {"workers": 2}),  # --backend auto may take them
    ("CartPole-v1", {"backend": "process", "workers": 2, "step_timeout": 5.0, "slices": "ready"}),
    ("CartPole-v1", {"backend": "split", "workers": 2, "start_method": "fork", "build_timeout": 9.0}),
    ("CartPole-v1", {"backend": "serial", "slices": "double", "env_threads": 1, "step_timeout": 300.0}),
    ("CartPole-v1", {"on_fault": "restart", "max_restarts": 3, "restart_window": 9}),
    ("shoal/CartPole-v1", {"env_threads": "auto", "max_restarts": 10}),
    ("rides", {}),  # whose preset has --env-threads auto
    ("rides", {"env_threads": 2}),
]


@pytest.mark.parametrize(("task", "options", "said", "cure"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_without_effect_is_refused(task: str, options: dict[str, Any], said: str, cure: str) -> None:
    """By its flag and value, with what to do."""
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        check_used(config_for(task, **options))
    assert cure in str(error.value)


@pytest.mark.parametrize(("task", "options"), TAKEN, ids=str)
def test_what_has_an_effect_is_taken(task: str, options: dict[str, Any]) -> None:
    """And so is a value that is the default, or the preset's."""
    check_used(config_for(task, **options))


@pytest.mark.parametrize("options", [{"step_timeout": 5.0}, {"build_timeout": 5.0}, {"start_method": "spawn"}], ids=str)
def test_a_precaution_that_does_nothing_is_spoken_of(options: dict[str, Any]) -> None:
    """A script may have it for whichever backend it is given."""
    (name, value), *_ = options.items()
    (said,) = check_used(config_for("CartPole-v1", backend="serial", **options))
    assert said.startswith(f"--{name.replace('_', '-')} {value} is without effect")
    assert check_used(config_for("CartPole-v1", backend="process", **options)) == []


def test_a_rank_of_torchrun_has_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """There it is of use."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_used(config_for("CartPole-v1", rank_timeout=60.0))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--backend", "serial", "--workers", "2"], "--workers 2 is for environments in worker processes"),
        (["--backend", "serial", "--workers", "2", "--seeds", "2"], "--workers 2 is for environments in worker proc"),
        (["--reshard"], "--reshard is for a run that goes on with another --num-envs: add --resume RUN"),
        (["--reshard", "--seeds", "2"], "--reshard is for a run that goes on with another --num-envs"),
    ],
    ids=str,
)
def test_from_the_shell(more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and no run folder."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "CartPole-v1", *FLAGS, *more, "--runs-dir", str(tmp_path)])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_from_python(tmp_path: Path) -> None:
    """In Python's words, whatever the environment is."""
    with pytest.raises(ValueError, match=r"^workers= 2 is for .*, or take backend= process$"):
        shoal.train(env=TickEnv, backend="serial", workers=2, runs_dir=str(tmp_path), **SMALL)
    with pytest.raises(ValueError, match=r"^reshard= is for a run that goes on"):
        shoal.train("CartPole-v1", reshard=True, runs_dir=str(tmp_path), **SMALL)


def test_a_run_may_go_on_where_its_options_mean_nothing(tmp_path: Path) -> None:
    """What it was begun with is not asked for again; nor is a run in one process labelled for what it cannot do."""
    quiet: dict[str, Any] = {"runs_dir": str(tmp_path), "stream": io.StringIO()}
    first = shoal.train(
        env=TickEnv,
        name="a",
        epochs=1,
        backend="process",
        workers=2,
        slices="ready",
        step_timeout=60.0,
        **SMALL,
        **quiet,
    )
    assert [event["event"] for event in Run(Path(first.run)).events()].count("inexact") == 1
    on = shoal.train(resume=first.run, env=TickEnv, epochs=2, backend="serial", stream=io.StringIO())
    assert on.status == "finished"
    assert [event["event"] for event in Run(Path(first.run)).events()].count("inexact") == 1
    with pytest.raises(ValueError, match="workers= 3 is for environments in worker processes"):
        shoal.train(resume=first.run, env=TickEnv, epochs=3, workers=3, stream=io.StringIO())


def test_arms_of_a_comparison_share_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`shoal compare --vary backend=serial,process --workers 2` is a fair question: the arm without workers says so."""
    begun: list[Any] = []
    said: list[str] = []
    monkeypatch.setattr(api, "finish", lambda folder, parallel, say: begun.append(folder.plan))
    shoal.compare(
        "CartPole-v1", vary={"backend": ["serial", "process"]}, workers=2, steps=64, seeds=2, runs_dir=str(tmp_path),
        say=said.append, **SMALL,
    )  # fmt: skip
    (told,) = said
    assert told.startswith("backend=serial: --workers 2 is for environments in worker processes")
    assert [arm.config["vector"]["workers"] for arm in begun[0].arms] == [None, 2]


def test_what_is_left_out_becomes_the_tasks_own() -> None:
    """Rides has --env-threads auto of its own."""
    config, told = without_unused(config_for("rides", workers=2))
    assert (config.vector.workers, config.vector.env_threads, len(told)) == (None, "auto", 1)
    assert without_unused(TrainConfig()) == (TrainConfig(), [])
