"""Evaluation and deployment."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import shoal
from shoal.core.seeds import Stream, episode_seed
from shoal.core.statistics import interval
from shoal.held_out import play
from shoal.runs.folder import Run
from shoal.vector.adapt import Stepper
from shoal.vector.make import make_vec

OPTIONS = {"num_envs": 2, "rollout_steps": 16, "minibatch_size": 32, "backend": "serial"}


class Seeded(gym.Env):
    """Returns its reset seed as its return, over an episode whose length depends on the seed."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.left = seed, 1 + seed % 7
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(1, np.float32), float(self.seed) if self.left == 0 else 0.0, self.left == 0, False, {}


class Endless(gym.Env):
    """Never ends by itself; a reward of 1 a step."""

    observation_space, action_space = Seeded.observation_space, Seeded.action_space

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("runs"))
    return shoal.train("seeded", env=Seeded, steps=64, runs_dir=root, **OPTIONS).run


def test_episodes_are_held_out(run: str) -> None:
    """The seeds evaluated are those of the evaluation stream, in order, and none is a training seed."""
    result = shoal.evaluate(run, env=Seeded, episodes=6)
    expected = [float(episode_seed(0, 0, k, Stream.EVALUATE)) for k in range(6)]
    assert result["deterministic"]["returns"] == expected
    training = {episode_seed(0, env, k) for env in range(64) for k in range(200)}
    assert not training & {int(value) for value in expected}


@pytest.mark.parametrize("num_envs", [2, 3, 5, 20, None])
def test_the_score_does_not_depend_on_how_many_environments_play(run: str, num_envs: int | None) -> None:
    """The same episodes in the same order, whoever plays them; short ones are not preferred."""
    result = shoal.evaluate(run, env=Seeded, episodes=7, num_envs=num_envs)
    expected = [float(episode_seed(0, 0, k, Stream.EVALUATE)) for k in range(7)]
    assert result["deterministic"]["returns"] == expected
    assert result["sampled"]["returns"] == expected


@pytest.mark.parametrize("task", ["Pendulum-v1", "CartPole-v1", "shoal/CartPole-v1", "cage2"])
def test_scores_are_the_same_bits_for_any_number_of_environments(tmp_path: Path, task: str) -> None:
    """Continuous actions show the last bit of the network's output; sampled ones that noise belongs to an episode."""
    options = OPTIONS | ({"backend": "auto"} if task in ("cage2", "shoal/CartPole-v1") else {})
    result = shoal.train(task, steps=64, runs_dir=str(tmp_path), name="r", **options)
    scores = [shoal.evaluate(result.run, episodes=5, num_envs=count) for count in (1, 3, 18)]
    for mode in ("deterministic", "sampled"):
        first, *others = (score[mode]["returns"] for score in scores)
        assert all(other == first for other in others)
        assert mode == "deterministic" or len(set(first)) > 1


def test_worker_processes_give_the_same_score(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a step is slow, environments play in processes; the episodes are the same."""
    from shoal import held_out

    monkeypatch.setattr(held_out, "_SLOW_STEP_S", 0.0)
    monkeypatch.setattr(held_out, "usable_cores", lambda: 2)
    expected = [float(episode_seed(0, 0, k, Stream.EVALUATE)) for k in range(5)]
    assert shoal.evaluate(run, env=Seeded, episodes=5)["deterministic"]["returns"] == expected


def test_an_episode_that_nothing_ends_is_cut_and_counted(run: str) -> None:
    """A policy that never ends an episode does not hang the evaluation; its return so far counts, and it is said."""
    heard: list[str] = []
    result = shoal.evaluate(run, env=Endless, episodes=3, max_episode_steps=50, say=heard.append)
    for mode in ("deterministic", "sampled"):
        assert result[mode]["returns"] == [50.0] * 3
        assert result[mode]["unfinished"] == 3
    assert any("6 of 6 episodes did not end within 50 steps" in text for text in heard)


def test_the_limit_is_no_lower_than_the_environments_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that is cut by its own TimeLimit, later than all others are, is played to there."""
    monkeypatch.setattr("shoal.saved_run.MOST_STEPS", 200)  # it is 20,000, and so is the default of `play`
    monkeypatch.setitem(play.__kwdefaults__, "max_steps", 200)
    gym.register("Long-v0", Endless, max_episode_steps=300)
    try:
        trained = shoal.train("Long-v0", steps=64, runs_dir=str(tmp_path), **OPTIONS)
        result = shoal.evaluate(trained.run, episodes=1)
    finally:
        del gym.registry["Long-v0"]
    assert result["max_episode_steps"] == 300
    assert result["deterministic"]["returns"] == [300.0]
    assert result["deterministic"]["unfinished"] == 0


class TakesAnInt32(Seeded):
    """A simulator whose seed is a C int."""

    def reset(self, *, seed=None, options=None):
        np.int32(seed)
        return super().reset(seed=seed)


def test_a_simulator_whose_seed_is_a_c_int_can_be_evaluated(tmp_path: Path) -> None:
    """Evaluation seeds fit 31 bits, as those of training do."""
    trained = shoal.train("int", env=TakesAnInt32, steps=64, runs_dir=str(tmp_path), **OPTIONS)
    assert shoal.evaluate(trained.run, env=TakesAnInt32, episodes=20)["episodes"] == 20


def test_a_run_of_an_older_version_keeps_its_evaluation_seeds(tmp_path: Path) -> None:
    """It was trained on seeds of 31 bits: episodes with bit 30 set may be among them, those with bit 31 never."""
    from shoal.runs import checkpoint

    trained = shoal.train("old", env=Seeded, steps=64, runs_dir=str(tmp_path), **OPTIONS)
    folder = Path(trained.run) / "checkpoints"
    found = checkpoint.load_latest(folder)
    assert found.meta.pop("seed_scheme") == 2
    checkpoint.save(folder, found.epoch + 1, found.tensors, {**found.meta, "epoch": found.epoch + 1})
    result = shoal.evaluate(trained.run, env=Seeded, episodes=4)
    expected = [float(episode_seed(0, 0, k, Stream.EVALUATE, scheme=1)) for k in range(4)]
    assert result["deterministic"]["returns"] == expected


def test_a_damaged_checkpoint_is_said_loudly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The epoch scored is not the newest: stderr and the result say which one is damaged and which is scored."""
    from shoal.cli import main

    trained = shoal.train("CartPole-v1", epochs=3, save_interval=1, runs_dir=str(tmp_path), name="d", **OPTIONS)
    newest = sorted((Path(trained.run) / "checkpoints").glob("epoch-*"))[-1] / "state.safetensors"
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["evaluate", trained.run, "--episodes", "2", "--json"])
    out, err = capsys.readouterr()
    assert not end.value.code
    result = json.loads(out)
    assert result["epoch"] == 2
    assert "epoch-00000003" in result["skipped"][0]
    assert "WARNING" in err
    assert "epoch-00000003" in err
    assert "epoch 2 is scored" in err
    with pytest.warns(UserWarning, match="epoch 2 is scored"):
        shoal.evaluate(trained.run, episodes=1)


class Moody(Seeded):
    """Ignores its seed."""

    calls = 0

    def step(self, action):
        Moody.calls += 1
        return np.zeros(1, np.float32), float(Moody.calls), True, False, {}


def test_an_environment_that_ignores_its_seed_is_found_out(run: str) -> None:
    """One episode is played again with the same seed."""
    assert shoal.evaluate(run, env=Seeded, episodes=2)["replayed_alike"] is True
    heard: list[str] = []
    assert shoal.evaluate(run, env=Moody, episodes=2, say=heard.append)["replayed_alike"] is False
    assert any("ignores its seed" in text for text in heard)


def test_scores_are_kept_with_the_run(tmp_path: Path) -> None:
    """The newest in evaluation.json, a line for every one; a folder that cannot be written is no reason to fail."""
    from shoal.runs import scores

    trained = shoal.train("CartPole-v1", steps=64, runs_dir=str(tmp_path), **OPTIONS)
    run = Run.open(trained.run, tmp_path)
    shoal.evaluate(trained.run, episodes=2, keep=False)
    assert scores.kept(run) == {}
    first = shoal.evaluate(trained.run, episodes=2)
    second = shoal.evaluate(trained.run, episodes=3)
    assert scores.kept(run)["held_out"]["mean"] == second["mean"]
    lines = [line["mean"] for line in map(json.loads, (run.path / scores.LINES).read_text().splitlines())]
    assert lines == [first["mean"], second["mean"]]


def test_compliance_is_scored_where_there_is_an_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run under an order says, in JSON and in words, how it kept to it on held-out episodes."""
    from shoal.cli import main

    kwargs = '{"order": "user,enterprise,op_server,op_host,defender", "horizon": [30]}'
    options = OPTIONS | {"backend": "auto", "env_kwargs": kwargs}
    trained = shoal.train("cage2", steps=64, runs_dir=str(tmp_path), **options)
    results = [shoal.evaluate(trained.run, episodes=4, num_envs=count) for count in (1, 3)]
    conduct = results[0]["sampled"]["conduct"]
    assert conduct["compliant"] + conduct["violations"] > 0
    assert results[1]["sampled"]["conduct"] == conduct
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["evaluate", trained.run, "--episodes", "4"])
    assert "compliance" in capsys.readouterr().out


def test_a_run_of_an_own_environment_says_that_it_is_needed(run: str) -> None:
    """Evaluating without the environment that the run was trained on names the argument to give."""
    with pytest.raises(ValueError, match="env="):
        shoal.evaluate(run)


def test_next_step_resets_are_not_steps(run: str) -> None:
    """In NEXT_STEP mode the step that only resets adds neither reward nor length."""
    policy = shoal.load_policy(run)
    envs = gym.vector.SyncVectorEnv([lambda: gym.wrappers.TimeLimit(Endless(), 3)] * 2)  # NEXT_STEP is its default
    played = play(policy, Stepper(envs), [1, 2, 3, 4, 5])
    assert played.lengths.tolist() == [3, 3, 3, 3, 3]
    assert played.returns.tolist() == [3.0, 3.0, 3.0, 3.0, 3.0]


def test_policy_maps_one_observation_to_one_action(run: str) -> None:
    """`load_policy` gives a plain int for Discrete, an array for a batch, and refuses a wrong shape."""
    policy = shoal.load_policy(run)
    assert type(policy(np.zeros(1, np.float32))) is int
    assert policy(np.zeros((5, 1), np.float32), batched=True).shape == (5,)
    with pytest.raises(Exception, match="expected the observation of shape"):
        policy(np.zeros(3, np.float32))


def test_continuous_policy_stays_within_bounds(tmp_path: Path) -> None:
    """Actions for Pendulum lie within its torque limits and have its dtype."""
    result = shoal.train("Pendulum-v1", steps=64, runs_dir=str(tmp_path), **OPTIONS)
    policy = shoal.load_policy(result.run)
    action = policy(np.array([1.0, 0.0, 8.0], np.float32), deterministic=False)
    assert action.shape == (1,)
    assert action.dtype == np.float32
    assert -2 <= action[0] <= 2


@pytest.mark.parametrize(("count", "least"), [(2, 0.93), (3, 0.93), (5, 0.93), (10, 0.93), (29, 0.93), (100, 0.92)])
def test_interval_covers_the_mean_of_normal_values(count: int, least: float) -> None:
    """Over 600 samples the 95 % interval covers the true mean nearly that often, however few values there are."""
    rng = np.random.default_rng(0)
    bounds = [interval(rng.normal(0.0, 1.0, count), seed=k) for k in range(600)]
    assert np.mean([bound is not None and bound[0] <= 0.0 <= bound[1] for bound in bounds]) >= least


@pytest.mark.parametrize(("count", "least"), [(5, 0.83), (30, 0.88)])
def test_interval_covers_the_mean_of_skewed_values(count: int, least: float) -> None:
    """Exponential draws: the percentile bootstrap of 5 covered 74 %."""
    rng = np.random.default_rng(0)
    bounds = [interval(rng.exponential(1.0, count), seed=k) for k in range(400)]
    assert np.mean([bound is not None and bound[0] <= 1.0 <= bound[1] for bound in bounds]) >= least


def test_one_episode_has_no_interval(run: str) -> None:
    """One value says nothing of its spread."""
    assert interval(np.ones(1)) is None
    result = shoal.evaluate(run, env=Seeded, episodes=1)
    assert result["low"] is None
    assert result["high"] is None


def test_held_out_environments_use_the_evaluation_stream() -> None:
    """make_vec with the evaluation stream starts episodes whose seeds have bit 30 set."""
    envs = make_vec("CartPole-v1", 2, backend="serial", stream=Stream.EVALUATE)
    envs.reset(seed=3)
    assert (envs.block.seeds >> 30 == 1).all()
    envs.close()


def test_a_vector_env_is_refused(run: str) -> None:
    """Its seeds are its own, so nothing could be said to be held out."""
    with pytest.raises(ValueError, match="makes one environment"):
        shoal.evaluate(run, env=gym.vector.SyncVectorEnv([Seeded]))


def test_a_config_and_options_together_are_refused() -> None:
    """Neither is dropped silently."""
    from shoal.tasks.presets import config_for

    with pytest.raises(ValueError, match="got both"):
        shoal.train(config=config_for("CartPole-v1"), seed=7)
