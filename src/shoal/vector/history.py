"""The actions of unfinished episodes: how a batch of environments is saved without pickling any of them.

Every episode begins with a seed of its own, so (seed, actions so far) leads back to where an environment is. The
state of a batch is therefore its seeds, its episode numbers, these actions, and the observations reached, which
tell afterwards whether an environment really came back to where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.core.arrays import Array
from shoal.vector.memory import Block

REPLAY_STEPS = 100_000  # of one unfinished episode that are kept
REPLAY_BYTES = 128 << 20  # of all actions that are kept; what is longer cannot be replayed, and the run says so
_FORGET_EVERY = 256  # steps
_SEEDING = ("bases", "indices", "first_seeds", "episodes")


@dataclass
class Moment:
    """All that is needed to say later where every environment was now."""

    lengths: list[int]  # of each slice's list of steps
    started: Array  # int64[N]
    elapsed: Array  # int64[N]
    seeding: dict[str, Array]
    over: Array | None  # bool[N]: only a reset is left to come (NEXT_STEP); None in SAME_STEP
    observations: list[Array]


class History:
    """Actions per slice and step, back to the beginning of the oldest unfinished episode."""

    def __init__(self, block: Block, slices: Sequence[slice], next_step: bool = False) -> None:
        self.block, self.slices, self.next_step = block, slices, next_step
        self.steps: list[list[list[Array]]] = [[] for _ in slices]  # per slice, per step, per leaf
        self.started = np.zeros(block.num_envs, np.int64)  # where in its slice's list an episode begins
        self.mark: Moment | None = None
        row_bytes = block.num_envs * (block.action_layout.row_bytes + 8)
        self.limit = max(min(REPLAY_STEPS, REPLAY_BYTES // row_bytes), 1)

    def record(self, part: int, actions: list[Array]) -> None:
        """Keep one step's actions of a slice."""
        steps = self.steps[part]
        steps.append(actions)
        if len(steps) % _FORGET_EVERY == 0:
            self._forget(part)

    def begin(self, part: int, environments: Array) -> None:
        """New episodes begin for some environments (bool[n]) of a slice."""
        self.started[self.slices[part]][environments] = len(self.steps[part])

    def clear(self) -> None:
        """All environments begin anew."""
        for steps in self.steps:
            steps.clear()
        self.started[:] = 0
        self.mark = None

    def _forget(self, part: int) -> None:
        """Drop what neither an unfinished episode nor the mark needs."""
        rows, steps, mark = self.slices[part], self.steps[part], self.mark
        oldest = int(self.started[rows].min())
        if mark:
            oldest = min(oldest, int(mark.started[rows].min()))
        unneeded = max(oldest, len(steps) - self.limit)
        if unneeded > 0:
            del steps[:unneeded]
            self.started[rows] -= unneeded  # below 0: its beginning is lost
            if mark:
                mark.started[rows] -= unneeded
                mark.lengths[part] -= unneeded

    def now(self) -> Moment:
        """This moment, to be described by `state_at` even when the batch has gone on."""
        block = self.block
        return Moment(
            lengths=[len(steps) for steps in self.steps],
            started=self.started.copy(),
            elapsed=block.elapsed.copy(),
            seeding={name: getattr(block, name).copy() for name in _SEEDING},
            over=block.terminated | block.truncated if self.next_step else None,
            observations=[array.copy() for array in block.observations],
        )

    def state_at(self, moment: Moment) -> dict[str, Array]:
        """Plain arrays; `action_counts` is -1 where an episode cannot be replayed."""
        block = self.block
        counts = np.full(block.num_envs, -1, np.int64)
        actions: list[list[Array]] = [[] for _ in block.actions]
        for part, rows in enumerate(self.slices):
            steps, length = self.steps[part], moment.lengths[part]
            for index in range(rows.start, rows.stop):
                start = int(moment.started[index])
                if start < 0 or start + int(moment.elapsed[index]) != length:
                    continue  # longer than the limit, or its worker has just been replaced
                counts[index] = length - start
                for leaf, kept in enumerate(actions):
                    kept += [row[leaf][index - rows.start] for row in steps[start:length]]
        state = {**moment.seeding, "action_counts": counts}
        if moment.over is not None:
            state["over"] = moment.over
        for leaf, kept in enumerate(actions):
            shape, dtype = block.actions[leaf].shape[1:], block.actions[leaf].dtype
            state[f"actions.{leaf}"] = np.array(kept, dtype).reshape(len(kept), *shape)
        for leaf, array in enumerate(moment.observations):
            state[f"observations.{leaf}"] = array
        return state

    def restore(self, state: dict[str, Array]) -> list[tuple[int, list[Any]]]:
        """Take up seeds and actions from a state. Returns per environment the episode to begin and its actions."""
        block = self.block
        if state["episodes"].shape != (block.num_envs,):
            raise ValueError(f"the state is of {len(state['episodes'])} environments, this batch has {block.num_envs}")
        if ("over" in state) != self.next_step:
            modes = ("next_step", "same_step") if "over" in state else ("same_step", "next_step")
            raise ValueError(f"the state is of a batch with autoreset_mode {modes[0]}, this one has {modes[1]}")
        for name in _SEEDING:
            getattr(block, name)[:] = state[name]
        block.terminated[:] = False
        block.truncated[:] = state["over"] & (state["action_counts"] >= 0) if self.next_step else False
        counts = np.maximum(state["action_counts"], 0)
        ends = np.cumsum(counts)
        leaves = [state[f"actions.{leaf}"] for leaf in range(len(block.actions))]
        if any(len(leaf) != ends[-1] for leaf in leaves):
            raise ValueError(f"the state counts {ends[-1]} actions and holds {[len(leaf) for leaf in leaves]}")
        parts = [[leaf[end - count : end] for leaf in leaves] for end, count in zip(ends, counts, strict=True)]
        self._align(parts)
        lost = state["action_counts"] < 0
        discrete = isinstance(block.action_layout.space, spaces.Discrete)
        return [
            (
                int(state["episodes"][index]) + int(lost[index]),
                list(rows[0]) if discrete else [
                    block.action_layout.assemble([row[t].copy() for row in rows]) for t in range(len(rows[0]))
                ],
            )
            for index, rows in enumerate(parts)
        ]  # fmt: skip

    def inexact(self, state: dict[str, Array], followed: Sequence[bool]) -> list[int]:
        """The environments that are not where the state says, now that they have been replayed. One that did not follow
        is in a new episode."""
        observations, inexact = self.block.observations, []
        saved = [state[f"observations.{leaf}"] for leaf in range(len(observations))]
        for part, rows in enumerate(self.slices):
            for index in range(rows.start, rows.stop):
                same = all(np.array_equal(old[index], new[index]) for old, new in zip(saved, observations, strict=True))
                if state["action_counts"][index] < 0 or not followed[index] or not same:
                    inexact.append(index)
                if not followed[index]:  # nothing of the old episode is to be replayed
                    self.started[index] = len(self.steps[part])
        return inexact

    def _align(self, parts: list[list[Array]]) -> None:
        """Per-environment actions, right-aligned into per-step rows."""
        self.mark = None
        for part, rows in enumerate(self.slices):
            longest = max(len(parts[index][0]) for index in range(rows.start, rows.stop))
            stacked = [np.zeros((longest, *array[rows].shape), array.dtype) for array in self.block.actions]
            for index in range(rows.start, rows.stop):
                count = len(parts[index][0])
                self.started[index] = longest - count
                for leaf, row in zip(stacked, parts[index], strict=True):
                    leaf[longest - count :, index - rows.start] = row
            self.steps[part] = [[leaf[t].copy() for leaf in stacked] for t in range(longest)]
