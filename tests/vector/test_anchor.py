"""`Anchor`: a worker stays on its core while it has it for itself, and only then."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from shoal.vector import anchor
from shoal.vector.anchor import Anchor, core_of
from shoal.vector.faults import TickEnv
from shoal.vector.process import ProcessVectorEnv

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")


@pytest.fixture(autouse=True)
def _give_back_the_cores() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


def _windows(one: Anchor, count: int) -> None:
    for _ in range(count * anchor._WINDOW):
        one.begin()
        one.end()


def _anchor(core: int | None, cpu_share: list[float]) -> Anchor:
    """An anchor whose clocks say that each step took one second, of which the last entry of `cpu_share` on the core."""
    wall, cpu = itertools.count(), [0.0, False]

    def cpu_clock() -> float:
        cpu[0] += cpu_share[-1] if cpu[1] else 0.0
        cpu[1] = not cpu[1]
        return cpu[0]

    return Anchor(core, (lambda: float(next(wall)), cpu_clock))


def test_held_while_alone_let_go_when_shared_and_taken_up_again() -> None:
    """Anchored after a window without a pause; let go when the core is shared; anchored again after some patience."""
    everywhere, core = os.sched_getaffinity(0), min(os.sched_getaffinity(0))
    share = [1.0]
    one = _anchor(core, share)
    assert os.sched_getaffinity(0) == everywhere
    _windows(one, 1)
    assert one.held
    assert os.sched_getaffinity(0) == {core}
    share.append(0.9)  # a little less is no reason to leave
    _windows(one, 1)
    assert one.held
    share.append(0.5)
    _windows(one, 1)
    assert not one.held
    assert os.sched_getaffinity(0) == everywhere
    share.append(1.0)
    _windows(one, anchor._PATIENCE)
    assert not one.held
    _windows(one, 1)
    assert one.held


def test_a_worker_that_waits_is_never_anchored() -> None:
    """An environment whose work is done by another process: a core would be inherited by what it starts."""
    one = _anchor(min(os.sched_getaffinity(0)), [0.5])
    everywhere = os.sched_getaffinity(0)
    _windows(one, 40)
    assert not one.held
    assert os.sched_getaffinity(0) == everywhere


def test_a_core_that_is_not_there_is_no_fault() -> None:
    """The kernel may take a core away: the worker goes on wherever it is."""
    everywhere = os.sched_getaffinity(0)
    one = _anchor(4095, [1.0])
    _windows(one, 2)
    assert not one.held
    assert os.sched_getaffinity(0) == everywhere


def test_a_core_that_is_taken_away_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that goes later."""

    def refuse(*_: object) -> None:
        raise OSError

    one = _anchor(min(os.sched_getaffinity(0)), [1.0])
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    _windows(one, 2)
    assert not one.held
    monkeypatch.undo()


def test_what_an_environment_starts_may_run_anywhere() -> None:
    """A process started while anchored does not inherit the core; the worker is never anchored again."""
    code = """
import os, subprocess, sys
from shoal.vector.anchor import Anchor
everywhere = os.sched_getaffinity(0)
anchor = Anchor(min(everywhere))
sys.addaudithook(anchor.hear)
anchor._decide(1.0)
assert anchor.held and os.sched_getaffinity(0) == {min(everywhere)}
child = subprocess.run([sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))"], capture_output=True)
assert int(child.stdout) == len(everywhere), child
anchor._decide(1.0)
assert not anchor.held and os.sched_getaffinity(0) == everywhere
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_core_each_only_where_there_are_as_many() -> None:
    """As many workers as cores: one each; more or fewer: the kernel decides."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        assert [core_of(number, len(cores)) for number in range(len(cores))] == cores
    assert core_of(0, len(cores) + 1) is None
    os.sched_setaffinity(0, {cores[0]})
    assert core_of(0, 1) is None


class Where(TickEnv):
    """Computes without a pause, and knows its cores."""

    def step(self, action: object) -> object:
        """Ten thousand additions."""
        sum(range(10_000))
        return super().step(action)

    def cores(self) -> list[int]:
        """On which its process may run."""
        return sorted(os.sched_getaffinity(0))


def test_busy_workers_end_up_on_different_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: workers come to have one core each, and no two the same."""
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one core")
    number = 2
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:number])
    monkeypatch.setattr(anchor, "_ALONE", 0.2)  # other programs may take the rest
    monkeypatch.setattr(anchor, "_SHARED", 0.05)
    env = ProcessVectorEnv([Where] * (2 * number), workers=number, start_method="fork")
    env.reset(seed=0)
    deadline, alone = time.monotonic() + 60.0, [-1]
    while time.monotonic() < deadline:  # other programs may disturb them for a while
        for _ in range(2 * anchor._WINDOW):
            env.step([1] * (2 * number))
        alone = [where[0] for where in env.call("cores")[::2] if len(where) == 1]
        assert len(alone) == len(set(alone))
        if len(alone) == number:
            break
    env.close()
    assert sorted(alone) == sorted(os.sched_getaffinity(0))
