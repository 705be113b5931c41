"""How long a run goes on: steps, epochs or episodes, one said in terms of the others."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.config import TrainConfig
from shoal.learn.learner import Learner
from shoal.runs.words import figure


@dataclass(frozen=True)
class Budget:
    """An epoch is one rollout of all environments; an update comes after every `interval` epochs.

    What was asked for is counted in what it was asked in: a run that goes on with another number of environments
    (--reshard) has made its steps all the same.
    """

    steps_per_epoch: int
    interval: int
    steps: int | None  # one of these three is not None
    epochs: int | None
    episodes: int | None
    target_return: float | None
    asked: str

    @staticmethod
    def of(config: TrainConfig) -> Budget:
        """The budget that a config asks for, rounded up to whole updates and never down."""
        num_envs, run, interval = config.vector.num_envs, config.run, config.ppo.update_interval
        assert num_envs != "auto"  # settled before a budget is made
        per_epoch = num_envs * config.ppo.rollout_steps
        if run.episodes is not None:
            asked = f"{run.episodes:,} episodes"
            return Budget(per_epoch, interval, None, None, run.episodes, run.target_return, asked)
        if run.epochs is not None:
            epochs = _ceil(run.epochs, interval) * interval
            return Budget(per_epoch, interval, None, epochs, None, run.target_return, f"{run.epochs:,} epochs")
        steps = run.steps or 500_000
        return Budget(per_epoch, interval, steps, None, None, run.target_return, f"{steps:,} steps")

    @property
    def total_steps(self) -> int | None:
        """Environment steps of a whole run of this size, where they are known beforehand."""
        if self.steps is not None:
            return self._rounded(self.steps, 0)
        return None if self.epochs is None else self.epochs * self.steps_per_epoch

    def header(self) -> list[str]:
        """What was asked for and what it comes to."""
        total = self.total_steps
        if total is None:
            length = f"{self.asked}: the run ends with the epoch ({self.steps_per_epoch:,} steps) that completes them"
        else:
            epochs = total // self.steps_per_epoch
            many = "1 epoch" if epochs == 1 else f"{epochs:,} epochs"
            length = f"{self.asked}: {many} of {self.steps_per_epoch:,} steps, {total:,} in all"
        lines = [f"budget {length}"]
        if self.steps and total and total >= 2 * self.steps:
            times = total / self.steps
            lines.append(
                f"that is {times:,.0f} times what was asked, since an epoch is a rollout of all environments: take "
                "fewer --num-envs or --rollout-steps for a smaller one"
            )
        if self.target_return is not None:
            lines.append(f"stops early when the last 100 episodes return {self.target_return:g} on average")
        return lines

    def left(self, learner: Learner) -> str:
        """What is still to be done, for a run that goes on."""
        if self.steps is not None:
            steps = max(self._rounded(self.steps, learner.steps) - learner.steps, 0)
            return f"{steps // self.steps_per_epoch:,} epochs of {self.steps_per_epoch:,} steps left"
        if self.epochs is not None:
            return f"{max(self.epochs - learner.epoch, 0):,} epochs left"
        return f"{max((self.episodes or 0) - learner.tracker.completed, 0):,} episodes left"

    def progress(self, learner: Learner) -> float:
        """The share that was done when the present rollout began, 0 to 1: what the schedules go by."""
        return self._share(learner, learner.marked_steps, learner.marked_epoch, learner.marked_episodes)

    def eta_s(self, learner: Learner) -> float | None:
        """Seconds left at the present speed."""
        done = self._share(learner, learner.steps, learner.epoch, learner.tracker.completed)
        return learner.elapsed_s * (1 - done) / done if done > 0 else None

    def _share(self, learner: Learner, steps: int, epochs: int, episodes: int) -> float:
        if self.steps is not None:
            return min(steps / self._rounded(self.steps, learner.marked_steps), 1.0)
        done = epochs / self.epochs if self.epochs is not None else episodes / (self.episodes or 1)
        return min(done, 1.0)

    def _rounded(self, steps: int, made: int) -> int:
        """Steps in all: those made, and the rest in whole updates of the present size."""
        update = self.steps_per_epoch * self.interval
        return made + max(_ceil(steps - made, update), 0) * update

    def reached(self, learner: Learner) -> str | None:
        """Why the run is over, or None while it is not."""
        if learner.epoch % self.interval:
            return None
        returns, even = learner.tracker.recent_returns, learner.tracker.even_mean
        if self.target_return is not None and len(returns) == returns.maxlen and even is not None:
            mean = sum(returns) / len(returns)
            if min(mean, even) >= self.target_return:
                return (
                    f"the last 100 episodes returned {figure(mean)} on average, the target was {self.target_return:g}"
                )
        if self.steps is not None and learner.steps >= self.steps:
            return f"budget of {self.asked} spent"
        if self.epochs is not None and learner.epoch >= self.epochs:
            return f"budget of {self.asked} spent"
        if self.episodes is not None and learner.tracker.completed >= self.episodes:
            return f"budget of {self.asked} spent"
        return None


def _ceil(amount: int, unit: int) -> int:
    """Whole units that hold an amount, in integers: a float would drop the last steps of a huge budget."""
    return -(-amount // unit)
