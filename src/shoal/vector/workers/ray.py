"""`ray`: environments in actors of a Ray cluster, on any number of nodes.

The same chunks as everywhere else, the same seeds and the same replies to faults as `process`; only how rows travel
differs: a step sends each actor of a cluster its actions as one array of bytes and gets its rows back as one, which is
copied once, into the block or the rollout (`allocate`). Actors of a local instance see both (ray_shared.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from shoal.core.errors import EnvFault, EnvTimeout, NoPlace, WorkerDied
from shoal.core.machine import usable_cores
from shoal.vector.batch import BatchVectorEnv, News
from shoal.vector.chunk import Infos
from shoal.vector.environments import EnvFactory
from shoal.vector.parts import Common, check_options, cut
from shoal.vector.workers import ray_rows
from shoal.vector.workers.protocol import Sieve, faults_of, raise_mistakes
from shoal.vector.workers.ray_instance import INSTANCE, free_cores
from shoal.vector.workers.ray_remote import Here, RemoteActor
from shoal.vector.workers.ray_shared import Shared
from shoal.vector.workers.supervisor import CLOSE_S

START_S, PLACE_S = 60.0, 10.0  # until an actor runs: at first, and in the place of a dead one


class RayVectorEnv(BatchVectorEnv):
    """Environments in Ray actors, one per core of the cluster unless `workers` says otherwise.

    `address` is that of a cluster ("auto", HOST:PORT, ray://HOST:PORT); without one a local instance is started and
    ended with the last batch that uses it. With `min_envs` a batch that has lost actors and finds no place for new ones
    goes on as long as that many environments are left: the others are masked.
    """

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        *,
        workers: int | None = None,
        address: str | None = None,
        min_envs: int | None = None,
        step_timeout_s: float = 300.0,
        start_timeout_s: float = 120.0,
        **common: Any,
    ) -> None:
        """`common` options are those of `shoal.vector.parts.Common`."""
        self._actors: list[RemoteActor] = []
        alike = Common(**common)
        self.factories, self.on_fault, self.min_envs = list(factories), alike.on_fault, min_envs
        self.step_timeout_s, self.start_timeout_s = step_timeout_s, start_timeout_s
        num_envs = len(self.factories)
        check_options(num_envs, workers, "lockstep", step_timeout_s, start_timeout_s)
        if min_envs is not None and (self.on_fault != "restart" or not 0 < min_envs <= num_envs):
            raise ValueError(
                f"expected min_envs from 1 to {num_envs} with on_fault restart, got {min_envs}, {self.on_fault}"
            )
        local = address in (None, "local")
        self._shared = Shared()
        self._ray = INSTANCE.join(address, min(workers or usable_cores(), num_envs) if local else None)
        self._finalizer = weakref.finalize(self, _end, self._actors, self._shared)
        try:
            count, folder = min(workers or free_cores(self._ray), num_envs), INSTANCE.folder
            self._actors += [RemoteActor(self._ray, i, rows, folder) for i, rows in enumerate(cut(num_envs, count))]
            self._options: dict[str, Any] = {"chunks": alike.of_chunks}
            for one in self._actors:
                one.start()
            for one in self._actors:
                one.wait_for_place(self._patience(START_S))
            scout = cloudpickle.dumps(self.factories[0])
            known = cloudpickle.loads(
                self._actors[0].ask(start_timeout_s, "while being built", "scout", scout, 0)["spaces"]
            )
            self._options |= {name: known[name] for name in ("observation_space", "action_space")}
            block = self._shared.block(num_envs, known["observation_space"], known["action_space"], self._actors)
            block.clear()
            for one in self._actors:
                one.block = block
            about = {name: known[name] for name in ("metadata", "render_mode", "spec")}
            super().__init__(block, [slice(0, num_envs)], alike, **about)
            self._infos, self._attributes = Sieve(), dict[str, Sequence[Any]]()
            answers = [(one, one.tell("build", self._job(one))) for one in self._actors]
            for one, answer in answers:
                one.plain(one.take(answer, self._build_s(one), "while its environments were built"))
        except BaseException:
            self.closed = True
            self._finalizer()
            raise

    def _job(self, one: RemoteActor) -> bytes:
        job = {"factories": self.factories[one.rows], "num_envs": len(self.factories), "actors": len(self._actors)}
        job |= {"first": one.rows.start, "number": one.number, "shared": self._shared.place(one), **self._options}
        return bytes(cloudpickle.dumps(job))

    def _patience(self, for_a_core: float) -> float:
        """Seconds that an actor has to begin. In a local instance it has its core, and starts as fast as it can."""
        return for_a_core if INSTANCE.folder is None else max(for_a_core, self.start_timeout_s)

    def _build_s(self, one: RemoteActor) -> float:
        return self.start_timeout_s * one.count

    @property
    def _living(self) -> list[RemoteActor]:
        return [one for one in self._actors if not one.gone]

    def _do_allocate(self, rows: int) -> None:
        self._shared.allocate(self.block, rows, self._living, self.step_timeout_s)

    # -- stepping ------------------------------------------------------------------------------

    def _do_send(self, part: int) -> None:
        for one in self._actors:
            if one.gone or one.skip:
                self.block.carry(one.rows)
            if one.gone:
                self._mask(one)
            elif not one.skip:
                one.step()

    def _do_recv(self, part: int) -> News:
        asked = [one for one in self._living if not one.skip]
        for one in self._living:
            one.skip = False
        return self._gather([(one, one.pending) for one in asked], "in step")

    def _gather(self, asked: Sequence[tuple[RemoteActor, Any]], doing: str) -> News:
        """The rows of these actors into the block; those that died or hang are replaced, or it is raised."""
        timeout_s, waited_s, infos, faults = self.step_timeout_s, 0.0, Infos(), list[EnvFault]()
        try:
            answers = self._ray.get([answer for _, answer in asked], timeout=timeout_s)
            asked = [(one, Here(value)) for (one, _), value in zip(asked, answers, strict=True)]
        except self._ray.exceptions.GetTimeoutError:
            waited_s, timeout_s = timeout_s, 0.01
        except self._ray.exceptions.RayError:  # told below, by each
            pass
        for one, answer in asked:
            try:
                here = isinstance(answer, Here)
                found = answer.value if here else one.take(answer, timeout_s, doing, waited_s)
            except (WorkerDied, EnvTimeout) as fault:
                self._replace(one, fault)
                timeout_s = min(timeout_s, 0.5)  # whoever answers has done so in the meantime
                continue
            finally:
                one.pending = None
            frame = one.take_in(found)
            if frame:
                infos += self._infos(frame)
                faults += faults_of(frame)
        return infos, faults

    def _do_drain(self) -> None:
        for one in self._living:
            if one.pending is not None:
                pending, one.pending = one.pending, None
                one.take(pending, self.step_timeout_s, "in step")

    # -- everything else -----------------------------------------------------------------------

    def _do_reset(self, options: dict[str, Any] | None) -> News:
        everything, chosen = bool(self.block.reset_mask.all()), cloudpickle.dumps(options)
        news = self._gather([(one, one.tell("reset", one.seeding(), chosen)) for one in self._living], "in reset")
        if everything:
            for one in self._living:
                one.skip = False
        return news

    def _do_replay(self, plan: Sequence[tuple[int, Sequence[Any]]]) -> tuple[list[bool], list[EnvFault]]:
        followed, faults = [False] * self.num_envs, list[EnvFault]()
        asked = [
            (one, one.tell("replay", one.seeding(ray_rows.OVER), cloudpickle.dumps(list(plan[one.rows]))))
            for one in self._living
        ]
        for one, answer in asked:
            longest_s = self.step_timeout_s * one.count
            doing = "while unfinished episodes were replayed"
            frame = one.take_in(one.take(answer, longest_s, doing))
            followed[one.rows] = frame["followed"]
            faults += faults_of(frame)
        return followed, faults

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`getattr(env, name)` of every environment, called if it can be called; None of one that is lost."""
        self._check_usable()
        self._check_at_rest("call")
        with self._failing():
            frames = self._ask_all("call", lambda one: cloudpickle.dumps((name, args, kwargs)), f"in call({name!r})")
        raise_mistakes(list(frames.values()))
        values: list[Any] = [None] * self.num_envs
        for one, frame in frames.items():
            values[one.rows] = cloudpickle.loads(frame["value"])
        return tuple(values)

    def _do_set_attr(self, name: str, values: Sequence[Any]) -> None:
        payloads = {one: one.values_for(name, values) for one in self._living}  # before anyone is told: may fail
        with self._failing():
            frames = self._ask_all("set_attr", payloads.__getitem__, f"in set_attr({name!r})")
        raise_mistakes(list(frames.values()))
        self._attributes[name] = values

    def _ask_all(
        self, method: str, payload: Callable[[RemoteActor], bytes], doing: str
    ) -> dict[RemoteActor, dict[str, Any]]:
        asked = [(one, one.tell(method, payload(one))) for one in self._living]
        return {one: one.plain(one.take(answer, self.step_timeout_s, doing)) for one, answer in asked}

    # -- faults and the end --------------------------------------------------------------------

    def _replace(self, one: RemoteActor, fault: EnvFault) -> None:
        """Policy `restart`: a new actor for a dead one; else raise. All its environments lost their state, so all go on
        to their next episode."""
        if self.on_fault != "restart":
            raise fault
        while True:
            self._count([fault])  # raises when there have been too many
            try:
                self._rebuild(one)
                break
            except NoPlace as none:
                self._give_up(one, fault, none)
                return
            except EnvFault as another:
                fault = another
        one.skip = not any(self._in_flight)  # else this very step shows the restart
        block, first = self.block, one.rows.start
        fault.aftermath = (
            f"its actor was replaced (pid {one.pid}) and its {one.count} environments begin their next "
            f"episodes, environment {first} episode {block.episodes[first]}, seed {block.seeds[first]}"
        )

    def _rebuild(self, one: RemoteActor) -> None:
        one.end()
        block, asked = self.block, self.block.reset_mask[one.rows].copy()
        one.start()
        one.wait_for_place(self._patience(PLACE_S))
        one.ask(self._build_s(one), "while its environments were rebuilt", "build", self._job(one))
        self._shared.tell_rollout(one, self.step_timeout_s)
        for name, values in self._attributes.items():
            doing = f"in set_attr({name!r})"
            raise_mistakes([one.ask(self.step_timeout_s, doing, "set_attr", one.values_for(name, values))])
        block.reset_mask[one.rows] = True
        try:
            answer = one.tell("reset", one.seeding(), cloudpickle.dumps(None))
            one.take_in(one.take(answer, self.step_timeout_s, "in the reset after a restart"))
        finally:
            block.reset_mask[one.rows] = asked
        self._mask(one)
        block.truncated[one.rows] = True

    def _give_up(self, one: RemoteActor, fault: EnvFault, none: NoPlace) -> None:
        """Go on without its environments, if there may be fewer."""
        left = sum(other.count for other in self._living if other is not one)
        if self.min_envs is None or left < self.min_envs:
            least = "" if self.min_envs is None else f"; {left} environments are left, --min-envs is {self.min_envs}"
            none.message = f"{none.message}{least}. It was to replace one of which was said: {fault.message}"
            raise none
        one.gone, one.skip = True, False
        self._mask(one)
        self.block.truncated[one.rows] = True
        fault.aftermath = (
            f"there is no place for another within {self._patience(PLACE_S):g} s: environments {one.named} are lost, "
            f"the run goes on with {left} of {self.num_envs}"
        )

    def _mask(self, one: RemoteActor) -> None:
        """What it shows is no step of anything."""
        block, rows = self.block, one.rows
        block.rewards[rows], block.terminated[rows], block.truncated[rows] = 0.0, False, False
        block.restarted[rows] = True
        for final, row in zip(block.final_observations, block.observations, strict=True):
            final[rows] = row[rows]

    @property
    def about(self) -> str:
        """Where its actors are."""
        nodes = sum(node["Alive"] for node in self._ray.nodes())
        place = "a local instance" if INSTANCE.folder else f"a cluster of {nodes} node(s)"
        return f"{self.num_envs} environments in {len(self._actors)} actors of {place}"

    @property
    def lost(self) -> int:
        """Environments that are masked for ever, since there was no place for their actor."""
        return sum(one.count for one in self._actors if one.gone)

    @property
    def pids(self) -> list[int]:
        """Process ids of the actors, each on its own node; none after close."""
        return [one.pid for one in self._actors if one.pid is not None]

    def kill(self) -> None:
        """End the actors at once, without asking. For a process that is about to leave."""
        for one in self._actors:
            one.end()

    def close_extras(self, **kwargs: Any) -> None:
        """Ask, then kill; what an environment raised in its `close` is raised when all are gone."""
        if self.closed:
            return
        self.closed = True
        fault: EnvFault | None = None
        for one, answer in [(one, one.tell("close")) for one in self._living if one.pid is not None]:
            try:
                one.plain(one.take(answer, CLOSE_S, "in close"))
            except (WorkerDied, EnvTimeout):
                continue
            except EnvFault as error:
                fault = fault or error
        self._finalizer()
        if fault is not None:
            raise fault


def _end(actors: list[RemoteActor], shared: Shared) -> None:
    for one in actors:
        one.end()
    shared.close()
    INSTANCE.leave()
