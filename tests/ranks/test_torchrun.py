"""Two processes of torchrun train as one does; one that dies ends both, and nothing hangs."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks_tasks import TRAININGS

import shoal
from shoal.learn.team import Team, places
from shoal.runs import checkpoint
from shoal.runs.folder import Run
from shoal.testing import TickEnv

HERE = Path(__file__).parent


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _command(*what: str, ranks: int = 2, port: int | None = None, of: tuple[int, int] = (0, 1)) -> list[str]:
    """Of torchrun, the first of `of` being which node of how many."""
    place = ["--master-addr", "127.0.0.1", "--master-port", str(port or _free_port())]
    if of[1] > 1:
        place += ["--nnodes", str(of[1]), "--node-rank", str(of[0])]
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *place, *what]


def _environment() -> dict[str, str]:
    return {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All trainings, by two ranks and, meanwhile, by one process."""
    folder = tmp_path_factory.mktemp("ranks")
    with open(folder / "said", "w") as said:
        command = _command(str(HERE / "several_trainings.py"), str(folder))
        ranks = subprocess.Popen(command, stdout=said, stderr=said, env=_environment())
    try:
        for name, (task, options) in TRAININGS.items():
            shoal.train(task, name=f"{name}-1", runs_dir=str(folder), stream=io.StringIO(), **options)
        assert ranks.wait(240) == 0, (folder / "said").read_text()
    finally:
        if ranks.poll() is None:
            ranks.terminate()
            ranks.wait(60)
    return folder


def _weights(run: Path, epoch: int | None = None) -> dict[str, Any]:
    found = (
        checkpoint.load_latest(run / "checkpoints") if epoch is None else checkpoint.load(run / "checkpoints", epoch)
    )
    return {name: array for name, array in found.tensors.items() if name.startswith("network.")}


@pytest.mark.parametrize("name", list(TRAININGS))
def test_two_ranks_learn_what_one_process_learns(trained: Path, name: str) -> None:
    """After ten epochs: the same episodes, and weights that differ by rounding."""
    one, two = trained / f"{name}-1", trained / f"{name}-2"
    first, second = _weights(one), _weights(two)
    size, apart = (np.sqrt(sum(float(np.square(part).sum()) for part in parts)) for parts in (
        first.values(), (first[part] - second[part] for part in first)))  # fmt: skip
    assert 0 < apart <= 1e-5 * size
    rows = [Run.open(run, trained).last_row() for run in (one, two)]
    for key in ("epoch", "steps", "episodes", "optim/gradient_steps", "guard/kl_stops"):
        assert rows[0][key] == rows[1][key], key
    for key in ("return/mean_100", "loss/value", "policy/entropy", "value/explained_variance"):
        assert rows[0][key] == pytest.approx(rows[1][key], rel=1e-3, abs=1e-5), key


def test_a_resumed_run_of_two_ranks_ends_with_the_same_bits(trained: Path) -> None:
    straight, resumed = _weights(trained / "cartpole-2"), _weights(trained / "halfway")
    assert all(np.array_equal(straight[name], resumed[name]) for name in straight)
    assert "inexact" not in (trained / "halfway" / "events.jsonl").read_text()


def test_a_fault_on_one_rank_ends_both_with_a_checkpoint(trained: Path) -> None:
    """Step 40 is in the third epoch: the first two are kept, although --save-interval is 50."""
    mine, others = (trained / f"error-{rank}" for rank in (1, 0))
    assert mine.read_text().startswith("EnvRaised: ValueError in step")
    assert others.read_text().startswith("RankFailed: rank 1 of 2 failed: EnvRaised: ValueError in step")
    assert 2 in checkpoint.epochs(trained / "fault" / "checkpoints")
    assert "rank 1 of 2 failed" in json.loads((trained / "fault" / "status.json").read_text())["message"]


def test_a_fault_of_the_evaluation_which_rank_0_alone_does_ends_both_at_once(trained: Path) -> None:
    """No rank waits for an answer to what it asks; what was learnt before is kept."""
    assert (trained / "curve-0").read_text().startswith("EnvRaised: ValueError in step")
    assert (trained / "curve-1").read_text().startswith("RankFailed: rank 0 of 2 failed: EnvRaised: ValueError in step")
    assert checkpoint.epochs(trained / "curve" / "checkpoints") == [0, 2]


def test_one_process_goes_on_with_what_ranks_began_and_says_that_it_is_inexact(trained: Path) -> None:
    """After the test before, which looks at how it ended."""
    shoal.train(resume=trained / "fault", env=TickEnv, epochs=3, stream=io.StringIO())
    assert "saved by 2 rank(s), now 1" in (trained / "fault" / "events.jsonl").read_text()
    assert Run.open(trained / "fault", trained).last_row()["epoch"] == 3


@contextmanager
def _training(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, list[int]]]:
    """`shoal train` under torchrun, in the middle of it: the process, the run, and the ranks' process ids."""
    what = ["-m", "shoal", "train", "CartPole-v1", "--num-envs", "4", "--backend", "process", "--workers", "1"]
    what += ["--hidden", "8", "--epochs", "100000", "--runs-dir", str(folder), "--name", "run", *flags]
    with open(folder / "said", "w") as said:
        process = subprocess.Popen(_command(*what), stdout=said, stderr=said, env=_environment())
    try:
        deadline = time.monotonic() + 180
        while not list((folder / "run").glob("checkpoints/*")):
            assert process.poll() is None, (folder / "said").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        ranks = {_rank_of(int(child)): int(child) for child in children}
        yield process, folder / "run", [ranks[0], ranks[1]]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _rank_of(pid: int) -> int:
    values = dict(part.split("=", 1) for part in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in part)
    return int(values.get("RANK", -1))


def _of_session(pids: list[int]) -> list[str]:
    """Command lines of what is left of the ranks' sessions."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(stat[3]) in pids and stat[0] != "Z":
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue
    return found


def test_a_rank_that_is_killed_ends_the_run_with_a_checkpoint_and_is_named(tmp_path: Path) -> None:
    with _training(tmp_path, "--rollout-steps", "32") as (process, run, ranks):
        deadline = time.monotonic() + 200
        while len((run / "metrics.jsonl").read_text().splitlines()) < 2:
            assert time.monotonic() < deadline, (tmp_path / "said").read_text()
            time.sleep(0.05)
        os.kill(ranks[1], signal.SIGKILL)
        assert process.wait(200) != 0
        said = (tmp_path / "said").read_text()
        assert said.count("shoal: rank 1 of 2 died or does not answer any more") == 1, said
        status = json.loads((run / "status.json").read_text())
        assert status["status"] == "failed"
        assert "rank 1 of 2 died" in status["message"]
        found = checkpoint.load_latest(run / "checkpoints")
        assert found.epoch > 0
        assert found.meta["lost"]
        assert not _of_session(ranks)


def test_rank_0_which_writes_the_run_may_be_the_one_that_is_killed(tmp_path: Path) -> None:
    """The other one names it, and what rank 0 had saved is gone on from; nothing is left of either."""
    with _training(tmp_path, "--rollout-steps", "32", "--save-interval", "1") as (process, run, ranks):
        deadline = time.monotonic() + 200
        while not checkpoint.epochs(run / "checkpoints") or max(checkpoint.epochs(run / "checkpoints")) < 2:
            assert time.monotonic() < deadline, (tmp_path / "said").read_text()
            time.sleep(0.05)
        os.kill(ranks[0], signal.SIGKILL)
        assert process.wait(200) != 0
        said = (tmp_path / "said").read_text()
        assert said.count("shoal: rank 0 of 2 died or does not answer any more") == 1, said
        assert not _of_session(ranks)
    assert Run.open(run, tmp_path).status == "killed"
    epoch = checkpoint.load_latest(run / "checkpoints").epoch
    result = shoal.train(resume=run, epochs=epoch + 1, backend="serial", stream=io.StringIO())
    assert (result.status, result.epochs) == ("finished", epoch + 1)


def test_two_nodes_of_a_rank_each_end_with_the_bits_of_one_node_of_two(trained: Path, tmp_path: Path) -> None:
    """Two torchruns that meet on loopback, as two machines would; only the first writes the run."""
    task, options = TRAININGS["cartpole"]
    flags = [f"--{name.replace('_', '-')}={_flag(value)}" for name, value in options.items()]
    what = ["-m", "shoal", "train", task, *flags, "--runs-dir", str(tmp_path), "--name", "run"]
    port, nodes = _free_port(), []
    try:
        for node in range(2):
            with open(tmp_path / f"said-{node}", "w") as said:
                command = _command(*what, ranks=1, port=port, of=(node, 2))
                nodes.append(subprocess.Popen(command, stdout=said, stderr=said, env=_environment()))
        said_by = [tmp_path / f"said-{node}" for node in range(2)]
        assert [node.wait(240) for node in nodes] == [0, 0], "\n".join(path.read_text() for path in said_by)
    finally:
        for node_process in nodes:
            if node_process.poll() is None:
                node_process.kill()
            node_process.wait()
    one, two = _weights(trained / "cartpole-2"), _weights(tmp_path / "run")
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["run"]


def _flag(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_ranks_with_one_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    with _training(tmp_path, "--rollout-steps", "2000") as (process, run, ranks):
        os.kill(process.pid, number)
        process.wait(60)
        status = json.loads((run / "status.json").read_text())
        assert status["status"] == "interrupted", (tmp_path / "said").read_text()
        assert not checkpoint.load_latest(run / "checkpoints").meta["lost"]
        assert not _of_session(ranks)


@pytest.mark.slow
def test_ranks_do_not_outlive_torchrun(tmp_path: Path) -> None:
    with _training(tmp_path, "--rollout-steps", "32") as (process, _, ranks):
        process.kill()
        process.wait()
        deadline = time.monotonic() + 30
        while _of_session(ranks):
            assert time.monotonic() < deadline, _of_session(ranks)
            time.sleep(0.1)


def test_every_row_is_learned_from_by_the_rank_that_has_it() -> None:
    mask = np.array([[True, True, False, True], [False, True, True, True]])  # [T, N], two environments a rank
    assert places(mask, slice(0, 2)).tolist() == [0, 1, -1, 2, -1, -1]
    assert places(mask, slice(2, 4)).tolist() == [-1, -1, 0, -1, 1, 2]


def test_ranks_need_the_same_number_of_environments() -> None:
    team = Team()
    team.size = 3
    with pytest.raises(ValueError, match=r"--num-envs as a multiple of the 3 ranks.*got 8"):
        team.own(8)
