"""What survives which fault: every scenario, on every backend and on the peers, each tried and timed.

python -m benchmarks.faults.fault_matrix [--store]

Environments that break are played in a process of their own, with a deadline: who has not answered by then, hangs.
Faults of whole trainings (signals, checkpoints, ranks) are the tests that tests.txt names, run anew.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults.contestants import PEERS, SHOAL
from benchmarks.harness import stored
from benchmarks.harness.rows import Row

Say = Callable[[str], None]
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S, START_S = 30.0, 60.0  # of a scenario; of the first, which imports and starts everything
OF_PEERS = ("raise-step", "kill", "idle-kill", "hang", "nan-obs", "nan-reward", "obs-scalar", "obs-none", "reward-str")
TESTS_S = 240.0  # of all tests together; what there is no time for is listed as not tried
RAY_MORE_S = 15.0  # Ray's actors may take so much longer: they have 10 s for a step where others have 2
CLOSE_S = 5.0


class Scenario(NamedTuple):
    """A row of the table whose environments break."""

    row: int  # of docs/reliability.md
    about: str
    error: str  # the type that shoal raises; "" where it goes on
    within_s: float = 5.0
    without: tuple[str, ...] = ()  # backends that cannot have it


_IN_ONE_PROCESS = ("serial", "compiled")  # what kills or hangs there takes the training with it
_NO_PYTHON = ("compiled",)  # its observations have their shape and type by construction
SCENARIOS: dict[str, Scenario] = {
    "kill": Scenario(1, "worker killed in a step", "WorkerDied", 2.0, _IN_ONE_PROCESS),
    "kill+restart": Scenario(1, "worker killed in a step, --on-fault restart", "", 30.0, _IN_ONE_PROCESS),
    "idle-kill": Scenario(2, "worker killed between two steps", "WorkerDied", 2.0, _IN_ONE_PROCESS),
    "raise-step": Scenario(3, "exception in step", "EnvRaised"),
    "raise-reset": Scenario(4, "exception in reset", "EnvRaised", 5.0, _NO_PYTHON),
    "raise-init": Scenario(4, "exception in the constructor", "EnvRaised", 30.0, _NO_PYTHON),
    "raise-close": Scenario(4, "exception in close", "EnvRaised", 5.0, _NO_PYTHON),
    "hang": Scenario(5, "step never returns", "EnvTimeout", 4.0, _IN_ONE_PROCESS),
    "hang+restart": Scenario(5, "step never returns, --on-fault restart", "", 30.0, _IN_ONE_PROCESS),
    "hang-ignoring-sigterm": Scenario(6, "step never returns and ignores SIGTERM", "EnvTimeout", 5.0, _IN_ONE_PROCESS),
    "raise-step+loop": Scenario(7, "breaks again and again, 3 restarts allowed", "TooManyRestarts", 30.0, _NO_PYTHON),
    "nan-obs": Scenario(8, "NaN in an observation", "NotFinite"),
    "inf-obs": Scenario(8, "infinity in an observation", "NotFinite"),
    "nan-reward": Scenario(8, "NaN as reward", "NotFinite"),
    "nan-obs+restart": Scenario(8, "NaN in an observation, --on-fault restart", "", 5.0, _NO_PYTHON),
    "obs-longer": Scenario(9, "observation of 5 numbers for 4", "ShapeError", 5.0, _NO_PYTHON),
    "obs-shorter": Scenario(9, "observation of 3 numbers for 4", "ShapeError", 5.0, _NO_PYTHON),
    "obs-scalar": Scenario(9, "a single number as observation", "ShapeError", 5.0, _NO_PYTHON),
    "obs-none": Scenario(9, "None as observation", "DtypeError", 5.0, _NO_PYTHON),
    "obs-str": Scenario(10, "text as observation", "DtypeError", 5.0, _NO_PYTHON),
    "obs-overflow": Scenario(10, "1e300 for float32", "DtypeError", 5.0, _NO_PYTHON),
    "reward-str": Scenario(11, "text as reward", "DtypeError", 5.0, _NO_PYTHON),
    "reward-vector": Scenario(11, "a vector as reward", "ShapeError", 5.0, _NO_PYTHON),
    "done-none": Scenario(11, "None as terminated", "DtypeError", 5.0, _NO_PYTHON),
}


class Tested(NamedTuple):
    """A row of the table that tests try."""

    row: int
    about: str
    backend: str
    tests: str


def tests() -> list[Tested]:
    """Those of tests.txt."""
    lines = (Path(__file__).parent / "tests.txt").read_text().splitlines()[1:]
    return [Tested(int(row), *rest) for row, *rest in (line.split(" | ") for line in lines)]


def rows(say: Say) -> list[Row]:
    """One row a cell, and last the share of shoal's cells that hold."""
    with ThreadPoolExecutor() as threads:  # who hangs makes nobody else wait
        found = [row for part in threads.map(lambda name: list(_played(name, say)), (*SHOAL, *PEERS)) for row in part]
    until = time.monotonic() + TESTS_S
    found += [_tested(*test, say, until) for test in tests()]
    ours = [row for row in found if row.detail["backend"] not in PEERS and row.value is not None]
    share = 100 * sum(row.value or 0.0 for row in ours) / max(len(ours), 1)
    return [*found, Row("faults: share of shoal's cells that hold", share, "%", 100.0, detail={"cells": len(ours)})]


def _played(name: str, say: Say) -> Iterator[Row]:
    """All scenarios of one contestant; one that hangs costs its process, the others go on in another."""
    if name in PEERS:
        left = list(OF_PEERS)
    else:
        left = [key for key, one in SCENARIOS.items() if name not in one.without]
    if name == "ray" and importlib.util.find_spec("ray") is None:
        yield from (_cell(name, key, None, "not tried: Ray is not installed") for key in left)
        return
    while left:
        with _process(name, left) as process:
            wait = START_S
            while left:
                line = _line(process, wait + (60.0 if name == "ray" else 0.0))
                key, wait = left.pop(0), DEADLINE_S
                found = json.loads(line) if line else {}
                if found.get("type") == "NoPlace" and "no place within" in found["said"]:
                    why = "not tried: Ray started no actor within its time on this machine"
                    yield from (_cell(name, one, None, why) for one in (key, *left))
                    return
                row = _cell(name, key, found)
                say(f"{row.name}: {row.detail['outcome']}")
                yield row
                if not line:
                    os.killpg(process.pid, signal.SIGKILL)
                    break


@contextlib.contextmanager
def _process(name: str, scenarios: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.faults.contestants", name, *scenarios], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        yield process
        process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _line(process: subprocess.Popen[bytes], seconds: float) -> str:
    """The next line, or nothing where there is none within so many seconds."""
    assert process.stdout is not None
    said, until = b"", time.monotonic() + seconds
    while not said.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(until - time.monotonic(), 0))
        part = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
        if not part:
            return ""
        said += part
    return said.decode()


def _cell(name: str, key: str, found: dict[str, Any] | None, why: str = "") -> Row:
    one = SCENARIOS[key]
    about = {"row": one.row, "about": one.about, "backend": name}
    title = f"{one.row} {one.about}: {name}"
    if found is None:
        return Row(title, None, "", note=why, detail={**about, "outcome": why})
    if not found:
        return Row(title, 0.0, "", detail={**about, "outcome": f"hangs: no answer within {DEADLINE_S:.0f} s"})
    said = f"{found['type']}: {found['said']}" if found["type"] else found["said"]
    seconds, left = found["seconds"], found["left"]
    within_s = one.within_s + (RAY_MORE_S if name == "ray" else 0.0)
    holds = seconds <= within_s and found["close_s"] <= CLOSE_S and not left
    if one.error:
        named = (
            name == "compiled"
            or key == "raise-init"
            or re.search(
                r"environment \d, worker pid \d+" if key == "idle-kill" else r"environment 1, worker pid \d+", said
            )
        )
        holds = holds and found["type"] == one.error and bool(named)
        holds = holds and (key not in ("raise-step", "raise-reset") or found["text_whole"])
    else:
        holds = holds and said.startswith("went on; 1 restarts")
    slow = f"; close took {found['close_s']:.0f} s" if found["close_s"] > CLOSE_S else ""
    stays = f"; {left} processes left" if left else ""
    outcome = f"{said[:160]}{slow}{stays}" if said.rstrip(": ") else f"{found['type']} without a word"
    return Row(title, float(holds), "", detail={**about, "outcome": outcome, "seconds": seconds})


def _tested(row: int, about: str, backend: str, tests: str, say: Say, until: float) -> Row:
    """Tests that are the scenario: they hold or they do not."""
    try:
        return _in_time(row, about, backend, tests, say, until)
    except subprocess.TimeoutExpired:
        why = "not tried: there was no time left for it"
        say(f"{row} {about}: {backend}: {why}")
        detail = {"row": row, "about": about, "backend": backend, "outcome": why, "tests": tests}
        return Row(f"{row} {about}: {backend}", None, "", note=why, detail=detail)


def _in_time(row: int, about: str, backend: str, tests: str, say: Say, until: float) -> Row:
    files, _, chosen = tests.partition(" -k ")
    file, _, name = files.partition("::")
    if name:  # of a file whose tests share what takes long: all of it is run, once
        said = [line for line in _ran(file, "", True, until) if f"::{name}" in line]
        passed = sum(line.startswith("PASSED") for line in said)
        outcome, holds = f"{passed} of {len(said)} tests passed", passed == len(said) > 0
    else:
        outcome = re.sub(r" in [\d.]+s.*", "", _ran(files, chosen, False, until)[-1])
        holds = "passed" in outcome and "failed" not in outcome and "error" not in outcome
    say(f"{row} {about}: {backend}: {outcome}")
    detail = {"row": row, "about": about, "backend": backend, "outcome": outcome, "tests": tests}
    return Row(f"{row} {about}: {backend}", float(holds), "", detail=detail)


@functools.cache
def _ran(files: str, chosen: str, slow: bool, until: float) -> list[str]:
    """What pytest says of some tests."""
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--tb=no", *files.split()]
    command += ["-m", "slow or not slow"] if slow else []
    command += ["-k", chosen] if chosen else []
    left_s = max(until - time.monotonic(), 0.1)
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=left_s)
    return ran.stdout.strip().splitlines() or ["pytest said nothing"]


if __name__ == "__main__":
    stored.main("benchmarks.faults.fault_matrix", rows, __doc__)
