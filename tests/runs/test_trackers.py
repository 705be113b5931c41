"""Trackers: what they write can be read again, and their failures do not reach the training."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import shoal.runs
from shoal.runs import Run
from shoal.runs import trackers as tracking
from shoal.runs.trackers import Guarded, make_trackers

SOURCE = str(Path(shoal.runs.__file__).parents[2])


@pytest.fixture
def run(tmp_path: Path) -> Any:
    with Run.create(tmp_path, "first", {"lr": 0.1}, "shoal train X", "X") as made:
        yield made


class Broken:
    """A tracker that fails from its second row on."""

    def __init__(self, error: Exception) -> None:
        self.error, self.rows = error, 0

    def log(self, row: dict[str, Any]) -> None:
        self.rows += 1
        if self.rows > 1:
            raise self.error

    def close(self) -> None:
        raise self.error


def test_jsonl_is_always_there(run: Run) -> None:
    """Without any name the one tracker writes metrics.jsonl."""
    for names in ("", " , "):
        (tracker,) = make_trackers(names, run, {})
        tracker.log({"epoch": 1, "x": float("nan")})
        tracker.close()
    assert run.metrics() == [{"epoch": 1, "x": None, "not_finite": ["x"]}] * 2


def test_unknown_tracker(run: Run) -> None:
    """An unknown name lists the choices."""
    with pytest.raises(ValueError, match="unknown tracker 'tensorbord': choose from tensorboard, wandb"):
        make_trackers("tensorbord", run, {})


def test_missing_package(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker whose package is missing says what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "shoal\[wandb\]"'):
        make_trackers("wandb", run, {})


def test_failing_tracker_is_switched_off(run: Run) -> None:
    """The first failure is noted once, later rows are not even tried, and closing is safe."""
    broken = Broken(RuntimeError("the network [red]is down"))
    tracker = Guarded("wandb", broken, run)
    for epoch in range(5):
        tracker.log({"epoch": epoch})
    tracker.close()
    assert broken.rows == 2
    (event,) = run.events()
    assert (event["event"], event["tracker"]) == ("tracker_failed", "wandb")
    assert "RuntimeError: the network [red]is down" in event["message"]


def test_metrics_are_tried_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """metrics.jsonl is not given up after one failure; if even the note fails, a warning tells."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    (tracker,) = make_trackers("", run, {})
    with monkeypatch.context() as patch:
        patch.setattr(run, "append", full)
        patch.setattr(run, "note", full)
        with pytest.warns(UserWarning, match="jsonl misses rows from here.*No space left"):
            tracker.log({"epoch": 1})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tracker.log({"epoch": 2})
    tracker.log({"epoch": 3})
    assert run.metrics() == [{"epoch": 3}]


def test_failure_to_start_closes_the_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the second tracker cannot start the error reaches the user and the first is closed."""
    closed = []

    class First:
        def __init__(self, *_: Any) -> None: ...
        def log(self, row: dict[str, Any]) -> None: ...
        def close(self) -> None:
            closed.append("first")

    def second(*_: Any) -> Any:
        raise RuntimeError("no key")

    monkeypatch.setattr(tracking, "_CHOICES", {"tensorboard": First, "wandb": second})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    with pytest.raises(RuntimeError, match="no key"):
        make_trackers("tensorboard,wandb", run, {})
    assert closed == ["first"]


def read_scalars(run: Run) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_reads_it_back(run: Run) -> None:
    """TensorBoard's own reader finds the finite numbers at their steps; the file does not name the host."""
    pytest.importorskip("tensorboard")
    trackers = make_trackers("tensorboard", run, {"lr": 0.1})
    for epoch in (1, 2):
        for tracker in trackers:
            tracker.log({"epoch": epoch, "steps": 64 * epoch, "loss/policy": 0.5 * epoch, "x": float("nan"), "t": "a"})
    for tracker in trackers:
        tracker.close()
    scalars = read_scalars(run)
    assert scalars["loss/policy"] == [(64, 0.5), (128, 1.0)]
    assert "x" not in scalars
    assert "t" not in scalars
    (file,) = (run.path / "tensorboard").iterdir()
    assert os.uname().nodename not in file.name


def test_tensorboard_compares_runs_by_their_settings(tmp_path: Path) -> None:
    """Its tab HPARAMS finds those of every run, and their metrics, by TensorBoard's own code."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

    configs: dict[str, dict[str, Any]] = {
        "first": {"task": "X", "ppo": {"hidden": [64, 64], "gamma": 0.99, "auto_scale": True, "target_kl": None}},
        "second": {"task": "X", "ppo": {"hidden": [32], "gamma": 1, "auto_scale": False, "target_kl": 0.1}},
    }
    for name, config in configs.items():
        with Run.create(tmp_path, name, config, "shoal train X", "X") as made:
            trackers = make_trackers("tensorboard", made, config)
            for tracker in trackers:
                tracker.log({"epoch": 1, "steps": 64, "return/mean_100": 7.0})
                tracker.close()
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(tmp_path))
    context = backend_context.Context(TBContext(data_provider=provider))
    asked = RequestContext()
    seen = context.experiment_from_metadata(asked, "", True, context.hparams_metadata(asked, ""), [], hparams_limit=100)
    kinds = {info.name: info.type for info in seen.hparam_infos}
    assert kinds == {
        "task": api_pb2.DATA_TYPE_STRING, "ppo.hidden": api_pb2.DATA_TYPE_STRING,
        "ppo.gamma": api_pb2.DATA_TYPE_FLOAT64, "ppo.target_kl": api_pb2.DATA_TYPE_FLOAT64,
        "ppo.auto_scale": api_pb2.DATA_TYPE_BOOL,
    }  # fmt: skip
    wanted = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=9, allowed_statuses=[api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_RUNNING],
        col_params=[api_pb2.ColParams(metric=api_pb2.MetricName(tag="return/mean_100"))],
    )  # fmt: skip
    groups = list_session_groups.Handler(asked, context, "", wanted).run().session_groups
    found = {group.hparams["ppo.hidden"].string_value: group for group in groups}
    assert {*found} == {"64,64", "32"}
    assert found["32"].hparams["ppo.gamma"].number_value == 1.0
    assert 7.0 in [value.value for value in found["32"].metric_values]


def test_tensorboard_forgets_what_a_resume_redoes(run: Run) -> None:
    """Rows after the checkpoint, drawn again by the resumed run, appear once."""
    pytest.importorskip("tensorboard")
    for start, value in ((1, 1.0), (3, 2.0)):
        run.truncate_metrics(start - 1)
        trackers = make_trackers("tensorboard", run, {})
        for epoch in range(start, start + 3):
            for tracker in trackers:
                tracker.log({"epoch": epoch, "steps": 10 * epoch, "x": value})
        for tracker in trackers:
            tracker.close()
    assert read_scalars(run)["x"] == [(10, 1.0), (20, 1.0), (30, 2.0), (40, 2.0), (50, 2.0)]


OFFLINE = """
import sys
from pathlib import Path
from shoal.runs import Run
from shoal.runs.trackers import make_trackers
run = Run.open("first", Path(sys.argv[1]))
trackers = make_trackers("wandb", run, {"lr": 0.1})
for epoch in (1, 2):
    for tracker in trackers:
        tracker.log({"epoch": epoch, "steps": epoch, "x": 0.5})
for tracker in trackers:
    tracker.close()
print(run.events())
"""


def test_wandb_offline(run: Run) -> None:
    """Weights & Biases works without a network and keeps its files inside the run folder."""
    pytest.importorskip("wandb")
    run.close()
    environment = {**os.environ, "PYTHONPATH": SOURCE, "WANDB_MODE": "offline"}
    command = [sys.executable, "-c", OFFLINE, str(run.path.parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("[]")
    assert list(run.path.glob("wandb/offline-run-*/run-*.wandb"))
    assert [row["epoch"] for row in run.metrics()] == [1, 2]


@pytest.mark.parametrize(
    ("variables", "flags", "expected"),
    [
        ({}, {}, {"project": "shoal"}),
        ({"WANDB_PROJECT": "mine"}, {}, {}),  # left to wandb, which reads it
        ({"WANDB_PROJECT": "mine"}, {"wandb_project": "theirs"}, {"project": "theirs"}),
        (
            {},
            {"wandb_entity": "team", "wandb_group": "g", "wandb_tags": "a, b,"},
            {"project": "shoal", "entity": "team", "group": "g", "tags": ["a", "b"]},
        ),
    ],
)
def test_where_a_run_goes_at_wandb(
    variables: dict[str, str], flags: dict[str, str], expected: dict[str, Any], run: Run, monkeypatch: Any
) -> None:
    """A flag wins over W&B's own variable, the variable over the project "shoal"."""
    wandb = pytest.importorskip("wandb")
    asked: dict[str, Any] = {}
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(wandb, "init", lambda **options: asked.update(options))
    tracking.WandbTracker(run, {"run": flags})
    assert {name: asked[name] for name in ("project", "entity", "group", "tags") if name in asked} == expected


def test_wandb_reads_its_own_variables(run: Run) -> None:
    """Offline, with the real wandb: the project of WANDB_PROJECT, the tags of the flag."""
    pytest.importorskip("wandb")
    run.close()
    script = OFFLINE.replace(
        'make_trackers("wandb", run, {"lr": 0.1})',
        """make_trackers(
        "wandb", run, {"run": {"wandb_tags": "quick"}}
    )
import wandb
print(wandb.run.project, wandb.run.group, wandb.run.tags)""",
    )
    place = {"WANDB_PROJECT": "mine", "WANDB_RUN_GROUP": "those", "WANDB_MODE": "offline", "PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", script, str(run.path.parent)]
    done = subprocess.run(
        command, env={**os.environ, **place}, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "mine those ('quick',)" in done.stdout
