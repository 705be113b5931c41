"""What the ranks of a training do so that all of them end, save and warn together (torchrun)."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from shoal import signals
from shoal.callbacks import Callback, Callbacks, Training
from shoal.config import TrainConfig
from shoal.core.arrays import Array
from shoal.core.errors import RankFailed
from shoal.journal import Journal
from shoal.learn.learner import Learner
from shoal.learn.rollout import Interrupted
from shoal.learn.team import checksum
from shoal.runs.folder import Run
from shoal.stopping import Budget


class Follower(Journal):
    """Of a rank that records nothing: what it has to tell goes to rank 0."""

    def __init__(self, run: Run, config: TrainConfig, budget: Budget, callbacks: Callbacks) -> None:
        self._nowhere = open(os.devnull, "w")  # noqa: SIM115 (closed with the journal)
        super().__init__(run, config, budget, self._nowhere, callbacks)
        self.untold: list[tuple[str, str]] = []

    def open(self, learner: Learner) -> None:
        """Nothing is tracked."""
        self.trackers = []

    def record(self, learner: Learner, metrics: dict[str, Any]) -> None:
        """Only what happened to environments of this rank."""
        self._watch_faults(learner)

    def tell(self, text: str, event: str) -> None:
        """By way of rank 0."""
        self.untold.append((event, text))

    def note(self, event: Any) -> None:
        """Rank 0 does."""

    def _write(self, epoch: int, tensors: dict[str, Array], meta: dict[str, Any], also: Collection[int]) -> None:
        """Rank 0 does."""

    def _best_of(self, meta: Mapping[str, Any]) -> None:
        """Rank 0 evaluates, and chooses."""

    def _newest(self) -> tuple[dict[str, Array], dict[str, Any]]:
        raise RuntimeError("rank 0 reads checkpoints")

    def _go_on_from(self, found: dict[str, Any]) -> None:
        """Rank 0 does."""

    def finish(self, status: str, reason: str, learner: Learner) -> None:
        """Rank 0 does."""

    def remark(self) -> str | None:
        return None

    def say_stopping(self) -> None:
        """Rank 0 does."""

    def last_words(self) -> None:
        """Rank 0 does."""

    def close(self) -> None:
        self._nowhere.close()


class Together(Callback):
    """At the end of an epoch, which is whole and recorded by then: a signal that came to any rank stops all of them,
    what ends one ends all, and rank 0 hears what the others have to tell."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.restarts = 0  # of the other ranks' environments

    def on_epoch(self, training: Training) -> None:
        """After everything else."""
        team = training.learner.team
        if team.size > 1:
            own = {
                "stop": signals.received() is not None,
                "over": training.over(),
                "weights": checksum(training.learner.agent.network),
                "told": self.journal.untold if isinstance(self.journal, Follower) else [],
            }
            every = team.hear(own)
            if isinstance(self.journal, Follower):
                self.journal.untold = []
            self._hear(every)
            differing = [rank for rank, part in enumerate(every) if part["weights"] != every[0]["weights"]]
            if differing:
                raise RankFailed(
                    f"the weights of rank {differing[0]} differ from those of rank 0 after epoch {training.epoch}: a "
                    "callback or a network changed them on one rank alone, or the machines compute differently",
                    said_by=0,
                )
            for part in every:
                if part["over"]:
                    training.stop(part["over"])
            stop = any(part["stop"] for part in every)
        else:
            stop = signals.received() is not None
        if stop:
            raise Interrupted

    def _hear(self, every: list[dict[str, Any]]) -> None:
        if isinstance(self.journal, Follower):
            return
        for rank, part in enumerate(every):
            for event, text in part["told"]:
                self.restarts += event == "restart"
                self.journal.tell(f"rank {rank}: {text}", event=event)
