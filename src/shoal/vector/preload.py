"""What multiprocessing's fork server imports before it forks workers; of no use elsewhere.

It makes workers start fast (they share these imports) and keeps the server alive through a SIGTERM to the whole process
group, as batch systems send it: were the server to die of it, so would the workers, before the parent has saved.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

import shoal.vector.worker  # noqa: F401  (what the workers share)


def _nothing(number: int, frame: FrameType | None) -> None:
    return None


if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
    signal.signal(signal.SIGTERM, _nothing)
    # Whoever else uses the server expects its children to be terminable.
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
