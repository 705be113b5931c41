"""Two ranks on two cores against one process on one core: cage2, 512 environments, the same training.

python -m benchmarks.vector.rank_speed [--store]

Each process is pinned to a core. The speed is that of whole epochs, update included, without the first two.
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
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.runs.provenance import cores_usable

Say = Callable[[str], None]
ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("train", "cage2", "--num-envs", "512", "--epochs", "8", "--seed", "1", "--save-interval", "100")


def rows(say: Say, rounds: int = 3) -> list[Row]:
    """The ratio of the speeds, round by round."""
    title = "two ranks on two cores, cage2 with 512 environments: speed over one process on one core"
    if cores_usable() < 2:
        return [Row(title, None, "x", 1.6, note="expected two usable cores, there is one")]
    folder = Path(tempfile.mkdtemp(prefix="shoal-ranks-"))
    try:
        found = [(_speed(1, folder, f"one-{at}"), _speed(2, folder, f"two-{at}")) for at in range(rounds)]
        returns = [_last(folder / f"{who}-0") for who in ("one", "two")]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ratios = [two / one for one, two in found]
    say(f"{title}: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    detail = {"ratios": ratios, "steps_per_s": {"one": [one for one, _ in found], "two": [two for _, two in found]},
              "return_of_the_last_epoch": returns}  # fmt: skip
    return [Row(title, statistics.median(ratios), "x", 1.6, detail=detail)]


def _speed(ranks: int, folder: Path, name: str) -> float:
    """Steps a second."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1",
                "--master-port", str(port)]  # fmt: skip
    command = [sys.executable, *(launcher if ranks > 1 else []), "-m", "benchmarks.vector.pinned", *FLAGS,
               "--runs-dir", str(folder), "--name", name]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ran.returncode}: {ran.stderr[-500:]}")
    found = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()][1:]
    seconds = found[-1]["time/elapsed_s"] - found[0]["time/elapsed_s"]
    return float((found[-1]["steps"] - found[0]["steps"]) / seconds)


def _last(run: Path) -> float | None:
    found: float | None = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["return/mean_100"]
    return found


if __name__ == "__main__":
    stored.main("benchmarks.vector.rank_speed", rows, __doc__)
