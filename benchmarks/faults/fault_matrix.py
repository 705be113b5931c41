"""What survives which fault: every scenario, on every backend and on the peers, each tried and timed.

python -m benchmarks.faults.fault_matrix [--store] [--only ray torchrun ...]

Environments that break are played in a process of their own, with a deadline: who has not answered by then, hangs.
Faults of whole trainings (signals, checkpoints, ranks) are the tests that tests.txt names, run anew. With --store each
cell is written as soon as it is known; what was stored of the same code is kept, so that a run goes on where it was
stopped, and what could not be tried is tried again.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import json
import os
import queue
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults.contestants import AT, BAD, PEERS, SHOAL
from benchmarks.harness import stored
from benchmarks.harness.rows import Row

Say = Callable[[str], None]
NAME, PLACE = "fault_matrix", "benchmarks.faults.fault_matrix"
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S, START_S = 30.0, 60.0  # of a scenario; of the first, which imports and starts everything
OF_PEERS = (  # no row 7: they restart nothing
    *("raise-step", "raise-reset", "raise-init", "raise-close", "kill", "idle-kill", "hang", "hang-ignoring-sigterm"),
    *("nan-obs", "nan-reward", "obs-scalar", "obs-none", "obs-str", "obs-overflow", "obs-floats", "reward-str"),
)
TEST_S = 600.0  # of the tests of one cell
RAY_START_S = 300.0  # an instance starts a dozen processes, which takes minutes on a busy core
RAY_MORE_S = 15.0  # Ray's actors may take so much longer: they have 10 s for a step where others have 2
CLOSE_S = 5.0
_OUTCOMES = ("PASSED ", "FAILED ", "ERROR ")  # how the lines of pytest's summary begin


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
    "obs-floats": Scenario(10, "a fraction for a whole number", "DtypeError", 5.0, _NO_PYTHON),
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

    @property
    def title(self) -> str:
        """The name of its row."""
        return f"{self.row} {self.about}: {self.backend}"


def tests() -> list[Tested]:
    """Those of tests.txt."""
    lines = (Path(__file__).parent / "tests.txt").read_text().splitlines()[1:]
    return [Tested(int(row), *rest) for row, *rest in (line.split(" | ") for line in lines)]


def rows(say: Say) -> list[Row]:
    """One row a cell, and last the share of shoal's cells that hold."""
    return summarised(tried(say, {}, everyone()))


def everyone() -> tuple[str, ...]:
    """Who has a column, ours first."""
    return *SHOAL, *dict.fromkeys(test.backend for test in tests()), *PEERS


def summarised(cells: Iterable[Row]) -> list[Row]:
    """In the order of the table, and the share."""
    places = {name: at for at, name in enumerate(everyone())}
    found = sorted(cells, key=lambda row: (places[row.detail["backend"]], row.detail["row"]))
    ours = [row for row in found if row.detail["backend"] not in PEERS and row.value is not None]
    share = 100 * sum(row.value or 0.0 for row in ours) / max(len(ours), 1)
    return [*found, Row("faults: share of shoal's cells that hold", share, "%", 100.0, detail={"cells": len(ours)})]


def tried(say: Say, kept: Mapping[str, Row], who: Sequence[str]) -> Iterator[Row]:
    """The cells of these, each as soon as it is known; those of `kept` are not tried again. Ours are tried one after
    another, and the peers, who wait more than they work, beside them."""
    yield from (row for row in kept.values() if "backend" in row.detail)
    played = [_played(name, say, kept) for name in SHOAL if name in who]
    tested = (_tested(test, say) for test in tests() if test.backend in who and test.title not in kept)
    lanes = [itertools.chain(*played, tested), *(_played(name, say, kept) for name in PEERS if name in who)]
    known: queue.SimpleQueue[Row | None] = queue.SimpleQueue()

    def follow(lane: Iterator[Row]) -> None:
        try:
            for row in lane:
                known.put(row)
        finally:
            known.put(None)

    with ThreadPoolExecutor(len(lanes)) as threads:
        followed = [threads.submit(follow, lane) for lane in lanes]
        for _ in lanes:
            yield from iter(known.get, None)
        for one in followed:
            one.result()


def _played(name: str, say: Say, kept: Mapping[str, Row]) -> Iterator[Row]:
    """All scenarios of one contestant; one that hangs costs its process, the others go on in another."""
    if name in PEERS:
        left = list(OF_PEERS)
    else:
        left = [key for key, one in SCENARIOS.items() if name not in one.without]
    left = [key for key in left if _title(name, key) not in kept]
    if name == "ray" and importlib.util.find_spec("ray") is None:
        yield from (_cell(name, key, None, "not tried: Ray is not installed") for key in left)
        return
    while left:
        with _process(name, left) as process:
            wait = START_S
            while left:
                line = _line(process, RAY_START_S if name == "ray" else wait)
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


def _title(name: str, key: str) -> str:
    return f"{SCENARIOS[key].row} {SCENARIOS[key].about}: {name}"


def _cell(name: str, key: str, found: dict[str, Any] | None, why: str = "") -> Row:
    one = SCENARIOS[key]
    about = {"row": one.row, "about": one.about, "backend": name}
    title = _title(name, key)
    if found is None:
        return Row(title, None, "", note=why, detail={**about, "outcome": why})
    if not found:
        return Row(title, 0.0, "", detail={**about, "outcome": f"hangs: no answer within {DEADLINE_S:.0f} s"})
    said = f"{found['type']}: {found['said']}" if found["type"] else found["said"]
    seconds, left, shared = found["seconds"], found["left"], found["shared"]
    within_s = one.within_s + (RAY_MORE_S if name == "ray" else 0.0)
    holds = seconds <= within_s and found["close_s"] <= CLOSE_S and not left and not shared
    if one.error:
        holds = holds and found["type"] == one.error and bool(re.search(_place(name, key), said))
        holds = holds and (key not in ("raise-step", "raise-reset") or found["text_whole"])
    else:
        holds = holds and said.startswith("went on; 1 restarts")
    slow = f"; close took {found['close_s']:.0f} s" if found["close_s"] > CLOSE_S else ""
    stays = f"; {left} processes left" if left else ""
    stays += f"; in /dev/shm: {', '.join(shared)}" if shared else ""
    outcome = f"{said[:160]}{slow}{stays}" if said.rstrip(": ") else f"{found['type']} without a word"
    return Row(title, float(holds), "", detail={**about, "outcome": outcome, "seconds": seconds})


def _place(name: str, key: str) -> str:
    """What a message must say of where it happened, as a pattern: environment, worker, seed and step."""
    if name == "compiled":  # all of its environments break in the same step, in this process
        return rf"\[environment 0, seed \d+, step {AT}\]"
    if key == "raise-init":  # before there is a seed
        return rf"\[environment {BAD}, worker pid \d+\]"
    env = r"\d" if key == "idle-kill" else BAD  # idle, nobody is at fault: the worker's first environment is named
    step = {"raise-reset": 0, "raise-close": 2 * AT}.get(key, r"\d+" if key == "idle-kill" else AT)
    return rf"\[environment {env}, worker pid \d+, seed \d+, step {step}\]"


def _tested(test: Tested, say: Say) -> Row:
    """Tests that are the scenario: they hold or they do not. What they need could not be made: they were not tried."""
    detail = {"row": test.row, "about": test.about, "backend": test.backend, "tests": test.tests}
    files, _, chosen = test.tests.partition(" -k ")
    file, _, name = files.partition("::")
    value: float | None
    try:
        said = _ran(file, "", True) if name else _ran(files, chosen, False)  # what tests of a file share is made once
        words = [line.split(" ", 1)[0] for line in said if line.startswith(_OUTCOMES) and f"::{name}" in line]
        passed, failed = words.count("PASSED"), words.count("FAILED")
        outcome, value = f"{passed} of {len(words)} tests passed", float(passed == len(words) > 0)
        if not failed and passed < len(words):
            outcome, value = f"not tried: {len(words) - passed} tests could not be set up", None
    except subprocess.TimeoutExpired:
        outcome, value = f"not tried: its tests take longer than {TEST_S:g} s on this machine", None
    say(f"{test.title}: {outcome}")
    note = outcome if value is None else ""
    return Row(test.title, value, "", note=note, detail={**detail, "outcome": outcome})


@functools.cache
def _ran(files: str, chosen: str, slow: bool) -> list[str]:
    """What pytest says of some tests."""
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--tb=no", *files.split()]
    command += ["-m", "slow or not slow"] if slow else []
    command += ["-k", chosen] if chosen else []
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=TEST_S)
    finally:
        with contextlib.suppress(ProcessLookupError):  # with all that the tests have started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return said.strip().splitlines() or ["pytest said nothing"]


def main() -> None:
    """Cell by cell, stored or only told."""
    parser = stored.arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=everyone(), default=everyone(), help="these columns alone")
    given = parser.parse_args()
    store, load = stored.storing(given), os.getloadavg()[0]
    before = (stored.read(NAME) or {}) if store else {}
    if before.get("commit") != stored.stamp()["commit"]:
        before = {}
    load = before.get("load_before", load)
    kept = {row["name"]: Row.from_json(row) for row in before.get("rows", []) if row["value"] is not None}
    found: list[Row] = []
    for row in tried(stored.print_line, kept, given.only):
        found.append(row)
        if store:
            stored.write(NAME, f"python -m {PLACE} --store", summarised(found), load_before=round(load, 2))
    stored.show(summarised(found))


if __name__ == "__main__":
    main()
