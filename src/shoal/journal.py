"""What a run leaves behind while it goes on: rows, checkpoints, notes, and lines for the person who watches."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, TextIO

from shoal.callbacks import Callback, Callbacks, Training, own_trackers
from shoal.config import TrainConfig, to_dict
from shoal.core.arrays import Array
from shoal.core.machine import Stopwatch
from shoal.learn.learner import Learner
from shoal.learn.said import PREFIX, chosen_names
from shoal.runs import best, checkpoint
from shoal.runs.checkpoint import CheckpointError
from shoal.runs.console import RETURN, Console
from shoal.runs.folder import Run
from shoal.runs.progress import remark
from shoal.runs.spent import spent
from shoal.runs.trackers import Sink, make_trackers
from shoal.runs.words import explain
from shoal.stopping import Budget

COLLAPSED_ENTROPY = 0.01  # share of a uniform policy's entropy below which a discrete policy hardly explores
BLOWN_UP_KL = 0.5
_MOST_INFOS = 8  # rows of the console for infos that nobody named


class Journal(Callback):
    """Records and saves one run."""

    def __init__(
        self,
        run: Run,
        config: TrainConfig,
        budget: Budget,
        stream: TextIO,
        callbacks: Callbacks | None = None,
        curve: Callback | None = None,
    ) -> None:
        self.run, self.config, self.budget, self.callbacks = run, config, budget, callbacks or Callbacks([])
        self.curve = curve or Callback()  # of `--evaluate-every`
        self.console = Console(
            budget.length.total_steps, config.run.log_interval, stream, total_episodes=budget.episodes
        )
        self.trackers: list[Sink] = [self.console]
        self.saved_epoch = -1
        self._infos_shown: set[str] = set()
        self._notes_fail = False
        self._folder: dict[str, bytes] = {}
        self._alarms: set[str] = set()
        self._states: dict[str, Any] = {}  # what callbacks and the curve must remember, as of the last mark
        self._best: best.Best | None = None  # as of the last mark
        self._best_kept: best.Best | None = None  # the one that best.json names
        self._faults_noted = self._messages_shown = 0
        self._epoch_start = time.perf_counter()
        self._saving = Stopwatch()  # since the last row

    def open(self, learner: Learner) -> None:
        """Start the trackers and the clock; `learner` may be a resumed one."""
        own = own_trackers(self.config.run.track)
        self.trackers = [*make_trackers(self.config.run.track, self.run, to_dict(self.config), own), self.console]
        self._start = time.perf_counter() - learner.elapsed_s
        self._epoch_start, self._cpu_start = time.perf_counter(), time.process_time()
        self._folder = self.run.snapshot()
        if learner.parts.by_readiness:
            self.inexact("batches form in the order in which workers finish (--slices ready)")

    def on_start(self, training: Training) -> None:
        """A checkpoint of the beginning."""
        self._remember(training)
        self.save_if_due(training.learner)

    def on_epoch(self, training: Training) -> None:
        """A row, and a checkpoint if one is due."""
        self._remember(training)
        self.record(training.learner, training.metrics)
        is_best = self._best is not None and self._best.epoch == training.learner.marked_epoch
        if training.learner.team.decides(is_best):
            self.save(training.learner)
        self.save_if_due(training.learner)

    def _remember(self, training: Training) -> None:
        if training.learner.marked_epoch == training.learner.epoch:
            self._best = training.best
            found = {
                "callbacks": self.callbacks.states(),
                "evaluation": self.curve.state(),
                "best": None if self._best is None else asdict(self._best),
            }
            self._states = {name: state for name, state in found.items() if state}

    def record(self, learner: Learner, metrics: dict[str, Any]) -> None:
        """One row for the epoch that just ended."""
        now = time.perf_counter()
        learner.elapsed_s = now - self._start
        collect_s, environment_s = learner.collecting.take(), learner.collector.waiting.take()
        row = {
            **learner.progress_row(),
            **metrics,
            "time/steps_per_s": self.budget.update.steps_per_epoch
            / (now - self._epoch_start - metrics.get("time/evaluate_s", 0.0)),
            "time/collect_s": collect_s,
            "time/environment_s": environment_s,
            "time/acting_s": collect_s - environment_s,
            "time/estimate_s": learner.estimating.take(),
            "time/save_s": self._saving.take(),
            "time/elapsed_s": learner.elapsed_s,
            "time/cpu_s": time.process_time() - self._cpu_start,
            "time/eta_s": self.budget.length.eta_s(learner),
        }
        self._epoch_start = now
        self._show_infos(row)
        self._look_after_folder(learner)
        with self._saving:
            for tracker in self.trackers:
                tracker.log(row)
        for text in (news := learner.parts.messages)[self._messages_shown :]:
            self.console.message(text)
        self._messages_shown = len(news)
        self._watch_faults(learner)
        self._watch(row, learner)

    def _show_infos(self, row: Mapping[str, Any]) -> None:
        """What episodes say at their end gets rows of the console when it is first said; in its lines only if named."""
        named = chosen_names(self.config.run.log_info) is not None
        for name in [name for name in row if name.startswith(PREFIX) and name not in self._infos_shown]:
            self._infos_shown.add(name)
            if named or len(self._infos_shown) <= _MOST_INFOS:
                self.console.add_rows([(name.removeprefix(PREFIX), name, RETURN)], lines=named)

    def save_if_due(self, learner: Learner) -> None:
        """A checkpoint every `save_interval` epochs."""
        due = learner.marked_epoch - max(self.saved_epoch, 0) >= self.config.run.save_interval or self.saved_epoch < 0
        if learner.team.decides(due):
            self.save(learner)

    def save(self, learner: Learner, *, last: bool = False) -> None:
        """Write a checkpoint. A failure is reported; it stops the run if it was the last or `--on-save-error fail`."""
        epoch = learner.marked_epoch
        if not learner.team.decides(epoch != self.saved_epoch):
            return
        try:
            kept = {one.epoch for one in (self._best, self._best_kept) if one is not None}
            with self._saving:
                tensors, meta = learner.state()  # of all ranks
                self._write(epoch, tensors, meta | self._states, kept)
            self.saved_epoch = epoch
            self._name_best()
        except CheckpointError as error:
            self.tell(f"checkpoint of epoch {epoch} FAILED: {error}", event="save failed")
            if last or self.config.run.on_save_error == "fail":
                raise

    def _write(self, epoch: int, tensors: dict[str, Array], meta: dict[str, Any], also: Collection[int]) -> None:
        checkpoint.save(self.run.checkpoints, epoch, tensors, meta, keep=self.config.run.keep, also=also)

    def _newest(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The newest checkpoint that is whole, and what there is to say of it."""
        found = checkpoint.load_latest(self.run.checkpoints)
        about = {"epoch": found.epoch, "skipped": found.skipped, "path": str(found.path)}
        return found.tensors, {"meta": found.meta, **about}

    def _name_best(self) -> None:
        """Its checkpoint is there by now."""
        if self._best is None or self._best == self._best_kept or self._best.epoch != self.saved_epoch:
            return
        try:
            best.write(self.run, self._best)
            self._best_kept = self._best
        except OSError as error:
            self.tell(f"the best checkpoint could not be named: {explain(error)}", event="save failed")

    def restore(self, training: Training, *, reshard: bool) -> None:
        """Continue from the newest checkpoint that is whole; say loudly what was passed over."""
        learner = training.learner
        tensors, found = learner.team.lead(self._newest)
        for reason in found["skipped"]:
            self.tell(f"damaged checkpoint passed over: {reason}", event="checkpoint damaged")
        meta: dict[str, Any] = found["meta"]
        try:
            training.best = self._best_of(meta)
            self.curve.set_state(training, meta.get("evaluation", {}))
            missing = self.callbacks.set_states(training, meta.get("callbacks", []))
            inexact = learner.set_state(tensors, meta, reshard=reshard)
        except (KeyError, TypeError, AttributeError, IndexError) as error:  # whole, yet not what shoal writes
            raise CheckpointError(
                f"{found['path']} cannot be resumed from: {type(error).__name__}: {error}. It was written by another "
                "version of shoal, or changed since"
            ) from error
        for reason in learner.team.hear(training.over()) if learner.team.size > 1 else ():
            if reason:  # rank 0 alone knows what the curve said
                training.stop(reason)
        for reason in inexact:
            self.inexact(reason)
        for name in missing:
            self.tell(f"the run had a callback {name}, it goes on without: give it with callbacks=", "callback missing")
        self.saved_epoch = int(found["epoch"])
        self._best = training.best
        self._go_on_from(found)
        self.console.message(
            f"resumed at epoch {self.saved_epoch}, {learner.steps:,} steps: {self.budget.length.left(learner)}"
        )

    def _go_on_from(self, found: dict[str, Any]) -> None:
        self.run.truncate_metrics(found["epoch"])
        self.note({"event": "resumed", "epoch": found["epoch"], "skipped": found["skipped"]})
        self.run.set_status("running")

    def _best_of(self, meta: Mapping[str, Any]) -> best.Best | None:
        """The best as of this checkpoint; a later one, from before the run was stopped, is not taken."""
        saved = meta.get("best")
        known = None if saved is None else best.Best(int(saved["epoch"]), str(saved["metric"]), float(saved["score"]))
        self._best_kept = best.read(self.run)
        if self._best_kept != known:
            best.forget(self.run)
            self._best_kept = None
            if known is not None and known.epoch in checkpoint.epochs(self.run.checkpoints):
                best.write(self.run, known)
                self._best_kept = known
        return known

    def inexact(self, reason: str) -> None:
        """From here on the run cannot be reproduced bit for bit: write it down."""
        self.tell(f"this run is labelled inexact: {reason}", event="inexact")

    def tell(self, text: str, event: str) -> None:
        """Say something to the person and to events.jsonl."""
        self.console.message(text)
        self.note({"event": event, "text": text})

    def tell_all(self, event: Mapping[str, Any]) -> None:
        """Say the text of an event, and keep it with all that belongs to it."""
        self.console.message(str(event["text"]))
        self.note(event)

    def note(self, event: Mapping[str, Any]) -> None:
        """Add to events.jsonl. What cannot be written there is said once, and must not end a run."""
        try:
            self.run.note(event)
            self._notes_fail = False
        except OSError as error:
            if not self._notes_fail:
                self._notes_fail = True
                self.console.message(f"events.jsonl misses notes from here, the training goes on: {explain(error)}")

    def finish(self, status: str, reason: str, learner: Learner) -> None:
        """Write down how the run ended, and where its time went."""
        self._look_after_folder(learner)
        try:
            self.run.write_time(spent(self.run.metrics(), self._saving.take()))
            self.run.set_status(status, reason)
        except OSError as error:
            self.console.message(f"the end of the run could not be written down: {explain(error)}")

    def _look_after_folder(self, learner: Learner) -> None:
        """A run folder that was deleted or moved away while the run goes on is made again, and the person is told."""
        if self.run.is_there():
            return
        try:
            self.run.write_again(self._folder)
        except OSError as error:
            self.tell(f"the run folder {self.run.shown} is gone: {explain(error)}", event="folder gone")
            return
        self.saved_epoch, self._best_kept = -1, None  # the next save is due at once
        self.tell(
            f"the run folder {self.run.shown} was deleted or moved while the run was writing to it. It is made again: "
            f"metrics and checkpoints before epoch {learner.epoch} are gone, those from here on are kept",
            event="folder made again",
        )
        if learner.team.size == 1:  # of several ranks, none of which knows it, the next save is due at once
            self.save(learner)

    def say_stopping(self) -> None:
        """To the person who has just pressed Ctrl-C: called by a signal's handler, in the middle of anything."""
        self.console.at_once("stopping, the epoch under way is saved first; Ctrl-C once more leaves at once")

    def last_words(self) -> None:
        """To the person who has pressed it twice."""
        kept = f"the newest checkpoint is of epoch {self.saved_epoch}" if self.saved_epoch >= 0 else "nothing was saved"
        self.console.at_once(f"left at once, without saving: {kept} ({self.run.shown})")

    def remark(self) -> str | None:
        """At the end: what there is to say of a run that got nowhere."""
        text = remark(self.run.metrics(), self.config.run.target_return)
        if text is not None:
            self.tell(text, event="no progress")
        return text

    def close(self) -> None:
        for tracker in self.trackers:
            tracker.close()

    def _watch_faults(self, learner: Learner) -> None:
        faults = learner.parts.faults
        for fault in faults[self._faults_noted :]:
            self.tell(f"environment restarted after: {fault}", event="restart")
        if faults and not self._faults_noted:
            self.inexact("an environment was restarted after a fault")
        self._faults_noted = len(faults)

    def _watch(self, row: dict[str, float], learner: Learner) -> None:
        """Alarms that belong in the record: each is raised once."""
        for name, text in {**learner.parts.alarms, **learner.tracker.said.remarks}.items():
            self._alarm(name, text)
        entropy, kl = row.get("policy/entropy"), row.get("policy/kl")
        most = sum(math.log(n) for n in learner.agent.kind.choices)  # of a uniform policy; 0 for a continuous one
        if most > 0 and entropy is not None and entropy < COLLAPSED_ENTROPY * most:
            self._alarm("entropy collapse", f"entropy {entropy:.2g}: the policy hardly explores any more")
        if kl is not None and not kl <= BLOWN_UP_KL:
            self._alarm("kl blow-up", f"KL {kl:.3g} in one update: lower --learning-rate or set --target-kl")
        for guard in ("guard/skipped_steps", "guard/restored_updates"):
            if row.get(guard):
                self._alarm(
                    guard, f"{row[guard]:.0f} in epoch {row['epoch']}: non-finite numbers were kept out of the weights"
                )

    def _alarm(self, name: str, text: str) -> None:
        if name not in self._alarms:
            self._alarms.add(name)
            self.tell(f"alarm, {name}: {text}", event="alarm")
