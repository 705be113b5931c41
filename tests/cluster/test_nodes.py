"""Several nodes: a cluster of two on this machine, in processes of its own; trainings join it by its address."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

import shoal
from clock import lives, until, within
from shoal.learn.weights import weights_of

HERE = Path(__file__).parent
FLAGS: dict[str, Any] = {"num_envs": 6, "rollout_steps": 16, "minibatch_size": 48, "seed": 3}
GOES_ON_S = 15.0


@dataclass
class Nodes:
    """The cluster, and what a process needs to join it."""

    address: str
    environment: dict[str, str]
    process: subprocess.Popen[str]
    number: int = 2

    def kill_one(self) -> None:
        """The second node, with all its processes, at once; none if it is dead."""
        if self.number == 1:
            return
        self.number = 1
        _pipe(self.process.stdin).write("kill\n")
        _pipe(self.process.stdin).flush()
        assert _pipe(self.process.stdout).readline() == "killed\n"

    def join(self, *command: str, **more: Any) -> subprocess.Popen[str]:
        """A process that may join."""
        return subprocess.Popen([sys.executable, *command], env=self.environment, text=True, **more)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two cores each."""
    token = secrets.token_hex(32)
    more = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, str(HERE / "nodes.py"), token, "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    address = _pipe(process.stdout).readline().strip()
    assert address.startswith("127.0.0.1:"), "no cluster came up"
    yield Nodes(address, {**os.environ, **more}, process)
    _pipe(process.stdin).close()
    process.wait(60)


def test_no_actor_outlives_a_driver_that_was_killed(nodes: Nodes) -> None:
    """The cluster ends them on every node."""
    code = (
        "from shoal.vector.make import make_vec; import time\n"
        f"envs = make_vec('CartPole-v1', 4, backend='ray', ray_address={nodes.address!r}, workers=2)\n"
        "envs.reset(seed=1); print(*envs.pids, flush=True); time.sleep(600)"
    )
    driver = nodes.join("-c", code, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    pids = [int(pid) for pid in _pipe(driver.stdout).readline().split()]
    assert len(pids) == 2
    assert all(map(lives, pids))
    driver.kill()
    driver.wait()
    assert until(lambda: not any(map(lives, pids)), 30.0)


def test_same_weights_as_serial_on_two_nodes(nodes: Nodes, tmp_path: Path) -> None:
    """Row 18: two and three actors."""
    _same_as_serial(nodes, tmp_path, 2, 3)


def test_training_goes_on_when_a_node_is_killed(nodes: Nodes, tmp_path: Path) -> None:
    """Within 15 seconds, on the other node; the lost steps are counted and shown."""
    flags = ("--backend", "ray", "--ray-address", nodes.address, "--workers", "2", "--on-fault", "restart",
             "--epochs", "100000", "--target-return", "1e9", "--save-interval", "1000000", "--num-envs", "4",
             "--rollout-steps", "16", "--runs-dir", str(tmp_path), "--name", "run")  # fmt: skip
    assert nodes.number == 2, "these tests are run in their order"
    quiet: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    training = nodes.join("-m", "shoal", "train", "CartPole-v1", *flags, **quiet)
    try:
        assert until(lambda: len(_rows(tmp_path)) >= 5, 90.0), "it has not begun"
        nodes.kill_one()
        killed, before = time.monotonic(), len(_rows(tmp_path))
        assert until(lambda: any(row["steps/lost"] for row in _rows(tmp_path)[before:]), 60.0), "it has not gone on"
        assert within(GOES_ON_S, killed)
        training.send_signal(signal.SIGTERM)
        _, said = training.communicate(timeout=60)
    finally:
        training.kill()
    last = _rows(tmp_path)[-1]
    assert 0 < last["steps/lost"] < last["steps"]
    assert f"{last['steps/lost']:,} steps were lost" in said
    assert list((tmp_path / "run" / "checkpoints").iterdir()), "it stopped with a checkpoint"


def test_same_weights_as_serial_on_the_node_that_is_left(nodes: Nodes, tmp_path: Path) -> None:
    """A training that begins while the cluster still believes in the other one."""
    nodes.kill_one()
    _same_as_serial(nodes, tmp_path, 2)


def _same_as_serial(nodes: Nodes, folder: Path, *actors: int) -> None:
    """By hash of the weights after five epochs."""
    serial = shoal.train("CartPole-v1", backend="serial", epochs=5, runs_dir=str(folder), name="serial", **FLAGS)
    code = (
        "import sys, shoal.training\n"
        "sys.stdin.readline()\n"
        f"shoal.train('CartPole-v1', backend='ray', ray_address={nodes.address!r}, workers=int(sys.argv[1]), epochs=5, "
        f"runs_dir={str(folder)!r}, name=sys.argv[1], **{FLAGS!r})"
    )
    told: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    started = {str(count): nodes.join("-c", code, str(count), **told) for count in actors}
    for count, process in started.items():  # one after another: there are four cores
        _, said = process.communicate("go\n", timeout=120)
        assert process.returncode == 0, said
        assert _hash(folder / count) == _hash(serial.run)


def _hash(run: str | Path) -> str:
    weights = weights_of(shoal.load_policy(run).agent.network)
    return hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()


def _rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / "run" / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
