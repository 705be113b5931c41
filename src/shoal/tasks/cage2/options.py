"""The flags of `shoal train cage2`, and the environment that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Options:
    """The challenge's own settings."""

    horizon: tuple[int, ...] = (30, 50, 100)
    """Steps of an episode; with several, each episode draws one, so the mean return is a third of the leaderboard's sum."""
    red: Literal["mixed", "bline", "meander", "sleep"] = "mixed"
    """The attacker; mixed draws one per episode."""
    features: Literal["memory", "plain"] = "memory"
    """plain: the challenge's 52 bits. memory: with what Blue can remember of its observations and actions."""
    mask: Literal["useful", "none"] = "useful"
    """useful: actions that can do no good are masked. none: all 145 are allowed."""
    simulator: Literal["shoal", "cyborg"] = "shoal"
    """shoal: the compiled simulator. cyborg: the real CybORG 2.1, if it is installed (about 250 steps/s a core)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizon", tuple(self.horizon))  # JSON knows lists only


def environment(simulator: str = "shoal", **options: Any) -> Any:
    """What `make_vec` takes: a CompiledEnv, or a function that makes one real CybORG."""
    if simulator == "cyborg":
        from shoal.tasks.cage2.cyborg import CyborgFactory

        return CyborgFactory(options)
    if simulator != "shoal":
        raise ValueError(f"simulator: expected shoal or cyborg, got {simulator!r}")
    from shoal.tasks.cage2.env import make

    return make(**options)
