"""The one place where an error becomes a sentence and an exit code. SHOAL_DEBUG=1 shows the traceback as well.

Exit codes: 0 done, 1 failed, 2 wrong usage or unusable input, 130 / 143 stopped by Ctrl-C / SIGTERM, 141 the reader of
our output left (`shoal ... | head`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.core.errors import RankFailed
from shoal.core.machine import own_rank
from shoal.extras import extra_of, install
from shoal.runs.words import explain

DEBUG = "SHOAL_DEBUG"
_USAGE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
_PACKAGE = Path(__file__).resolve().parents[1]


def guarded(action: Callable[[], int]) -> int:
    """Run a command; whatever goes wrong is said in a sentence. Returns the exit code."""
    try:
        with warnings.catch_warnings():
            if not os.environ.get(DEBUG):
                warnings.showwarning = _show_warning
            code = action()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as end:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            return _reader_left()
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 2
    except KeyboardInterrupt:
        return fail("stopped by Ctrl-C", 130)
    except Exception as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        return fail(*sentence(error)) if _is_told_here(error) else 1


def fail(text: str, code: int) -> int:
    """Say what went wrong."""
    with contextlib.suppress(BrokenPipeError):
        print(f"shoal: {text}", file=sys.stderr, flush=True)
    return code


def sentence(error: Exception) -> tuple[str, int]:
    """An error in words, and its exit code."""
    from shoal.runs.manifest import CheckpointError

    if hasattr(error, "worker_traceback"):  # a fault of an environment
        return _fault(error), 1
    if isinstance(error, CheckpointError):
        return str(error), 2
    if isinstance(error, ImportError):
        return _missing(error), 2
    if isinstance(error, OSError):
        return explain(error), 2 if error.errno in (None, *_USAGE) else 1
    if isinstance(error, ValueError):
        return str(error), 2
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}): take fewer --num-envs or --rollout-steps", 1
    if isinstance(error, RuntimeError) and not isinstance(error, NotImplementedError | RecursionError):
        return str(error), 1
    place = _place(error)
    return (
        f"unexpected {type(error).__name__}: {error}{place}. A damaged file may be the reason, or else a fault of "
        f"shoal: {DEBUG}=1 shows the whole traceback"
    ), 1


def _is_told_here(error: Exception) -> bool:
    """Of the ranks that torchrun started, each of which gets the same error, one tells it."""
    if isinstance(error, RankFailed):
        return error.said_by == own_rank()
    return own_rank() == 0 or not isinstance(error, ValueError) or os.environ.get("LOCAL_RANK") == "0"


def _missing(error: ImportError) -> str:
    text, name = str(error), (error.name or "").partition(".")[0]
    if "pip install" in text or not name or name == "shoal":
        return text
    extra = extra_of(name)
    return f"{text}: {install(extra)}" if extra else f'{text}: pip install "{name}"'


def _fault(error: Any) -> str:
    """The fault without shoal's own frames: those of the environment's author are what helps."""
    text = str(error).partition("\n--- traceback of the worker ---")[0]
    blocks = list(re.finditer(r'  File "([^"]+)", line \d+, in .*\n(?:    .*\n)*', error.worker_traceback + "\n"))
    own = [block[0].rstrip() for block in blocks if not _foreign(block[1])]
    if own:
        text += "\n" + "\n".join(own[-3:])
    elif error.kind in ("NotFinite", "OutOfRange") and error.step is not None:
        text += (
            f"\nThe environment itself returned that: env.reset(seed={error.seed}) and {error.step} steps lead there"
        )
    return text + (f"\n{DEBUG}=1 shows the whole traceback" if blocks else "")


def _foreign(path: str) -> bool:
    """Is this a file of shoal's, or of an installed package?"""
    return path.startswith("<") or _PACKAGE in Path(path).parents or "site-packages" in path or "/lib/python" in path


def _place(error: Exception) -> str:
    """Where in shoal it happened."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    if not frames:
        return ""
    return f" ({Path(frames[-1].filename).relative_to(_PACKAGE.parent)}, line {frames[-1].lineno})"


def _reader_left() -> int:
    """Nobody reads any more: end quietly, and let the interpreter's own last flush go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    fail(f"warning: {message}", 0)
