"""An episode in words and as picture data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shoal.cage2 import commands
from shoal.cage2 import narrate as view
from shoal.cage2.replay import differences, predict
from shoal.cage2.simulator.network import HOSTS
from shoal.cage2.traces import load


def test_an_episode_in_words() -> None:
    """B_line against Sleep ends in Impact: the first and the last line say so."""
    shown = commands.play("sleep", horizon=60, red="bline", seed=1)
    assert shown["red"] == "bline"
    assert shown["lines"][0] == "  1  blue sleeps; red looks for hosts in User (0)"
    assert shown["lines"][-1].endswith("which stands still (" + shown["lines"][-1].rsplit("(", 1)[1])
    assert len(shown["lines"]) == 60
    assert shown["total"] < -100


def test_words_of_a_recorded_episode(data: Path) -> None:
    """A real episode reads: every line names what both sides did."""
    episode = view.recorded(load(data / "traces_Meander_heuristic.npz")[0])
    assert episode.red == "meander"
    lines = view.in_words(episode)
    assert any("gets a privileged shell, seen" in line for line in lines)
    assert any("meets a decoy" in line for line in lines)
    assert all("; red " in line and line.count(":") == 0 for line in lines)


def test_a_sampled_episode_replays_without_a_mismatch() -> None:
    """What `record` keeps is a recording like the real ones: the replay agrees with it in every field."""
    for red in ("bline", "meander", "sleep"):
        steps = view.record("noisy", horizon=100, red=red, seed=4).steps[None]
        predicted, possible = predict(steps)
        wrong = differences(steps, predicted, possible)
        assert not {name for name, differs in wrong.items() if differs.any()}


def test_picture_data_has_its_shapes() -> None:
    """Access and belief are [host, step], marks name hosts and steps from 1."""
    data = view.picture(view.record("d2", horizon=50, red="meander", seed=0))
    assert data["access"].shape == data["belief"].shape == (13, 50)
    assert data["reward"].shape == (50,)
    assert data["hosts"] == list(HOSTS)
    assert {mark[2] for mark in data["blue"]} <= {"Analyse", "Remove", "Restore", "Decoy"}
    assert all(1 <= mark[0] <= 50 and 0 <= mark[1] < 13 for mark in data["blue"] + data["red"])
    assert np.isfinite(data["reward"]).all()
