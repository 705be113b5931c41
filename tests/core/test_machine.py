"""How many cores there are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shoal.core.machine import _quota, control_groups, usable_cores
from shoal.learn.sizing import free_in_groups_bytes


def system(root: Path, groups: str, files: dict[str, str]) -> Path:
    """A machine whose control groups are these."""
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("200000 100000\n", 2), ("150000 100000\n", 2), ("50000 100000\n", 1), ("max 100000\n", sys.maxsize)],
)
def test_a_quota_of_cpu_time_counts_as_cores(tmp_path: Path, text: str, cpus: int) -> None:
    """A container that may use two CPUs' time on a machine of 64 has two cores."""
    assert _quota(system(tmp_path, "0::/\n", {"sys/fs/cgroup/cpu.max": text})) == cpus


def test_the_least_of_nested_quotas_counts(tmp_path: Path) -> None:
    """A Slurm job or a systemd slice is a group within groups, and no root of its own (m27)."""
    base = "sys/fs/cgroup/slurm/job_7"
    files = {f"{base}/cpu.max": "300000 100000", f"{base}/step_0/cpu.max": "max 100000",
             f"{base}/step_0/memory.max": "max", f"{base}/step_0/memory.current": "5",
             f"{base}/memory.max": "1000", f"{base}/memory.current": "300"}  # fmt: skip
    root = system(tmp_path, "0::/slurm/job_7/step_0\n", files)
    assert _quota(root) == 3
    assert free_in_groups_bytes(root) == 700


def test_version_1(tmp_path: Path) -> None:
    """One tree for each controller, sometimes under the names of several; -1 is no limit (m27)."""
    groups = "7:memory:/docker/abc\n5:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n0::/\n"
    files = {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
             "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
             "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "250000",
             "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
             "sys/fs/cgroup/memory/memory.limit_in_bytes": "4096",
             "sys/fs/cgroup/memory/memory.usage_in_bytes": "96"}  # fmt: skip
    root = system(tmp_path, groups, files)
    assert _quota(root) == 3
    assert free_in_groups_bytes(root) == 4000  # the host's path is not there: the mount's own limit holds


def test_paths_that_lead_out_of_the_mount_are_left_alone(tmp_path: Path) -> None:
    """A group outside the container's namespace is named /..: only the mount counts."""
    root = system(tmp_path, "0::/../../other\n", {"sys/fs/cgroup/cpu.max": "100000 100000"})
    assert control_groups("cpu", root)[-1] == root / "sys/fs/cgroup"
    assert _quota(root) == 1


def test_without_a_quota(tmp_path: Path) -> None:
    """No control group, nothing known against the cores."""
    assert _quota(tmp_path / "none") == sys.maxsize
    assert free_in_groups_bytes(tmp_path / "none") == sys.maxsize
    assert usable_cores() >= 1
