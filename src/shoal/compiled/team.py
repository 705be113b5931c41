"""Threads that step a compiled environment together, and talk to each other without the GIL.

A plain Python thread that is woken needs 50 us to wake and then the GIL, which whoever woke it holds: as long as a
step of 4,096 cheap environments takes. So a member of the team stays in machine code between steps: it looks
for the next one for about LOOK_S before it goes to sleep, and takes the arrays of a step by their addresses. Looking is
bounded: a team that is not asked for anything sleeps.

Each thread has a range of environments, which stay in its core's cache, and steps it piece by piece; who is done takes
the pieces that are left of the others' ranges: a core that was busy with something else holds up a piece, not a range.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

LOOK_S = 200e-6
_CALIBRATION = 20_000  # looks that are timed, once, to know how many make up LOOK_S: one takes 10 to 100 ns
_POLL_S = 50e-6  # how often the leader looks for a member that is late
_PIECES, _SMALLEST = 8, 32  # of a range; environments in a piece
# Words of `control`, a cache line of 8 for the leader and for each member: the number of the step to take (the
# leader's) or of the last one taken; what came of it; whether the member sleeps; of the range, the next environment to
# step, where it begins and ends, and how many make a piece; where the piece begins that the thread is at. After them
# the addresses of the arrays of a step.
_LINE, _TURN, _DONE, _RESULT, _ASLEEP, _NEXT, _LOW, _HIGH, _SIZE, _AT = 8, 0, 0, 1, 2, 3, 4, 5, 6, 7
_CALLED = 2  # in the place of "asleep": the leader has seen it, and wakes the member
_CHANGING = 7  # obs, mask, final_obs, final_mask, rewards, terminated, truncated: other arrays in every step
WAKE = -(2**62)  # what the leader's part returns when members must be woken first


class Team:
    """Steps ranges of environments in `count` threads, of which the caller is one.

    `step` is the compiled step kernel; `arguments` are arrays as it takes them, for their types and shapes, of which
    the slots, the actions and the config stay the same for ever.
    """

    def __init__(self, step: Any, arguments: tuple[Any, ...], total: int, count: int) -> None:
        self._lead, self._follow = _parts(step)
        self._seen = _seen()
        self._examples = self._arguments = arguments
        self._control = np.zeros(_LINE * count + _CHANGING, np.int64)
        edges = [total * k // count for k in range(count + 1)]
        for line, (low, high) in enumerate(itertools.pairwise(edges)):
            size = max(-(-(high - low) // _PIECES), _SMALLEST)
            self._control[_LINE * line + _LOW : _LINE * line + _SIZE + 1] = low, high, size
        self._errors: list[BaseException | None] = [None] * count
        self._closing = False
        self._wake = [threading.Lock() for _ in range(count)]  # one-slot signals: released by the leader
        for lock in self._wake:
            lock.acquire()
        self._threads = [
            threading.Thread(target=self._work, args=(k,), name=f"shoal-step-{k}", daemon=True) for k in range(1, count)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, arguments: tuple[Any, ...]) -> list[int]:
        """Step everything; one result per thread. An exception of any thread is raised, when all have finished."""
        control, members = self._control, len(self._threads)
        error: BaseException | None = self._finish()  # only an interrupted step is not finished yet
        self._arguments = arguments  # members have them by address: they must live until all have finished
        result = 0
        try:
            result = self._lead(control, members, False, *arguments)
            if result == WAKE:
                for k in range(1, members + 1):
                    self._rouse(k)
                result = self._lead(control, members, True, *arguments)
        except Exception as raised:  # first the others have to finish: they write into arrays being read
            self._errors[0] = raised
        except BaseException as raised:
            error = raised
        error = self._finish() or error
        raised_at = {int(control[_LINE * k + _AT]): one for k, one in enumerate(self._errors) if one is not None}
        if error is not None or raised_at:
            self._errors = [None] * len(self._errors)
            raise error if error is not None else raised_at[min(raised_at)]  # of several, the lowest environment's
        return [result, *(int(control[_LINE * k + _RESULT]) for k in range(1, members + 1))]

    def _finish(self) -> KeyboardInterrupt | None:
        """Wait until nobody is stepping. Ctrl-C does not end that: it is returned afterwards."""
        interrupted: KeyboardInterrupt | None = None
        while True:
            try:
                for k, thread in enumerate(self._threads, 1):
                    # Seen by an atomic load, so that on every kind of processor what it wrote is seen too.
                    while self._seen(self._control, _LINE * k + _DONE) != self._control[_TURN]:
                        if not thread.is_alive():
                            raise RuntimeError(
                                "the threads of this environment are gone: a forked process does not inherit them. "
                                "Make the environment after the fork"
                            )
                        self._rouse(k)  # an exception may have come before it was
                        time.sleep(_POLL_S)
                return interrupted
            except KeyboardInterrupt as interrupt:
                interrupted = interrupt

    def close(self) -> None:
        """End the threads and wait for them."""
        self._closing = True
        for lock in self._wake[1:]:
            lock.release()
        for thread in self._threads:
            thread.join()
        self._threads, self._wake = [], []

    def _rouse(self, k: int) -> None:
        if self._control[_LINE * k + _ASLEEP] == _CALLED:
            self._control[_LINE * k + _ASLEEP] = 0
            self._wake[k].release()

    def _work(self, k: int) -> None:
        control = self._control
        while not self._closing:
            try:
                self._follow(control, k, *self._examples)
            except BaseException as error:  # handed to the leader
                self._errors[k] = error
                control[_LINE * k + _DONE] = control[_TURN]
                continue
            self._wake[k].acquire()


@functools.cache
def _seen() -> Callable[..., int]:
    """A word of `control` by an atomic load, from Python."""
    numba: Any = importlib.import_module("numba")
    load = importlib.import_module("shoal.compiled.atomics").load

    def seen(control: Any, at: Any) -> Any:
        return load(control, at)

    dispatcher: Any = numba.njit(seen, nogil=True, _nrt=False)
    dispatcher.compile((numba.int64[::1], numba.int64))
    dispatcher.disable_compile()
    return dispatcher  # type: ignore[no-any-return]


@functools.cache
def _parts(step: Any) -> tuple[Callable[..., int], Callable[..., int]]:
    """The leader's part and a member's, compiled for the types of `step`: a second, once in a process."""
    numba: Any = importlib.import_module("numba")
    atomics: Any = importlib.import_module("shoal.compiled.atomics")
    names = ("load", "store", "swap", "add", "pause", "moved")
    load, store, swap, add, pause, moved = (getattr(atomics, name) for name in names)
    line, turn_at, done, result_at, asleep = _LINE, _TURN, _DONE, _RESULT, _ASLEEP
    next_at, low_at, high_at, size_at, piece_at = _NEXT, _LOW, _HIGH, _SIZE, _AT
    wake, called, changing = WAKE, _CALLED, _CHANGING

    def pieces(
        control: Any,
        k: Any,
        slots: Any,
        actions: Any,
        obs: Any,
        mask: Any,
        final_obs: Any,
        final_mask: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        config: Any,
    ) -> Any:
        """Step pieces of the own range, then of the others', while there are any. The sum of what came of them, or
        of several faults the one of the lowest environment."""
        count = (control.shape[0] - changing) // line
        ended, fault = 0, 0
        for further in range(count):
            at = line * ((k + further) % count)
            size, high = control[at + size_at], control[at + high_at]
            low = add(control, at + next_at, size)
            while low < high:
                control[line * k + piece_at] = low
                result = step(slots, actions, obs, mask, final_obs, final_mask, rewards, terminated, truncated, config,
                              ~low, min(low + size, high))  # fmt: skip
                if result >= 0:
                    ended += result
                elif fault == 0 or result > fault:
                    fault = result
                low = add(control, at + next_at, size)
        return fault if fault < 0 else ended

    def lead(
        control: Any,
        members: Any,
        woken: Any,
        slots: Any,
        actions: Any,
        obs: Any,
        mask: Any,
        final_obs: Any,
        final_mask: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        config: Any,
    ) -> Any:
        if not woken:
            for k in range(members + 1):
                control[line * k + next_at] = control[line * k + low_at]
                control[line * k + result_at] = 0
            wrong = step(slots, actions, obs, mask, final_obs, final_mask, rewards, terminated, truncated, config, 0, 0)
            if wrong < 0:
                return wrong
            at = line * (members + 1)
            control[at], control[at + 1] = obs.ctypes.data, mask.ctypes.data
            control[at + 2], control[at + 3] = final_obs.ctypes.data, final_mask.ctypes.data
            control[at + 4] = rewards.ctypes.data
            control[at + 5], control[at + 6] = terminated.ctypes.data, truncated.ctypes.data
            store(control, turn_at, control[turn_at] + 1)
            sleeping = 0
            for k in range(1, members + 1):
                sleeping += swap(control, line * k + asleep, 1, called)
            if sleeping > 0:
                return wake
        result = pieces(control, 0, slots, actions, obs, mask, final_obs, final_mask, rewards, terminated, truncated,
                        config)  # fmt: skip
        turn, looked = control[turn_at], 0
        for k in range(1, members + 1):
            while load(control, line * k + done) != turn and looked < looks:
                pause()
                looked += 1
        return result

    def follow(
        control: Any,
        k: Any,
        slots: Any,
        actions: Any,
        obs: Any,
        mask: Any,
        final_obs: Any,
        final_mask: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        config: Any,
    ) -> Any:
        at = control.shape[0] - changing
        seen = control[line * k + done]
        while True:
            looked, turn = 0, load(control, turn_at)
            while turn == seen and looked < looks:
                pause()
                looked += 1
                turn = load(control, turn_at)
            if turn == seen:
                store(control, line * k + asleep, 1)
                # A step may have come meanwhile: whoever takes the word back decides whether to sleep.
                if load(control, turn_at) == seen or not swap(control, line * k + asleep, 1, 0):
                    return 0
                continue
            control[line * k + result_at] = pieces(
                control, k, slots, actions, moved(obs, control[at]), moved(mask, control[at + 1]),
                moved(final_obs, control[at + 2]), moved(final_mask, control[at + 3]), moved(rewards, control[at + 4]),
                moved(terminated, control[at + 5]), moved(truncated, control[at + 6]), config,
            )  # fmt: skip
            store(control, line * k + done, turn)
            seen = turn

    def look(control: Any, count: Any) -> Any:
        looked = 0
        while load(control, turn_at) == 0 and looked < count:
            pause()
            looked += 1
        return looked

    words, whole = numba.int64[::1], numba.int64

    def compiled(function: Any, *types: Any) -> Any:
        dispatcher = numba.njit(function, nogil=True, error_model="numpy", _nrt=False)
        dispatcher.compile(types)
        dispatcher.disable_compile()
        return dispatcher

    timed, blank = compiled(look, words, whole), np.zeros(1, np.int64)
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        timed(blank, _CALIBRATION)
        spent.append(time.perf_counter() - began)
    looks = round(LOOK_S * _CALIBRATION / min(spent))  # a constant for the two functions above
    arguments = step.signatures[0][:-2]
    pieces = compiled(pieces, words, whole, *arguments)
    return compiled(lead, words, whole, numba.boolean, *arguments), compiled(follow, words, whole, *arguments)
