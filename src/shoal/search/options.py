"""Every option of a search: frozen, documented, validated. A field's docstring is its help text."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from shoal.config import MOST_SEED
from shoal.core.checks import check_numbers, check_types, check_whole, check_wholes, flag


@dataclass(frozen=True)
class SearchConfig:
    """The bandit: how many orders it trains, how it chooses them, and how each is trained."""

    domain: str = "gridworld"
    """A task that can be searched, or gridworld (or "module:Class" of a domain of your own)."""
    workflows: int = 20
    """Number of pulls; each trains one policy with one order."""
    strategy: Literal["ucb", "random", "halving"] = "ucb"
    """How the next order is chosen: by GP-UCB, at random, or by successive halving."""
    parallel: int = 1
    """Pulls that run at once, each in its own process. Pull k is chosen from the results of pulls 1 to k - PARALLEL,
    whichever finish first."""
    start: Literal["nearest", "base", "scratch"] = "nearest"
    """Initial weights of a pull: those of the nearest order trained so far, the domain's own, or a new network."""
    universal: bool = False
    """First train one policy on all orders and rank them by it, as a table to compare the search with."""
    num_envs: int = 25
    """Environments per pull."""
    episodes_per_env: int = 50
    """Largest number of episodes per environment in a pull; gridworld's default is 300."""
    min_episodes: int = 10
    """Episodes per environment before a pull may stop early."""
    update_every_steps: int = 100
    """Steps of each environment between updates."""
    compliance_threshold: float = 0.95
    """A pull passes when the lower end of its compliance interval reaches this."""
    seed: int = 0
    """The seed from which every random number of the search is derived."""
    name: str | None = None
    """Name of the search's folder; default: domain, date and time."""
    runs_dir: str = "runs"
    """Folder that holds the folders of searches."""

    def __post_init__(self) -> None:
        check_types(self)
        check_wholes(self, 1, "workflows", "parallel", "num_envs", "episodes_per_env", "update_every_steps")
        check_wholes(self, 0, "min_episodes")
        check_whole("seed", self.seed, 0, MOST_SEED)
        check_numbers(self, "compliance_threshold", least=0, most=1)


# A resumed search may be given more pulls. All else would change the pulls that follow.
CHANGEABLE = ("workflows", "name", "runs_dir")


def check_resumed(before: SearchConfig, after: SearchConfig) -> None:
    """Refuse to resume with settings under which other pulls would follow."""
    for field in fields(SearchConfig):
        old, new = getattr(before, field.name), getattr(after, field.name)
        fixed = field.name not in CHANGEABLE or (field.name == "workflows" and before.strategy == "halving")
        if old != new and fixed:
            raise ValueError(
                f"{flag(field.name)} is {old} in the search to resume, {new} was asked for: start a new search"
            )
