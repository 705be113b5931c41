"""The arms of the study, task by task: what is trained, with which seeds, and on which held-out episodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shoal.config import TrainConfig
from shoal.tasks.presets import config_for

SEED = 2026  # from which the seeds of all trainings are derived


@dataclass(frozen=True)
class Part:
    """Some arms of one task, trained seed by seed in one folder. Arms of the same task are judged together."""

    name: str
    task: str
    arms: dict[str, dict[str, Any]]  # what makes it another one
    seeds: int
    common: dict[str, Any] = field(default_factory=dict)
    held_out: int = 100
    threshold: float | None = None
    match: str = "samples"  # or "wall": equal seconds, by a pilot; such a part must have the machine to itself

    def configs(self) -> list[tuple[str, TrainConfig]]:
        """Settings of every arm; all train to the end of their budgets on one thread."""
        fixed = {**self.common, "torch_threads": 1, "env_threads": 1}
        found = []
        for name, own in self.arms.items():
            config = config_for(self.task, **{**fixed, **own}).replace(target_return=None, save_interval=1_000_000)
            found.append((name, config))
        return found


def environments(*numbers: int, auto: bool = False, **more: Any) -> dict[str, dict[str, Any]]:
    """Arms by their number of environments.

    >>> environments(64)
    {'64': {'num_envs': 64}}
    """
    ending = ", auto-scale" if auto else ""
    scaled = {"auto_scale": True} if auto else {}
    return {f"{number}{ending}": {"num_envs": number, **scaled, **more} for number in numbers}


# Budgets are whole epochs for every number of environments up to 1,024, so that equal samples are equal.
CARTPOLE: dict[str, Any] = {"steps": 196_608, "backend": "serial"}
CAGE2: dict[str, Any] = {"steps": 614_400}
# From nothing, with credit from rebuilt days and prices by insertion: the cheapest way that learns (docs/rides.md).
RIDES: dict[str, Any] = {
    "env_kwargs": '{"start": "none", "futures": 0, "prices": "insertion", "credit": "rebuilt", "background": false, '
    '"held_out_days": 0}',
    "steps": 92_160,  # 3,072 days
}
DAYS = 900  # held out
# In the order in which they are trained: what answers the question first, then what shows where returns diminish.
PARTS = (
    Part("cartpole", "CartPole-v1", environments(64, 256), 10, CARTPOLE, threshold=475.0),
    Part("cage2", "cage2", environments(64, 256), 5, CAGE2, held_out=200),
    Part("rides", "rides", environments(64, 256), 10, RIDES, held_out=DAYS),
    Part("cartpole-curve", "CartPole-v1", environments(16, 1_024), 10, CARTPOLE, threshold=475.0),
    Part("cage2-curve", "cage2", environments(16, 1_024), 5, CAGE2, held_out=200),
    Part("rides-auto", "rides", environments(64, auto=True), 10, RIDES, held_out=DAYS),
    Part("cartpole-auto", "CartPole-v1", environments(64, 256, auto=True), 10, CARTPOLE, threshold=475.0),
    Part("rides-curve", "rides", environments(16, 1_024), 5, RIDES, held_out=DAYS),
    Part("cage2-auto", "cage2", environments(64, 256, auto=True), 5, CAGE2, held_out=200),
)
# On an idle machine (`--parts rides-wall`); their seconds are those of a clock.
ALONE = (
    Part("cartpole-wall", "CartPole-v1", environments(64, 256), 10, CARTPOLE, threshold=475.0, match="wall"),
    Part("rides-wall", "rides", environments(64, 256), 10, RIDES, held_out=DAYS, match="wall"),
    Part("cage2-wall", "cage2", environments(64, 256), 5, CAGE2, held_out=200, match="wall"),
)
BY_NAME = {part.name: part for part in (*PARTS, *ALONE)}
