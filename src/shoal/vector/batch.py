"""What `serial`, `process` and `split` have in common: the Gymnasium VectorEnv face of a block of environments.

The batch is cut into slices, each of which is sent actions and received from on its own; `step` is all
slices at once. One slice is the plain lock-step batch. Two slices let a policy act for one half while the
other half steps; one slice per worker lets it act for whoever is ready first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space

from shoal.core.arrays import Array
from shoal.core.errors import EnvFault, repeated
from shoal.core.own import OwnVectorEnv, batch_actions, check_mask, one_each
from shoal.vector.chunk import Infos
from shoal.vector.history import History
from shoal.vector.infos import final_infos, merge_infos
from shoal.vector.memory import Block
from shoal.vector.parts import Common, Restarts

Step = tuple[Any, Array, Array, Array, dict[str, Any]]
News = tuple[Infos, list[EnvFault]]  # infos, and the faults survived
_WORTH_AIMING = 1 << 17  # bytes of a batch's observations: less is copied sooner than aimed at


class BatchVectorEnv(OwnVectorEnv):
    """Environments over a `Block`. A backend says how a slice is reset, sent to and received from."""

    writes_out = checks_finite = True

    def __init__(
        self,
        block: Block,
        slices: Sequence[slice],
        common: Common,
        *,
        metadata: dict[str, Any],
        render_mode: str | None = None,
        spec: Any = None,
    ) -> None:
        self.block, self.slices, self.stream = block, list(slices), common.stream
        self.num_envs = block.num_envs
        self.single_observation_space = block.observation_layout.space
        self.single_action_space = block.action_layout.space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {**metadata, "autoreset_mode": common.autoreset_mode}
        self.render_mode, self.spec = render_mode, spec
        self._restarts = Restarts(common.max_restarts, common.restart_window, len(self.slices))
        self.faults: list[EnvFault] = self._restarts.faults
        self._history = History(block, self.slices, self.next_step)
        self._over_before = [np.zeros(rows.stop - rows.start, np.bool_) for rows in self.slices]  # the present step
        self._in_flight, self._was_reset = [False] * len(self.slices), False
        self._failed: EnvFault | None = None
        self._direct: Any = None  # what the environments write straight into

    # -- a backend provides --------------------------------------------------------------------

    def _do_reset(self, options: dict[str, Any] | None) -> News:
        raise NotImplementedError

    def _do_send(self, part: int) -> None:
        raise NotImplementedError

    def _do_recv(self, part: int) -> News:
        raise NotImplementedError

    def _do_replay(self, plan: Sequence[tuple[int, Sequence[Any]]]) -> tuple[list[bool], list[EnvFault]]:
        """For each environment (episode, actions): reset and replay. Returns who followed, and the faults."""
        raise NotImplementedError

    def _do_set_attr(self, name: str, values: Sequence[Any]) -> None:
        raise NotImplementedError

    def _do_allocate(self, rows: int) -> None:
        self.block.set_rollout(rows)

    def _do_drain(self) -> None:
        """Receive and forget what is in flight."""

    # -- Gymnasium -----------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes: of all environments, or of those in `options["reset_mask"]`.

        An integer seeds every environment's own stream; a list gives each first episode its seed as it is.
        Without a seed, every environment goes on to its next episode, which has a seed like every other. A step that
        was interrupted (Ctrl-C between `send` and `recv`) is waited for and forgotten.
        """
        self._check_usable()
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        mask = np.ones(self.num_envs, np.bool_) if mask is None else check_mask(mask, self.num_envs)
        if not self._was_reset and not mask.all():
            raise gym.error.ResetNeeded("reset all environments once before resetting some of them")
        with self._failing():
            if any(self._in_flight):
                if self._direct is not None and not mask.all():
                    raise gym.error.ResetNeeded(
                        "a step was interrupted while its observations went into rows of allocate(): nobody knows who "
                        "has written. Reset all environments"
                    )
                self._do_drain()
                self._in_flight = [False] * len(self.slices)
            self._come_home()
            self.block.seed(seed, mask, self.first_env)
            self.block.reset_mask[:] = mask
            infos, faults = self._do_reset(options or None)
            self._count(faults)
        self._was_reset = True
        if mask.all():
            self.block.terminated[:] = self.block.truncated[:] = False
            self._history.clear()
        else:
            for part, rows in enumerate(self.slices):
                self._history.begin(part, mask[rows])
        return self._observations(slice(0, self.num_envs), None), merge_infos(infos, self.num_envs)

    def step(self, actions: Any, *, out: Any = None) -> Step:
        """Step all environments. With `out` (arrays shaped as the observation) nothing is allocated: the
        observations go there, and final ones are in the property `final_obs` alone, not in the infos."""
        everything = slice(0, self.num_envs)
        for part in range(len(self.slices)):  # all or none
            self._check_may_send(part)
        leaves = self._as_leaves(actions, everything)
        direct = out is not None and self.block.rollout
        row = self.block.row_of(self.block.observation_layout.take_apart(out)) if direct else -1
        for part, rows in enumerate(self.slices):
            self._send(part, [leaf[rows] for leaf in leaves], row, out)
        infos: Infos = []
        for part in range(len(self.slices)):
            infos += self._receive(part)
        return self._result(everything, infos, out)

    def allocate(self, rows: int) -> list[Array] | None:
        """Arrays `[rows, N, *shape]`, one for each leaf of the observation, for a caller that keeps all it sees. A step
        whose `out` is one of their rows is written there by the environments themselves: nothing is copied. Do not
        write into that row before the next step: it is where the batch knows its present observations from. None where
        it would not pay (small observations) or cannot be (several slices, each at a step of its own)."""
        self._check_usable()
        self._check_at_rest("allocate")
        if rows < 1:
            raise ValueError(f"expected at least 1 row, got {rows}")
        layout = self.block.observation_layout
        empty = any(0 in shape for _, shape, _ in layout.leaves)  # has no address to be known by
        if len(self.slices) > 1 or self.num_envs * layout.row_bytes < _WORTH_AIMING or empty:
            return None
        self._come_home()
        with self._failing():
            self._do_allocate(rows)
        return self.block.rollout

    def _come_home(self) -> None:
        """The present observations into the block: what follows is no step, and the caller's rows stay as they are."""
        if self.block.aimed[0]:
            self._direct = None
            self.block.aim(-1)
            self.block.carry(slice(0, self.num_envs))

    # -- slices --------------------------------------------------------------------------------

    def send(self, part: int, actions: Any) -> None:
        """Hand actions to one slice; returns at once where the backend can."""
        self._check_may_send(part)
        self._send(part, self._as_leaves(actions, self.slices[part]))

    def recv(self, part: int, *, out: Any = None) -> Step:
        """Wait for one slice and return its step."""
        return self._result(self.slices[part], self._receive(part), out)

    @property
    def final_obs(self) -> Any:
        """Final observations as dense arrays; row i is valid in the step that ended i's episode."""
        return self.block.observation_layout.assemble(self.block.final_observations)

    @property
    def restarted(self) -> Array:
        """bool[N]: the environment was rebuilt in the last step: its episode is broken, and marked truncated. Not an
        info: an environment may have one of that name."""
        return self.block.restarted.copy()

    @property
    def over(self) -> Array:
        """bool[N]: the episode has ended, and the next step only resets. All False in SAME_STEP."""
        ended: Array = self.block.terminated | self.block.truncated
        return ended & self.next_step

    # -- the environments themselves -----------------------------------------------------------

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment: a list or tuple holds one value for each. A rebuilt environment gets
        it too; a checkpoint does not hold it: set it again after a resume."""
        self._check_usable()
        self._check_at_rest("set_attr")
        self._do_set_attr(name, one_each(values, self.num_envs))

    def render(self) -> tuple[Any, ...]:
        """What `render` of every environment gives."""
        return self.call("render")

    def _as_leaves(self, actions: Any, rows: slice) -> list[Array]:
        return batch_actions(actions, self.block.action_layout, self.block.actions, rows.stop - rows.start)

    def _check_may_send(self, part: int) -> None:
        self._check_usable()
        if not self._was_reset:
            raise gym.error.ResetNeeded("expected a call of reset() before the first step")
        if self._in_flight[part]:
            raise RuntimeError(
                f"slice {part} has been sent actions and not been received (was a step interrupted?). "
                "Call recv() for it, or reset() to begin anew"
            )

    def _send(self, part: int, actions: list[Array], row: int = -1, out: Any = None) -> None:
        rows = self.slices[part]
        targets = [array[rows] for array in self.block.actions]
        for given, target in zip(actions, targets, strict=True):
            target[...] = given
        if self.next_step:
            self._over_before[part] = self.block.terminated[rows] | self.block.truncated[rows]
        self._in_flight[part] = True
        if self.block.rollout:
            self._direct = out if row >= 0 else None
            self.block.aim(row)
        try:
            self._do_send(part)
        except EnvFault as fault:
            self._failed = fault
            raise
        finally:  # while the workers are at it
            self._history.record(part, [target.copy() for target in targets])

    def _receive(self, part: int) -> Infos:
        if not self._in_flight[part]:
            raise RuntimeError(f"slice {part} has not been sent actions: expected send() before recv()")
        try:
            infos, faults = self._do_recv(part)
            self._restarts.time += 1
            if faults:
                self._count(faults)
        except EnvFault as fault:
            self._failed = fault
            raise
        self._in_flight[part] = False
        rows = self.slices[part]
        if self.next_step:
            begun = self._over_before[part] | self.block.restarted[rows]
        else:
            begun = self.block.terminated[rows] | self.block.truncated[rows]
        if begun.any():
            self._history.begin(part, begun)
        return infos

    def _result(self, rows: slice, infos: Infos, out: Any) -> Step:
        block = self.block
        terminated, truncated = block.terminated[rows].copy(), block.truncated[rows].copy()
        merged = merge_infos(infos, self.num_envs)
        if out is None and not self.next_step:
            ended = terminated | truncated
            if ended.any():
                layout, final_info = block.observation_layout, merged.get("final_info", {})
                merged |= final_infos(layout, block.final_observations, rows, ended, final_info)
        return self._observations(rows, out), block.rewards[rows].copy(), terminated, truncated, merged

    def _observations(self, rows: slice, out: Any) -> Any:
        layout = self.block.observation_layout
        if out is not None and out is self._direct:
            return out
        if out is None:
            return layout.assemble([array[rows].copy() for array in self.block.observations])
        for target, array in zip(layout.take_apart(out), self.block.observations, strict=True):
            part = array[rows]
            if target.shape != part.shape or target.dtype != part.dtype:
                raise ValueError(f"expected out as {part.dtype}{part.shape}, got {target.dtype}{target.shape}")
            target[...] = part
        return out

    # -- faults ----------------------------------------------------------------------

    def _count(self, faults: list[EnvFault]) -> None:
        """Keep survived faults; too many of them within the window end the batch."""
        self._restarts.add(faults)

    def _check_usable(self) -> None:
        if self.closed:
            raise gym.error.ClosedEnvironmentError(f"{type(self).__name__} has been closed; make a new one")
        if self._failed is not None:
            raise repeated(self._failed)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """A fault that leaves this block ends the batch: nobody knows what state the environments are in."""
        try:
            yield
        except EnvFault as fault:
            self._failed = fault
            raise

    # -- state ---------------------------------------------------------------------------------

    def mark(self) -> None:
        """Remember this moment: `marked_state` gives the state as of now, however far the batch has gone on."""
        self._check_at_rest("mark")
        self._history.mark = self._history.now()

    def marked_state(self) -> dict[str, Array]:
        """The state as of the last `mark`."""
        if self._history.mark is None:
            raise RuntimeError("expected a call of mark() before marked_state()")
        return self._history.state_at(self._history.mark)

    def get_state(self) -> dict[str, Array]:
        """Where every environment is, as plain arrays: seeds, episode numbers, the actions of the
        unfinished episodes and the observations reached. Nothing of the environment is pickled."""
        self._check_at_rest("get_state")
        return self._history.state_at(self._history.now())

    def set_state(self, state: dict[str, Array]) -> list[int]:
        """Bring every environment back by reset and replay. Returns those that did not come back to the
        observation saved (not deterministic, or too long to replay): the run is no longer exact."""
        self._check_usable()
        self._check_at_rest("set_state")
        self._come_home()
        plan = self._history.restore(state)
        with self._failing():
            followed, faults = self._do_replay(plan)
            self.faults += faults  # told, but no crash loop: they only did not come back
        self._was_reset = True
        return self._history.inexact(state, followed)

    def present(self) -> tuple[list[Array], Array]:
        """Where the environments are now."""
        return self.block.observations, self.block.elapsed

    def _check_at_rest(self, what: str) -> None:
        if any(self._in_flight):
            raise RuntimeError(f"expected every slice received before {what}(), {self._in_flight} are in flight")
