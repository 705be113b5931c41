"""Where metrics go: always the run's own metrics.jsonl, and TensorBoard or Weights & Biases if asked for."""

from __future__ import annotations

import importlib.util
import math
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from shoal.runs.disk import read_json, replace_atomically, to_json
from shoal.runs.folder import Run


class Sink(Protocol):
    """Takes one flat row of metrics per epoch."""

    def log(self, row: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class Tracker:
    """Takes the metrics of a run. A subclass of your own is used by `--track module:Class`.

    >>> class Prints(Tracker):
    ...     def log(self, row):
    ...         print(row["steps"], row.get("return/mean_100"))
    """

    def __init__(self, run: Run, config: Mapping[str, Any]) -> None:
        """The training begins or resumes. `run.path` is its folder, `run.metrics()` are the rows before its checkpoint
        (none in a new run), `config` are its settings as in config.json."""
        self.run, self.config = run, config

    def log(self, row: dict[str, Any]) -> None:
        """An epoch is over: `row` is its line of metrics.jsonl."""

    def close(self) -> None:
        """The training has ended, whatever the reason."""


class JsonlTracker(Tracker):
    """Rows into the run's metrics.jsonl: every row is on disk once `log` returns."""

    def log(self, row: dict[str, Any]) -> None:
        self.run.append(row)


class TensorBoardTracker(Tracker):
    """Scalars into `tensorboard/` of the run, by TensorBoard's own record format, without torch.

    Its EventFileWriter is not used: that one starts a thread (unwelcome before a fork) and puts the
    host's name into the file's.
    """

    def __init__(self, run: Run, config: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._session = event_pb2.Event, event_pb2.SessionLog
        self._summary = summary_pb2.Summary
        folder = run.path / "tensorboard"
        folder.mkdir(exist_ok=True)
        file = folder / f"events.out.tfevents.{time.time_ns() // 1000:016d}.shoal.{os.getpid()}"
        self._writer = RecordWriter(file.open("xb"))
        self._write(file_version="brain.Event:2")
        rows = run.metrics()
        if rows:  # resumed: TensorBoard forgets what the interrupted part drew beyond this step
            start = self._session(status=self._session.START)
            self._write(session_log=start, step=_step(rows[-1]) + 1)
        self._write(summary=hyper_parameters(config))
        self._writer.flush()

    def log(self, row: dict[str, Any]) -> None:
        values = [
            self._summary.Value(tag=key, simple_value=float(value))
            for key, value in row.items()
            if isinstance(value, int | float) and math.isfinite(value)
        ]
        self._write(summary=self._summary(value=values), step=_step(row))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _write(self, **fields: Any) -> None:
        self._writer.write(self._event(wall_time=time.time(), **fields).SerializeToString())


def hyper_parameters(config: Mapping[str, Any]) -> Any:
    """The settings for TensorBoard's tab HPARAMS, where runs are compared by them; a Summary.

    Its own writer of this needs TensorFlow. What the runs of a folder have in common need not be said: TensorBoard
    gathers the names of all of them.
    """
    from tensorboard.compat.proto import summary_pb2
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    started = plugin_data_pb2.SessionStartInfo(start_time_secs=time.time())
    for name, value in _flat(config):
        if isinstance(value, bool):
            started.hparams[name].bool_value = value
        elif isinstance(value, str):
            started.hparams[name].string_value = value
        else:
            started.hparams[name].number_value = value
    content = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_start_info=started))
    tag = metadata.SESSION_START_INFO_TAG
    return summary_pb2.Summary(
        value=[summary_pb2.Summary.Value(tag=tag, metadata=content, tensor=metadata.NULL_TENSOR)]
    )


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, bool | float | str]]:
    """Settings by name (`ppo.gamma`), as TensorBoard knows them: truths, numbers and text."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            plain = isinstance(value, bool | int | float | str)
            yield prefix + name, value if plain else ",".join(map(str, value))


class WandbTracker(Tracker):
    """Rows to Weights & Biases; a resumed run continues its curve. `WANDB_MODE=offline` needs no network."""

    def __init__(self, run: Run, config: Mapping[str, Any]) -> None:
        import wandb

        path = run.path / "wandb.json"
        if not path.exists():
            replace_atomically(path, to_json({"id": secrets.token_hex(4)}))
        try:
            self._session = wandb.init(
                **_wandb_place(config.get("run", {})),
                name=run.name,
                id=read_json(path)["id"],
                resume="allow",
                dir=str(run.path),
                config=dict(config),
                # It would wrap stdout, which the progress display needs for itself.
                settings=wandb.Settings(console="off"),
            )
        except wandb.errors.Error as error:
            raise RuntimeError(
                f"Weights & Biases cannot be reached: {str(error).rstrip('.')}. Type `wandb login` once, or set "
                "WANDB_MODE=offline to keep its files in the run folder, or leave out --track wandb"
            ) from error

    def log(self, row: dict[str, Any]) -> None:
        self._session.log(row, step=_step(row))

    def close(self) -> None:
        self._session.finish()


def _wandb_place(options: Mapping[str, Any]) -> dict[str, Any]:
    """Where a run goes: the flags, else W&B's own variables (WANDB_PROJECT, WANDB_ENTITY ...), else project "shoal".

    What is left out here is what wandb takes from its variables.
    """
    place = {name: options.get(f"wandb_{name}") for name in ("project", "entity", "group")}
    if not place["project"] and not os.environ.get("WANDB_PROJECT"):
        place["project"] = "shoal"
    tags = [tag.strip() for tag in str(options.get("wandb_tags") or "").split(",") if tag.strip()]
    return {name: value for name, value in {**place, "tags": tags}.items() if value}


class Guarded(Sink):
    """A tracker whose failure is noted once in events.jsonl and never stops the training.

    The first failure switches it off; with `retry` (metrics.jsonl, whose disk may have room again
    later) every row is tried.
    """

    def __init__(self, name: str, tracker: Sink, run: Run, *, retry: bool = False) -> None:
        self._name, self._tracker, self._run, self._retry = name, tracker, run, retry
        self._failed = False

    def log(self, row: dict[str, Any]) -> None:
        if self._retry or not self._failed:
            self._attempt(lambda: self._tracker.log(row))

    def close(self) -> None:
        self._attempt(self._tracker.close)

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            if self._failed:
                return
            self._failed = True
            what = "misses rows" if self._retry else "is switched off"
            text = f"tracker {self._name} {what} from here: {type(error).__name__}: {error}"
            try:
                self._run.note({"event": "tracker_failed", "tracker": self._name, "message": text})
            except OSError:  # the disk that failed the tracker may fail the note too
                warnings.warn(text, stacklevel=3)


_CHOICES: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
}


def own_places(names: str) -> tuple[str, ...]:
    """Those of a comma-separated list that are classes of the user's own.

    >>> own_places("wandb, my_trackers:Csv")
    ('my_trackers:Csv',)
    """
    return tuple(name for name in tracked(names) if ":" in name)


def check_names(names: str, own: Mapping[str, type[Tracker]] | None = None) -> dict[str, type[Tracker]]:
    """The trackers in a comma-separated list, `own` ones among them; an unknown or uninstalled one is refused."""
    known = {**_CHOICES, **(own or {})}
    for name in (wanted := tracked(names)):
        if name not in known:
            raise ValueError(
                f"unknown tracker {name!r}: choose from {', '.join(_CHOICES)}, or name a class of yours as module:Class"
            )
        if name in _CHOICES and importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f'the tracker {name} needs its package: pip install "shoal[{name}]"')
    return {name: known[name] for name in wanted}


def tracked(names: str) -> tuple[str, ...]:
    """The names in a comma-separated list, each once.

    >>> tracked("tensorboard, wandb,")
    ('tensorboard', 'wandb')
    """
    return tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def make_trackers(
    names: str, run: Run, config: Mapping[str, Any], own: Mapping[str, type[Tracker]] | None = None
) -> list[Sink]:
    """metrics.jsonl, then the trackers named in a comma-separated list ("" for none), in that order.

    When resuming, call `run.truncate_metrics` first: TensorBoard is told where the run goes on.
    """
    wanted = check_names(names, own)
    trackers: list[Sink] = [Guarded("jsonl", JsonlTracker(run, config), run, retry=True)]
    try:
        for name, kind in wanted.items():
            trackers.append(Guarded(name, _made(name, kind, run, config), run))
    except BaseException:
        for tracker in trackers:
            tracker.close()
        raise
    return trackers


def _made(name: str, kind: type[Tracker], run: Run, config: Mapping[str, Any]) -> Tracker:
    try:
        return kind(run, config)
    except Exception as error:
        if name in _CHOICES:  # says itself what to do
            raise
        raise RuntimeError(f"the tracker {name} failed when it was made: {type(error).__name__}: {error}") from error


def _step(row: Mapping[str, Any]) -> int:
    return int(row.get("steps") or row.get("epoch") or 0)
