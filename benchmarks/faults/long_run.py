"""Trainings whose whole process group is killed again and again, beside undisturbed ones of the same seed.

python -m benchmarks.faults.long_run [--minutes 30] [--every 60] [--cases rides cartpole] [--store]

rides on compiled kernels and CartPole on worker processes. Each training is resumed after every kill; at the end its
weights must be those of the undisturbed one, to the bit. --minutes is how long each trains undisturbed; it is trained
once so and once killed every --every seconds, which takes longer by what is lost with each kill and by each new start:
with 30 and 60 about 70 minutes a case, 2 hours and 20 minutes in all.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.runs import checkpoint
from shoal.runs.folder import Run
from shoal.runs.manifest import CheckpointError

Say = Callable[[str], None]
ROOT = Path(__file__).resolve().parents[2]
PILOT, PILOT_S = 10, 5.0  # epochs to begin with; seconds that they must take to tell how long one does


class Case(NamedTuple):
    """A training that is killed."""

    name: str
    flags: tuple[str, ...]


RIDES = Case("rides, compiled", (
    "rides", "--num-envs", "8", "--customers", "10", "--vehicles", "3", "--start", "none", "--futures", "0",
    "--held-out-days", "0", "--rollout-steps", "20",
))  # fmt: skip
CARTPOLE = Case("CartPole-v1, process", (
    "CartPole-v1", "--num-envs", "8", "--backend", "process", "--workers", "2", "--rollout-steps", "64",
    "--hidden", "16",
))  # fmt: skip


CASES = {"rides": RIDES, "cartpole": CARTPOLE}


class Survived(NamedTuple):
    """What came of a training that was killed."""

    kills: int
    seconds: float  # with all kills
    epochs: int
    same: bool
    calm_s: float  # undisturbed


def survive(
    case: Case,
    epochs: int,
    every_s: float,
    folder: Path,
    *,
    seed: int = 1,
    least_kills: int = 1,
    most_kills: int = 10**6,
) -> Survived:
    """Train `epochs` undisturbed, and again while it is killed at random moments, `every_s` apart on average; after
    `most_kills` it is left alone."""
    common = [
        *case.flags,
        "--epochs",
        str(epochs),
        "--seed",
        str(seed),
        "--save-interval",
        "1",
        "--runs-dir",
        str(folder),
    ]
    start = time.monotonic()
    _wait(_start(["train", *common, "--name", "calm"], folder), folder)
    calm_s = time.monotonic() - start
    dice, kills, start = random.Random(seed), 0, time.monotonic()
    resume = False
    while True:
        command = ["train", "--resume", str(folder / "killed")] if resume else ["train", *common, "--name", "killed"]
        process = _start(command, folder)
        try:
            moment = dice.uniform(0.2, 1.8) * every_s
            begun, had = time.monotonic(), _epoch(folder / "killed")
            while process.poll() is None:
                moved = _epoch(folder / "killed") > had  # every life gets somewhere, or the run never ends
                if moved and kills < most_kills and time.monotonic() - begun > moment:
                    os.killpg(process.pid, signal.SIGKILL)
                    kills += 1
                    break
                time.sleep(0.02)
            code = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        resume = _epoch(folder / "killed") >= 0
        if not resume:
            shutil.rmtree(folder / "killed", ignore_errors=True)
        if code == 0:
            break
        if code != -signal.SIGKILL:
            raise RuntimeError(
                f"{case.name}: shoal {' '.join(command)} ended with exit code {code}: {_last_words(folder)}"
            )
    if kills < least_kills:
        raise RuntimeError(f"{case.name}: {kills} kills, at least {least_kills} are wanted: give it more --epochs")
    calm, killed = (checkpoint.load_latest(folder / name / "checkpoints") for name in ("calm", "killed"))
    names = sorted(name for name in calm.tensors if name.startswith(("network.", "optimiser.", "noise", "shuffle")))
    same = calm.epoch == killed.epoch and all(np.array_equal(calm.tensors[n], killed.tensors[n]) for n in names)
    return Survived(kills, time.monotonic() - start, killed.epoch, same, calm_s)


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "said").open("ab") as said:
        return subprocess.Popen([sys.executable, "-m", "shoal", *command], stdout=said, stderr=said, cwd=ROOT,
                                start_new_session=True)  # fmt: skip


def _wait(process: subprocess.Popen[bytes], folder: Path) -> None:
    if process.wait() != 0:
        raise RuntimeError(f"the undisturbed training ended with exit code {process.returncode}: {_last_words(folder)}")


def _last_words(folder: Path) -> str:
    return (folder / "said").read_text(errors="replace")[-1000:]


def _epoch(run: Path) -> int:
    """Of the newest checkpoint; -1 where there is none."""
    with contextlib.suppress(CheckpointError, OSError):
        return max(checkpoint.epochs(run / "checkpoints"), default=-1)
    return -1


def epochs_in(minutes: float, each_s: float) -> int:
    """That train for so long undisturbed, at so many seconds each."""
    return max(round(60 * minutes / each_s), 20)


def measure(
    minutes: float, every_s: float, say: Say, epochs: int | None = None, cases: Sequence[str] = tuple(CASES)
) -> list[Row]:
    """Each training for so many minutes undisturbed, and killed; a pilot says how many epochs that is."""
    found = []
    for case in (CASES[name] for name in cases):
        folder = Path(tempfile.mkdtemp(prefix="shoal-long-run-"))
        try:
            count = epochs or epochs_in(minutes, _pilot(case, folder))
            say(f"{case.name}: {count} epochs, killed every {every_s:g} s on average")
            came = survive(case, count, every_s, folder, most_kills=max(round(60 * minutes / every_s), 2))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        seconds = {"seconds": round(came.seconds), "undisturbed_seconds": round(came.calm_s)}
        detail = {"kills": came.kills, "epochs": came.epochs, **seconds}
        say(f"{case.name}: {came.kills} kills in {came.seconds:,.0f} s, the same weights: {came.same}")
        title = f"{case.name}: weights after kill -9 at random moments equal the undisturbed run's, to the bit"
        found.append(Row(title, float(came.same), "", 1.0, detail=detail))
    return found


def _pilot(case: Case, folder: Path) -> float:
    """Seconds of an epoch, by the run's own clock: starting takes longer than many of them."""
    kept = ["--save-interval", "1", "--runs-dir", str(folder), "--name", "pilot"]
    epochs = PILOT
    while True:
        _wait(_start(["train", *case.flags, "--epochs", str(epochs), *kept], folder), folder)
        rows = Run.open(folder / "pilot", folder).metrics()
        seconds = float(rows[-1]["time/elapsed_s"]) - float(rows[0]["time/elapsed_s"])
        shutil.rmtree(folder / "pilot")
        if seconds > PILOT_S or epochs > 10_000:
            return max(seconds / (len(rows) - 1), 1e-3)
        epochs *= 4


def rows(say: Say, full: bool = False) -> list[Row]:
    """As stored, or made again."""
    if full:
        return measure(30.0, 60.0, say)
    return stored.read_rows("long_run", "benchmarks.faults.long_run")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.faults.long_run", description=__doc__)
    parser.add_argument(
        "--minutes",
        type=float,
        default=30.0,
        help="how long each training takes undisturbed; in all about 2.3 times that for each case",
    )
    parser.add_argument("--every", type=float, default=60.0, help="seconds between kills, on average")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="these trainings alone")
    parser.add_argument("--epochs", type=int, help="of each training, in place of what a pilot says")
    parser.add_argument("--store", action="store_true", help="write benchmarks/results/long_run.json")
    given = parser.parse_args(arguments)
    if given.store:
        stored.require_clean()
    say: Say = functools.partial(print, file=sys.stderr, flush=True)
    found = measure(given.minutes, given.every, say, given.epochs, given.cases)
    if given.store:
        command = f"python -m benchmarks.faults.long_run --minutes {given.minutes:g} --every {given.every:g}"
        command += f" --epochs {given.epochs}" if given.epochs else ""
        command += f" --cases {' '.join(given.cases)}" if given.cases != list(CASES) else ""
        command += " --store"
        stored.write("long_run", command, found)
    return int(any(row.met is False for row in found))


if __name__ == "__main__":
    sys.exit(main())
