"""Environments and wrappers of other packages, from the shell: trained, evaluated and resumed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal import cli
from shoal.vector.make import make_vec

PACKAGE = Path(__file__).parent / "data" / "third_party"
SMALL = ["--num-envs", "4", "--rollout-steps", "16", "--minibatch-size", "64", "--hidden", "8", "--steps", "64"]
WRAPPERS = ["strolls.wrappers:WithoutSign", "gymnasium.wrappers:FlattenObservation"]
WRAPPED = ["--wrapper", WRAPPERS[0], "--wrapper", WRAPPERS[1]]


def shoal(folder: Path, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Type a command in a folder that holds the package, in a process that knows nothing of it yet."""
    command = [sys.executable, "-P", "-m", "shoal.cli", *args]  # -P: as the script `shoal`, without this folder
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a wrapped environment of another package, in worker processes; the package lies beside the runs."""
    folder = tmp_path_factory.mktemp("third")
    shutil.copytree(PACKAGE / "strolls", folder / "strolls", ignore=shutil.ignore_patterns("__pycache__"))
    done = shoal(folder, "train", "strolls:Stroll-v0", *WRAPPED, *SMALL, "--backend", "process", "--name", "run")
    assert "next     shoal evaluate runs/run --import strolls\n" in done.stdout
    config = json.loads((folder / "runs" / "run" / "config.json").read_text())
    assert (config["task"], config["imports"], config["wrappers"]) == ("strolls:Stroll-v0", [], WRAPPERS)
    return folder


def test_train_evaluate_resume(trained: Path) -> None:
    """The commands that `shoal train` prints work as they are printed (M13, E2)."""
    assert (
        "strolls:Stroll-v0" in shoal(trained, "evaluate", "runs/run", "--import", "strolls", "--episodes", "2").stdout
    )
    resumed = ["train", "--resume", "run", "--steps", "128", "--import", "strolls", "--json"]
    assert json.loads(shoal(trained, *resumed).stdout.splitlines()[-1])["steps"] == 128
    assert json.loads((trained / "runs" / "run" / "config.json").read_text())["imports"] == []


def test_a_run_folder_chooses_no_import(trained: Path) -> None:
    """Whoever wrote a config.json has not been given the right to run code here: the command to type is said."""
    said = shoal(trained, "evaluate", "runs/run", code=2).stderr
    assert "names modules to import: strolls, strolls.wrappers" in said
    assert "\n  shoal evaluate runs/run --import strolls\n" in said


def test_a_policy_is_loaded_without_its_environment(trained: Path) -> None:
    """`load_policy` needs neither the package nor its wrappers."""
    code = "import shoal, numpy, sys; print(shoal.load_policy('run')(numpy.zeros(1, 'f4')), 'strolls' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=trained, capture_output=True, text=True, timeout=300)
    assert done.stdout in ("0 False\n", "1 False\n"), done.stderr


@pytest.mark.parametrize("command", [["evaluate"], ["train", "--resume"]], ids=" ".join)
@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"task": "trap:X-v0"}, "names modules to import: trap"),
        ({"imports": ["trap"]}, "names modules to import: trap"),
        ({"wrappers": ["trap:Wrapper"]}, "names modules to import: trap"),
        ({"wrappers": ["os:system"]}, "to be a class derived from gymnasium.Wrapper"),
    ],
    ids=str,
)
def test_a_trap_is_not_sprung(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    change: dict[str, Any],
    refused: str,
) -> None:
    """What a received run folder names stays untouched, although it lies where Python would find it."""
    shutil.copytree(trained / "runs", tmp_path / "runs")
    path = tmp_path / "runs" / "run" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "task": "CartPole-v1", "wrappers": [], **change}))
    (tmp_path / "trap.py").write_text("open('sprung', 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for more in ([], ["--import", "json"]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*command, "runs/run", *more])
        assert ended.value.code == 2
        assert refused in capsys.readouterr().err
    assert not os.path.exists("sprung")


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.filterwarnings("ignore:fork after torch")
def test_a_registering_module_is_imported_in_workers(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """However workers start, they make the environment and put the wrappers around it, in order (E2)."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    how: dict[str, Any] = {"backend": "process", "workers": 2, "start_method": method, "wrappers": WRAPPERS}
    for env, imports in (("strolls:Stroll-v0", []), ("Stroll-v0", ["strolls"])):
        envs = make_vec(env, 2, imports=imports, env_kwargs={"length": 3}, **how)
        assert envs.reset(seed=0)[0].tolist() == [[0.0], [0.0]]
        assert envs.call("length") == (3, 3)  # type: ignore[attr-defined]
        envs.close()
