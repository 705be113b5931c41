"""How long a run goes on: steps, epochs or episodes, one said in terms of the others."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.config import TrainConfig
from shoal.learn.learner import Learner
from shoal.runs.words import figure


@dataclass(frozen=True)
class Budget:
    """An epoch is one rollout of all environments; an update comes after every `interval` epochs."""

    steps_per_epoch: int
    interval: int
    epochs: int | None
    episodes: int | None
    target_return: float | None
    asked: str
    asked_steps: int | None = None

    @staticmethod
    def of(config: TrainConfig) -> Budget:
        """The budget that a config asks for, rounded up to whole updates and never down."""
        num_envs, run, interval = config.vector.num_envs, config.run, config.ppo.update_interval
        assert num_envs != "auto"  # settled before a budget is made
        per_epoch = num_envs * config.ppo.rollout_steps
        if run.episodes is not None:
            return Budget(per_epoch, interval, None, run.episodes, run.target_return, f"{run.episodes:,} episodes")
        if run.epochs is not None:
            epochs, asked = run.epochs, f"{run.epochs:,} epochs"
        else:
            steps = run.steps or 500_000
            epochs, asked = _ceil(steps, per_epoch), f"{steps:,} steps"
        whole = _ceil(epochs, interval) * interval
        return Budget(per_epoch, interval, whole, None, run.target_return, asked, run.steps)

    @property
    def total_steps(self) -> int | None:
        """Environment steps in all, where they are known beforehand."""
        return None if self.epochs is None else self.epochs * self.steps_per_epoch

    def header(self) -> list[str]:
        """What was asked for and what it comes to."""
        if self.epochs is None:
            length = f"{self.asked}: the run ends with the epoch ({self.steps_per_epoch:,} steps) that completes them"
        else:
            epochs = "1 epoch" if self.epochs == 1 else f"{self.epochs:,} epochs"
            length = f"{self.asked}: {epochs} of {self.steps_per_epoch:,} steps, {self.total_steps:,} in all"
        lines = [f"budget {length}"]
        if self.asked_steps and self.total_steps and self.total_steps >= 2 * self.asked_steps:
            times = self.total_steps / self.asked_steps
            lines.append(
                f"that is {times:,.0f} times what was asked, since an epoch is a rollout of all environments: take "
                "fewer --num-envs or --rollout-steps for a smaller one"
            )
        if self.target_return is not None:
            lines.append(f"stops early when the last 100 episodes return {self.target_return:g} on average")
        return lines

    def progress(self, learner: Learner) -> float:
        """The share that was done when the present rollout began, 0 to 1: what the schedules go by."""
        return self._share(learner.marked_epoch, learner.marked_episodes)

    def eta_s(self, learner: Learner) -> float | None:
        """Seconds left at the present speed."""
        done = self._share(learner.epoch, learner.tracker.completed)
        return learner.elapsed_s * (1 - done) / done if done > 0 else None

    def _share(self, epochs: int, episodes: int) -> float:
        done = epochs / self.epochs if self.epochs is not None else episodes / (self.episodes or 1)
        return min(done, 1.0)

    def reached(self, learner: Learner) -> str | None:
        """Why the run is over, or None while it is not."""
        if learner.epoch % self.interval:
            return None
        returns = learner.tracker.recent_returns
        if self.target_return is not None and len(returns) == returns.maxlen:
            mean = sum(returns) / len(returns)
            if mean >= self.target_return:
                return (
                    f"the last 100 episodes returned {figure(mean)} on average, the target was {self.target_return:g}"
                )
        if self.epochs is not None and learner.epoch >= self.epochs:
            return f"budget of {self.asked} spent"
        if self.episodes is not None and learner.tracker.completed >= self.episodes:
            return f"budget of {self.asked} spent"
        return None


def _ceil(amount: int, unit: int) -> int:
    """Whole units that hold an amount, in integers: a float would drop the last steps of a huge budget."""
    return -(-amount // unit)
