"""What `serial` and `process` have in common: the Gymnasium VectorEnv face of a block of environments.

The batch is cut into slices, each of which is sent actions and received from on its own; `step` is all
slices at once. One slice is the plain lock-step batch. Two slices let a policy act for one half while the
other half steps; one slice per worker lets it act for whoever is ready first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from shoal.vector.block import Block
from shoal.vector.chunk import Infos
from shoal.vector.errors import EnvFault, TooManyRestarts
from shoal.vector.layout import Array
from shoal.vector.seeding import Stream

REPLAY_LIMIT = 100_000  # steps of an unfinished episode that are kept, so that a resume can replay them
Step = tuple[Any, Array, Array, Array, dict[str, Any]]


@dataclass
class _Moment:
    """All that is needed to say later where every environment was now."""

    lengths: list[int]  # of each slice's action history
    started: Array  # int64[N]
    elapsed: Array  # int64[N]
    seeding: dict[str, Array]
    observations: list[Array]


class BatchVectorEnv(VectorEnv[Any, Any, Any]):
    """Environments over a `Block`. A backend says how a slice is reset, sent to and received from."""

    def __init__(
        self,
        block: Block,
        slices: Sequence[slice],
        *,
        stream: Stream,
        max_restarts: int,
        restart_window: int,
        metadata: dict[str, Any],
        spec: Any = None,
    ) -> None:
        self.block, self.slices, self.stream = block, list(slices), stream
        self.num_envs = block.num_envs
        self.single_observation_space = block.observation_layout.space
        self.single_action_space = block.action_layout.space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {**metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.spec = spec
        self.max_restarts, self.restart_window = max_restarts, restart_window
        self.faults: list[EnvFault] = []  # faults survived by restarting, oldest first
        self._restart_times: deque[int] = deque()
        self._time = 0
        self._history: list[list[list[Array]]] = [[] for _ in self.slices]  # per slice, per step, per leaf
        self._mark: _Moment | None = None
        self._started = np.zeros(self.num_envs, np.int64)  # where in its slice's history an episode begins

    # -- a backend provides --------------------------------------------------------------------

    def _do_reset(self, options: dict[str, Any] | None) -> Infos:
        raise NotImplementedError

    def _do_send(self, part: int) -> None:
        raise NotImplementedError

    def _do_recv(self, part: int) -> tuple[Infos, list[EnvFault]]:
        raise NotImplementedError

    def _do_replay(self, index: int, episode: int, actions: Sequence[Any]) -> None:
        raise NotImplementedError

    # -- Gymnasium -----------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes: of all environments, or of those in `options["reset_mask"]`.

        An integer seeds every environment's own stream; a list gives each first episode its seed as it is.
        Without a seed, every environment goes on to its next episode.
        """
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        mask = np.ones(self.num_envs, np.bool_) if mask is None else _check_mask(mask, self.num_envs)
        self._seed(seed, mask)
        self.block.reset_mask[:] = mask
        infos = self._merge(self._do_reset(options or None))
        for part, rows in enumerate(self.slices):
            self._started[rows][mask[rows]] = len(self._history[part])
            if mask.all():
                self._history[part].clear()
                self._started[rows] = 0
                self._mark = None
        return self._observations(slice(0, self.num_envs), None), infos

    def step(self, actions: Any, *, out: Any = None) -> Step:
        """Step all environments. With `out` (arrays shaped as the observation) nothing is allocated for it."""
        if len(self.slices) == 1:
            self.send(0, actions)
            return self.recv(0, out=out)
        leaves = self.block.action_layout.take_apart(actions)
        for part, rows in enumerate(self.slices):
            self.send(part, self.block.action_layout.assemble([leaf[rows] for leaf in leaves]))
        infos: Infos = []
        for part in range(len(self.slices)):
            infos += self._receive(part)
        return self._result(slice(0, self.num_envs), infos, out)

    # -- slices --------------------------------------------------------------------------------

    def send(self, part: int, actions: Any) -> None:
        """Hand actions to one slice; returns at once where the backend can."""
        rows, layout = self.slices[part], self.block.action_layout
        copies = []
        for given, array in zip(layout.take_apart(actions), self.block.actions, strict=True):
            given = np.asarray(given)
            target = array[rows]
            if given.shape != target.shape:
                raise ValueError(
                    f"expected actions of shape {target.shape} for {len(target)} environments of "
                    f"{self.single_action_space}, got shape {given.shape}"
                )
            if not np.can_cast(given.dtype, array.dtype, "same_kind"):
                raise ValueError(f"expected actions of dtype {array.dtype}, got {given.dtype}")
            target[...] = given
            copies.append(target.copy())
        history = self._history[part]
        history.append(copies)
        if len(history) % 256 == 0:
            self._forget(part)
        self._do_send(part)

    def recv(self, part: int, *, out: Any = None) -> Step:
        """Wait for one slice and return its step."""
        return self._result(self.slices[part], self._receive(part), out)

    @property
    def final_obs(self) -> Any:
        """Final observations as dense arrays; row i is valid in the step that ended i's episode."""
        return self.block.observation_layout.assemble(self.block.final_observations)

    def _receive(self, part: int) -> Infos:
        infos, faults = self._do_recv(part)
        self._time += 1
        if faults:
            self._count(faults)
        rows = self.slices[part]
        ended = self.block.terminated[rows] | self.block.truncated[rows]
        if ended.any():
            self._started[rows][ended] = len(self._history[part])
        return infos

    def _result(self, rows: slice, infos: Infos, out: Any) -> Step:
        block = self.block
        terminated, truncated = block.terminated[rows].copy(), block.truncated[rows].copy()
        merged = self._merge(infos)
        ended = terminated | truncated
        if ended.any():
            layout = block.observation_layout
            final = np.full(self.num_envs, None, object)
            mask = np.zeros(self.num_envs, np.bool_)
            for index in np.flatnonzero(ended) + rows.start:
                final[index] = layout.assemble([array[index].copy() for array in block.final_observations])
                mask[index] = True
            merged["final_obs"], merged["_final_obs"] = final, mask
            if block.restarted[rows].any():
                merged["restarted"] = block.restarted.copy()
        return self._observations(rows, out), block.rewards[rows].copy(), terminated, truncated, merged

    def _observations(self, rows: slice, out: Any) -> Any:
        layout = self.block.observation_layout
        if out is None:
            return layout.assemble([array[rows].copy() for array in self.block.observations])
        for target, array in zip(layout.take_apart(out), self.block.observations, strict=True):
            np.copyto(target, array[rows])
        return out

    def _merge(self, infos: Infos) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for index, info, final_info in infos:
            merged = self._add_info(merged, info, index)
            if final_info is not None:
                merged = self._add_info(merged, {"final_info": final_info}, index)
        return merged

    # -- seeds, faults, state ------------------------------------------------------------------

    def _seed(self, seed: int | Sequence[int | None] | None, mask: Array) -> None:
        block = self.block
        if seed is None:
            fresh = mask & (block.seeds < 0)  # never seeded: from the operating system
            if fresh.any():
                block.bases[fresh] = np.random.SeedSequence().generate_state(1, np.uint64)[0] >> 1
                block.indices[fresh] = np.flatnonzero(fresh)
                block.first_seeds[fresh], block.episodes[fresh] = -1, -1
            return
        if isinstance(seed, int | np.integer):
            _check_seed(int(seed))
            block.bases[mask], block.indices[mask] = seed, np.flatnonzero(mask)
            block.first_seeds[mask], block.episodes[mask] = -1, -1
            return
        if len(seed) != self.num_envs:
            raise ValueError(f"expected one seed for each of {self.num_envs} environments, got {len(seed)}")
        for index, value in enumerate(seed):
            if mask[index] and value is not None:
                _check_seed(int(value))
                block.bases[index], block.indices[index] = value, 0
                block.first_seeds[index], block.episodes[index] = value, -1

    def _count(self, faults: list[EnvFault]) -> None:
        self.faults += faults
        times = self._restart_times
        times.extend([self._time] * len(faults))
        while times and times[0] <= self._time - self.restart_window:
            times.popleft()
        if len(times) > self.max_restarts:
            last = faults[-1]
            raise TooManyRestarts(
                f"{len(times)} restarts within {self.restart_window} steps, {self.max_restarts} are allowed "
                f"(--max-restarts). The last fault: {last.message}",
                env=last.env, pid=last.pid, seed=last.seed, step=last.step,
                kind=last.kind, worker_traceback=last.worker_traceback,
            )  # fmt: skip

    def _forget(self, part: int) -> None:
        """Drop the part of the action history that neither an unfinished episode nor the mark needs."""
        rows = self.slices[part]
        history, started, mark = self._history[part], self._started[rows], self._mark
        oldest = min(int(started.min()), int(mark.started[rows].min()) if mark else len(history))
        unneeded = max(oldest, len(history) - REPLAY_LIMIT)
        if unneeded > 0:
            del history[:unneeded]
            self._started[rows] = started - unneeded
            if mark:
                mark.started[rows] -= unneeded
                mark.lengths[part] -= unneeded

    def mark(self) -> None:
        """Remember this moment: `marked_state` gives the state as of now, however far the batch has gone on."""
        self._mark = self._now()

    def marked_state(self) -> dict[str, Array]:
        """The state as of the last `mark`."""
        if self._mark is None:
            raise RuntimeError("expected a call of mark() before marked_state()")
        return self._state_at(self._mark)

    def get_state(self) -> dict[str, Array]:
        """Where every environment is, as plain arrays: seeds, episode numbers, the actions of the
        unfinished episodes and the observations reached. Nothing of the environment is pickled."""
        return self._state_at(self._now())

    def _now(self) -> _Moment:
        block = self.block
        names = ("bases", "indices", "first_seeds", "episodes")
        return _Moment(
            lengths=[len(history) for history in self._history],
            started=self._started.copy(),
            elapsed=block.elapsed.copy(),
            seeding={name: getattr(block, name).copy() for name in names},
            observations=[array.copy() for array in block.observations],
        )

    def _state_at(self, moment: _Moment) -> dict[str, Array]:
        block = self.block
        counts = np.full(self.num_envs, -1, np.int64)
        actions: list[list[Array]] = [[] for _ in block.actions]
        for part, rows in enumerate(self.slices):
            history, length = self._history[part], moment.lengths[part]
            for index in range(rows.start, rows.stop):
                start = int(moment.started[index])
                if start < 0 or start + int(moment.elapsed[index]) != length:
                    continue  # -1: longer than REPLAY_LIMIT, or its slice is in the middle of a step
                counts[index] = length - start
                for leaf, kept in enumerate(actions):
                    kept += [row[leaf][index - rows.start] for row in history[start:length]]
        state = {**moment.seeding, "action_counts": counts}
        for leaf, kept in enumerate(actions):
            shape, dtype = block.actions[leaf].shape[1:], block.actions[leaf].dtype
            state[f"actions.{leaf}"] = np.array(kept, dtype).reshape(len(kept), *shape)
        for leaf, array in enumerate(moment.observations):
            state[f"observations.{leaf}"] = array
        return state

    def set_state(self, state: dict[str, Array]) -> list[int]:
        """Bring every environment back by reset and replay. Returns those that did not come back to the
        observation saved (not deterministic, or too long to replay): the run is no longer exact."""
        block, inexact = self.block, []
        if state["episodes"].shape != (self.num_envs,):
            raise ValueError(
                f"the state is of {len(state['episodes'])} environments, this batch has {self.num_envs}"
            )
        for name in ("bases", "indices", "first_seeds"):
            getattr(block, name)[:] = state[name]
        discrete = isinstance(self.single_action_space, spaces.Discrete)
        position = 0
        histories: list[list[list[Array]]] = []
        for index in range(self.num_envs):
            count = int(state["action_counts"][index])
            rows = [state[f"actions.{leaf}"][position : position + max(count, 0)] for leaf in range(len(block.actions))]
            position += max(count, 0)
            given = list(rows[0]) if discrete else [
                block.action_layout.assemble([row[t].copy() for row in rows]) for t in range(max(count, 0))
            ]  # fmt: skip
            episode = int(state["episodes"][index])
            self._do_replay(index, episode if count >= 0 else episode + 1, given)
            histories.append([[row[t] for row in rows] for t in range(max(count, 0))])
            saved = [state[f"observations.{leaf}"][index] for leaf in range(len(block.observations))]
            reached = [array[index] for array in block.observations]
            if count < 0 or not all(np.array_equal(a, b) for a, b in zip(saved, reached, strict=True)):
                inexact.append(index)
        self._rebuild_history(histories)
        return inexact

    def _rebuild_history(self, histories: list[list[list[Array]]]) -> None:
        """Per-environment action lists, right-aligned into per-step rows."""
        for part, rows in enumerate(self.slices):
            longest = max(len(histories[index]) for index in range(rows.start, rows.stop))
            steps = [[np.zeros_like(array[rows]) for array in self.block.actions] for _ in range(longest)]
            for index in range(rows.start, rows.stop):
                offset = longest - len(histories[index])
                self._started[index] = offset
                for t, row in enumerate(histories[index]):
                    for leaf, value in enumerate(row):
                        steps[offset + t][leaf][index - rows.start] = value
            self._history[part] = steps


def _check_mask(mask: Any, num_envs: int) -> Array:
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (num_envs,):
        raise ValueError(f'expected options["reset_mask"] as a bool array of shape ({num_envs},), got {mask!r}')
    if not mask.any():
        raise ValueError('expected options["reset_mask"] with at least one True, got none')
    return mask


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise ValueError(f"a seed is an integer from 0 to 2**63 - 1, got {seed}")


def cut(num_envs: int, parts: int) -> list[slice]:
    """`num_envs` cut into `parts` contiguous slices whose sizes differ by at most one.

    >>> [(rows.start, rows.stop) for rows in cut(7, 3)]
    [(0, 3), (3, 5), (5, 7)]
    """
    size, extra = divmod(num_envs, parts)
    edges = [0]
    for part in range(parts):
        edges.append(edges[-1] + size + (part < extra))
    return [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
