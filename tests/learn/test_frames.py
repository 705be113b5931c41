"""Stacks of frames are kept frame by frame; what is learnt from is bit for bit what the environments showed."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from flashes import Flashes
from gymnasium import spaces

from shoal.config import TrainConfig
from shoal.learn import rollout
from shoal.learn.frames import FramedObservations, Observations, observations_of
from shoal.learn.learner import Learner
from shoal.vector.preprocess import Preprocess
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers.process import ProcessVectorEnv

ENVS, STEPS = 4, 9
SHORT: dict[str, Any] = {
    "num_envs": ENVS, "rollout_steps": STEPS, "minibatch_size": 12, "update_epochs": 2, "torch_threads": 1, "seed": 3,
    "hidden": (), "encoder": "impala-small", "normalise_observations": True,
}  # fmt: skip


class Masked(Flashes):
    """Episodes of other lengths, that terminate or are truncated, and a mask of actions."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.parts:
            assert isinstance(self.observation_space, spaces.Dict)
            self.observation_space = spaces.Dict(**self.observation_space.spaces, action_mask=spaces.MultiBinary(2))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = super().step(action)
        return seen, reward, terminated or bool(self.np_random.random() < 0.15), truncated, info

    def _look(self) -> Any:
        seen = super()._look()
        return seen | {"action_mask": np.array([1, self.at % 2], np.int8)} if self.parts else seen


class Breaks(Flashes):
    """It fails in the middle of an episode now and then."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.np_random.random() < 0.1:
            raise RuntimeError("broken")
        return super().step(action)


def trained(make: Any, recipe: Preprocess, options: dict[str, Any], batch: Any = SerialVectorEnv, **more: Any) -> Any:
    """Three updates: (observations of each rollout that count, weights, kind of storage)."""
    envs = batch([lambda: recipe(make())] * ENVS, **more)
    learner = Learner(TrainConfig().replace(**SHORT, frame_stack=recipe.frame_stack, **options), envs)
    learner.start()
    shown, interval = [], options.get("update_interval", 1)
    for epoch in range(3 * interval):
        seen = learner.collect().seen
        if (epoch + 1) % interval:  # the rest is yet to come
            assert learner.estimate(learner.collector.rollout) is None
            continue
        counts = np.append(learner.collector.rollout.valid, np.ones((1, ENVS), np.bool_), 0).ravel()
        shown.append([leaf.numpy()[counts] for leaf in seen.leaves(slice(0, len(seen)))])
        learner.update(learner.estimate(learner.collector.rollout), 0.0)
    envs.close()
    return shown, [parameter.detach().numpy().copy() for parameter in learner.agent.network.parameters()], type(seen)


@pytest.mark.parametrize(
    ("make", "depth", "options", "batch", "more"),
    [
        (functools.partial(Masked, length=5), 3, {}, SerialVectorEnv, {}),
        (functools.partial(Masked, length=5, shape=(3, 16, 24)), 4, {}, SerialVectorEnv, {}),
        (functools.partial(Masked, length=5), 8, {}, SerialVectorEnv, {"autoreset_mode": "next_step"}),
        (functools.partial(Masked, length=5, parts=True), 3, {}, SerialVectorEnv, {"autoreset_mode": "next_step"}),
        (functools.partial(Masked, length=20), 3, {"update_interval": 2}, SerialVectorEnv, {"slices": 2}),
        (functools.partial(Masked, length=5), 3, {}, ProcessVectorEnv, {"workers": 2}),
        (Breaks, 3, {}, SerialVectorEnv, {"on_fault": "restart", "max_restarts": 500}),
        (Breaks, 3, {}, SerialVectorEnv, {"on_fault": "restart", "max_restarts": 500, "autoreset_mode": "next_step"}),
    ],
    ids=["last", "first", "apart", "parts", "slices", "process", "faults", "faults-next-step"],
)
def test_single_frames_are_learnt_from_like_whole_stacks(
    make: Any, depth: int, options: Any, batch: Any, more: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same stacks and the same weights, over resets and the ends of rollouts."""
    recipe = Preprocess(frame_stack=depth)
    shown, weights, kind = trained(make, recipe, options, batch, **more)
    assert kind is FramedObservations
    with monkeypatch.context() as patch:
        patch.setattr(rollout, "observations_of", lambda *given: observations_of(*given[:-1], 1))
        expected, wanted, kind = trained(make, recipe, options, batch, **more)
    assert kind is Observations
    for one, other in zip(shown, expected, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(weights, wanted, strict=True))


def test_a_frame_is_kept_once() -> None:
    """T + k frames of an environment, not k (T + 1); a minibatch has whole stacks."""
    recipe = Preprocess(frame_stack=4)
    envs = SerialVectorEnv([lambda: recipe(Flashes(length=5))] * ENVS)
    learner = Learner(TrainConfig().replace(**SHORT, frame_stack=4), envs)
    learner.start()
    batch = learner.estimate(learner.collect())
    assert batch is not None
    assert learner.collector.rollout.observations[0].shape == (STEPS + 4, ENVS, 16, 24, 3)
    part = batch.pick(torch.tensor([5, 30, 5])).features
    assert part.shape == (3, 16 * 24 * 12)
    assert torch.equal(part[0], part[2])
    assert torch.equal(batch.features[:][[5, 30]], part[:2])
    envs.close()
