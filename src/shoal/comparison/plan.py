"""What is compared: arms with their settings, the seeds that all of them share, and how their budgets are matched."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from shoal.comparison.metrics import BY_NAME
from shoal.config import TrainConfig, chosen, from_dict, to_dict
from shoal.core.records import record
from shoal.core.seeds import derived_seed
from shoal.origin import located
from shoal.tasks.presets import without_budget

Match = Literal["samples", "updates", "wall"]
MOST_SEEDS = 100_000
MOST_ROUNDED = 1.5  # times the budget asked for, so that all arms have the same


@dataclass(frozen=True)
class Arm:
    """One way to train."""

    name: str
    config: dict[str, Any]

    @property
    def slug(self) -> str:
        """For names of folders."""
        return re.sub(r"[^A-Za-z0-9.]+", "-", self.name).strip("-.")[:50] or "arm"

    def settings(self, seed: int, runs_dir: str, name: str, to_target: bool = False) -> TrainConfig:
        """The settings of one of its runs; arms that are compared all train to the end of their budgets."""
        config: TrainConfig = from_dict(self.config)
        return (config if to_target else to_the_end(config)).replace(seed=seed, runs_dir=runs_dir, name=name)


@dataclass(frozen=True)
class Plan:
    """A whole comparison, as its folder keeps it."""

    task: str
    arms: tuple[Arm, ...]
    seeds: int
    seed: int
    held_out: int  # episodes
    match: str
    primary: str
    threshold: float | None
    code: str  # of the sources that every run must be made with
    imports: tuple[str, ...] = ()
    alone: bool = False  # one arm: a training with several seeds, and nothing to compare

    def __post_init__(self) -> None:
        if len(self.arms) < 2 and not self.alone:
            raise ValueError(
                f"expected two arms or more, got {len(self.arms)}: say what varies, e.g. --vary num_envs=64,256"
            )
        if self.alone and len(self.arms) != 1:
            raise ValueError(f"expected one arm in a training with several seeds, got {len(self.arms)}")
        if len({arm.name for arm in self.arms}) < len(self.arms):
            raise ValueError(f"expected arms of different names, got {', '.join(arm.name for arm in self.arms)}")
        for name, least in (("seeds", 1), ("held_out", 2), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"expected --{name.replace('_', '-')} of at least {least}, got {getattr(self, name)}")
        if self.seeds > MOST_SEEDS:
            raise ValueError(f"expected --seeds of at most {MOST_SEEDS:,}, got {self.seeds}")
        if self.primary not in BY_NAME:
            raise ValueError(f"expected --primary as one of {', '.join(BY_NAME)}, got {self.primary!r}")

    def run_seed(self, place: int) -> int:
        """The seed of the runs of that number, in every arm: they are compared as pairs."""
        return derived_seed(self.seed, place)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Any, where: str = "the plan") -> Plan:
        return record(Plan, data, where)


def grid(vary: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of several options.

    >>> grid({"num_envs": [64, 256], "clip": [0.1]})
    [{'num_envs': 64, 'clip': 0.1}, {'num_envs': 256, 'clip': 0.1}]
    """
    return [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]


def name_of(settings: Mapping[str, Any]) -> str:
    """An arm by what makes it another one.

    >>> name_of({"num_envs": 64, "lr_schedule": "linear"})
    'num_envs=64, lr_schedule=linear'
    """
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def one_thread(config: TrainConfig) -> TrainConfig:
    """Trainings that run at once take a thread each, unless it was said otherwise."""
    return config if config.ppo.torch_threads is not None else config.replace(torch_threads=1)


def to_the_end(config: TrainConfig) -> TrainConfig:
    """Without anything that ends a run early."""
    return config.replace(target_return=None, evaluate_target=None, evaluate_patience=None)


def arms_of(configs: Sequence[tuple[str, TrainConfig]], match: Sequence[str], speeds: Mapping[str, float]) -> list[Arm]:
    """The arms, with budgets that match the first one's. Of several ways to match, those that change an arm's budget
    add an arm each."""
    arms, in_episodes = [], configs[0][1].run.episodes is not None
    base = configs[0][1] if in_episodes else _in_shared_epochs([config for _, config in configs])
    for name, config in configs:
        budgets: dict[int, str] = {}
        for way in match:
            steps = _steps(base, config, way, speeds.get(configs[0][0]), speeds.get(name))
            budgets.setdefault(_whole(steps, config), way)
        for steps, way in budgets.items():
            matched = config if in_episodes else without_budget(config).replace(steps=steps)
            shown = name if len(budgets) == 1 else f"{name} (equal {'seconds' if way == 'wall' else way})"
            arms.append(Arm(shown, to_dict(located(to_the_end(matched)))))
    return arms


def _in_shared_epochs(configs: Sequence[TrainConfig]) -> TrainConfig:
    """The first arm, its budget rounded up to steps that are whole epochs of every arm; else equal samples would not
    be equal. Where that makes it more than half as large again, it stays whole epochs of its own."""
    base = configs[0]
    steps = base.run.steps or (base.run.epochs or 0) * steps_per_epoch(base) or 500_000
    shared = math.lcm(*map(_unit, configs))
    rounded = math.ceil(steps / shared) * shared
    return without_budget(base).replace(steps=rounded if rounded <= MOST_ROUNDED * steps else _whole(steps, base))


def _whole(steps: int, config: TrainConfig) -> int:
    """What a run takes that is asked for so many steps."""
    return math.ceil(steps / _unit(config)) * _unit(config)


def _unit(config: TrainConfig) -> int:
    """A run ends after a multiple of so many steps; unknown, so 1, where the number of environments is chosen later."""
    known = isinstance(config.vector.num_envs, int)
    return steps_per_epoch(config) * config.ppo.update_interval if known else 1


def unequal(arms: Sequence[Arm]) -> str:
    """A warning where arms that are to have the same number of steps cannot."""
    steps = {arm.name: from_dict(arm.config).run.steps or 0 for arm in arms}
    least, most = min(steps, key=steps.__getitem__), max(steps, key=steps.__getitem__)
    if not steps[least] or steps[most] <= 1.01 * steps[least]:
        return ""
    return (
        f"warning: budgets are whole epochs, so {most} trains {steps[most]:,} steps and {least} {steps[least]:,}: "
        f"{100 * (steps[most] / steps[least] - 1):.0f} % more. A larger --steps makes them equal"
    )


def check_match(text: str) -> list[str]:
    """`samples`, `updates`, `wall`, or several of them."""
    ways = [way for way in text.split(",") if way]
    for way in ways:
        if way not in get_args(Match):
            raise ValueError(f"expected --match as one or several of {', '.join(get_args(Match))}, got {way!r}")
    if not ways:
        raise ValueError(f"expected --match as one or several of {', '.join(get_args(Match))}, got nothing")
    return list(dict.fromkeys(ways))


def _steps(base: TrainConfig, config: TrainConfig, way: str, base_speed: float | None, speed: float | None) -> int:
    """The budget of an arm in steps: the same steps, gradient steps or seconds as the first arm has."""
    if base.run.episodes is not None:
        if way != "samples":
            raise ValueError(f"expected a budget in --steps or --epochs with --match {way}, got one in episodes")
        return 0
    steps = base.run.steps or 0
    if way == "samples":
        return steps
    if way == "updates":
        updates = math.ceil(steps / steps_per_epoch(base)) * gradient_steps_per_epoch(base)
        return math.ceil(updates / gradient_steps_per_epoch(config)) * steps_per_epoch(config)
    if base_speed is None or speed is None:
        raise ValueError("expected the speed of both arms for --match wall")
    return max(1, round(steps * speed / base_speed))


def steps_per_epoch(config: TrainConfig) -> int:
    """Environment steps of a rollout."""
    if not isinstance(config.vector.num_envs, int):
        raise ValueError("expected --num-envs as a number for a comparison, got auto: arms must be of known size")
    return config.vector.num_envs * config.ppo.rollout_steps


def gradient_steps_per_epoch(config: TrainConfig) -> float:
    """Gradient steps that a rollout is learnt from in."""
    ppo = config.ppo
    if ppo.minibatch_size == "auto":
        raise ValueError("expected --minibatch-size as a number with --match updates, got auto")
    passes = max(ppo.policy_epochs or ppo.update_epochs, ppo.value_epochs or ppo.update_epochs)
    batch = steps_per_epoch(config) * ppo.update_interval
    return float(passes * math.ceil(batch / chosen(ppo.minibatch_size)) / ppo.update_interval)
