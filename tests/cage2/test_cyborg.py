"""The adapter to the real CybORG, against a stand-in that plays back what the real one did."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_reset_return_info_deprecation

from shoal.cage2.cyborg import CyborgEnv, CyborgMissing, installed_rules
from shoal.cage2.simulator.env import make
from shoal.cage2.simulator.machine import compiled
from shoal.cage2.simulator.memory import MEMORY, MEMORY_FEATURES
from shoal.cage2.simulator.network import FINAL_RULES, RULES
from shoal.cage2.traces import load
from shoal.cli import main

from .standin import install
from .test_memory import stream_features


@pytest.fixture
def files(data: Path) -> dict[str, Path]:
    return {
        "B_lineAgent": data / "traces_B_line_heuristic.npz",
        "RedMeanderAgent": data / "traces_Meander_heuristic.npz",
        "SleepAgent": data / "traces_Sleep_sleep.npz",
    }


@pytest.mark.parametrize(("red", "agent"), [("bline", "B_lineAgent"), ("meander", "RedMeanderAgent")])
def test_observations_rewards_and_features_are_the_recorded_ones(
    red: str, agent: str, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Order, dtype, rounding, memory and reset over two episodes of what the real one did."""
    install(monkeypatch, files, tmp_path)
    recorded = load(files[agent])[:2]
    expected = np.zeros((*recorded.shape, MEMORY_FEATURES), np.uint8)
    compiled(stream_features)(np.zeros(1, MEMORY), recorded, expected)
    env = CyborgEnv(horizon=100, red=red)
    assert env.observation_space == make().observation_space
    for episode in range(2):
        obs, info = env.reset(seed=episode)
        assert info == {"red": red}
        assert obs["obs"].dtype == np.uint8
        assert not obs["obs"].any()
        for t in range(100):
            obs, reward, terminated, truncated, _ = env.step(int(recorded["blue_action"][episode, t]))
            assert env.observation_space.contains(obs)
            np.testing.assert_array_equal(obs["obs"], expected[episode, t])
            assert reward == round(float(recorded["reward"][episode, t]), 1)
            assert (terminated, truncated) == (t == 99, False)


def test_plain_features_are_the_52_bits(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without memory and mask the observation is the challenge's own, as uint8."""
    install(monkeypatch, files, tmp_path)
    env = CyborgEnv(horizon=30, red="bline", features="plain", mask="none")
    recorded = load(files["B_lineAgent"])
    check_reset_return_info_deprecation(env)
    env = CyborgEnv(horizon=30, red="bline", features="plain", mask="none")
    env.reset(seed=0)
    for t in range(30):
        obs, _, terminated, _, _ = env.step(int(recorded["blue_action"][0, t]))
        np.testing.assert_array_equal(obs, recorded["obs"][0, t])
    assert terminated


def test_the_global_generators_are_seeded_before_construction_and_reset(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same seed leaves the same draws to CybORG, at construction and at every reset."""
    journals = []
    for _ in range(2):
        journal = install(monkeypatch, files, tmp_path)
        env = CyborgEnv(red="mixed", mix=(1, 1, 1))
        for seed in (5, None, None, None):
            env.reset(seed=seed)
        journals.append(journal)
    assert journals[0] == journals[1]
    resets = [entry for entry in journals[0] if entry[0] == "reset"]
    assert len({entry[2:] for entry in resets}) == 4


def test_a_wrong_observation_is_refused(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another CybORG's observation is an error that says what was expected."""
    install(monkeypatch, files, tmp_path)
    wrappers = sys.modules["CybORG.Agents.Wrappers"]
    monkeypatch.setattr(wrappers.ChallengeWrapper, "reset", lambda self: np.zeros(60))
    with pytest.raises(ValueError, match="expected 52 bits"):
        CyborgEnv(red="bline").reset(seed=0)


def test_absent_cyborg_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the pip command."""
    monkeypatch.setitem(sys.modules, "CybORG", None)
    with pytest.raises(CyborgMissing, match="pip install -e") as error:
        CyborgEnv()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", ["version.txt", "Scenario2.yaml"])
def test_a_cyborg_without_its_data_files_says_which_and_how_to_install_it(
    file: str, installed: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plain pip install leaves them out; through the command line it is wrong usage, in one line."""
    installed(without=file)
    with pytest.raises(CyborgMissing, match=f"{file} is missing"):
        CyborgEnv()
    with pytest.raises(SystemExit) as ended:
        main(["train", "cage2", "--simulator", "cyborg", "--runs-dir", str(tmp_path / "runs")])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"{file} is missing" in said
    assert 'pip install -e "git+https://github.com/cage-challenge/cage-challenge-2@26ce1c1#egg=CybORG&' in said
    assert "Traceback" not in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("commit", "rules"), [("26ce1c1", RULES), ("606813b", FINAL_RULES)])
def test_the_rules_are_those_of_the_cyborg_installed(commit: str, rules: str, installed: Callable[..., None]) -> None:
    """Both commits call themselves 2.1: what they can do tells them apart."""
    installed(rules=commit)
    assert installed_rules() == rules
    assert commit in rules


def test_another_cyborg_is_refused(installed: Callable[..., None]) -> None:
    """That of another challenge has no such session: no rules can be named."""
    installed(without="Session.py")
    with pytest.raises(CyborgMissing, match="not that of CAGE Challenge 2"):
        installed_rules()


def test_wrong_actions_and_options_are_named(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The adapter checks as the compiled environment does."""
    install(monkeypatch, files, tmp_path)
    with pytest.raises(ValueError, match="red: expected"):
        CyborgEnv(red="purple")
    env = CyborgEnv(red="sleep")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action: expected 0\.\.144, got 145"):
        env.step(145)
