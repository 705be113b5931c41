"""Two ranks on two cores against one process on one core: cage2, 512 environments, the same training.

python -m benchmarks.vector.rank_speed [--store]

Each process is pinned to a core. The speed is that of whole epochs, update included, without the first two. Beside it
stand two trainings of 256 environments each that know nothing of each other: what two ranks that exchange nothing, and
do nothing twice, would reach on this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.runs.provenance import cores_usable

Say = Callable[[str], None]
ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("train", "cage2", "--num-envs", "512", "--epochs", "8", "--seed", "1", "--save-interval", "100")


def rows(say: Say, rounds: int = 3) -> list[Row]:
    """The ratio of the speeds, round by round."""
    title = "two ranks on two cores, cage2 with 512 environments: speed over one process on one core"
    apart = "two separate trainings of 256 environments on two cores: speed over one process on one core"
    if cores_usable() < 2:
        return [Row(title, None, "x", 1.6, note="expected two usable cores, there is one")]
    folder = Path(tempfile.mkdtemp(prefix="shoal-ranks-"))
    try:
        found = [
            (_speed(one_process(folder, f"one-{at}")), _speed(two_ranks(folder, f"two-{at}")), _apart(folder, at))
            for at in range(rounds)
        ]
        returns = [_last(folder / f"{who}-0") for who in ("one", "two")]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ratios = [two.steps_per_s / one.steps_per_s for one, two, _ in found]
    ceiling = [other / one.steps_per_s for one, _, other in found]
    say(f"{title}: {', '.join(f'{ratio:.2f}' for ratio in ratios)}; {apart}: {statistics.median(ceiling):.2f}")
    detail = {
        "ratios": ratios,
        "steps_per_s": {"one": [one.steps_per_s for one, *_ in found], "two": [two.steps_per_s for _, two, _ in found]},
        "cpu_share": {"one": [one.cpu_share for one, *_ in found], "rank_0": [two.cpu_share for _, two, _ in found]},
        "return_of_the_last_epoch": returns,
    }
    return [
        Row(title, statistics.median(ratios), "x", 1.6, detail=detail),
        Row(apart, statistics.median(ceiling), "x", detail={"ratios": ceiling}),
    ]


class Speed(NamedTuple):
    """Of the epochs after the first two."""

    steps_per_s: float
    cpu_share: float  # of the time: the rest was waited


def one_process(folder: Path, name: str, flags: Sequence[str] = FLAGS) -> Path:
    """The run of `shoal` with these flags on the first core."""
    return _wait(_start([], folder, name, flags), folder / name)


def two_ranks(folder: Path, name: str, flags: Sequence[str] = FLAGS) -> Path:
    """The run of the same under torchrun, a rank on each core."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port",
                str(port)]  # fmt: skip
    return _wait(_start(launcher, folder, name, flags), folder / name)


def _apart(folder: Path, at: int) -> float:
    """Steps a second of both."""
    half = "--num-envs", "256", "--minibatch-size", "2048"
    names = [f"apart-{at}-{core}" for core in range(2)]
    both = [_start([], folder, name, (*FLAGS, *half), LOCAL_RANK=str(core)) for core, name in enumerate(names)]
    return sum(_speed(_wait(process, folder / name)).steps_per_s for process, name in zip(both, names, strict=True))


def _start(launcher: list[str], folder: Path, name: str, flags: Sequence[str], **more: str) -> subprocess.Popen[str]:
    command = [sys.executable, *launcher, "-m", "benchmarks.vector.pinned", *flags, "--runs-dir", str(folder),
               "--name", name]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _wait(process: subprocess.Popen[str], run: Path) -> Path:
    _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the training {run.name} ended with {process.returncode}: {errors[-500:]}")
    return run


def _speed(run: Path) -> Speed:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][1:]
    seconds, cpu_s = (found[-1][name] - found[0][name] for name in ("time/elapsed_s", "time/cpu_s"))
    return Speed((found[-1]["steps"] - found[0]["steps"]) / seconds, round(cpu_s / seconds, 3))


def _last(run: Path) -> float | None:
    found: float | None = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["return/mean_100"]
    return found


if __name__ == "__main__":
    stored.main("benchmarks.vector.rank_speed", rows, __doc__)
