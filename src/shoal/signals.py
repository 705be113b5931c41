"""Ctrl-C and SIGTERM, once: finish what must not be torn and stop. Twice: leave at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_received: int | None = None


def received() -> int | None:
    """The signal that asked us to stop, if one did."""
    return _received


def name() -> str:
    """What stopped us, as the person at the keyboard knows it."""
    known = {signal.SIGINT: "Ctrl-C (signal 2)", signal.SIGTERM: "SIGTERM (signal 15)"}
    return "nothing" if _received is None else known.get(signal.Signals(_received), f"signal {_received}")


@contextlib.contextmanager
def catching(leave: Callable[[], None], noted: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Within this block the first signal calls `noted`; a second one calls `leave` and ends the process."""
    global _received
    _received = None
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers: whoever owns it decides
        return

    def handle(number: int, frame: FrameType | None) -> None:
        global _received
        if _received is not None:
            leave()
            os._exit(128 + number)
        _received = number
        noted()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
