"""What multiprocessing's fork server imports before it forks workers; of no use elsewhere.

It makes workers start fast (they share these imports) and keeps the server alive through a SIGTERM to the whole process
group, as batch systems send it: were the server to die of it, so would the workers, before the parent has saved.
"""

from __future__ import annotations

import os
import signal
import sys

import shoal.vector.workers.worker  # noqa: F401  (what the workers share)

if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
    # Blocked, not ignored or handled: whoever else uses the server expects its children to be terminable from their
    # first instant, and what is sent to a child before it unblocks the signal waits for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}))
