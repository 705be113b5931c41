"""`shoal tune ID --search`: settings by Optuna, resumable, the same for the same seed, never worse than it says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from browser import check_page, opened
from hostile import HOSTILE
from shoal.cli import main
from shoal.config import TrainConfig
from shoal.runs.folder import Run
from shoal.tasks.presets import config_for
from shoal.tuning import loop
from shoal.tuning.loop import SearchPlan, search
from shoal.tuning.page import write_page
from shoal.tuning.space import Space, flags

SMALL: dict[str, Any] = {"trials": 5, "steps": 1000, "finalists": 2, "seeds": 2}


def small(folder: Path, **more: Any) -> Any:
    return search(SearchPlan("CartPole-v1", **{**SMALL, **more}), folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A search by the return at the end that nothing disturbed."""
    return small(tmp_path_factory.mktemp("whole") / "s", measure="return")


def test_the_finalists_are_the_best_trials_and_the_tasks_own_settings(whole: Any) -> None:
    """With the same new seeds for each; the best has the best median; its settings are options of a training."""
    assert whole.trials == 5
    assert sum(final.own for final in whole.finals) == 1
    assert len(whole.finals) in (2, 3)
    assert whole.best.median == min(final.median for final in whole.finals)
    own = next(final for final in whole.finals if final.own)
    kept = config_for("CartPole-v1").replace(**own.settings)
    assert kept == config_for("CartPole-v1"), "the first trial is what shoal train has"
    TrainConfig(task="CartPole-v1").replace(**whole.best.settings)
    seeds = {Run(path).config["run"]["seed"] for path in Path(whole.folder).glob("final-*") if path.name.endswith("-0")}
    assert len(seeds) == 1
    trial_seeds = {Run(path).config["run"]["seed"] for path in Path(whole.folder).glob("trial-*")}
    assert len(trial_seeds) == 5
    assert not seeds & trial_seeds


def test_a_search_that_was_stopped_finds_the_same(whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a trial and of a finalist; nothing that was finished is trained again."""
    real, names = loop.train, []
    stops = iter((3, 3, 2, None))

    def flaky(*args: Any, **given: Any) -> Any:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left = None if left is None else left - 1
        names.append(given["config"].run.name)
        return real(*args, **given)

    monkeypatch.setattr(loop, "train", flaky)
    for left in stops:  # noqa: B007 - it is what flaky counts down
        try:
            found = small(tmp_path / "s", measure="return")
        except KeyboardInterrupt:
            continue
    assert [final.values for final in found.finals] == [final.values for final in whole.finals]
    assert found.best.settings == whole.best.settings
    assert len(names) == len(set(names)), "nothing twice"


def test_a_search_of_settings_in_a_browser(whole: Any, tmp_path: Path) -> None:
    """Silent, self-contained, as wide as a phone; where every name in it is an attack, these are read as text."""
    folder = Path(shutil.copytree(whole.folder, tmp_path / "<img src=x onerror=alert(2)>"))
    for name in ("search.json", "found.json"):
        kept = json.loads((folder / name).read_text())
        (kept if name == "search.json" else kept["plan"])["env_kwargs"] = json.dumps({"render_mode": HOSTILE})
        for final in kept.get("finals", ()):
            final["settings"]["activation"] = f"{HOSTILE}{final['number']}"
        (folder / name).write_text(json.dumps(kept))
    with opened() as browser:
        check_page(browser, write_page(folder))
        assert browser.run("document.querySelector('h1').textContent") == "CartPole-v1: search of settings"
        words = browser.run("document.body.textContent")
        assert HOSTILE in words
        assert folder.name in words
        assert browser.run("document.querySelectorAll('script').length") == 1
        assert browser.run("document.querySelectorAll('img').length") == 0


def test_another_seed_or_plan_is_another_search(whole: Any, tmp_path: Path) -> None:
    """The same folder takes more trials, nothing else; a folder with other files is left alone."""
    with pytest.raises(ValueError, match=r"begun otherwise \(seed 0, now 1\)"):
        small(Path(whole.folder), measure="return", seed=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").touch()
    with pytest.raises(FileExistsError, match="got one with other files"):
        small(tmp_path / "mine")


def test_bad_trials_are_pruned_and_a_target_that_is_not_reached_is_said(tmp_path: Path) -> None:
    """Pruned by the curve, as the median of others is better; a cost without the target is at least twice."""
    said: list[str] = []
    plan = SearchPlan("CartPole-v1", **{**SMALL, "trials": 8, "finalists": 1, "seeds": 1})
    found = search(plan, tmp_path / "s", said.append)
    assert found.measure == "steps"
    assert found.pruned > 0
    assert sum("pruned" in line for line in said) == found.pruned
    assert all("target 475.0 not reached" in line or "pruned" in line for line in said)
    assert all(value >= 2 * SMALL["steps"] for final in found.finals for value in final.values)
    assert "(not reached)" in "\n".join(found.lines())
    assert found.lines()[-1].startswith("no finalist reached 475.0: give --steps a larger budget")


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what to type and what to paste, or that nothing better was found; then it trains."""
    words = ["tune", "CartPole-v1", "--search", "--trials", "2", "--steps", "2k", "--finalists", "1", "--seeds", "1",
             "--measure", "return", "--runs-dir", str(tmp_path)]  # fmt: skip
    with pytest.raises(SystemExit) as end:
        main([*words, "--json"])
    assert end.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert found["folder"] == str(tmp_path / "tune-CartPole-v1")
    page = Path(found["report"]).read_text()
    for part in ("Settings to use", "Finalists", "Best so far", "Learning curves of the trials", "Trials"):
        assert f"<h2>{part}</h2>" in page
    assert ("Nothing better was found" in page) == found["is_own"]
    assert (f"shoal train CartPole-v1 {found['flags']}" in page) != found["is_own"]
    (tmp_path / "tune-CartPole-v1" / "found.json").unlink()
    with pytest.raises(SystemExit) as end:
        main(["report", "tune-CartPole-v1", "--runs-dir", str(tmp_path)])
    assert end.value.code == 0
    assert found["report"] in capsys.readouterr().out
    assert "not finished: 2 of 2 trials" in Path(found["report"]).read_text()
    with pytest.raises(SystemExit):
        main(words)
    out = capsys.readouterr().out
    assert ("nothing better was found" in out) == found["is_own"]
    assert (f"use      shoal train CartPole-v1 {found['flags']}" in out) != found["is_own"]
    with pytest.raises(SystemExit) as end:
        main(["train", "CartPole-v1", *found["flags"].split(), "--steps", "1000", "--runs-dir", str(tmp_path)])
    assert end.value.code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["CartPol-v1"], "CartPole-v1"),
        (["CartPole-v1", "--trials", "0"], "--trials of at least 1"),
        (["Pendulum-v1", "--measure", "steps"], "has no target to reach"),
        (["rides"], "expected --steps for rides"),
    ],
)
def test_wrong_usage_names_the_cure(
    args: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tune", *args, "--search", "--runs-dir", str(tmp_path)])
    assert end.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1", "cage2", "MountainCarContinuous-v0", "Taxi-v4"])
def test_the_settings_of_every_task_are_a_point_of_its_space(task: str) -> None:
    """The first trial is what `shoal train` has, to the digit."""
    base = config_for(task)
    options = Space(base).options(Space(base).own)
    assert base.replace(**options) == base
    assert "--num-envs" in flags(options)
