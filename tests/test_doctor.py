"""`shoal doctor`: what is right, what is missing, what is wrong, and the exit code."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal import cli, doctor
from shoal.tasks import Check, find


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting workers takes seconds; one test does it."""
    monkeypatch.setattr(doctor, "_start_method", lambda method: Check(method, True, "not tried in this test"))


def examine(*args: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """The exit code, and each line of `--json` by its name."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--json", *args])
    found = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in found["checks"]}
    assert found["fine"] == (not any(row["wrong"] for row in rows.values()))
    return int(ended.value.code or 0), rows


def test_a_whole_installation_is_well(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Workers really start; nothing is left in the folder."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--runs-dir", str(tmp_path / "runs")])
    assert not ended.value.code
    said = capsys.readouterr().out
    for line in ("python", "cores", "memory", "spawn", "torch", "runs", "cyborg"):
        assert any(line in words.split()[:2] for words in said.splitlines()), said
    assert "a worker started by spawn steps an environment" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick")
def test_what_is_missing_is_wrong_only_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1, and the cure."""
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "CybORG", None)
    code, rows = examine(capsys=capsys)
    assert code == 0
    assert rows["tensorboard"] == {
        "name": "tensorboard", "fine": None, "wrong": False, "said": "tensorboard not installed",
        "cure": 'pip install "shoal[tensorboard]"',
    }  # fmt: skip
    code, rows = examine("--for", "tensorboard,cyborg", capsys=capsys)
    assert code == 1
    assert [name for name, row in rows.items() if row["wrong"]] == ["tensorboard", "cyborg"]
    assert "pip install -e" in rows["cyborg"]["cure"]


@pytest.mark.usefixtures("quick")
def test_ray_is_started_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not otherwise: it takes seconds. What hinders it is said."""
    pytest.importorskip("ray")
    tried: list[Any] = []

    def refuse(*given: Any, **_: Any) -> None:
        tried.append(given)
        raise RuntimeError("no port is free")

    monkeypatch.setattr("shoal.vector.workers.ray.RayVectorEnv", refuse)
    code, rows = examine(capsys=capsys)
    assert (code, rows["ray"]["fine"], tried) == (0, True, [])
    code, rows = examine("--for", "ray", capsys=capsys)
    assert code == 1
    assert rows["ray"]["said"].endswith("cannot be used: no port is free")
    assert len(tried) == 1


@pytest.mark.usefixtures("quick")
def test_a_solver_of_a_task_is_asked_for_by_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library knows no application: their lines come by their own contract."""
    task = find("rides")
    assert task is not None
    assert task.checks()[0].fine
    monkeypatch.setitem(sys.modules, "pyvrp", None)
    (check,) = task.checks()
    assert (check.name, check.fine, check.cure) == ("pyvrp", None, 'pip install "shoal[rides]"')


@pytest.mark.usefixtures("quick")
def test_a_folder_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It is tried by writing; what is wrong is said in a line."""
    (tmp_path / "file").write_text("")
    code, rows = examine("--runs-dir", str(tmp_path / "file" / "runs"), capsys=capsys)
    assert code == 1
    assert "cannot be written" in rows["runs"]["said"]
    assert "--runs-dir" in rows["runs"]["cure"]


@pytest.mark.usefixtures("quick")
def test_a_sandbox_that_forbids(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without shared memory there are no workers; without SCHED_BATCH they only wake more slowly."""

    def refuse(*_: Any) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    code, rows = examine(capsys=capsys)
    assert code == 1
    assert rows["memory"]["wrong"]
    assert "--backend serial" in rows["memory"]["cure"]
    assert (rows["scheduler"]["fine"], rows["scheduler"]["wrong"]) == (None, False)


def test_a_worker_that_cannot_start_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the reason, it is said."""
    monkeypatch.setattr(doctor, "_cartpole", lambda: sys.exit(3))
    check = doctor._start_method("forkserver")
    assert check.fine is False
    assert "SystemExit" in check.said
    assert "--backend serial" in check.cure


@pytest.mark.usefixtures("quick")
def test_an_old_package_is_wrong(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the bounds that the package itself declares."""
    monkeypatch.setattr(doctor, "version", lambda package: "1.0.4" if package == "gymnasium" else "9999.0")
    code, rows = examine(capsys=capsys)
    assert code == 1
    assert [name for name, row in rows.items() if row["wrong"]] == ["gymnasium"]
    assert rows["gymnasium"]["said"].startswith("1.0.4; expected gymnasium")


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the nearest that there is, before any worker is started."""
    monkeypatch.setattr(doctor, "_start_method", lambda method: pytest.fail(f"{method} was tried"))
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--for", "cda"])
    assert ended.value.code == 2
    assert "did you mean cuda?" in capsys.readouterr().err
