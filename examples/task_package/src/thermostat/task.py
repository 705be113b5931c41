"""What shoal is told of the task. Heavy imports are inside the methods, so that `shoal tasks` stays quick."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.tasks import Command, Say, Shown, Spaces, Task
from thermostat.evaluate import CurveArgs, ScoreArgs, curve, score
from thermostat.options import RoomOptions


class Thermostat(Task):
    """Keep a room warm."""

    name = "thermostat"
    about = "keep a leaking room at a temperature"
    preset = {"num_envs": 16, "rollout_steps": 48, "minibatch_size": 128, "learning_rate": 3e-3, "steps": 20_000}  # noqa: RUF012
    evaluations = (("--evenings 20", ""),)
    Options = RoomOptions
    commands: Mapping[str, Command] = {
        "curve": Command("one evening, step by step", CurveArgs, curve, usage="RUN", first="run")
    }

    def environment(self, options: RoomOptions) -> Any:
        from thermostat.env import Room

        return functools.partial(Room, options)

    def spaces(self, options: RoomOptions) -> Spaces:
        """Known without building a room: then shoal builds none in its own process before training."""
        from thermostat.env import ACTIONS, OBSERVATIONS

        return OBSERVATIONS, ACTIONS

    def network(self, options: RoomOptions, spaces: Spaces, config: Any) -> Any:
        from thermostat.network import Switch

        return Switch(spaces[0].shape[0])

    def evaluate_options(self, runs: Sequence[str]) -> type[ScoreArgs] | None:
        return ScoreArgs if runs else None

    def evaluate(self, runs: Sequence[str], options: ScoreArgs, say: Say) -> Shown:
        return score(runs, options, say)

    def sections(self, run: Any) -> Sequence[Any]:
        from thermostat.section import Comfort

        return (Comfort(run),)
