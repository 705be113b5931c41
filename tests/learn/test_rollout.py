"""Collecting, whatever the autoreset mode and the slices; and the episodes that are counted."""

from __future__ import annotations

import functools

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tiny_envs import ENDS, LENGTHS, Scripted, reward_of

from shoal.config import TrainConfig
from shoal.learn.learner import Learner
from shoal.learn.rollout import EpisodeTracker, Interrupted, Rollout
from shoal.vector.serial import SerialVectorEnv

ENVS = 3
MODES = ["serial", "double", *AutoresetMode]
GAMMA, LAMBDA = 0.9, 0.8


def vector(mode, masked: bool = False, env=Scripted):
    factories = [functools.partial(env, place, masked) for place in range(ENVS)]
    if isinstance(mode, AutoresetMode):
        return SyncVectorEnv(factories, autoreset_mode=mode)
    return SerialVectorEnv(factories, slices=2 if mode == "double" else 1)


def learner_for(env, **options) -> Learner:
    defaults = {"rollout_steps": 30, "gamma": GAMMA, "gae_lambda": LAMBDA, "num_envs": ENVS, "hidden": (8,)}
    learner = Learner(TrainConfig().replace(**{**defaults, **options}), env)
    learner.start()
    return learner


def by_transition(learner: Learner) -> dict[tuple[int, int, int], tuple[float, float]]:
    """(environment, episode, step) -> (advantage, target) of what would be learned from, one rollout."""
    batch = learner.estimate(learner.collect())
    keys = [tuple(int(x) for x in row[:3]) for row in batch.features.tolist()]
    assert len(keys) == len(set(keys)), "a transition came twice"
    return dict(zip(keys, zip(batch.advantages.tolist(), batch.targets.tolist(), strict=True), strict=True))


def expected(learner: Learner, place: int, episode: int) -> list[float]:
    """Advantages of a whole episode from the script and the value network alone."""
    length, how = LENGTHS[(episode + place) % 4], ENDS[(episode + place) % 4]
    states = np.array([[place, episode, clock, 1] for clock in range(length + 1)], np.float32)
    values = learner.agent.values(torch.from_numpy(states))
    if how != "truncated":
        values[-1] = 0.0
    advantages, running = [], 0.0
    for clock in reversed(range(length)):
        delta = reward_of(place, episode, clock) + GAMMA * values[clock + 1] - values[clock]
        running = delta + GAMMA * LAMBDA * running
        advantages.append(running)
    return advantages[::-1]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_whole_episodes_have_the_same_advantages_in_every_mode(mode) -> None:
    """Truncated ones bootstrap from their true final observation, terminated ones do not, resets are no steps."""
    learner = learner_for(vector(mode))
    found = by_transition(learner)
    whole = 0
    for place in range(ENVS):
        for episode in range(6):
            length = LENGTHS[(episode + place) % 4]
            got = [found[place, episode, clock][0] for clock in range(length)]
            np.testing.assert_allclose(got, expected(learner, place, episode), rtol=1e-4, atol=1e-5)
            whole += 1
    assert whole == 18
    learner.env.close()


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_episodes_are_counted_alike_in_every_mode(mode) -> None:
    """Returns and lengths of the script, over several rollouts that cut episodes in two."""
    learner = learner_for(vector(mode), rollout_steps=7)
    for _ in range(4):
        learner.update(learner.estimate(learner.collect()), 0.0)
    lengths, returns = list(learner.tracker.recent_lengths), list(learner.tracker.recent_returns)
    assert learner.tracker.completed == len(lengths) >= 15
    script = {
        (sum(reward_of(place, episode, clock) for clock in range(length)), length)
        for place in range(ENVS)
        for episode in range(12)
        for length in [LENGTHS[(episode + place) % 4]]
    }
    assert {(round(r, 6), n) for r, n in zip(returns, lengths, strict=True)} <= script
    learner.env.close()


def test_resets_of_next_step_mode_are_left_out_of_everything() -> None:
    """Not in the batch, not in the observation statistics, not in the reward statistics, not in an episode."""
    learner = learner_for(
        vector(AutoresetMode.NEXT_STEP), normalise_observations=True, normalise_rewards=True, rollout_steps=12
    )
    rollout = learner.collect()
    batch = learner.estimate(rollout)
    resets = ~rollout.valid
    assert resets.sum() >= 6
    assert len(batch) == rollout.valid.sum()
    assert learner.reward_scale.moments.count == rollout.valid.sum()
    seen = rollout.observations[0][:-1][rollout.valid]  # a copy
    learner.update(batch, 0.0)
    assert learner.agent.moments.count == len(seen)
    np.testing.assert_allclose(learner.agent.moments.mean, seen.mean(0, np.float64))
    learner.env.close()


def test_a_reset_at_the_border_of_two_rollouts_is_left_out() -> None:
    """An episode that ends with the last row: row 0 of the next rollout is the reset, and only there."""
    learner = learner_for(vector(AutoresetMode.NEXT_STEP), rollout_steps=3)
    first = learner.collect()
    assert first.terminated[2, 0]
    assert first.valid[:, 0].all()
    learner.update(learner.estimate(first), 0.0)
    second = learner.collect()
    assert second.valid[:, 0].tolist() == [False, True, True]
    learner.env.close()


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_masks_are_kept_in_every_mode(mode) -> None:
    """No forbidden action is ever taken, though final observations forbid all of them."""
    taken: list[tuple[int, int]] = []

    class Watched(Scripted):
        def step(self, action):
            taken.append((self.clock, int(action)))
            return super().step(action)

    learner = learner_for(vector(mode, masked=True, env=Watched), rollout_steps=40)
    batch = learner.estimate(learner.collect())
    assert len(taken) >= 80
    assert all(action != clock % 3 for clock, action in taken)
    assert batch.masks.sum(1).tolist() == [2] * len(batch)
    assert batch.masks.gather(1, batch.actions[:, None]).all()
    learner.env.close()


def test_nothing_legal_names_the_environment_of_the_whole_batch() -> None:
    """Also when its slice begins in the middle."""

    class Stuck(Scripted):
        def _see(self, over):
            seen = super()._see(over)
            if self.place == 2:
                seen["action_mask"][:] = 0
            return seen

    learner = learner_for(vector("double", masked=True, env=Stuck))
    with pytest.raises(ValueError, match="environment 2 allows no action"):
        learner.collect()
    learner.env.close()


def test_slices_fill_the_same_rows_as_lockstep() -> None:
    """Double buffering changes when a half steps, not what is stored where."""
    rollouts = []
    for mode in ("serial", "double"):
        learner = learner_for(vector(mode), rollout_steps=11)
        rollouts.append(learner.collect())
        learner.env.close()
    one, other = rollouts
    for name in ("rewards", "terminated", "truncated", "valid"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert np.array_equal(one.observations[0], other.observations[0])
    assert torch.equal(one.actions, other.actions)
    torch.testing.assert_close(one.params, other.params)
    finals = [
        {
            (t, int(env)): leaf.tolist()
            for t, envs, (leaves,) in r.finals
            for env, leaf in zip(envs, leaves, strict=True)
        }
        for r in rollouts
    ]
    assert finals[0] == finals[1]
    assert len(finals[0]) == 4


def test_the_last_observation_becomes_the_first() -> None:
    """Rollouts join: no state is seen twice and none is left out."""
    learner = learner_for(vector("serial"), rollout_steps=4)
    last = learner.collect().observations[0][-1].copy()
    learner.update(learner.estimate(learner.collector.rollout), 0.0)
    assert np.array_equal(learner.collector.current()[0], last)
    assert np.array_equal(learner.collect().observations[0][0], last)
    learner.env.close()


def test_final_observations_are_those_of_this_rollout() -> None:
    """One for every truncated transition of the rollout, none left over from the one before."""
    learner = learner_for(vector("serial"), rollout_steps=20)
    for _ in range(3):
        rollout = learner.collect()
        kept = sorted((t, int(env)) for t, envs, _ in rollout.finals for env in envs)
        cut_short = rollout.truncated & ~rollout.terminated
        assert kept == [tuple(place) for place in np.argwhere(cut_short).tolist()]
        assert len(kept) > 5
        learner.update(learner.estimate(rollout), 0.0)
    learner.env.close()


class Flaky(Scripted):
    """Raises once, in the second step of environment 1's third episode: row 7 of the rollout."""

    raised = False

    def step(self, action):
        if self.place == 1 and self.episode == 2 and self.clock == 1 and not type(self).raised:
            type(self).raised = True
            raise RuntimeError("broken on purpose")
        return super().step(action)


def test_a_broken_episode_is_masked_out_from_its_beginning() -> None:
    """Its rows are not learned from, its return is not reported, the episodes around it are."""
    Flaky.raised = False
    factories = [functools.partial(Flaky, place) for place in range(ENVS)]
    learner = learner_for(SerialVectorEnv(factories, on_fault="restart"), rollout_steps=20, normalise_rewards=True)
    rollout = learner.collect()
    # Environment 1: episodes of five steps and of one, then one broken in its second step.
    assert rollout.valid[:6, 1].all()
    assert rollout.valid[6:8, 1].tolist() == [False, False]
    assert rollout.valid[8:, 1].all()
    assert rollout.valid[:, [0, 2]].all()
    assert rollout.broken[7, 1]
    assert rollout.broken.sum() == 1
    assert (learner.tracker.broken, learner.tracker.lost) == (1, 2)
    ends = (rollout.terminated | rollout.truncated).sum()
    assert learner.tracker.completed == ends - 1 == len(learner.tracker.recent_returns)
    batch = learner.estimate(rollout)
    assert len(batch) == 20 * ENVS - 2
    assert learner.reward_scale.moments.count == 20 * ENVS - 2
    learner.env.close()


def test_a_broken_episode_that_began_in_an_earlier_segment_is_masked_there_too() -> None:
    """With an update every two rollouts the first rollout's rows of it go as well."""
    Flaky.raised = False
    factories = [functools.partial(Flaky, place) for place in range(ENVS)]
    learner = learner_for(SerialVectorEnv(factories, on_fault="restart"), rollout_steps=7, update_interval=2)
    assert learner.estimate(learner.collect()) is None
    assert learner.collector.rollout.valid[6, 1]
    rollout = learner.collect()
    assert rollout.valid[6:8, 1].tolist() == [False, False]
    assert len(learner.estimate(rollout)) == 14 * ENVS - 2
    assert (learner.tracker.broken, learner.tracker.lost) == (1, 2), "one of them in the segment before"
    learner.collect()
    assert learner.tracker.lost == 2, "a new rollout counts from its own beginning"
    learner.env.close()


def test_an_interrupt_is_noticed_between_steps() -> None:
    """Neither after the rollout nor in the middle of a step."""
    env, steps = vector("serial"), []
    learner = Learner(
        TrainConfig().replace(rollout_steps=50, num_envs=ENVS),
        env,
        interrupted=lambda: len(steps) == 5 or steps.append(0),
    )
    learner.start()
    with pytest.raises(Interrupted):
        learner.collect()
    assert len(env.envs[0].actions) == 5
    assert learner.epoch == 0
    env.close()


def tracker_rollout(rewards, ended, valid=None, broken=None) -> Rollout:
    rollout = Rollout.__new__(Rollout)
    rollout.rewards = np.array(rewards, np.float32)
    rollout.terminated = np.array(ended, bool)
    rollout.truncated = np.zeros_like(rollout.terminated)
    rollout.valid = np.ones_like(rollout.terminated) if valid is None else np.array(valid, bool)
    rollout.broken = np.zeros_like(rollout.terminated) if broken is None else np.array(broken, bool)
    rollout.lost = rollout.broken.copy()
    rollout.said = []
    return rollout


def test_tracker_by_hand() -> None:
    """Two environments, an episode over two rollouts, two episodes in one rollout, one broken."""
    tracker = EpisodeTracker(2, window=3)
    assert tracker.observe(tracker_rollout([[1, 10], [2, 20], [4, 40]], [[0, 1], [0, 1], [0, 0]]), 0, 3) == 2
    assert list(tracker.recent_returns) == [10, 20]
    assert tracker.observe(tracker_rollout([[8, 80], [16, 160]], [[1, 0], [0, 1]], broken=[[0, 0], [0, 1]]), 0, 2) == 1
    assert list(tracker.recent_returns) == [10, 20, 15]
    assert list(tracker.recent_lengths) == [1, 1, 4]
    assert (tracker.completed, tracker.broken) == (3, 1)
    assert tracker.returns.tolist() == [16, 0]
    tracker.observe(tracker_rollout([[1, 1]], [[1, 1]]), 0, 1)
    assert list(tracker.recent_returns) == [15, 17, 1], "the window holds the newest"


def test_the_even_mean_takes_as_many_of_each_environment() -> None:
    """Window 3 over two environments: the last two of each, none before both have two; a broken one counts for none."""
    tracker = EpisodeTracker(2, window=3)
    tracker.observe(tracker_rollout([[1, 10], [2, 10], [3, 10], [4, 10]], [[1, 0], [1, 0], [1, 0], [1, 1]]), 0, 4)
    assert tracker.even_mean is None
    tracker.observe(tracker_rollout([[0, 60]], [[0, 1]], broken=[[0, 1]]), 0, 1)
    assert tracker.even_mean is None
    tracker.observe(tracker_rollout([[0, 60]], [[0, 1]]), 0, 1)
    assert tracker.even_mean == (3 + 4 + 40 + 60) / 4
    same, other = EpisodeTracker(2, window=3), EpisodeTracker(5, window=3)
    same.set_state(tracker.state())
    other.set_state(tracker.state(), same_envs=False)
    assert same.even_mean == tracker.even_mean
    assert other.even_mean is None, "all environments begin together again"


def test_tracker_comes_back_from_its_state() -> None:
    """With the unfinished episodes, or without them where the environments are others."""
    tracker = EpisodeTracker(2)
    tracker.observe(tracker_rollout([[1, 10], [2, 20]], [[0, 1], [0, 0]]), 0, 2)
    same, other = EpisodeTracker(2), EpisodeTracker(5)
    same.set_state(tracker.state())
    other.set_state(tracker.state(), same_envs=False)
    for copy in (same, other):
        assert (copy.completed, list(copy.recent_returns)) == (1, [10.0])
    old = EpisodeTracker(2)
    old.set_state({**tracker.state(), "counts": np.array([1, 3])})
    assert (old.completed, old.broken, old.lost) == (1, 3, 0), "a checkpoint from before lost steps were counted"
    assert same.returns.tolist() == [3, 20]
    assert other.returns.tolist() == [0] * 5


def test_memory_estimate_is_from_above() -> None:
    """The arrays of a rollout take no more than what was announced."""
    learner = learner_for(vector("serial", masked=True), rollout_steps=64)
    rollout = learner.collector.rollout
    arrays = [
        *rollout.observations,
        rollout.rewards,
        rollout.terminated,
        rollout.truncated,
        rollout.valid,
        rollout.broken,
        rollout.lost,
    ]
    used = sum(array.nbytes for array in arrays) + sum(t.nbytes for t in (rollout.actions, rollout.params))
    assert used < Rollout.bytes_needed(64, ENVS, learner.agent.features, learner.agent.kind)
    learner.env.close()


def test_a_registered_environment_runs_in_all_modes() -> None:
    """CartPole through Gymnasium's own vector environments, with Gymnasium's seeds."""
    for mode in AutoresetMode:
        env = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=mode)
        learner = learner_for(env, num_envs=2, rollout_steps=128)
        assert len(learner.estimate(learner.collect())) > 200
        assert learner.tracker.completed > 2
        env.close()
