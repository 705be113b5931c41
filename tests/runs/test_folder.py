"""The run folder: what it holds, what it refuses, and that one process at a time writes it."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal.runs
from shoal.runs import Locked, Run, disk, provenance
from shoal.runs import folder as store_module

SOURCE = str(Path(shoal.runs.__file__).parents[2])


def make(root: Path, name: str | None = "first", **config: Any) -> Run:
    return Run.create(root, name, config, "shoal train CartPole-v1 --lr 0.1", "CartPole-v1")


def test_folder_explains_itself(tmp_path: Path) -> None:
    """Every promised file is there, README.txt names each, and their content is what was given."""
    with make(tmp_path, lr=0.1, layers=[64, 64]) as run:
        present = sorted(path.name for path in run.path.iterdir())
        expected = "README.txt checkpoints code.json command.txt config.json events.jsonl figures lock"
        assert present == [*expected.split(), "machine.json", "metrics.jsonl", "status.json"]
        readme = (run.path / "README.txt").read_text()
        assert all(name in readme for name in present if name != "README.txt")
        assert "--resume first" in readme
        assert run.config == {"lr": 0.1, "layers": [64, 64]}
        assert (run.path / "command.txt").read_text() == "shoal train CartPole-v1 --lr 0.1\n"
        assert run.status == "running"


def test_machine_and_code(tmp_path: Path) -> None:
    """machine.json and code.json name versions and commit, and neither the host nor any path."""
    with make(tmp_path) as run:
        machine = json.loads((run.path / "machine.json").read_text())
        code = json.loads((run.path / "code.json").read_text())
    assert machine["cores_usable"] >= 1
    assert machine["memory_bytes"] > 1 << 28
    assert machine["packages"]["numpy"] == np.__version__
    assert set(code) == {"shoal", "commit", "dirty"} | ({"source"} if code["dirty"] else set())
    if code["commit"] is not None:
        assert re.fullmatch(r"[0-9a-f]{40}", code["commit"])
        assert code["dirty"] in (True, False)
    text = json.dumps([machine, code])
    assert os.uname().nodename not in text
    assert str(Path.home()) not in text
    assert "/work" not in text


def test_code_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git on the PATH the commit is unknown and nothing fails."""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert provenance.code()["commit"] is None
    assert provenance.code()["dirty"] is None


def test_default_names_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs of one second get three names, made of the task and the time."""
    monkeypatch.setattr(store_module.time, "strftime", lambda *_: "20261116-101530")
    names = [make(tmp_path, None).name for _ in range(3)]
    assert names == [f"CartPole-v1-20261116-101530{end}" for end in ("", "-2", "-3")]


@settings(max_examples=60, deadline=None)
@given(task=st.text(max_size=200))
def test_default_names_are_valid_for_any_task(task: str) -> None:
    """Whatever a task is called, the name made from it is one that could have been given."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = store_module._claim(Path(folder), None, task)
        assert store_module._NAME.fullmatch(path.name)
        assert path.parent == Path(folder)


HOSTILE = [
    "", ".", "..", "../up", "a/b", "/abs", "a\\b", "nul\0", "x" * 81, "x" * 300, ".hidden", "-rf", "--help",
    "<script>alert(1)</script>", '"><img src=x>', "=cmd()", "a b", "new\nline", "name\n", "ü", "$(id)", "~",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_are_refused(tmp_path: Path, name: str) -> None:
    """A name that could leave the folder, hide, or be taken for an option says what is allowed instead."""
    root = tmp_path / "runs"
    with pytest.raises(ValueError, match="1 to 80 of the characters"):
        make(root, name)
    assert not root.exists()
    if name not in ("", ".", "..", "../up"):
        with pytest.raises(FileNotFoundError, match="no run"):
            Run.open(name, root)


@pytest.mark.parametrize("name", ["a", "A.b_c-d", "x" * 80, "0", "_a"])
def test_allowed_names(tmp_path: Path, name: str) -> None:
    """Letters, digits, dots, dashes and underscores up to 80 make a run."""
    with make(tmp_path, name) as run:
        assert run.path == tmp_path / name


def test_existing_name_is_not_overwritten(tmp_path: Path) -> None:
    """A second run of the same name is refused with the way to continue the first."""
    make(tmp_path, "first", lr=1).close()
    with pytest.raises(FileExistsError, match="--resume first"):
        make(tmp_path, "first", lr=2)
    assert Run.open("first", tmp_path).config == {"lr": 1}


def test_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config that JSON cannot hold, or a disk that is full, leaves no half-made folder."""
    with pytest.raises(ValueError, match="lr is nan"):
        make(tmp_path, lr=float("nan"))

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            make(tmp_path)
    assert list(tmp_path.iterdir()) == []
    make(tmp_path).close()


def test_open_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run opens by its name, its path, and a path relative to where one stands."""
    make(tmp_path / "runs").close()
    monkeypatch.chdir(tmp_path)
    for given_name in ("first", tmp_path / "runs" / "first", "runs/first", "./runs/first/"):
        assert Run.open(given_name, tmp_path / "runs").path == tmp_path / "runs" / "first"


def test_missing_run_suggests_the_nearest(tmp_path: Path) -> None:
    """A misspelt name lists the runs most like it, and an empty root says so."""
    for name in ("CartPole-v1-a", "Pendulum-v1-a", "other"):
        make(tmp_path, name).close()
    with pytest.raises(FileNotFoundError, match="Did you mean: CartPole-v1-a"):
        Run.open("CartPol-v1-a", tmp_path)
    with pytest.raises(FileNotFoundError, match="no run there yet"):
        Run.open("x", tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="other"):
        Run.open("zzzzzzzz", tmp_path)


def test_rows_round_trip(tmp_path: Path) -> None:
    """Numbers of any library come back as numbers; NaN and infinities as null, with their keys named."""
    with make(tmp_path) as run:
        run.append({"epoch": 1, "a": np.float32(0.5), "b": np.int64(3), "c": np.array([1, 2]), "d": True, "e": None})
        run.append({"epoch": 2, "x": float("nan"), "y": np.float64("-inf"), "z": [1.0, float("inf")], "t": "ü\n"})
        assert run.metrics() == [
            {"epoch": 1, "a": 0.5, "b": 3, "c": [1, 2], "d": True, "e": None},
            {
                "epoch": 2,
                "x": None,
                "y": None,
                "z": [1.0, None],
                "t": "ü\n",
                "not_finite": ["x", "y", "z[1]"],
            },
        ]
        text = (run.path / "metrics.jsonl").read_text()
        assert "NaN" not in text
        assert "Infinity" not in text


@pytest.mark.parametrize("torn", [b'{"epo', b"{", b'{"epoch": 3}', b"\0\0\0\0"])
def test_torn_last_line(tmp_path: Path, torn: bytes) -> None:
    """A line without its newline was never finished: it is not read, and the next row replaces it."""
    with make(tmp_path) as run:
        run.append({"epoch": 1})
        with (run.path / "metrics.jsonl").open("ab") as file:
            file.write(torn)
        assert run.metrics() == [{"epoch": 1}]
        run.append({"epoch": 2})
        assert run.metrics() == [{"epoch": 1}, {"epoch": 2}]


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    """Damage that a crash cannot explain is an error with file and line, not a silent gap."""
    with make(tmp_path) as run:
        (run.path / "metrics.jsonl").write_text('{"epoch": 1}\ngarbage\n{"epoch": 3}\n')
        with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2.*garbage"):
            run.metrics()


def test_full_disk_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that fits only in part is taken back, and the error names the file."""
    real_write = os.write
    with make(tmp_path) as run:
        run.append({"epoch": 1})

        def partly(descriptor: int, data: Any) -> int:
            if len(data) < 8:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real_write(descriptor, bytes(data[:5]))

        with monkeypatch.context() as patch:
            patch.setattr(disk.os, "write", partly)
            with pytest.raises(OSError, match=r"No space left.*metrics\.jsonl"):
                run.append({"epoch": 2})
        run.append({"epoch": 3})
        assert (run.path / "metrics.jsonl").read_text() == '{"epoch": 1}\n{"epoch": 3}\n'


def test_truncate_metrics(tmp_path: Path) -> None:
    """Resuming at epoch 2 drops later rows, keeps the others byte for byte, and says how many went."""
    with make(tmp_path) as run:
        (run.path / "metrics.jsonl").write_text(
            '{"epoch":1}\n{"epoch" : 2, "a": 0.10}\n{"note": 1}\n{"epoch": 3}\n{"ep'
        )
        assert run.truncate_metrics(2) == 1
        assert (run.path / "metrics.jsonl").read_text() == '{"epoch":1}\n{"epoch" : 2, "a": 0.10}\n{"note": 1}\n'
        run.append({"epoch": 3, "again": True})
        assert run.metrics()[-1] == {"epoch": 3, "again": True}


def test_events(tmp_path: Path) -> None:
    """Events carry the time; a plain text is an event too."""
    with make(tmp_path) as run:
        run.note({"event": "inexact", "reason": "environment 3 is not deterministic"})
        run.note("resumed")
        first, second = run.events()
    assert (first["event"], first["reason"]) == ("inexact", "environment 3 is not deterministic")
    assert second["event"] == "resumed"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", second["at"])


def test_status(tmp_path: Path) -> None:
    """The status is one of four words with a message; running without a writer means killed."""
    with make(tmp_path) as run:
        run.set_status("failed", "a <b> & more")
        assert (run.status, run.status_message) == ("failed", "a <b> & more")
        with pytest.raises(ValueError, match="running, finished, interrupted, failed"):
            run.set_status("done")
        run.set_status("running")
        assert run.status == "running"
        assert Run.open("first", tmp_path).status == "running"
    assert Run.open("first", tmp_path).status == "killed"
    run.set_status("finished")
    run.close()
    assert Run.open("first", tmp_path).status == "finished"


HOLDER = """
import sys, time
from pathlib import Path
from shoal.runs import Run
run = Run.open("first", Path(sys.argv[1]))
run.append({"epoch": 1})
print("locked", flush=True)
time.sleep(60)
"""


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """While another process writes, every write is refused by its pid; its death by kill -9 frees the run."""
    make(tmp_path).close()
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    run = Run.open("first", tmp_path)
    for write in (lambda: run.append({}), lambda: run.note("x"), lambda: run.set_status("failed"), run.lock):
        with pytest.raises(Locked, match=rf"written by process {process.pid}\b"):
            write()
    assert run.status == "running"
    assert run.metrics() == [{"epoch": 1}]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert run.status == "killed"
    run.append({"epoch": 2})
    assert [row["epoch"] for row in run.metrics()] == [1, 2]
    run.close()


def test_forked_worker_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A worker forked from the writer may outlive it without holding the run."""
    run = make(tmp_path)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"up")
        time.sleep(60)
        os._exit(0)
    try:
        os.read(reader, 2)
        run.close()
        other = Run.open("first", tmp_path)
        other.lock()
        other.close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


def test_layer_imports_nothing_above_it() -> None:
    """shoal.runs, TensorBoard included, adds neither torch nor other parts of shoal to `import shoal`."""
    pytest.importorskip("tensorboard")
    script = (
        "import sys, shoal; before = set(sys.modules);"
        "import shoal.runs.trackers, shoal.runs.console, tensorboard.summary.writer.record_writer;"
        "print(sorted(n for n in set(sys.modules) - before"
        " if n.split('.')[0] in ('torch', 'gymnasium', 'numba', 'wandb')"
        " or n.startswith('shoal.') and not n.startswith('shoal.runs')))"
    )
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
