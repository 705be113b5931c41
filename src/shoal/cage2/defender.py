"""A trained cage2 run as a defender, for whoever scores it or draws its episodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.cage2.options import Cage2Options, asked
from shoal.core.arrays import Array
from shoal.tasks.networks import load_policy

Defend = Callable[[Any, Array], Array]


def cage2_policy(
    run: str | Path,
    runs_dir: str | Path = "runs",
    epoch: int | None = None,
    checkpoint: str | int | None = None,
    say: Callable[[str], None] | None = None,
) -> tuple[Defend, dict[str, str]]:
    """A cage2 run as a greedy defender `act(observations, begun)`, and the observations and rules that it was trained
    with. `say` hears which epoch it is of, where that is not the newest."""
    policy = load_policy(run, runs_dir=runs_dir, epoch=epoch, checkpoint=checkpoint)
    if say is not None and policy.chosen:
        say(policy.chosen)
    if policy.config.task != "cage2":
        raise ValueError(f"expected a run of cage2, got one of {policy.config.task}: {run}")
    options = json.loads(policy.config.env_kwargs)
    seen = {name: options[name] for name in ("features", "mask", "order", "rules") if name in options}

    def act(observations: Any, begun: Array) -> Array:
        actions: Array = policy(observations, batched=True)
        return actions

    return act, seen


def under(options: dict[str, str], simulator: str, rules: str | None) -> dict[str, Any]:
    """The options of a defender, to be played by the rules that were asked for, else by those of its training. CybORG
    has its own.

    >>> under({"mask": "none", "rules": "final"}, "shoal", None)
    {'mask': 'none', 'rules': 'final'}
    """
    return {**options, "rules": rules or (options.get("rules") if simulator == "shoal" else None)}


def cage2_played(given: Cage2Options) -> str:
    """Where and against whom episodes of these options are played: a score says nothing without it."""
    from shoal.cage2.commands import rules_of, where_line

    red: str = given.red
    if red == "mixed":
        shares = zip(("bline", "meander", "sleep"), given.mix, strict=True)
        red = "mixed (" + ", ".join(f"{100 * share / sum(given.mix):.0f} % {name}" for name, share in shares) + ")"
    steps = " or ".join(str(steps) for steps in given.horizon)
    rules = rules_of(given.simulator, asked(given.simulator, given.rules))
    return f"red {red}, {steps} steps; {where_line(rules, given.simulator)}"
