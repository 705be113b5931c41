"""The run folder: one folder that says by itself what was run, on what, with which result."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shoal.runs import jsonl, provenance
from shoal.runs.disk import read_json, replace_atomically, sync_folder, to_json, write_new
from shoal.runs.lock import Lock

STATUSES = ("running", "finished", "interrupted", "failed")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")
_ALLOWED = "1 to 80 of the characters A-Z a-z 0-9 . _ - and no '.' or '-' at the beginning"

_README = """\
This folder is one training run of shoal. All of it is text, but for the checkpoints' arrays.

config.json     every option, as the run used it
command.txt     the command that started it
machine.json    processor, memory and library versions
code.json       shoal's version; its git commit, whether files differed from it ("dirty"); files that were named
status.json     running, finished, interrupted or failed, and why
metrics.jsonl   one JSON object per logged epoch; a NaN or infinity is null and its key is in "not_finite"
time.json       seconds in environments, acting, estimating, updating, saving, once the run has ended
events.jsonl    faults, restarts, resumes, alarms, and whatever made the run inexact
checkpoints/    epoch-N/: state.safetensors (arrays), state.json (the rest), manifest.json (their sha256)
best.json       the best checkpoint by held-out evaluations, with --evaluate-every
figures/        pictures, when they were asked for
lock            held by the process that writes here

Go on with it:  shoal train --resume {name}
"""


class Run:
    """A run folder. Reading needs no lock; the first write takes it, and `close` gives it back.

    >>> import tempfile
    >>> with Run.create(Path(tempfile.mkdtemp()), "first", {"lr": 0.1}, "shoal train X", "X") as run:
    ...     run.append({"epoch": 1, "loss": float("nan")})
    ...     run.metrics()
    [{'epoch': 1, 'loss': None, 'not_finite': ['loss']}]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shown = shown_path(path)  # for people: as short as the folder where they stand allows
        self._lock = Lock(path / "lock")

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    @property
    def config(self) -> dict[str, Any]:
        return read_json(self.path / "config.json")

    @classmethod
    def create(cls, root: Path, name: str | None, config: Mapping[str, Any], command: str, task: str) -> Run:
        """A new folder under `root`; without a name it is called after the task and the time."""
        if name is not None:
            check_name(name)
        files = {
            "config.json": to_json(dict(config)),
            "command.txt": command.encode("utf-8", "backslashreplace") + b"\n",
            "machine.json": to_json(provenance.machine()),
            "code.json": to_json(provenance.code() | _named_files(config)),
            "metrics.jsonl": b"",
            "events.jsonl": b"",
        }
        root = check_folder(root.resolve())  # an environment of this process may change the working directory
        root.mkdir(parents=True, exist_ok=True)
        run = cls(_claim(root, name, task))
        try:
            run.lock()
            run.checkpoints.mkdir()
            run.figures.mkdir()
            files["README.txt"] = _README.format(name=run.name).encode()
            for file, data in files.items():
                write_new(run.path / file, data)
            run.set_status("running")
            sync_folder(root)
        except BaseException:
            run.close()
            shutil.rmtree(run.path, ignore_errors=True)
            raise
        return run

    @classmethod
    def open(cls, path_or_name: str | Path, root: Path) -> Run:
        """An existing run, by its name under `root` or by the path of its folder."""
        text = str(path_or_name)
        paths = [root / text] if _NAME.fullmatch(text) else []
        for path in (*paths, Path(text or os.devnull)):
            # os.path.isfile, unlike Path.is_file, answers False for NUL and for names that are too long.
            if os.path.isfile(path / "config.json"):
                return cls(path.resolve())
        known = [run.name for run in sorted(runs_in(root), key=Run._has_finished, reverse=True)]
        begun = [name for name in known if text and name.startswith(text)][:5]  # finished first, of these the newest
        near = begun or difflib.get_close_matches(text[:300], known, n=5)
        hint = f"In {root} there are: {', '.join(known[:5])}." if known else "There is no run there yet."
        hint = f"Did you mean: {', '.join(near)}?" if near else hint
        nor = "nor a run folder of that path"
        if text and os.path.exists(text):
            inside = next(
                (path for path in Path(text).absolute().parents if os.path.isfile(path / "config.json")), None
            )
            nor = "and what has that path holds no run (no config.json)"
            hint = hint if inside is None else f"It belongs to the run {shown_path(inside)}: name that."
        raise FileNotFoundError(f"no run {_shown(text)} in {root}, {nor}. {hint}")

    def has_begun(self) -> bool:
        """Whether there is anything in it that a training made: rows or checkpoints."""
        with contextlib.suppress(OSError):
            if (self.path / "metrics.jsonl").stat().st_size > 0 or any(self.checkpoints.iterdir()):
                return True
        return False

    def remove(self) -> None:
        """Delete the folder and all that it holds."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def is_there(self) -> bool:
        """Whether the folder still is where it was opened."""
        return os.path.isfile(self.path / "config.json")

    def snapshot(self) -> dict[str, bytes]:
        """The small files that say what the run is, to write them again should the folder be deleted."""
        names = ("config.json", "command.txt", "machine.json", "code.json", "README.txt")
        return {name: (self.path / name).read_bytes() for name in names if (self.path / name).is_file()}

    def write_again(self, files: Mapping[str, bytes]) -> None:
        """Make the folder again, with these files; what else it held is gone."""
        self._lock.release()
        for folder in (self.path, self.checkpoints, self.figures):
            folder.mkdir(parents=True, exist_ok=True)
        self.lock()
        for name, data in files.items():
            replace_atomically(self.path / name, data)
        self.set_status("running")

    def set_config(self, config: Mapping[str, Any]) -> None:
        """What the run goes on with, after a resume that changed something."""
        self.lock()
        replace_atomically(self.path / "config.json", to_json(dict(config)))

    def lock(self, wait_s: float = 0.0) -> None:
        """Become the only process that writes here, or raise `Locked` naming the one that does."""
        self._lock.acquire(wait_s)

    def close(self) -> None:
        """Give the lock back; the folder can still be read."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def at_work(self, has_begun: Callable[[], bool]) -> Iterator[None]:
        """A block that writes here: it runs, and what ends it early becomes the status. The block says itself when it
        has finished. Where nothing has begun yet, a folder whose work was refused is removed."""
        with self:
            self.lock()
            self.set_status("running")
            try:
                yield
            except BaseException as error:
                if has_begun():
                    stopped = isinstance(error, KeyboardInterrupt)
                    self.set_status("interrupted" if stopped else "failed", f"{type(error).__name__}: {error}"[:2000])
                else:
                    self.remove()
                raise

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row of metrics, in one write."""
        self.lock()
        jsonl.append(self.path / "metrics.jsonl", row)

    def note(self, event: Mapping[str, Any] | str) -> None:
        """Add one event (a dict with "event" and what belongs to it, or just its text) to events.jsonl."""
        event = {"event": event} if isinstance(event, str) else event
        self.lock()
        jsonl.append(self.path / "events.jsonl", {"at": _now(), **event})

    def metrics(self) -> list[dict[str, Any]]:
        """All rows; a last line torn by a crash is left out."""
        return jsonl.parse(self.path / "metrics.jsonl")

    def last_row(self) -> dict[str, Any]:
        """The newest row of metrics, {} if there is none: cheap, however long the run is."""
        return jsonl.last(self.path / "metrics.jsonl")

    def events(self) -> list[dict[str, Any]]:
        """All events; a last line torn by a crash is left out."""
        return jsonl.parse(self.path / "events.jsonl")

    def truncate_metrics(self, epoch: int) -> int:
        """Drop the rows after `epoch`, which a resumed run will write again; returns how many went."""
        self.lock()
        path = self.path / "metrics.jsonl"
        rows, lines = jsonl.parse(path), jsonl.lines(path)
        kept = [line + b"\n" for row, line in zip(rows, lines, strict=True) if (row.get("epoch") or 0) <= epoch]
        replace_atomically(path, b"".join(kept))
        return len(lines) - len(kept)

    @property
    def status(self) -> str:
        """running, finished, interrupted, failed; killed when it says running and no process holds it."""
        state = str(self._status().get("status", "killed"))
        return "killed" if state == "running" and not self._lock.is_held() else state

    @property
    def status_message(self) -> str:
        return str(self._status().get("message", ""))

    def set_status(self, status: str, message: str = "") -> None:
        if status not in STATUSES:
            raise ValueError(f"status {status!r}: expected one of {', '.join(STATUSES)}")
        self.lock()
        state = {"status": status, "message": message, "at": _now()}
        replace_atomically(self.path / "status.json", to_json(state))

    def write_time(self, seconds: Mapping[str, float]) -> None:
        """Where the time went, as one object."""
        if seconds:
            self.lock()
            replace_atomically(self.path / "time.json", to_json(seconds))

    def _has_finished(self) -> bool:
        with contextlib.suppress(ValueError, OSError):
            return self.status == "finished"
        return False

    def _status(self) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError):
            return read_json(self.path / "status.json")
        return {}


def check_name(name: str) -> None:
    """ValueError for a name that no folder of a run may have: it would lie elsewhere, or be hidden."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"run name {_shown(name)} is not allowed: expected {_ALLOWED}")


def check_folder(root: Path) -> Path:
    """The folder that holds runs; NotADirectoryError where that is something else."""
    if root.exists() and not root.is_dir():
        raise NotADirectoryError(f"expected --runs-dir as a folder, {root} is a file: choose another")
    return root


def runs_in(root: Path) -> list[Run]:
    """The run folders in `root`, newest first."""
    if not root.is_dir():
        return []
    paths = [path for path in root.iterdir() if os.path.isfile(path / "config.json")]
    return [Run(path) for path in sorted(paths, key=lambda path: (_made_at(path), path.name), reverse=True)]


def _made_at(path: Path) -> float:
    """When a run was begun: its command is written once."""
    with contextlib.suppress(OSError):
        return (path / "command.txt").stat().st_mtime
    return 0.0


def _claim(root: Path, name: str | None, task: str) -> Path:
    """Make the folder; mkdir fails if it exists, so two processes cannot both get it."""
    if name is not None:
        try:
            (root / name).mkdir()
        except FileExistsError:
            raise FileExistsError(
                f"the run {name} already exists in {root}: continue it with --resume {name}, or choose another name"
            ) from None
        return root / name
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", task).lstrip(".-")[:50] or "run"
    stem = f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1, 10_000):
        path = root / (stem if number == 1 else f"{stem}-{number}")
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
    raise FileExistsError(f"{root} already holds 9,999 runs called {stem}: choose a name")


def shown_path(path: str | Path, base: Path | None = None) -> str:
    """A path as a person would type it: relative where it lies under `base`, the present folder by default."""
    with contextlib.suppress(ValueError, OSError):
        return str(Path(path).relative_to(base or Path.cwd()))
    return str(path)


def _named_files(config: Mapping[str, Any]) -> dict[str, Any]:
    found = provenance.data(str(config.get("env_kwargs") or "{}"))
    return {"data": found} if found else {}


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}... ({len(text)} characters)"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
