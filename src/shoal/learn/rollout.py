"""Collect: let the policy act in all environments for T steps and keep what happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from shoal.core.arrays import Array, Layout
from shoal.core.errors import NotFinite, OutOfRange
from shoal.core.machine import Stopwatch
from shoal.core.protocols import parts_of
from shoal.learn.distributions import ActionKind
from shoal.learn.encoders import Features, check_masks
from shoal.learn.frames import Observations, observations_of
from shoal.learn.said import Said
from shoal.vector.adapt import Outcome, Stepper
from shoal.vector.infos import Numbers

Act = Callable[[list[Tensor], Tensor], tuple[Tensor, Tensor]]  # (observation leaves, noise) -> (params, actions)


class Interrupted(Exception):
    """A signal asked the run to stop while it was collecting."""


class Rollout:
    """T steps of N environments. Row t of everything belongs to the action taken at step t."""

    def __init__(self, seen: Observations, kind: ActionKind, action_shape: tuple[int, ...]) -> None:
        self.steps, self.num_envs = steps, num_envs = seen.steps, seen.num_envs
        self.seen = seen
        self.observations, self.tensors = seen.kept, seen.tensors  # per leaf [T + 1, N, *shape]; of stacks the frames
        discrete = kind.num_masks > 0
        self.actions = torch.zeros((steps, num_envs, *action_shape), dtype=torch.int64 if discrete else torch.float32)
        self.params = torch.zeros((steps, num_envs, kind.num_params))  # of the behaviour policy, mask applied
        self.rewards = np.zeros((steps, num_envs), np.float32)
        self.terminated = np.zeros((steps, num_envs), np.bool_)
        self.truncated = np.zeros((steps, num_envs), np.bool_)
        self.valid = np.ones((steps, num_envs), np.bool_)
        self.broken = np.zeros((steps, num_envs), np.bool_)  # the episode was lost to a fault in this step
        self.lost = np.zeros((steps, num_envs), np.bool_)  # a step of such an episode, and so not learned from
        self.values: Array | None = None  # float32[T, N] of a policy that gives them as it acts
        self.finals: list[tuple[int, Array, list[Array]]] = []  # (t, environments, final observations per leaf)
        self.said: list[tuple[int, Array, Numbers]] = []  # (t, environments whose episodes ended, what they said last)

    @property
    def ended(self) -> Array:
        """bool[T, N]: this transition was the last of its episode."""
        return self.terminated | self.truncated

    def check_finite(self, layout: Layout | None) -> None:
        """Learn from finite numbers only. shoal's own backends check each observation; of others' this does, with their
        `layout`."""
        fine = np.isfinite(self.rewards)
        if not fine.all():
            row, env = (int(i) for i in np.argwhere(~fine)[0])
            text = f"in step {row} of the rollout, the reward is no finite float32: {self.rewards[row, env]}"
            raise NotFinite(text, env=env)
        if layout is None:
            return
        try:
            layout.check_finite([array.reshape(-1, *array.shape[2:]) for array in self.observations], "in the rollout,")
        except (NotFinite, OutOfRange) as error:
            raise type(error)(error.message, env=error.row % self.num_envs) from None

    @staticmethod
    def bytes_needed(steps: int, num_envs: int, features: Features, kind: ActionKind, depth: int = 1) -> int:
        """Memory that a rollout takes until it is learnt from, in bytes; `sizing.update_bytes` comes on top. Pictures
        are stacks of `depth` frames."""
        seen = sum(picture.numbers for picture in features.pictures)
        whole = features.layout.row_bytes - (seen - seen // depth)  # each frame once
        kept = whole + 4 * kind.num_params + 8 * max(1, kind.num_noise // max(1, kind.num_masks)) + 8
        noise = 4 * kind.num_noise  # of a whole rollout at once, while it is collected
        row = 4 * features.size + (8 * depth * len(features.pictures) if seen else 0)
        learnt = row + 4 * kind.num_params * 3 + 8 * max(1, kind.num_noise // max(1, kind.num_masks)) + 60
        more = seen + (depth - 1) * seen // depth if depth > 1 else 0  # what is shown now, and the frames before
        return (steps + 1) * num_envs * (kept + max(noise, learnt)) + num_envs * more


class Collector:
    """Owns the rollout arrays and carries observations over from one rollout to the next."""

    def __init__(
        self,
        stepper: Stepper,
        features: Features,
        kind: ActionKind,
        act: Act,
        *,
        steps: int,
        segments: int,
        noise: torch.Generator,
        device: str = "cpu",
        values: Callable[[], Tensor | None] = lambda: None,
        interrupted: Callable[[], bool] = lambda: False,
        own: slice | None = None,
        every: int | None = None,
        depth: int = 1,
    ) -> None:
        """Of the `every` environments that all ranks have, `own` are here: the noise is drawn for all of them, so that
        each gets its own, however many ranks there are. Pictures are stacks of `depth` frames."""
        self.stepper, self.features, self.kind, self.act = stepper, features, kind, act
        self.segment_steps, self.noise_generator, self.device, self.interrupted = steps, noise, device, interrupted
        self.values = values  # of the observations acted upon last
        env = stepper.env
        space = env.single_action_space
        self.own, self.every = own or slice(0, env.num_envs), every or env.num_envs
        shape = (kind.num_noise,) if kind.num_masks == 0 else tuple(space.shape or ())
        self.seen = observations_of(stepper, steps * segments, features, depth)
        self.rollout = Rollout(self.seen, kind, shape)
        self.slices = list(parts_of(env).slices) or [slice(0, env.num_envs)]
        self.waiting = Stopwatch()  # for the environments
        self._episode_row = np.zeros(env.num_envs, np.int64)  # rollout row at which each present episode began

    def reset(self, seed: int) -> None:
        """Begin an episode in every environment."""
        self.stepper.reset(seed, self.seen.places(0))
        self.seen.begin()

    def first(self, observations: list[Array]) -> None:
        """Set the observations that the next rollout starts from."""
        self.seen.begin(observations)

    def current(self) -> list[Array]:
        """The observations that the next rollout starts from, per leaf [N, *shape]."""
        return self.seen.first()

    @torch.inference_mode()
    def collect(self, segment: int) -> Rollout:
        """Fill rows of the given segment of the rollout; segment 0 begins a new one."""
        rollout = self.rollout
        first = segment * self.segment_steps
        if segment == 0:
            rollout.finals.clear()
            rollout.values = None
            rollout.said.clear()
            rollout.valid[:] = True
            rollout.broken[:] = rollout.lost[:] = False
            self._episode_row[:] = 0
        noise = self.kind.noise((self.segment_steps, self.every), self.noise_generator, self.own).to(self.device)
        if len(self.slices) == 1:
            for t in range(first, first + self.segment_steps):
                self._stop_if_asked()
                actions = self._choose(t, slice(0, rollout.num_envs), noise[t - first])
                with self.waiting:
                    outcome = self.stepper.step(actions, self.seen.places(t + 1))
                self._keep(t, slice(0, rollout.num_envs), outcome)
        else:
            self._collect_slices(first, noise)
        return rollout

    def carry_over(self) -> None:
        """After an update: the last observations become the first ones of the next rollout."""
        self.seen.carry_over()

    def _collect_slices(self, first: int, noise: Tensor) -> None:
        """Each slice runs ahead on its own; a slice that has its steps waits for the others."""
        env: Any = self.stepper.env
        clock = [first] * len(self.slices)  # next row of each slice
        last = first + self.segment_steps
        queue = deque(range(len(self.slices)))
        for part in queue:
            env.send(part, self._choose(first, self.slices[part], noise[0, self.slices[part]]))
        while queue:
            self._stop_if_asked()
            with self.waiting:
                part = env.ready(list(queue))[0] if env.by_readiness else queue[0]
            queue.remove(part)
            t, rows = clock[part], self.slices[part]
            out = self.features.layout.assemble([array[rows] for array in self.seen.places(t + 1)])
            with self.waiting:
                outcome = self.stepper.outcome(env.recv(part, out=out), rows)
            self._keep(t, rows, outcome)
            clock[part] = t + 1
            if t + 1 < last:
                env.send(part, self._choose(t + 1, rows, noise[t + 1 - first, rows]))
                queue.append(part)

    def _choose(self, t: int, rows: slice, noise: Tensor) -> Array:
        """Act for some environments at row t; what the policy said is kept."""
        rollout, leaves = self.rollout, self.seen.shown(t, rows)
        if self.features.mask_leaf is not None:
            masks = leaves[self.features.mask_leaf].numpy()
            check_masks(masks, self.kind.choices, first=rows.start, final=self.stepper.over[rows])
        params, actions = self.act(leaves, noise)
        if (values := self.values()) is not None:
            if rollout.values is None:
                rollout.values = np.zeros((rollout.steps, rollout.num_envs), np.float32)
            rollout.values[t, rows] = values.cpu().numpy()
        rollout.params[t, rows] = params
        rollout.actions[t, rows] = actions
        return self.kind.to_env(rollout.actions[t, rows].numpy())

    def _keep(self, t: int, rows: slice, outcome: Outcome) -> None:
        rollout = self.rollout
        rollout.rewards[t, rows] = outcome.rewards
        rollout.terminated[t, rows] = outcome.terminated
        rollout.truncated[t, rows] = outcome.truncated
        if outcome.valid is not None:
            rollout.valid[t, rows] = outcome.valid
        if outcome.final is not None:
            local, leaves = outcome.final
            rollout.finals.append((t, local + rows.start, leaves))
        if outcome.last is not None:
            local, numbers = outcome.last
            rollout.said.append((t, local + rows.start, numbers))
        begun = outcome.terminated | outcome.truncated
        if self.stepper.mode == AutoresetMode.NEXT_STEP and outcome.valid is not None:
            begun = ~outcome.valid
        self.seen.written(t + 1, rows, begun if outcome.broken is None else begun | outcome.broken)
        if outcome.broken is not None:
            for env in np.flatnonzero(outcome.broken) + rows.start:
                rollout.valid[self._episode_row[env] : t + 1, env] = False
                rollout.lost[self._episode_row[env] : t + 1, env] = True
                rollout.broken[t, env] = True
        if outcome.terminated.any() or outcome.truncated.any():
            ended = np.flatnonzero(outcome.terminated | outcome.truncated) + rows.start
            self._episode_row[ended] = t + 1

    def _stop_if_asked(self) -> None:
        if self.interrupted():
            raise Interrupted


class Seen(Protocol):
    """What episodes are counted by: a rollout, or the rollouts of all ranks side by side, [T, N]."""

    rewards: Array
    valid: Array
    broken: Array
    lost: Array
    said: list[tuple[int, Array, Numbers]]

    @property
    def ended(self) -> Array:
        """bool[T, N]: this transition was the last of its episode."""


class EpisodeTracker:
    """Returns and lengths of episodes, whichever rollout they began in.

    Of environments that began together, the first episodes to end are the shortest: until every environment has ended
    some, the last 100 are not what the policy does. `even_mean` takes the same number from each.
    """

    def __init__(self, num_envs: int, window: int = 100, names: tuple[str, ...] | None = ()) -> None:
        self.said = Said(names, window)
        self.returns = np.zeros(num_envs, np.float64)  # of the unfinished episodes
        self.lengths = np.zeros(num_envs, np.int64)
        self.recent_returns: deque[float] = deque(maxlen=window)
        self.recent_lengths: deque[int] = deque(maxlen=window)
        # The last returns of each environment, a ring each [N, k], and how many it has ended since all began together.
        self.last_returns = np.zeros((num_envs, -(-window // num_envs)), np.float64)
        self.ended = np.zeros(num_envs, np.int64)
        self.completed = self.broken = self.lost = 0
        self._lost_here = 0  # of the rollout that is being collected, and counted already

    @property
    def even_mean(self) -> float | None:
        """Mean return of the last episodes, an equal number of every environment, 100 or more in all; None until there
        are as many of each."""
        return None if self.ended.min() < self.last_returns.shape[1] else float(self.last_returns.mean())

    def observe(self, rollout: Seen, first: int, last: int) -> int:
        """Take in rows first..last; returns the number of episodes that ended in them."""
        lived = rollout.valid[first:last]  # a mere reset is no step of an episode
        rewards = np.where(lived, rollout.rewards[first:last], 0.0)
        sums = np.cumsum(rewards, 0, dtype=np.float64)  # [T, N]
        counts = np.cumsum(lived, 0)
        sum_before, count_before = np.zeros_like(self.returns), np.zeros_like(self.lengths)
        ended = 0
        said = {(t - first, env): (rows, numbers) for t, rows, numbers in rollout.said for env in rows.tolist()}
        for t, env in np.argwhere(rollout.ended[first:last]).tolist():
            total = self.returns[env] + sums[t, env] - sum_before[env]
            length = self.lengths[env] + counts[t, env] - count_before[env]
            sum_before[env], count_before[env] = sums[t, env], counts[t, env]
            self.returns[env] = self.lengths[env] = 0
            if rollout.broken[first + t, env]:
                self.broken += 1
                continue
            self.recent_returns.append(float(total))
            self.recent_lengths.append(int(length))
            self.last_returns[env, self.ended[env] % self.last_returns.shape[1]] = total
            self.ended[env] += 1
            ended += 1
            if (t, env) not in said:
                self.said.add({})
                continue
            rows, numbers = said[t, env]
            at = int(np.searchsorted(rows, env))
            self.said.add({name: values[at] for name, (there, values) in numbers.items() if there[at]})
        self._count_lost(rollout, first, last)
        self.returns += sums[-1] - sum_before
        self.lengths += counts[-1] - count_before
        self.completed += ended
        return ended

    def _count_lost(self, rollout: Seen, first: int, last: int) -> None:
        """A fault may lose steps of an earlier epoch of the same rollout too."""
        before = self._lost_here if first else 0
        self._lost_here = int(rollout.lost[:last].sum())
        self.lost += self._lost_here - before

    def state(self) -> dict[str, Array]:
        return {
            "returns": self.returns.copy(),
            "lengths": self.lengths.copy(),
            "recent_returns": np.array(self.recent_returns, np.float64),
            "recent_lengths": np.array(self.recent_lengths, np.int64),
            "last_returns": self.last_returns.copy(),
            "ended": self.ended.copy(),
            "counts": np.array([self.completed, self.broken, self.lost], np.int64),
        }

    def forget(self, envs: Array) -> None:
        """These environments began anew: what they had of an episode counts for nothing."""
        self.returns[envs] = 0
        self.lengths[envs] = 0

    def set_state(self, state: dict[str, Array], same_envs: bool = True) -> None:
        if same_envs:
            self.returns, self.lengths = state["returns"].copy(), state["lengths"].copy()
            if "ended" in state:  # older checkpoints have none: they are gathered anew
                self.last_returns, self.ended = state["last_returns"].copy(), state["ended"].copy()
        self.recent_returns.clear()
        self.recent_lengths.clear()
        self.recent_returns.extend(state["recent_returns"].tolist())
        self.recent_lengths.extend(state["recent_lengths"].tolist())
        self.completed, self.broken, self.lost = (*map(int, state["counts"]), 0)[:3]  # older checkpoints have two
