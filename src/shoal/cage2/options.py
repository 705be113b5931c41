"""The options of the task as one frozen value: flags of `shoal train cage2`, arguments of its environment."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Cage2Options:
    """What to defend against, for how long, and what Blue sees."""

    horizon: tuple[int, ...] = (30, 50, 100)
    """Steps of an episode; of several numbers each episode draws one. The challenge scores 30, 50 and 100, so the
    mean return over these three is a third of a red agent's part of the leaderboard's sum."""
    red: Literal["bline", "meander", "sleep", "mixed"] = "mixed"
    """The red agent; mixed draws one per episode."""
    mix: tuple[float, float, float] = (0.47, 0.47, 0.06)
    """Shares of bline, meander and sleep in mixed."""
    features: Literal["plain", "memory"] = "memory"
    """The 52 bits alone, or with what Blue can remember (docs/cage2-features.md)."""
    mask: Literal["none", "useful", "obedient"] = "useful"
    """useful: mask actions without any use. obedient (with an order): also mask fixes that break it, as far as Blue can
    tell."""
    order: str = "none"
    """The order to keep: the unit types in order, as user,enterprise,op_server,op_host,defender, or its number;
    drawn: one of the 120 for each episode. It enters the observation, and compliance is counted (docs/workflows.md)."""
    alignment: Literal["none", "lagrange", "reward"] = "lagrange"
    """How an order enters the reward of training: a multiplier on violations that rises while compliance is under its
    target, or a reward for the change of the episode's compliance. Evaluation uses the environment's own reward."""
    simulator: Literal["shoal", "cyborg"] = "shoal"
    """shoal: the compiled simulator. cyborg: the real CybORG 2.1, if it is installed; about 250 steps/s a core, so
    that 8 environments and 200,000 steps are the default then."""
    rules: Literal["present", "final"] = "present"
    """The present rules, or those of the published leaderboard (docs/cage2-rules.md). CybORG has its own: final is
    refused where another one is installed."""

    def __post_init__(self) -> None:
        for name in ("horizon", "mix"):  # JSON knows lists only
            object.__setattr__(self, name, tuple(getattr(self, name)))


# Of `shoal train cage2 --simulator cyborg`: a quarter of an hour on one core, where the compiled simulator's settings
# would take 20 hours. From scratch it does not learn the game in that time; it shows that training works there.
CYBORG_SETTINGS = {"num_envs": 8, "minibatch_size": 200, "steps": 200_000}


def settings(options: Cage2Options) -> dict[str, Any]:
    """Settings of a run that follow from the simulator."""
    return dict(CYBORG_SETTINGS) if options.simulator == "cyborg" else {}


def asked(simulator: str, rules: str) -> str | None:
    """What the options ask of a simulator's rules: the default asks nothing of CybORG, which has its own.

    >>> asked("shoal", "present"), asked("cyborg", "present"), asked("cyborg", "final")
    ('present', None, 'final')
    """
    return None if simulator == "cyborg" and rules == "present" else rules


def environment(simulator: str = "shoal", **options: Any) -> Any:
    """What `make_vec` takes: a CompiledEnv, or a function that makes one real CybORG environment."""
    if simulator == "shoal":
        from shoal.cage2.simulator.env import make

        return make(**options)
    if simulator == "cyborg":
        from shoal.cage2.cyborg import CyborgEnv, load

        options.pop("alignment", None)
        rules = asked(simulator, options.pop("rules", "present"))
        if options.pop("order", "none") != "none":
            raise ValueError("order: expected none with simulator cyborg: compliance is judged on shoal's own state")
        load()  # refuses here, in one line, where CybORG is not installed
        if rules is not None:
            from shoal.cage2.commands import rules_of

            rules_of(simulator, rules)  # refuses others than those of the one that is installed
        return functools.partial(CyborgEnv, **options)
    raise ValueError(f"simulator: expected shoal or cyborg, got {simulator!r}")
