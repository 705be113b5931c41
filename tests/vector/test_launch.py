"""How many cores there are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shoal.vector.launch import _quota, usable_cores


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("200000 100000\n", 2), ("150000 100000\n", 2), ("50000 100000\n", 1), ("max 100000\n", sys.maxsize)],
)
def test_a_quota_of_cpu_time_counts_as_cores(tmp_path: Path, text: str, cpus: int) -> None:
    """A container that may use two CPUs' time on a machine of 64 has two cores."""
    limit = tmp_path / "cpu.max"
    limit.write_text(text)
    assert _quota(limit) == cpus


def test_without_a_quota(tmp_path: Path) -> None:
    """No control group, nothing known against the cores."""
    assert _quota(tmp_path / "none") == sys.maxsize
    assert usable_cores() >= 1
