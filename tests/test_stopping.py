"""Budgets: rounded up and said, never dropped; what drives the schedules; when a run is over."""

from __future__ import annotations

from collections import deque
from io import StringIO
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.callbacks import Training
from shoal.config import TrainConfig
from shoal.stopping import Budget, Epochs, FirstOf, TargetReturn, Update


def budget(**options) -> Budget:
    return Budget.of(TrainConfig().replace(**{"num_envs": 8, "rollout_steps": 16, **options}))


def learner(epoch=0, completed=0, returns=(), elapsed_s=10.0, steps=None, even_mean=None, interval=1):
    """A learner between two rollouts, of 8 environments x 16 steps from the beginning unless `steps` says otherwise."""
    tracker = SimpleNamespace(completed=completed, recent_returns=deque(returns, 100), even_mean=even_mean)
    steps = epoch * 128 if steps is None else steps
    marked = {"marked_epoch": epoch, "marked_episodes": completed, "marked_steps": steps}
    config = SimpleNamespace(ppo=SimpleNamespace(update_interval=interval))
    return SimpleNamespace(epoch=epoch, steps=steps, tracker=tracker, elapsed_s=elapsed_s, config=config, **marked)


@given(
    steps=st.integers(1, 10**18),
    num_envs=st.integers(1, 5000),
    rollout_steps=st.integers(1, 4096),
    interval=st.integers(1, 50),
)
def test_steps_are_rounded_up_to_whole_updates(steps, num_envs, rollout_steps, interval) -> None:
    """At least what was asked for, less than one update more; for any size, in whole numbers."""
    chosen = budget(steps=steps, num_envs=num_envs, rollout_steps=rollout_steps, update_interval=interval)
    update = num_envs * rollout_steps * interval
    assert steps <= chosen.length.total_steps < steps + update
    assert chosen.length.total_steps % update == 0


@pytest.mark.parametrize(("asked", "interval", "expected"), [(5, 1, 5), (5, 2, 6), (6, 3, 6), (1, 4, 4)])
def test_epochs_are_rounded_up_to_whole_updates(asked, interval, expected) -> None:
    """No data is collected that no update uses."""
    assert budget(epochs=asked, update_interval=interval).length.epochs == expected


def test_the_header_says_both() -> None:
    """What was asked for and what it comes to."""
    assert budget(steps=1000).header() == ["budget 1,000 steps: 8 epochs of 128 steps, 1,024 in all"]
    assert budget(epochs=5, update_interval=2).header() == ["budget 5 epochs: 6 epochs of 128 steps, 768 in all"]
    lines = budget(episodes=30, target_return=475).header()
    assert lines[0] == "budget 30 episodes: the run ends with the epoch (128 steps) that completes them"
    assert "475" in lines[1]


def test_a_budget_in_episodes_has_no_total() -> None:
    """Nobody knows beforehand how many steps they take."""
    assert budget(episodes=30).length.total_steps is None


def test_progress_before_the_first_epoch_is_0_and_before_the_last_less_than_1() -> None:
    """So a learning rate that goes to 0 is 0 after the last update, not during it."""
    assert [budget(epochs=4).progress(learner(epoch=n)) for n in range(4)] == [0, 0.25, 0.5, 0.75]
    assert budget(epochs=1).progress(learner()) == 0


def test_progress_of_a_budget_in_episodes() -> None:
    """The share of episodes that are complete, never above 1."""
    assert budget(episodes=40).progress(learner(completed=10)) == 0.25
    assert budget(episodes=40).progress(learner(completed=90)) == 1.0


def test_progress_stays_at_1_beyond_the_budget() -> None:
    """A run resumed with a smaller budget must not extrapolate its schedules."""
    assert budget(epochs=4).progress(learner(epoch=9)) == 1.0


def test_time_left() -> None:
    """A quarter done in 10 s: 30 s left; nothing done: unknown."""
    assert budget(epochs=4).length.eta_s(learner(epoch=1)) == pytest.approx(30)
    assert budget(episodes=40).length.eta_s(learner(completed=10)) == pytest.approx(30)
    assert budget(epochs=4).length.eta_s(learner()) is None


def test_a_run_ends_when_its_budget_is_spent() -> None:
    """Not an epoch earlier, and with the reason."""
    assert budget(epochs=4).reached(learner(epoch=3)) is None
    assert budget(epochs=4).reached(learner(epoch=4)) == "budget of 4 epochs spent"
    assert budget(steps=1000).reached(learner(epoch=7)) is None
    assert budget(steps=1000).reached(learner(epoch=8)) == "budget of 1,000 steps spent"
    assert budget(episodes=30).reached(learner(epoch=2, completed=29)) is None
    assert budget(episodes=30).reached(learner(epoch=2, completed=31)) == "budget of 30 episodes spent"


def test_a_run_ends_only_after_an_update() -> None:
    """With an interval of 2 the data of an odd epoch is not thrown away."""
    chosen = budget(episodes=30, update_interval=2)
    assert Training(learner(epoch=3, completed=99, interval=2), chosen).over() is None
    assert Training(learner(epoch=4, completed=99, interval=2), chosen).over() == "budget of 30 episodes spent"


def test_a_callback_stops_after_the_update_too_and_its_reason_is_told() -> None:
    """The first one, also where the budget is spent as well."""
    training = Training(learner(epoch=3, completed=99, interval=2), budget(episodes=30, update_interval=2))
    training.stop("enough")
    training.stop("more than enough")
    assert training.over() is None
    training.learner.epoch = 4
    assert training.over() == "enough"


def test_a_target_needs_a_full_window() -> None:
    """One lucky episode does not end a run; 100 on average do."""
    chosen = budget(epochs=1000, target_return=475)
    assert chosen.reached(learner(epoch=5, returns=[500.0] * 99, even_mean=500)) is None
    assert chosen.reached(learner(epoch=5, returns=[500.0] * 60 + [400.0] * 40, even_mean=500)) is None
    reason = chosen.reached(learner(epoch=5, returns=[500.0] * 80 + [400.0] * 20, even_mean=480))
    assert reason == "the last 100 episodes returned 480.0 on average, the target was 475"


def test_a_target_needs_every_environment() -> None:
    """The first 100 episodes to end are the shortest: not until each environment has ended some is a mean believed."""
    chosen = budget(epochs=1000, target_return=-20)
    assert chosen.reached(learner(epoch=5, returns=[-10.0] * 100, even_mean=None)) is None
    assert chosen.reached(learner(epoch=5, returns=[-10.0] * 100, even_mean=-50.0)) is None
    assert chosen.reached(learner(epoch=5, returns=[-10.0] * 100, even_mean=-19.0))


def test_whichever_comes_first_ends_a_run() -> None:
    """Stops are classes; the schedules go by the first one named."""
    either = FirstOf(Epochs(4, Update(128)), TargetReturn(3.0))
    assert either.reached(learner(epoch=3)) is None
    assert either.reached(learner(epoch=4)) == "budget of 4 epochs spent"
    assert either.reached(learner(epoch=1, returns=[5.0] * 100, even_mean=5.0)).startswith("the last 100 episodes")
    assert either.progress(learner(epoch=1)) == 0.25


class Weary(gym.Env):
    """-1 a step, ends with probability 1/50 whatever is done: the mean is -50 and nothing can be learnt."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), -1.0, bool(self.np_random.random() < 1 / 50), False, {}


@pytest.mark.parametrize("num_envs", [8, 512])
def test_survivors_do_not_meet_a_target(tmp_path, num_envs) -> None:
    """Hundreds of environments that begin together: after 16 steps the episodes that ended returned -11."""
    result = shoal.train(
        "weary", env=Weary, num_envs=num_envs, rollout_steps=16, backend="serial", target_return=-20,
        steps=30_000, update_epochs=1, runs_dir=str(tmp_path), stream=StringIO(),
    )  # fmt: skip
    assert result.reason == "budget of 30,000 steps spent"


def test_steps_left_after_a_change_of_size() -> None:
    """640 steps of 1,280 made by 4 environments: 8 of them have as many still to make, in epochs of twice the size."""
    chosen = budget(steps=1280)
    half = learner(epoch=10, steps=640)
    assert chosen.reached(half) is None
    assert chosen.progress(half) == 0.5
    assert chosen.length.eta_s(half) == pytest.approx(10)
    assert chosen.length.left(half) == "5 epochs of 128 steps left"
    assert chosen.reached(learner(epoch=14, steps=640 + 4 * 128)) is None
    assert chosen.reached(learner(epoch=15, steps=1280)) == "budget of 1,280 steps spent"
    uneven = learner(epoch=10, steps=600)  # 680 left: 6 epochs of 128
    assert chosen.progress(uneven) == 600 / (600 + 6 * 128)


@pytest.mark.parametrize("num_envs", [2, 8])
def test_a_resharded_run_makes_the_steps_asked_for(tmp_path, num_envs) -> None:
    """On more environments as on fewer; the schedules go by steps too."""
    small = {"rollout_steps": 16, "backend": "serial", "stream": StringIO()}
    run = shoal.train("weary", env=Weary, num_envs=4, steps=640, runs_dir=str(tmp_path), **small).run
    result = shoal.train(resume=run, env=Weary, reshard=True, num_envs=num_envs, steps=1280, stream=StringIO())
    assert (result.steps, result.reason) == (1280, "budget of 1,280 steps spent")


def test_a_budget_far_below_one_epoch_is_warned_of() -> None:
    """100,000 environments for 200,000 steps: said before a minute of silence, not found out afterwards."""
    first, warning = budget(steps=100, num_envs=32, rollout_steps=32).header()
    assert first == "budget 100 steps: 1 epoch of 1,024 steps, 1,024 in all"
    assert warning.startswith("that is 10 times what was asked")
    assert "--num-envs or --rollout-steps" in warning
    assert len(budget(steps=1000, num_envs=32, rollout_steps=32).header()) == 1
