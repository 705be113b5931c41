"""`shoal train cage2 --rules final`: what a run is trained under, it is resumed, scored and played under."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shoal
from benchmarks.harness import stored
from shoal.cage2.options import Cage2Options, environment
from shoal.cage2.simulator.network import FINAL_RULES, RULES
from shoal.runs.folder import Run

from .test_scores_said import TINY, run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few steps under the final rules, evaluated on the way."""
    folder = tmp_path_factory.mktemp("runs")
    run("train", "cage2", *TINY, "--rules", "final", "--evaluate-every", "1", "--evaluate-episodes", "2",
        "--runs-dir", str(folder), "--name", "final")  # fmt: skip
    return folder / "final"


def options_of(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(Run.open(folder, folder.parent).config["env_kwargs"])
    return found


def test_a_run_is_trained_and_goes_on_under_its_rules(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its folder says which; another one is refused with a resume, for they are what it learns from."""
    assert options_of(trained)["rules"] == "final"
    run("train", "--resume", str(trained), "--rules", "present", "--steps", "64", code=2)
    assert "expected none of cage2's own flags beside --resume, got --rules" in capsys.readouterr().err
    run("train", "--resume", str(trained), "--steps", "64")
    assert options_of(trained)["rules"] == "final"
    assert Run.open(trained, trained.parent).last_row()["steps"] == 64
    policy = shoal.load_policy(trained)
    assert policy.epoch == 2
    assert json.loads(policy.config.env_kwargs)["rules"] == "final"


def test_the_environments_of_a_run_play_by_its_rules() -> None:
    """The flag of the kernel's state, for both; in a run without the option it is the present ones."""
    for options, final in ((Cage2Options(), 0), (Cage2Options(rules="final"), 1)):
        envs = shoal.make_vec(environment(**vars(options)), 2, backend="compiled")
        envs.reset(seed=0)
        assert set(np.asarray(envs.state["game"]["final"]).tolist()) == {final}
        envs.close()


def test_a_run_is_scored_under_its_own_rules(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Held-out episodes, the leaderboard and an episode in words; --rules asks for the others."""
    for words in (("evaluate", str(trained), "--episodes", "2"),
                  ("evaluate", str(trained), "--leaderboard", "--episodes", "2"),
                  ("cage2", "play", str(trained), "--horizon", "2")):  # fmt: skip
        for more, named in (((), FINAL_RULES), (("--rules", "present"), RULES)):
            run(*words, *more)
            said = capsys.readouterr().out
            assert f"rules: {named} (" in said, (words, more)


def test_a_run_of_before_has_the_present_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its folder does not name any; its settings count as the same ones in stored results."""
    old = Path(__file__).parents[1] / "data" / "runs-0.1.0" / "cage2"
    assert "rules" not in options_of(old)
    (tmp_path / "old").mkdir()
    for path in old.rglob("*"):
        place = tmp_path / "old" / path.relative_to(old)
        place.mkdir(exist_ok=True) if path.is_dir() else place.write_bytes(path.read_bytes())
    run("evaluate", str(tmp_path / "old"), "--episodes", "2")
    assert RULES in capsys.readouterr().out
    run("evaluate", str(tmp_path / "old"), "--episodes", "2", "--rules", "final")
    assert FINAL_RULES in capsys.readouterr().out
    assert stored.settings_hash("cage2") == "43639d985412abcd"  # of the results of cage2 that are stored


def test_in_cyborg_its_own_rules_hold(
    trained: Path, installed: Callable[..., None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run of other rules is scored by those that are installed, and told so; asked for, others are refused."""
    installed(rules="26ce1c1")
    for more in ((), ("--leaderboard",)):
        run("evaluate", str(trained), "--simulator", "cyborg", "--episodes", "1", *more)
        assert RULES in capfd.readouterr().out
        run("evaluate", str(trained), "--simulator", "cyborg", "--episodes", "1", "--rules", "final", *more, code=2)
        assert "the CybORG that is installed, cage-challenge-2@26ce1c1" in capfd.readouterr().err
    run("train", "cage2", "--simulator", "cyborg", "--rules", "final", "--runs-dir", str(tmp_path / "r"), code=2)
    assert "the CybORG that is installed, cage-challenge-2@26ce1c1" in capfd.readouterr().err
    assert not list(tmp_path.glob("r/*"))
