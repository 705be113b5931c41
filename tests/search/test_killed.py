"""kill -9 at any moment of a search, resume: the same pulls follow."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from toy_domain import TOY, essence, pulls

import shoal.search
from shoal.runs.folder import Run
from shoal.runs.lock import Lock

SOURCE = str(Path(shoal.search.__file__).parents[2])


def start(folder: Path, parallel: int, resume: bool) -> subprocess.Popen[bytes]:
    # The random generator of this file decides when to kill, not the search's.
    flags = ["--workflows", "6", "--parallel", str(parallel), "--seed", "3", "--pull-s", "0.15", "--fail-every", "7"]
    place = ["--resume", "s"] if resume else ["--name", "s"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, str(Path(__file__).parent)])}
    command = [sys.executable, "-m", "shoal.cli", "search", TOY, *flags, *place, "--runs-dir", str(folder)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


@pytest.mark.parametrize(
    ("parallel", "most"), [(1, 2), *(pytest.param(parallel, 60, marks=pytest.mark.slow) for parallel in (1, 2))]
)
def test_killed_at_any_moment_the_same_pulls_follow(tmp_path: Path, parallel: int, most: int) -> None:
    """SIGKILL once the first pull has begun, then at random moments, so many times or until the search gets through;
    its pulls are those of one that was left alone."""
    undisturbed = start(tmp_path / "alone", parallel, resume=False)
    began = time.monotonic()
    assert undisturbed.wait(timeout=200) == 0
    whole_s = time.monotonic() - began
    rng = random.Random(parallel)
    kills = 0
    for attempt in range(60):
        resume = (tmp_path / "killed" / "s" / "config.json").exists()
        if not resume and (tmp_path / "killed" / "s").exists():  # killed while its folder was being made
            (tmp_path / "killed" / "s").rename(tmp_path / f"stillborn-{attempt}")
        process = start(tmp_path / "killed", parallel, resume)
        try:
            if not kills:
                _until(lambda: list((tmp_path / "killed").glob("s/pulls/*")))
                raise subprocess.TimeoutExpired(process.args, 0.0)
            # Late kills are likelier as attempts go on, or a slow machine would never get past its imports.
            moment_s = whole_s * rng.uniform(0.4, 0.9 + 0.1 * attempt)
            process.wait(timeout=moment_s if kills < most else 200.0)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.returncode == 0
        break
    assert kills >= 1
    alone, killed = pulls(tmp_path / "alone"), pulls(tmp_path / "killed")
    assert len(killed) == 6
    assert essence(killed) == essence(alone)


def test_workers_end_with_the_search_that_started_them(tmp_path: Path) -> None:
    """After SIGKILL no orphan goes on writing: the locks of the pulls under way are free within seconds."""
    flags = ["--workflows", "4", "--parallel", "2", "--pull-s", "600", "--name", "s", "--runs-dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, str(Path(__file__).parent)])}
    process = subprocess.Popen([sys.executable, "-m", "shoal.cli", "search", TOY, *flags], env=environment)
    try:
        _until(lambda: sum(Lock(path).is_held() for path in tmp_path.glob("s/pulls/*/lock")) == 2)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    _until(lambda: not any(Lock(path).is_held() for path in tmp_path.glob("s/pulls/*/lock")))
    assert Run(tmp_path / "s").status == "killed"


def _until(true: Any, seconds: float = 200.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
