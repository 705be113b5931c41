"""`--evaluate-every`: the held-out curve of a training, the best checkpoint by it, and an early end by it.

The episodes are those of environments of their own. They are the same in every evaluation, so that two evaluations
differ by their policies alone, and none of them is played by `shoal evaluate`: a score on the episodes by which the
checkpoint was chosen would be too high. Nothing that the training draws is drawn here: its weights are the same to
the bit with and without.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from shoal.callbacks import Callback, Training
from shoal.config import TrainConfig
from shoal.core.errors import EnvFault
from shoal.core.protocols import parts_of
from shoal.core.statistics import interval
from shoal.held_out import Episodes, Say, held_out_seeds, open_environments, play
from shoal.learn.said import PREFIX, chosen_names
from shoal.runs.best import Best
from shoal.runs.words import figure
from shoal.saved_run import limit_of
from shoal.vector.adapt import Stepper

RETURN = "held_out/return"
_CURVE = 1  # the block of held-out seeds that every evaluation plays; from the next on, those that confirm a target


class HeldOutCurve(Callback):
    """Evaluates every so many epochs. Its state is a checkpoint's, so a run that goes on remembers the best."""

    def __init__(self, config: TrainConfig, made: tuple[Any, dict[str, Any]], say: Say, **around: Any) -> None:
        """`made` is what `make_vec` takes and the arguments of the environment; `around` its imports and wrappers."""
        run = config.run
        assert run.evaluate_every is not None
        self._every, self._episodes, self._seed = run.evaluate_every, run.evaluate_episodes, run.seed
        self._target, self._patience = run.evaluate_target, run.evaluate_patience
        self._interval, self._goes_on = config.ppo.update_interval, config.vector.on_fault == "restart"
        self._made, self._say = made, say
        apart = self._goes_on and config.vector.backend in ("process", "split")
        self._around = {"apart": apart, **around}
        self._envs: VectorEnv[Any, Any, Any] | None = None
        self._since = 0  # evaluations since the best one
        self._over = ""  # why the run ends by what was found

    def header(self) -> str:
        """What is done, in a line."""
        ends = []
        if self._target is not None:
            ends.append(f"reach {self._target:g}, twice")
        if self._patience is not None:
            ends.append(f"are no better {self._patience} times in a row")
        often = "every epoch" if self._every == 1 else f"every {self._every:,} epochs"
        return f"evaluates {often} on {self._episodes:,} held-out episodes" + (
            f"; stops early when they {' or '.join(ends)}" if ends else ""
        )

    def on_epoch(self, training: Training) -> None:
        """Evaluate where one is due, and after the last epoch."""
        epoch = training.epoch
        if epoch % self._interval:
            return  # in the middle of an update that takes several epochs
        if epoch // self._every > (epoch - self._interval) // self._every or training.over():
            began = time.perf_counter()
            try:
                with _nothing_drawn():
                    self._evaluate(training)
            except EnvFault as fault:
                self.close()
                if not self._goes_on:
                    raise
                training.say(f"the evaluation of epoch {epoch} was broken off by a fault: {fault}")
            training.metrics["time/evaluate_s"] = time.perf_counter() - began

    def state(self) -> dict[str, Any]:
        """Beside the best, which the training holds."""
        ends = {"over": self._over, "ends_at": [self._target, self._patience]}
        return {"since": self._since, "episodes": self._episodes, **(ends if self._over else {})}

    def set_state(self, training: Training, state: dict[str, Any]) -> None:
        """Go on with the best so far, unless that was measured on other episodes."""
        if training.best is not None and state.get("episodes") != self._episodes:
            training.say("the best epoch so far was chosen by other episodes: the choice begins anew")
            training.best = None
        elif "since" in state:
            self._since = int(state["since"])
            if state.get("over") and state.get("ends_at") == [self._target, self._patience]:
                self._stop(training, str(state["over"]))

    def close(self) -> None:
        """Give back the environments."""
        envs, self._envs = self._envs, None
        if envs is not None:
            envs.close()

    def kill(self) -> None:
        """End at once what a second Ctrl-C must not leave behind."""
        if self._envs is not None:
            parts_of(self._envs).kill()

    # -- inside ------------------------------------------------------------------------------------

    def _evaluate(self, training: Training) -> None:
        greedy = self._play(training, _CURVE)
        sampled = self._play(training, _CURVE, deterministic=False)
        mean = float(greedy.returns.mean())
        found = {RETURN: mean, "held_out/length": float(greedy.lengths.mean())}
        found["held_out/sampled_return"] = float(sampled.returns.mean())
        wanted = chosen_names(training.config.run.log_info, training.learner.parts.has_figures)
        found |= {f"held_out/{PREFIX}{name}": value for name, value in greedy.said.means(wanted).items()}
        training.metrics |= found
        is_best = training.best is None or mean > training.best.score
        if is_best:
            training.best = Best(training.epoch, RETURN, mean)
        self._since = 0 if is_best else self._since + 1
        self._tell(training, greedy, found["held_out/sampled_return"])
        self._stop_early(training, mean)

    def _play(self, training: Training, block: int, *, deterministic: bool = True) -> Episodes:
        learner, policy = training.learner, training.learner.policy()
        if self._envs is None:
            self._envs = open_environments(*self._made, None, self._episodes, policy, self._say, **self._around)
        parts_of(self._envs).follow(learner.parts)
        stepper = Stepper(self._envs)
        seeds = held_out_seeds(self._seed, self._episodes, learner.seed_scheme, block)
        limit = limit_of(stepper, None)
        return play(policy, stepper, seeds, self._seed, deterministic=deterministic, max_steps=limit)

    def _tell(self, training: Training, greedy: Episodes, sampled: float) -> None:
        best, ends = training.best, interval(greedy.returns, self._seed)
        assert best is not None
        between = "" if ends is None else f" [{figure(ends[0])}, {figure(ends[1])}]"
        cut = int(greedy.unfinished.sum())
        note = "the best so far" if self._since == 0 else f"best {figure(best.score)} at epoch {best.epoch}"
        self._say(
            f"epoch {training.epoch}: held-out return {figure(float(greedy.returns.mean()))}{between}, sampled "
            f"{figure(sampled)} ({self._episodes} episodes{f', {cut} cut' if cut else ''}); {note}"
        )

    def _stop_early(self, training: Training, mean: float) -> None:
        if self._target is not None and mean >= self._target:
            # The first of many evaluations to reach a target may owe it to luck: fresh episodes must bear it out.
            fresh = float(self._play(training, _CURVE + 1 + training.epoch).returns.mean())
            if fresh >= self._target:
                text = f"the held-out episodes returned {figure(mean)} on average, and fresh ones {figure(fresh)}"
                self._stop(training, f"{text}; the target was {self._target:g}")
            else:
                self._say(f"the target of {self._target:g} is not confirmed: fresh episodes returned {figure(fresh)}")
        if self._patience is not None and self._since >= self._patience:
            best = training.best
            assert best is not None
            text = f"{self._since} held-out evaluations in a row were no better than {figure(best.score)}"
            self._stop(training, f"{text} at epoch {best.epoch}")

    def _stop(self, training: Training, reason: str) -> None:
        self._over = self._over or reason
        training.stop(reason)


@contextmanager
def _nothing_drawn() -> Iterator[None]:
    """An environment or a network may draw from generators that the whole process shares: put them back."""
    python, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)  # noqa: NPY002
