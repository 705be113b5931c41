"""The harness of docs/reliability.md: a cell holds only if the message says all and nothing is left behind."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import fault_matrix
from benchmarks.faults.contestants import _unowned, play, shared_memory

WHOLE = "a worker died [environment 1, worker pid 7, seed 5, step 3]"
SOUND: dict[str, Any] = {"type": "WorkerDied", "said": WHOLE, "seconds": 0.1, "close_s": 0.1, "left": 0, "shared": []}


@pytest.mark.parametrize(
    "changes",
    [
        {"said": "a worker died [environment 1, worker pid 7]"},
        {"said": WHOLE.replace("environment 1", "environment 2")},
        {"said": WHOLE.replace("step 3", "step 4")},
        {"type": "EnvRaised"},
        {"left": 1},
        {"shared": ["psm_1"]},
        {"seconds": 3.0},
        {"close_s": 6.0},
    ],
    ids=str,
)
def test_a_cell_that_lacks_something_does_not_hold(changes: dict[str, Any]) -> None:
    assert fault_matrix._cell("process", "kill", SOUND).value == 1.0
    assert fault_matrix._cell("process", "kill", {**SOUND, **changes}).value == 0.0


def test_a_compiled_environment_names_environment_seed_and_step() -> None:
    found = {**SOUND, "type": "NotFinite", "said": "not finite [environment 0, seed 9, step 3]"}
    assert fault_matrix._cell("compiled", "nan-obs", found).value == 1.0
    assert fault_matrix._cell("compiled", "nan-obs", {**found, "said": "not finite [environment 0]"}).value == 0.0


def test_what_stays_in_shared_memory_is_seen() -> None:
    """Also where it is mapped, by us and nobody else."""
    name = f"shoal-test-{os.getpid()}"
    path = Path("/dev/shm", name)
    before = shared_memory()
    path.write_bytes(b"x")
    try:
        assert _unowned(shared_memory() - before) == {name}
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
            assert _unowned({name}) == {name}  # our own
    finally:
        path.unlink()
    assert not _unowned({name})


@pytest.mark.parametrize(
    ("name", "scenario"), [("serial", "obs-floats"), ("split", "kill"), ("process", "raise-close")]
)
def test_a_scenario_is_played(name: str, scenario: str) -> None:
    row = fault_matrix._cell(name, scenario, play(name, scenario))
    assert row.value == 1.0, row.detail


def test_every_test_of_the_table_is_there() -> None:
    """A file that was renamed would be a cell that does not hold."""
    root = Path(fault_matrix.ROOT)
    for test in fault_matrix.tests():
        for file in test.tests.partition(" -k ")[0].split():
            assert (root / file.partition("::")[0]).exists(), test
        _, _, function = test.tests.partition("::")
        if function:
            assert f"def {function}(" in (root / test.tests.partition("::")[0]).read_text(), test
    by_row = {(test.row, test.backend) for test in fault_matrix.tests()}
    assert {(row, backend) for row in (12, 13, 18) for backend in ("process", "split")} <= by_row
    assert {(13, "serial"), (13, "compiled"), (18, "compiled")} <= by_row
