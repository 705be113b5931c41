"""What can go wrong inside a batch of environments, as exceptions that say where."""

from __future__ import annotations

import os
import traceback
from typing import Any


class Unsupported(TypeError, ValueError):
    """A space or a network of a kind that shoal cannot work with; the message says which kinds it can."""


class RankFailed(RuntimeError):
    """One of several processes that train together (torchrun) failed or is gone; the message says which.

    `said_by` is the rank that tells the person: all of them raise it.
    """

    def __init__(self, message: str, said_by: int) -> None:
        super().__init__(message)
        self.said_by = said_by


class EnvFault(RuntimeError):
    """A fault of one environment. Names the environment, its worker, its seed and its step.

    `kind` is the type name of the original exception (an error crosses processes as text, never as a pickled
    exception), `worker_traceback` the traceback as the worker printed it. `step` counts from 1 within the
    episode; 0 is its reset. `aftermath` says how a restarted environment went on.

    >>> str(EnvFault("no fuel", env=1, pid=4711, seed=5, step=3))
    'no fuel [environment 1, worker pid 4711, seed 5, step 3]'
    """

    def __init__(
        self,
        message: str,
        *,
        env: int | None = None,
        pid: int | None = None,
        seed: int | None = None,
        step: int | None = None,
        kind: str = "",
        worker_traceback: str = "",
    ) -> None:
        super().__init__(message)
        self.message, self.env, self.pid, self.seed, self.step = message, env, pid, seed, step
        self.kind = kind or type(self).__name__
        self.worker_traceback = worker_traceback
        self.aftermath = ""
        self.row = 0  # of the batch that was checked, where one was

    def __str__(self) -> str:
        places = (("environment", self.env), ("worker pid", self.pid), ("seed", self.seed), ("step", self.step))
        where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
        text = f"{self.message} [{where}]" if where else self.message
        if self.aftermath:
            text += f"; {self.aftermath}"
        if self.worker_traceback:
            text += "\n--- traceback of the worker ---\n" + self.worker_traceback.rstrip()
        return text


class EnvRaised(EnvFault):
    """The environment's own code raised; `kind` is the original exception's type name."""


class WorkerDied(EnvFault):
    """A worker process ended without saying why (killed, segmentation fault, os._exit)."""

    def __init__(self, message: str, *, signal: int | None = None, **where: Any) -> None:
        self.signal = signal
        super().__init__(message, **where)


class NoPlace(EnvFault):
    """A cluster has no core for an actor, or one on which it cannot work."""


class EnvTimeout(EnvFault):
    """An environment did not answer within the deadline (`--step-timeout`)."""


class NotFinite(EnvFault):
    """NaN or infinity in an observation or a reward."""


class OutOfRange(EnvFault):
    """A choice in an observation (Discrete, MultiDiscrete) that its space does not have."""


class ShapeError(EnvFault):
    """An observation, action or reward of the wrong shape; nothing is broadcast."""


class DtypeError(EnvFault):
    """An observation, reward or flag of a type that cannot be stored without loss."""


class TooManyRestarts(EnvFault):
    """Environments kept failing: the restart budget is spent."""


def as_fault(error: BaseException, where: str, env: int, seed: int | None, step: int | None) -> EnvFault:
    """Any exception as an EnvFault that says where it happened."""
    place: dict[str, Any] = {"env": env, "pid": os.getpid(), "seed": seed, "step": step}
    if isinstance(error, EnvFault):
        if error.env is not None:
            return error
        return type(error)(f"{where}, {error.message}" if where else error.message, **place)
    name, trace = type(error).__name__, "".join(traceback.format_exception(error))
    return EnvRaised(f"{name} {where}: {text_of(error)}", kind=name, worker_traceback=trace, **place)


def repeated(fault: EnvFault, cure: str = "close it and make a new one") -> EnvFault:
    """What a batch says that has stopped at this fault."""
    return type(fault)(f"this batch has stopped, {cure}. It stopped at: {fault.message}", **_place_of(fault))


def too_many_restarts(count: int, window: str, allowed: int, last: EnvFault) -> TooManyRestarts:
    """The end of a crash loop: says how many, and what the last fault was."""
    text = f"{count} restarts {window}, {allowed} are allowed (--max-restarts). The last fault: {last.message}"
    return TooManyRestarts(text, **_place_of(last))


def _place_of(fault: EnvFault) -> dict[str, Any]:
    """What one fault tells of another: where it was, and how it began."""
    return {name: getattr(fault, name) for name in ("env", "pid", "seed", "step", "kind", "worker_traceback")}


def text_of(error: BaseException) -> str:
    """`str(error)`, even of one that cannot be printed."""
    try:
        return str(error)
    except Exception:
        return "(an exception that cannot be printed)"
