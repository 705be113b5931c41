"""Rows of a rollout in memory that the workers share: what `allocate` of `process` and `split` gives.

Environments write their observations straight into the learner's rollout, so a large batch is not copied.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence

from shoal.vector.memory import Block, SharedMemory
from shoal.vector.workers import worker as protocol
from shoal.vector.workers.supervisor import Remote


class SharedRows:
    """The one rollout that a block's observations may go into; none at first."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._memory: SharedMemory | None = None

    def give(self, rows: int, workers: Sequence[Remote], timeout_s: float) -> None:
        """So many rows, in the place of those before, known to all workers."""
        memory = SharedMemory(self.block.rollout_size(rows))
        self._drop()
        self._memory = memory
        self.block.set_rollout(rows, memory)
        try:
            for one in workers:
                self._share(one)
            for one in workers:
                one.wait(timeout_s, "while memory was shared")
        except BaseException:  # some may have it and some not: nobody is to write there
            self._drop()
            raise

    def share_again(self, one: Remote, timeout_s: float) -> None:
        """A new worker gets to know the rows, if there are any."""
        if self._memory is not None:
            self._share(one)
            one.wait(timeout_s, "while memory was shared")

    def close(self) -> None:
        """Give back the descriptor; the arrays stay."""
        if self._memory is not None:
            self._memory.close()

    def _drop(self) -> None:
        self.block.set_rollout(0)
        self.close()
        self._memory = None

    def _share(self, one: Remote) -> None:
        assert self._memory is not None
        one.tell(protocol.ROLLOUT, marshal.dumps((len(self.block.rollout[0]), self._memory.size)), self._memory.fd)
