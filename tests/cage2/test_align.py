"""Training under an order: the schedule, the trust region, the exams, the clone, and a whole small pull."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shoal.cage2.workflows.align import MOST_KL, TrustRegion, progress_of
from shoal.cage2.workflows.clone import clone_follower
from shoal.cage2.workflows.conduct import Conduct, play
from shoal.cage2.workflows.policy import Exam, load_policy, new_agent, order_config, ordered_env, save_policy
from shoal.cage2.workflows.train import RESULT, train_order, train_universal
from shoal.cli import main
from shoal.learn.losses import Batch
from shoal.runs import jsonl
from shoal.runs.folder import Run

ORDER = "user,enterprise,op_server,op_host,defender"
SMALL: dict[str, Any] = {"num_envs": 4, "validation_episodes": 8, "evaluation_episodes": 8, "check_every": 1}
ROUNDS = ((1, False, 200), (1, True, 100))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone made in seconds: good enough to be told from a fresh network."""
    return clone_follower(tmp_path_factory.mktemp("clone") / "weights", rounds=ROUNDS, num_envs=120)


def agent_of(weights: Path | None, red: str = "bline") -> Any:
    env = ordered_env(ORDER, red)
    agent = new_agent(env, order_config(seed=0, warm=True).ppo)
    if weights is not None:
        load_policy(weights, agent, env.features)
    return env, agent


def test_the_rate_rises_then_falls_to_nothing() -> None:
    """Over 50 updates: up during five, down in a line, never above 1 nor below 0."""
    rates = [1 - progress_of(update, 50) for update in range(50)]
    assert rates[0] == pytest.approx(0.2)
    assert np.argmax(rates) == 4
    assert (np.diff(rates[4:]) < 0).all()
    assert all(0 < rate <= 1 for rate in rates)


def test_the_trust_region_holds_an_update_back() -> None:
    """A wild step is halved until the policy has moved no further than allowed; a small one is left alone."""
    _, agent = agent_of(None)
    features = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (64, 344)).astype(np.float32))
    blank = torch.zeros(64)
    batch = Batch(features, None, blank.long(), blank, blank, blank, blank)
    region = TrustRegion(agent, batch)
    assert region.keep() == {"policy/update_kl": pytest.approx(0.0, abs=1e-6), "guard/halved_updates": 0.0}
    before = region.log_probs.clone()
    with torch.no_grad():
        agent.network.policy_head.weight += torch.randn(145, 128, generator=torch.Generator().manual_seed(0))
    row = region.keep()
    assert row["guard/halved_updates"] > 0
    now = torch.log_softmax(agent.network.policy(features), -1).detach()
    kl = float((before.exp() * (before - now)).sum(-1).mean())
    assert 0 < kl <= MOST_KL
    assert kl == pytest.approx(row["policy/update_kl"], rel=1e-3)


def test_an_exam_is_the_same_for_everyone_and_unlike_other_exams() -> None:
    """Two takes are equal; the final exam's episodes are not those of validation, nor of another seed."""
    env, agent = agent_of(None)
    exam = Exam(env, 16, seed=1)
    first, again = exam.take(agent), exam.take(agent)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert len({exam.seed, Exam(env, 2, seed=1, number=1).seed, Exam(env, 2, seed=2).seed}) == 3


def test_a_clone_does_what_the_follower_does(clone: Path) -> None:
    """On the same episodes: the same return in most of them, and the order kept; a fresh network does neither."""
    env, agent = agent_of(clone)
    exam = Exam(env, 100, seed=3)
    returns, tallies = exam.take(agent)
    scripted, _ = play(ORDER, "bline", 100, exam.seed)
    assert (returns == scripted).mean() > 0.5
    low = Conduct.of(tallies).compliance.low
    assert low is not None
    assert low > 0.9
    fresh, _ = exam.take(agent_of(None)[1])
    assert fresh.mean() < returns.mean() - 50


def test_a_clone_is_made_once(clone: Path) -> None:
    """Asked for again it is found; another one in the same place is refused."""
    assert clone_follower(clone, rounds=ROUNDS, num_envs=120) == clone
    with pytest.raises(ValueError, match="holds another clone"):
        clone_follower(clone, rounds=ROUNDS, num_envs=120, seed=1)
    with pytest.raises(ValueError, match="temper: expected eager or thrifty"):
        clone_follower(clone, temper="literal")


def test_a_pull_from_weights(clone: Path, tmp_path: Path) -> None:
    """Everything it found is in its folder, as JSON and safetensors; the same seed gives the same result."""
    said: list[str] = []
    found = train_order(ORDER, start=clone, seed=1, folder=tmp_path / "a", episodes_per_env=3, min_episodes=1,
                        early_stop=False, say=said.append, **SMALL)  # fmt: skip
    again = train_order(ORDER, start=clone, seed=1, folder=tmp_path / "b", episodes_per_env=3, min_episodes=1,
                        early_stop=False, **SMALL)  # fmt: skip
    rest = {"cpu_s": 0.0, "weights": ""}
    assert dataclasses.replace(found, **rest) == dataclasses.replace(again, **rest)
    assert (found.episodes, found.episodes_per_env, found.updates, found.stopped) == (12, 3.0, 3, "budget")
    assert found.start == str(clone)
    assert json.loads((tmp_path / "a" / RESULT).read_text()) == json.loads(json.dumps(found.to_json()))
    rows = jsonl.parse(tmp_path / "a" / "metrics.jsonl")
    assert [row["update"] for row in rows] == [1, 2, 3]
    assert "validation/return" in rows[-1]
    assert set(rows[0]["workflow/compliance_by_environment"]) <= {"0", "1", "2", "3"}
    assert len(said) == 3
    assert "compliance" in said[0]
    # The verdict can be had again from the weights alone.
    env, agent = agent_of(Path(found.weights))
    score, conduct = Exam(env, 8, seed=1).grade(agent)
    assert score.mean == found.mean
    assert conduct.compliance == found.compliance
    assert found.passed == (conduct.compliance.low is not None and conduct.compliance.low >= 0.95)


def test_early_stop_waits_for_the_least_episodes(clone: Path, tmp_path: Path) -> None:
    """A start that is obedient already stops at the first check that is no worse than it, not before."""
    options = {**SMALL, "validation_episodes": 30}
    found = train_order(ORDER, start=clone, seed=2, folder=tmp_path, episodes_per_env=6, min_episodes=2,
                        compliance_threshold=0.5, learning_rate=1e-9, **options)  # fmt: skip
    assert found.stopped == "compliance"
    assert found.updates == 2


@pytest.mark.parametrize("alignment", ["none", "lagrange", "reward"])
def test_a_pull_from_scratch(alignment: str, tmp_path: Path) -> None:
    """With either alignment or none; a fresh network does not pass."""
    found = train_order(ORDER, seed=0, folder=tmp_path, episodes_per_env=2, min_episodes=1, red="meander",
                        alignment=alignment, **SMALL)  # fmt: skip
    assert found.start == "scratch"
    assert found.alignment == alignment
    assert not found.passed
    assert found.low <= found.mean <= found.high


def test_a_universal_policy(clone: Path, tmp_path: Path) -> None:
    """One network for drawn orders; its weights are a start like any other."""
    weights = train_universal(tmp_path / "u", start=clone, steps=1000, num_envs=10, minibatch_size=500)
    found = train_order(7, start=weights, folder=tmp_path / "pull", episodes_per_env=1, min_episodes=1, **SMALL)
    assert found.start == str(weights)


def test_a_trained_order_is_a_run_like_others(clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder can be evaluated, put on the leaderboard, watched and reported; going on with it is refused with the
    right way."""
    folder = tmp_path / "users-first"
    found = train_order(ORDER, start=clone, seed=1, folder=folder, episodes_per_env=1, min_episodes=1, **SMALL)
    capsys.readouterr()
    said = {}
    for name, args in {
        "evaluate": ["evaluate", str(folder), "--episodes", "2"],
        "leaderboard": ["evaluate", str(folder), "--leaderboard", "--episodes", "2"],
        "play": ["cage2", "play", "users-first", "--horizon", "3", "--runs-dir", str(tmp_path)],
        "report": ["report", str(folder)],
    }.items():
        with pytest.raises(SystemExit) as ended:
            main(args)
        assert ended.value.code == 0, name
        said[name] = capsys.readouterr().out
    assert "red bline, 100 steps" in said["evaluate"]
    assert f"-> {folder}" in said["leaderboard"]
    assert "total " in said["play"]
    assert "status finished" in (folder / "report.html").read_text()
    assert Run(folder).status == "finished"
    assert [row["update"] for row in Run(folder).metrics()] == list(range(1, found.updates + 1))
    with pytest.raises(SystemExit) as ended:
        main(["train", "--resume", str(folder), "--steps", "100000"])
    assert ended.value.code == 2
    assert "train_order(..., start=" in capsys.readouterr().err
    assert Run(folder).status == "finished"


def test_a_folder_that_is_trained_in_again_forgets_the_older_weights(clone: Path, tmp_path: Path) -> None:
    """However many updates they had."""
    more = train_order(ORDER, start=clone, seed=1, folder=tmp_path, episodes_per_env=3, min_episodes=1, **SMALL)
    less = train_order(ORDER, start=None, seed=2, folder=tmp_path, episodes_per_env=1, min_episodes=0, **SMALL)
    env, agent = agent_of(None)
    assert more.seed == 1
    assert load_policy(less.weights, agent, env.features)["seed"] == 2


def test_weights_of_other_features_are_refused(tmp_path: Path) -> None:
    """The same numbers would mean other things."""
    env, agent = agent_of(None)
    folder = save_policy(tmp_path, agent, 0, {"features": "cage2-memory-v0"})
    with pytest.raises(ValueError, match="expected weights for the features"):
        load_policy(folder, agent, env.features)


@pytest.mark.slow
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_training_keeps_to_an_order_at_the_followers_price(red: str, tmp_path: Path) -> None:
    """A whole pull from a whole clone: passes, at a reward not below the thrifty follower's on the same episodes."""
    weights = clone_follower(tmp_path / "clone")
    found = train_order(ORDER, red=red, start=weights, folder=tmp_path / "pull", early_stop=False)
    assert found.passed
    env, agent = agent_of(Path(found.weights), red)
    exam = Exam(env, 1000, seed=77)
    difference = exam.take(agent)[0] - play(ORDER, red, 1000, exam.seed)[0]
    assert difference.mean() + 1.96 * difference.std() / 1000**0.5 >= 0
