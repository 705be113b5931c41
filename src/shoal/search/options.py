"""Every option of a search: frozen, documented, validated. A field's docstring is its help text."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from shoal.config import MOST_SEED


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
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"expected {_flag(name)} as a whole number of at least {least}, got {value!r}")
        if self.seed > MOST_SEED:
            raise ValueError(f"expected --seed of at most {MOST_SEED}, got {self.seed}")
        if not 0.0 <= self.compliance_threshold <= 1.0:
            raise ValueError(f"expected --compliance-threshold from 0 to 1, got {self.compliance_threshold}")
        for name, known in (("strategy", ("ucb", "random", "halving")), ("start", ("nearest", "base", "scratch"))):
            if getattr(self, name) not in known:
                raise ValueError(f"expected {_flag(name)} as {' | '.join(known)}, got {getattr(self, name)!r}")


_LEAST = {
    "workflows": 1,
    "parallel": 1,
    "num_envs": 1,
    "episodes_per_env": 1,
    "min_episodes": 0,
    "update_every_steps": 1,
    "seed": 0,
}
# A resumed search may be given more pulls. All else would change the pulls that follow.
CHANGEABLE = ("workflows", "name", "runs_dir")


def check_resumed(before: SearchConfig, after: SearchConfig) -> None:
    """Refuse to resume with settings under which other pulls would follow."""
    for field in fields(SearchConfig):
        old, new = getattr(before, field.name), getattr(after, field.name)
        fixed = field.name not in CHANGEABLE or (field.name == "workflows" and before.strategy == "halving")
        if old != new and fixed:
            raise ValueError(
                f"{_flag(field.name)} is {old} in the search to resume, {new} was asked for: start a new search"
            )


def config_from(data: dict[str, Any]) -> SearchConfig:
    """A config from a folder's JSON; unknown names are refused."""
    unknown = sorted(set(data) - {field.name for field in fields(SearchConfig)})
    if unknown:
        raise ValueError(
            f"unknown option {unknown[0]!r} in the search's config.json: it is of another version of shoal"
        )
    return SearchConfig(**data)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
