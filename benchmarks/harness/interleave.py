"""Contestants: what is timed sits in a process of its own and runs when told to, one at a time.

A ratio is honest when both sides were measured in the same minutes on the same machine. So every contestant is built
first, waits on a pipe (which costs nothing), and the turns go round: a short block each, several rounds. What is
compared are the ratios within a round; a busy moment of the machine then hits one round, not one contestant.
A process each, because a peer that imports torch, or forks, must not leave that to the next one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import shoal
from shoal.runs.provenance import cores_usable
from shoal.runs.usage import machine_busy_s, tree_cpu_s

PEERS = ("stable_baselines3",)
INSTALL_PEERS = 'pip install "shoal[peers]"'
THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
CALM_SHARE = 0.04  # of all cores: others may have so much in a block that counts
START_S, BLOCK_S = 120.0, 120.0  # a contestant that takes longer has hung


class PeerMissing(Exception):
    """A library to compare with is not installed."""


class Timed(Protocol):
    """What a maker returns: `block` runs for about so many seconds and says how many steps that was."""

    def block(self, seconds: float) -> int: ...

    def close(self) -> None: ...


class Contestant:
    """A process that holds one thing to be timed. `make` is "module:function", called there with `options`."""

    def __init__(self, name: str, make: str | None = None, **options: Any) -> None:
        self.name = name
        here = Path(__file__).resolve().parents[2], Path(shoal.__file__).resolve().parents[1]  # benchmarks, shoal
        path = os.pathsep.join([*map(str, here), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed in close()
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from benchmarks.harness.interleave import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": path},
            text=True,
            start_new_session=True,  # one group to end, whatever it has started itself
        )
        self.facts: dict[str, Any] = {}  # what it says about itself: the backend picked, its threads
        if make is not None:
            try:
                self.facts = self.ask({"make": make, "options": options}, START_S)["facts"]
            except BaseException:
                self.close()
                raise

    def block(self, seconds: float) -> dict[str, float]:
        """Let it run: {"steps", "wall_s", "cpu_s" (its workers' included), "others" (share of the cores)}."""
        return self.ask({"seconds": seconds}, seconds + BLOCK_S)["block"]  # type: ignore[no-any-return]

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """One request, one answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
        deadline = time.monotonic() + timeout_s
        while not select.select([stdout], [], [], 0.2)[0]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                break
        else:
            answer: dict[str, Any] = json.loads(stdout.readline() or "{}")
            if "missing" in answer:
                raise PeerMissing(f"{answer['missing']} is not installed: {INSTALL_PEERS}")
            if "error" in answer:
                raise RuntimeError(f"{self.name} failed in its process:\n{answer['error']}")
            if answer:
                return answer
        self._errors.seek(0)
        ended = self._process.poll()
        how = f"gave no answer within {timeout_s:g} s" if ended is None else f"died with exit code {ended}"
        raise RuntimeError(f"{self.name} {how}:\n{self._errors.read()[-2000:]}")

    def close(self) -> None:
        """End it and all it started."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._errors.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def in_fresh_process(call: str, timeout_s: float, **options: Any) -> Any:
    """`module:function(**options)` in a new interpreter, one thread per library; its result, which is plain data."""
    with Contestant(call) as process:
        return process.ask({"call": call, "options": options}, timeout_s)["result"]


def interleave(contestants: Sequence[Contestant], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Rounds of blocks by contestant's name. The order changes from round to round, and a first short one warms up.

    A round in which other programs took part of the cores says little: up to half as many more are tried, and only the
    calm ones returned if there are three. What decides is the others' CPU time, never the result.
    """
    order = random.Random(0)
    for one in contestants:
        one.block(seconds / 4)
    found: list[dict[str, Any]] = []
    calm: list[dict[str, Any]] = []
    while len(calm) < rounds and len(found) < rounds + rounds // 2:
        turn = order.sample(list(contestants), len(contestants))
        found.append({one.name: one.block(seconds) for one in turn})
        if others(found[-1:]) <= CALM_SHARE:
            calm.append(found[-1])
    return calm if len(calm) >= 3 else found


def others(rounds: Sequence[dict[str, Any]]) -> float:
    """The largest share of the cores that other programs had in a block, in the median round."""
    shares: list[float] = [max(block["others"] for block in turn.values()) for turn in rounds]
    return statistics.median(shares)


def busy_note(rounds: Sequence[dict[str, Any]]) -> str:
    """A warning when other programs had part of the machine: then whoever has more processes gets more of it."""
    share = others(rounds)
    if share <= CALM_SHARE:
        return ""
    return f"other programs had up to {share:.0%} of the cores: not comparable, measure again on an idle machine"


def speeds(rounds: Sequence[dict[str, Any]], name: str, per: str = "wall_s") -> list[float]:
    """Steps per second of one contestant, round by round."""
    return [turn[name]["steps"] / max(turn[name][per], 1e-9) for turn in rounds]


def ratios(rounds: Sequence[dict[str, Any]], ours: str, theirs: str, per: str = "wall_s") -> list[float]:
    """Our speed over theirs, round by round."""
    return [a / b for a, b in zip(speeds(rounds, ours, per), speeds(rounds, theirs, per), strict=True)]


def summary(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """What stands beside a median."""
    return {
        "median": round(statistics.median(values), digits),
        "low": round(min(values), digits),
        "high": round(max(values), digits),
        "rounds": len(values),
    }


# -- the other side ------------------------------------------------------------------------------


def serve() -> None:
    """Main of a contestant's process: answer requests, a JSON line each, until the pipe is closed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not land among the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    timed: Timed | None = None
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if "make" in request:
                timed = find(request["make"])(**request["options"])
                answer = {"facts": getattr(timed, "facts", {})}
            elif "call" in request:
                answer = {"result": find(request["call"])(**request["options"])}
            elif timed is not None:
                answer = {"block": _block(timed, request["seconds"])}
        except ModuleNotFoundError as error:
            peer = (error.name or "").partition(".")[0]
            answer = {"missing": peer} if peer in PEERS else {"error": traceback.format_exc()}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if timed is not None:
        timed.close()


def find(place: str) -> Any:
    """What "module:name" names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _block(timed: Timed, seconds: float) -> dict[str, float]:
    cpu_s, busy_s, wall_s = tree_cpu_s(), machine_busy_s(), time.perf_counter()
    steps = timed.block(seconds)
    wall_s, busy_s, cpu_s = time.perf_counter() - wall_s, machine_busy_s() - busy_s, tree_cpu_s() - cpu_s
    share = max(busy_s - cpu_s, 0.0) / (wall_s * cores_usable())
    return {"steps": steps, "wall_s": wall_s, "cpu_s": cpu_s, "others": share}
