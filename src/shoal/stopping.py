"""When a run is over: a number of steps, epochs or episodes, a return that is reached, or whichever comes first; and
how it ended (`Result`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

from shoal.config import TrainConfig
from shoal.learn.learner import Learner
from shoal.runs.words import figure


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    run: str
    status: str  # finished or interrupted
    reason: str
    epochs: int
    steps: int
    episodes: int
    mean_return: float | None  # of the last 100 training episodes
    restarts: int  # faults after which environments were rebuilt
    lost_steps: int  # of the episodes that faults broke: not learned from
    cpu_s: float  # of this process and its workers, from building the environments on, without the report
    wall_s: float
    signal: int | None = None
    best: dict[str, Any] | None = None  # epoch and held-out score of the best checkpoint, with --evaluate-every
    advice: str | None = None  # where the return did not rise, or no episode ended: what to try

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """For people: why it ended, and how far it came."""
        lines = [
            f"{self.status}: {self.reason}",
            f"{self.steps:,} steps, {self.episodes:,} episodes, mean return of the last 100: "
            f"{figure(self.mean_return)}; {self.wall_s:,.1f} s ({self.cpu_s:,.1f} CPU-s)",
        ]
        if self.best is not None:
            lines.append(
                f"best held-out return {figure(self.best['score'])} at epoch {self.best['epoch']}: that checkpoint is "
                "kept, and is what evaluate, play and load_policy take"
            )
        if self.restarts:
            faults = "1 fault" if self.restarts == 1 else f"{self.restarts} faults"
            lines.append(
                f"{faults}: environments were restarted, {self.lost_steps:,} steps were lost: see "
                f"{self.run}/events.jsonl"
            )
        return lines


class Stop(ABC):
    """One reason for a training to end. It is asked after whole updates only."""

    @abstractmethod
    def reached(self, learner: Learner) -> str | None:
        """Why the training is over, or None while it is not."""

    def progress(self, learner: Learner) -> float:
        """The share that was done when the present rollout began, 0 to 1: what the schedules go by."""
        return 0.0


class FirstOf(Stop):
    """Whichever comes first; the schedules go by the first one named."""

    def __init__(self, *stops: Stop) -> None:
        self.stops = stops

    def reached(self, learner: Learner) -> str | None:
        """The first reason there is."""
        return next((reason for stop in self.stops if (reason := stop.reached(learner)) is not None), None)

    def progress(self, learner: Learner) -> float:
        """That of the first stop."""
        return self.stops[0].progress(learner)


@dataclass(frozen=True)
class Update:
    """What an update takes: an epoch is one rollout of all environments, an update comes after `interval` epochs."""

    steps_per_epoch: int
    interval: int = 1

    @staticmethod
    def of(config: TrainConfig) -> Update:
        """With the sizes of a config."""
        assert config.vector.num_envs != "auto"  # settled before a budget is made
        return Update(config.vector.num_envs * config.ppo.rollout_steps, config.ppo.update_interval)

    def whole(self, steps: int) -> int:
        """So many steps, rounded up to whole updates and never down."""
        size = self.steps_per_epoch * self.interval
        return max(_ceil(steps, size), 0) * size


class Length(Stop):
    """A stop whose distance is known beforehand, and so drives schedules.

    What was asked for is counted in what it was asked in: a run that goes on with another number of environments
    (--reshard) has made its steps all the same.
    """

    asked: str
    total_steps: int | None = None  # of a whole run of this size, where they are known beforehand

    @abstractmethod
    def share(self, learner: Learner, steps: int, epochs: int, episodes: int) -> float:
        """How much of it so many are, 0 to 1."""

    @abstractmethod
    def left(self, learner: Learner) -> str:
        """What is still to be done, for a run that goes on."""

    def progress(self, learner: Learner) -> float:
        """By what the learner had done when its rollout began."""
        return self.share(learner, learner.marked_steps, learner.marked_epoch, learner.marked_episodes)

    def eta_s(self, learner: Learner) -> float | None:
        """Seconds left at the present speed."""
        done = self.share(learner, learner.steps, learner.epoch, learner.tracker.completed)
        return learner.elapsed_s * (1 - done) / done if done > 0 else None


class Steps(Length):
    """So many environment steps."""

    def __init__(self, steps: int, update: Update) -> None:
        self.steps, self.update, self.asked = steps, update, f"{steps:,} steps"
        self.total_steps = update.whole(steps)

    def share(self, learner: Learner, steps: int, epochs: int, episodes: int) -> float:
        """Of the steps made and the rest in whole updates of the present size."""
        return min(steps / self._rounded(learner.marked_steps), 1.0)

    def left(self, learner: Learner) -> str:
        """In epochs, since another number of environments takes another number of them."""
        steps, epoch = max(self._rounded(learner.steps) - learner.steps, 0), self.update.steps_per_epoch
        return f"{steps // epoch:,} epochs of {epoch:,} steps left"

    def reached(self, learner: Learner) -> str | None:
        """When they are made."""
        return f"budget of {self.asked} spent" if learner.steps >= self.steps else None

    def _rounded(self, made: int) -> int:
        return made + self.update.whole(self.steps - made)


class Epochs(Length):
    """So many epochs, in whole updates."""

    def __init__(self, epochs: int, update: Update) -> None:
        self.epochs, self.asked = _ceil(epochs, update.interval) * update.interval, f"{epochs:,} epochs"
        self.total_steps = self.epochs * update.steps_per_epoch

    def share(self, learner: Learner, steps: int, epochs: int, episodes: int) -> float:
        """Of the epochs."""
        return min(epochs / self.epochs, 1.0)

    def left(self, learner: Learner) -> str:
        """In epochs."""
        return f"{max(self.epochs - learner.epoch, 0):,} epochs left"

    def reached(self, learner: Learner) -> str | None:
        """When they are over."""
        return f"budget of {self.asked} spent" if learner.epoch >= self.epochs else None


class Episodes(Length):
    """So many completed episodes."""

    def __init__(self, episodes: int) -> None:
        self.episodes, self.asked = episodes, f"{episodes:,} episodes"

    def share(self, learner: Learner, steps: int, epochs: int, episodes: int) -> float:
        """Of the episodes."""
        return min(episodes / self.episodes, 1.0)

    def left(self, learner: Learner) -> str:
        """In episodes."""
        return f"{max(self.episodes - learner.tracker.completed, 0):,} episodes left"

    def reached(self, learner: Learner) -> str | None:
        """With the epoch that completes them."""
        return f"budget of {self.asked} spent" if learner.tracker.completed >= self.episodes else None


@dataclass(frozen=True)
class TargetReturn(Stop):
    """A mean return of the last 100 episodes. One lucky episode does not end a run, and every environment counts."""

    target: float

    def reached(self, learner: Learner) -> str | None:
        """By the last 100 episodes, and by an equal number of each environment."""
        returns, even = learner.tracker.recent_returns, learner.tracker.even_mean
        if len(returns) < (returns.maxlen or 0) or even is None:
            return None
        mean = sum(returns) / len(returns)
        if min(mean, even) < self.target:
            return None
        return f"the last 100 episodes returned {figure(mean)} on average, the target was {self.target:g}"


class Budget(FirstOf):
    """How long a run goes on by its settings: a length, and a return at which it ends early."""

    def __init__(self, length: Length, update: Update, target: TargetReturn | None = None) -> None:
        super().__init__(*([] if target is None else [target]), length)
        self.length, self.update, self.target = length, update, target

    @staticmethod
    def of(config: TrainConfig) -> Budget:
        """The budget that a config asks for, rounded up to whole updates and never down."""
        run, update = config.run, Update.of(config)
        length: Length
        if run.episodes is not None:
            length = Episodes(run.episodes)
        elif run.epochs is not None:
            length = Epochs(run.epochs, update)
        else:
            length = Steps(run.steps or 500_000, update)
        return Budget(length, update, None if run.target_return is None else TargetReturn(run.target_return))

    def progress(self, learner: Learner) -> float:
        """That of the length, which alone is known beforehand."""
        return self.length.progress(learner)

    @property
    def episodes(self) -> int | None:
        """What was asked for, if it was asked in episodes."""
        return self.length.episodes if isinstance(self.length, Episodes) else None

    def header(self) -> list[str]:
        """What was asked for and what it comes to."""
        length, each, total = self.length, self.update.steps_per_epoch, self.length.total_steps
        if total is None:
            text = f"{length.asked}: the run ends with the epoch ({each:,} steps) that completes them"
        else:
            epochs = total // each
            many = "1 epoch" if epochs == 1 else f"{epochs:,} epochs"
            text = f"{length.asked}: {many} of {each:,} steps, {total:,} in all"
        lines = [f"budget {text}"]
        if isinstance(length, Steps) and total and total >= 2 * length.steps:
            lines.append(
                f"that is {total / length.steps:,.0f} times what was asked, since an epoch is a rollout of all "
                "environments: take fewer --num-envs or --rollout-steps for a smaller one"
            )
        if self.target is not None:
            lines.append(f"stops early when the last 100 episodes return {self.target.target:g} on average")
        return lines


def _ceil(amount: int, unit: int) -> int:
    """Whole units that hold an amount, in integers: a float would drop the last steps of a huge budget."""
    return -(-amount // unit)
