"""`shoal search` and `shoal.WorkflowSearch`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from toy_domain import TOY, config, essence, pulls

import shoal
from shoal.cli import main
from shoal.search.folder import SearchFolder
from shoal.search.loop import search


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["search", *args])
    return int(ended.value.code or 0)


def test_the_command_searches_and_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Flags of the search and of the domain stand side by side; progress goes to standard error."""
    code = run(TOY, "--workflows", "4", "--fail-every", "7", "--name", "s", "--runs-dir", str(tmp_path), "--json")
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert code == 0
    assert found["summary"]["pulls"] == 4
    assert "pull 4/4" in said.err
    assert SearchFolder.open("s", tmp_path).options["fail_every"] == 7


def test_resuming_takes_the_settings_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the number of pulls is given; the answer is printed in words."""
    search(config(tmp_path, workflows=2), {"fail_every": 7})
    assert run("--resume", "s", "--runs-dir", str(tmp_path), "--workflows", "5") == 0
    assert "best     <" in capsys.readouterr().out
    assert len(pulls(tmp_path)) == 5


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["chess"], "expected a domain of cage2, gridworld"),
        ([], "expected what to search: shoal search cage2 | shoal search gridworld"),
        (["--workflows", "3"], "expected what to search"),
        (["gridworld", "--workflows", "0"], "--workflows as a whole number of at least 1"),
        (["--resume", "nowhere"], "no run 'nowhere'"),
        (["gridworld", "--slip", "2"], "slip: expected a probability"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    args: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one line that says what was expected."""
    assert run(*args, "--runs-dir", str(tmp_path)) == 2
    assert what in capsys.readouterr().err


def test_a_search_of_a_grid_speaks_of_visits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is fixed in a grid; the best is scored on fresh episodes, once."""
    args = ["gridworld", "--workflows", "2", "--name", "g", "--runs-dir", str(tmp_path)]
    assert run(*args) == 0
    said = capsys.readouterr()
    assert "% of its visits" in said.out
    assert "on 200 fresh episodes" in said.out
    assert "found    " in said.out
    assert said.err.count("on fresh episodes") == 1
    assert run("--resume", str(tmp_path / "g")) == 0
    assert "on fresh episodes" not in capsys.readouterr().err


def test_the_policy_of_a_search_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The console says where it is and how to score it; test_align.py has the other commands on such a folder."""
    small = ["--num-envs", "4", "--episodes-per-env", "1", "--min-episodes", "0", "--compliance-threshold", "0"]
    assert (
        run("cage2", "--workflows", "1", *small, "--start", "scratch", "--name", "s", "--runs-dir", str(tmp_path)) == 0
    )
    said = capsys.readouterr().out
    command = next(line for line in said.splitlines() if line.startswith("next "))
    _, _, verb, policy, flag = command.split()
    assert (verb, flag) == ("evaluate", "--leaderboard")
    assert "rules: cage-challenge-2@26ce1c1" in said
    assert "on 2,000 fresh episodes" in said
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", policy, "--leaderboard", "--episodes", "2"])
    assert ended.value.code == 0
    assert f"-> {policy}" in capsys.readouterr().out


def test_resuming_a_search_of_another_domain_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By both names."""
    search(config(tmp_path, workflows=1))
    assert run("gridworld", "--resume", "s", "--runs-dir", str(tmp_path)) == 2
    assert "is a search of toy_domain:Toy, not of gridworld" in capsys.readouterr().err


def test_the_python_api_is_the_same_search(tmp_path: Path) -> None:
    """Under the names of the issue; `shoal.WorkflowSearch` is imported on first use."""
    found = shoal.WorkflowSearch(
        domain=TOY, n_workflows=5, n_envs=25, train_episodes_per_env=50, compliance_threshold=0.95, min_episodes=10,
        update_every_steps=100, seed=3, name="s", runs_dir=str(tmp_path / "api"), fail_every=7,
    ).run()  # fmt: skip
    search(config(tmp_path / "cli", workflows=5), {"fail_every": 7})
    assert found.summary.pulls == 5
    assert essence(pulls(tmp_path / "api")) == essence(pulls(tmp_path / "cli"))


def test_a_training_run_is_not_a_search(tmp_path: Path) -> None:
    """Resuming it as one is refused with the right command."""
    from shoal.runs.folder import Run

    with Run.create(tmp_path, "train", {"task": "CartPole-v1"}, "shoal train", "CartPole-v1"):
        pass
    with pytest.raises(ValueError, match="shoal train --resume"):
        SearchFolder.open("train", tmp_path)


def test_a_module_that_only_a_search_folder_names_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever wrote config.json would choose the code that runs: by resuming, by the page, and from Python."""
    search(config(tmp_path, workflows=2))
    (tmp_path / "planted_domain.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'canary')!r}).touch()\nfrom toy_domain import Toy\n"
    )
    place = tmp_path / "s" / "config.json"
    place.write_text(place.read_text().replace(TOY, "planted_domain:Toy"))
    monkeypatch.syspath_prepend(tmp_path)
    assert run("--resume", "s", "--runs-dir", str(tmp_path)) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "config.json names a module to import: planted_domain." in said
    assert "shoal search planted_domain:Toy --resume" in said
    with pytest.raises(SystemExit) as ended:
        main(["report", "s", "--runs-dir", str(tmp_path)])
    assert ended.value.code == 2
    with pytest.raises(ValueError, match="names a module to import"):
        search(resume=tmp_path / "s")
    assert not (tmp_path / "canary").exists()
    with pytest.raises(SystemExit) as ended:
        main(["report", "s", "--runs-dir", str(tmp_path), "--import", "planted_domain"])
    assert ended.value.code == 0
    assert (tmp_path / "canary").exists()


def test_naming_the_domain_trusts_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what is printed to go on names it."""
    (tmp_path / "my_orders.py").write_text("from toy_domain import Toy\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert run("my_orders:Toy", "--workflows", "2", "--name", "s", "--runs-dir", str(tmp_path)) == 0
    assert f"shoal search my_orders:Toy --resume {tmp_path / 's'}" in " ".join(capsys.readouterr().out.split())
    monkeypatch.delitem(sys.modules, "my_orders")
    assert run("my_orders:Toy", "--resume", "s", "--runs-dir", str(tmp_path), "--workflows", "3") == 0
    assert len(pulls(tmp_path)) == 3
