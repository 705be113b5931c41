"""What is printed with a score: rules, simulator, what may be compared with it; in both simulators."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.cage2 import commands
from shoal.cage2.simulator.network import FINAL_RULES, RULES
from shoal.cli import main
from shoal.tasks.presets import config_for

from .standin import COMPLAINT

TINY = ["--num-envs", "4", "--rollout-steps", "8", "--minibatch-size", "16", "--steps", "32", "--hidden", "8", "8"]


def run(*args: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    assert int(ended.value.code or 0) == code


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of cage2 that has learned next to nothing."""
    folder = tmp_path_factory.mktemp("runs")
    run("train", "cage2", *TINY, "--runs-dir", str(folder), "--name", "trained")
    return folder / "trained"


def test_after_training_the_leaderboard_is_advised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mean of a mixture of attackers and horizons is nothing to compare; other tasks have no such protocol."""
    run("train", "cage2", *TINY, "--runs-dir", str(tmp_path), "--name", "here")
    assert f"next     shoal evaluate {tmp_path / 'here'} --leaderboard\n" in capsys.readouterr().out
    run("train", "CartPole-v1", *TINY, "--runs-dir", str(tmp_path), "--name", "there")
    assert f"next     shoal evaluate {tmp_path / 'there'}\n" in capsys.readouterr().out


def test_training_in_cyborg_has_settings_of_its_own(
    installed: Callable[..., None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A few environments, a short budget and minibatches that fit; flags by hand win; from Python likewise."""
    installed()
    run("train", "cage2", "--simulator", "cyborg", "--epochs", "1", "--rollout-steps", "4", "--hidden", "8", "8",
        "--minibatch-size", "16", "--runs-dir", str(tmp_path), "--name", "r")  # fmt: skip
    capfd.readouterr()
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["vector"]["num_envs"] == 8
    assert config["ppo"]["minibatch_size"] == 16
    assert (config["run"]["steps"], config["run"]["epochs"]) == (None, 1)
    default = config_for("cage2", env_kwargs='{"simulator": "cyborg"}')
    assert default.run.steps == 200_000
    rows = default.ppo.rollout_steps * 8
    assert rows % default.ppo.minibatch_size == 0
    assert rows // default.ppo.minibatch_size >= 4
    assert config_for("cage2").vector.num_envs == 512


def test_only_scores_under_the_same_rules_are_ranked_together(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scripted defenders stand beside a run; what others published under other rules stands apart, with links."""
    run("evaluate", str(trained), "--leaderboard", "--episodes", "20")
    said = capsys.readouterr().out
    assert f"rules: {RULES} (present); simulator: shoal, compiled" in said
    ranked, apart = said.split("published under other rules, not comparable")
    ranked = ranked.split("under these rules")[1]
    assert "-> " + str(trained) in ranked
    assert "decoy-first (scripted)" in ranked
    assert "Cardiff" not in ranked
    assert FINAL_RULES in apart
    assert "-54.57  CardiffUni  https://github.com/cage-challenge/cage-challenge-2" in apart
    assert "trained under older rules  https://github.com/john-cardiff/-cyborg-cage-2/issues/1" in apart


def test_under_the_final_rules_the_published_rows_are_ranked(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They were made by them; the scripted defenders play by them too."""
    run("evaluate", str(trained), "--leaderboard", "--episodes", "20", "--rules", "final")
    said = capsys.readouterr().out
    assert f"rules: {FINAL_RULES} (the final leaderboard of August 2022); simulator: shoal, compiled" in said
    ranked = said.split("under these rules")[1]
    assert "-54.57  CardiffUni" in ranked
    assert "decoy-first (scripted)" in ranked
    assert "not comparable" not in said
    run("cage2", "play", str(trained), "--horizon", "2", "--rules", "final")
    assert FINAL_RULES in capsys.readouterr().out
    run("cage2", "score", "d2", "--episodes", "20", "--rules", "final")
    assert "-54.57  CardiffUni" in capsys.readouterr().out.split("under these rules")[1]
    run("evaluate", str(trained), "--rules", "final", "--episodes", "2")
    assert FINAL_RULES in capsys.readouterr().out


def test_the_rules_of_cyborg_are_its_own(installed: Callable[..., None], capfd: pytest.CaptureFixture[str]) -> None:
    """Asking for others is refused: they would not be played."""
    installed(rules="26ce1c1")
    run("cage2", "score", "d2", "--simulator", "cyborg", "--episodes", "2", "--rules", "final", code=2)
    assert "the CybORG that is installed, cage-challenge-2@26ce1c1" in capfd.readouterr().err


def test_an_evaluation_names_what_was_played(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mean of a mixture says of which."""
    run("evaluate", str(trained), "--episodes", "2")
    said = capsys.readouterr().out
    assert "red mixed (47 % bline, 47 % meander, 6 % sleep), 30 or 50 or 100 steps" in said
    assert RULES in said


@pytest.mark.parametrize(("commit", "rules"), [("26ce1c1", RULES), ("606813b", FINAL_RULES)])
def test_a_scripted_defender_in_cyborg(
    commit: str,
    rules: str,
    installed: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The rules are those of the CybORG installed and decide what is comparable; long evaluations say how far they
    are; gym complains once, not once for each worker."""
    installed(rules=commit)
    monkeypatch.setattr(commands, "PROGRESS_S", 0.0)
    run("cage2", "score", "decoy-first", "--simulator", "cyborg", "--episodes", "2")
    said = capfd.readouterr()
    assert f"rules: {rules}" in said.out
    assert "simulator: CybORG" in said.out
    assert "sum of the nine means -54.00" in said.out  # -0.1 a step: 3 + 5 + 10 for each of three reds
    ranked = said.out.split("under these rules")[1].split("\n\n")[0]
    assert ("CardiffUni" in ranked) == (rules == FINAL_RULES)
    assert "d2 (scripted)" in ranked  # in the compiled simulator, by the same rules
    assert "4 of 6 episodes" in said.err
    assert said.err.count(COMPLAINT) == 1


def test_a_run_in_cyborg(trained: Path, installed: Callable[..., None], capfd: pytest.CaptureFixture[str]) -> None:
    """Leaderboard and evaluation name CybORG and its rules."""
    installed(rules="606813b")
    run("evaluate", str(trained), "--leaderboard", "--simulator", "cyborg", "--episodes", "2", "--json")
    found = json.loads(capfd.readouterr().out)
    assert (found["rules"], found["simulator"]) == (FINAL_RULES, "cyborg")
    run("evaluate", str(trained), "--simulator", "cyborg", "--episodes", "1")
    said = capfd.readouterr().out
    assert FINAL_RULES in said
    assert "simulator: CybORG" in said


def test_an_episode_in_cyborg(installed: Callable[..., None], capfd: pytest.CaptureFixture[str]) -> None:
    """In words: Blue's side of it, and what CybORG calls red's action."""
    installed()
    run("cage2", "play", "d2", "--simulator", "cyborg", "--horizon", "3")
    said = capfd.readouterr().out
    assert "red ExploitRemoteService 10.0.0.1; nothing shows (-0.1)" in said
    assert "total -0.3 over 3 steps against bline" in said
    assert f"rules: {RULES} (present); simulator: CybORG" in said
    run("cage2", "play", "d2", "--simulator", "cyborg", "--picture", "e.png", code=2)
    assert "--simulator shoal" in capfd.readouterr().err


def test_the_score_of_a_run_is_found_elsewhere(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run given to `cage2 score` is answered with the command that scores it; a wrong name with the right ones."""
    run("cage2", "score", str(trained), code=2)
    assert f"shoal evaluate {trained} --leaderboard" in capsys.readouterr().err
    run("cage2", "score", "nobody", code=2)
    assert "expected a scripted defender (sleep, random" in capsys.readouterr().err


def test_a_picture_of_a_kind_that_cannot_be_drawn_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the episode, with the kinds that can."""
    run("cage2", "play", "d2", "--picture", str(tmp_path / "e.bmp"), code=2)
    said = capsys.readouterr()
    assert "ends in .png, .svg, .pdf" in said.err
    assert not said.out
