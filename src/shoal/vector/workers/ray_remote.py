"""One actor as its owner sees it: placed, told, waited for, given up."""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from shoal.core.arrays import Array
from shoal.core.errors import EnvFault, EnvTimeout, NoPlace, WorkerDied
from shoal.core.machine import usable_cores
from shoal.vector.memory import Block
from shoal.vector.workers import ray_actor, ray_rows
from shoal.vector.workers.protocol import fault_from_data
from shoal.vector.workers.ray_place import Placement


class Here(NamedTuple):
    """An answer that has come."""

    value: Any


class RemoteActor:
    """The actor that owns environments `rows` of a batch."""

    def __init__(self, ray: Any, number: int, rows: slice, folder: str | None) -> None:
        self.ray, self.number, self.rows, self.folder = ray, number, rows, folder  # of an instance on this machine
        self.block: Block | None = None
        self.pid: int | None = None
        self.pending: Any = None  # of the one step that is in flight
        self.skip = False  # its environments were restarted since they were last seen: show them instead of stepping
        self.gone = False  # given up: its environments are masked for ever
        self.shares = False  # it sees the block itself
        self._actor: Any = None
        self._place: Placement | None = None  # while it is being started
        self._node: str | None = None  # where it is, or was

    def start(self) -> None:
        """Ask for a place, on another node than the others where there are several."""
        if self.shares and self.block is not None:  # who was there before may have died inside an environment
            self.block.current[self.number] = -1
        folders = [os.path.abspath(folder) for folder in sys.path]
        self._place = Placement(self.ray, folders, os.getpid(), avoid=self._node)

    def wait_for_place(self, timeout_s: float) -> None:
        """Until it runs somewhere; NoPlace if it has found none by then."""
        assert self._place is not None
        place, self._place = self._place, None
        try:
            self._actor, found = place.wait(timeout_s)
        except self.ray.exceptions.GetTimeoutError:
            self.end()
            why = "the cluster has no core to spare"
            if self.folder is not None:
                load, cores = os.getloadavg()[0], usable_cores()
                why += f", or it does not get to run: the load of this machine is {load:.0f} on {cores} core(s)"
            raise NoPlace(
                f"no place within {timeout_s:g} s for an actor with environments {self.named}: {why}. Take fewer "
                "--workers, free some, or let the run go on with fewer environments (--min-envs)",
                **self.where(),
            ) from None
        except self.ray.exceptions.RayError as error:
            raise self._died(error, "while it was started") from None
        self.pid, self._node = found["pid"], found["node"]
        self.shares = self.folder is not None and found["shares"]
        if found["versions"] != ray_actor.versions():
            raise NoPlace(
                f"a node of the cluster has {found['versions']}, this machine {ray_actor.versions()}: install the same",
                **self.where(),
            )

    @property
    def named(self) -> str:
        """Its environments, in words."""
        first, last = self.rows.start, self.rows.stop - 1
        return str(first) if first == last else f"{first} to {last}"

    @property
    def count(self) -> int:
        """Number of its environments."""
        return int(self.rows.stop - self.rows.start)

    def values_for(self, name: str, values: Sequence[Any]) -> bytes:
        """What `set_attr` takes, of its environments."""
        return bytes(cloudpickle.dumps((name, list(values[self.rows]))))

    def tell(self, method: str, *args: Any) -> Any:
        """Call it; returns what `take` takes."""
        return getattr(self._actor, method).remote(*args)

    def take(self, answer: Any, timeout_s: float, doing: str, waited_s: float = 0.0) -> Any:
        """Its answer as it comes; `waited_s` is how long it has been waited for already."""
        try:
            return self.ray.get(answer, timeout=timeout_s)
        except self.ray.exceptions.GetTimeoutError:
            where = self.where(doing == "in step")
            self.end()
            hint = "--build-timeout" if "built" in doing else "--step-timeout"
            raise EnvTimeout(
                f"no answer within {max(timeout_s, waited_s):g} s {doing} from the actor with environments "
                f"{self.named}; it was killed. Raise {hint} if the environment is that slow",
                **where,
            ) from None
        except self.ray.exceptions.RayError as error:
            raise self._died(error, doing) from None

    def step(self) -> None:
        """Set it to work on its environments' actions."""
        assert self.block is not None
        sent = () if self.shares else (ray_rows.pack(self.block.actions, self.rows),)
        self.pending = self.tell("step", *sent)

    def seeding(self, more: Sequence[str] = ()) -> Array | None:
        """What a reset is told of seeds, and `more`."""
        if self.shares or self.block is None:
            return None
        return ray_rows.pack(ray_rows.told(self.block, (*ray_rows.SEEDING, *more)), self.rows)

    def take_in(self, answer: ray_actor.Answer) -> dict[str, Any]:
        """Rows into the block, unless it has written them there itself; the news."""
        rows, finals, told = answer
        frame, block = self.plain(told), self.block
        if rows is not None and block is not None:
            ray_rows.unpack(rows, ray_rows.outcome(block), self.rows)
            if finals is not None:
                ended = np.flatnonzero(block.terminated[self.rows] | block.truncated[self.rows]) + self.rows.start
                ray_rows.unpack(finals, block.final_observations, ended)
        return frame

    def ask(self, timeout_s: float, doing: str, method: str, *args: Any) -> dict[str, Any]:
        """Call it and wait for plain data; a fault that it tells is raised."""
        return self.plain(self.take(self.tell(method, *args), timeout_s, doing))

    def plain(self, told: bytes | None) -> dict[str, Any]:
        """Plain data of an answer, with environments counted as the batch counts them."""
        frame: dict[str, Any] = marshal.loads(told) if told is not None else {}
        first = 0 if self.shares else self.rows.start
        for data in [*frame.get("faults", ()), *(frame[key] for key in ("error", "mistake") if key in frame)]:
            if data["env"] is not None:
                data["env"] += first
        if "infos" in frame and first:
            frame["infos"] = [(index + first, info, final) for index, info, final in frame["infos"]]
        if "error" in frame:
            raise fault_from_data(frame["error"])
        return frame

    def where(self, stepping: bool = False) -> dict[str, Any]:
        """Environment, pid, seed and step, as far as they are known: on another machine an actor keeps it to itself
        which environment it is inside of, and the first of its own stands for all."""
        block = self.block
        inside = int(block.current[self.number]) if self.shares and block is not None else -1
        env = max(inside, self.rows.start)
        known = block is not None and block.seeds[env] >= 0
        return {
            "env": env,
            "pid": self.pid,
            "seed": int(block.seeds[env]) if block is not None and known else None,
            "step": int(block.elapsed[env]) + (inside >= 0 and stepping) if block is not None and known else None,
        }

    def end(self) -> None:
        """Kill it, if it lives."""
        self.pending = None
        if self._place is not None:
            self._place.end()
            self._place = None
        if self._actor is None:
            return
        if self.ray.is_initialized():  # else asking would start an instance
            with contextlib.suppress(Exception):  # it is gone, or the cluster is
                self.ray.kill(self._actor, no_restart=True)
        if (
            self.folder is not None and self.pid is not None
        ):  # an environment may hold what Ray's own way of ending it needs
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
        self._actor = self.pid = None

    def _died(self, error: Exception, doing: str) -> EnvFault:
        where = self.where(doing == "in step")
        self.end()
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = next(
            (line for line in lines if "cause" in line.lower() or "node" in line.lower()), lines[:1] and lines[0]
        )
        text = f"an actor died {doing}: it held environments {self.named}; Ray says: {reason or type(error).__name__}"
        return WorkerDied(text[:500], **where)
