"""What a search needs to know of its domain: items, how near they are, and what a pull is."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

from shoal.core.arrays import Array
from shoal.core.statistics import normal
from shoal.search.bandit.orders import check_ranks
from shoal.search.options import SearchConfig
from shoal.tasks import find, load_all
from shoal.vector.foreign import import_all

Say = Callable[[str], None]

GRIDWORLD = "gridworld"  # ships with the search; other domains are brought by tasks


@dataclass(frozen=True)
class Pull:
    """What came of training one item: the score on held-out episodes, and whether it passed the gate."""

    mean: float
    se: float
    passed: bool
    weights: str = ""  # folder of the trained policy, for a later pull to start from
    details: dict[str, Any] = field(default_factory=dict)  # JSON; "compliance", "coverage", "wasted" have low and high


@dataclass(frozen=True)
class Fresh:
    """The score of a trained item on episodes by which nothing was chosen, not even the item."""

    mean: float
    se: float
    episodes: int
    compliance: dict[str, Any] | None = None  # mean, low, high

    @property
    def low(self) -> float:
        return normal(self.mean, self.se)[0]

    @property
    def high(self) -> float:
        return normal(self.mean, self.se)[1]


@dataclass(frozen=True)
class Ranking:
    """Values of all items from one source other than the pulls, to measure a search against."""

    source: str  # in words
    means: list[float]
    errors: list[float]
    details: list[dict[str, Any]] = field(default_factory=list)


class Domain(ABC):
    """A finite set of orders and the trainings behind them: derive a class from this. Made anew in each process from
    (config, options). What a domain has beyond items, points and pulls has a default here."""

    Options: ClassVar[type[Any]] = (
        object  # to be a dataclass of its own options, with defaults: flags of `shoal search`
    )
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}  # settings in place of SearchConfig's
    look: ClassVar[str] = ""  # a command that shows what a policy does, before its folder

    points: Array  # int64[n, things]: rank vectors
    names: Sequence[str]  # of the items, in words
    codes: Sequence[str]  # the same for a crowded axis
    things: Sequence[str]  # what is ordered, in words: column t of `points` is the place of thing t
    key: str  # what the codes mean
    score: str  # what a pull's mean is, in words
    judged: str = "decisions"  # what compliance counts
    played: str = ""  # where the episodes are played, where a score says nothing without it
    immaterial: Sequence[int] = ()  # things that may stand anywhere

    @abstractmethod
    def __init__(self, config: SearchConfig, **options: Any) -> None:
        """`options` are the fields of Options."""

    @abstractmethod
    def pull(self, item: int, *, start: Path | None, seed: int, folder: Path, say: Say) -> Pull:
        """Train one item in `folder` and score it. The same arguments give the same Pull."""

    @abstractmethod
    def episode(self, item: int, weights: Path) -> tuple[str, Any]:
        """One held-out episode of a trained item: a sentence or more, and a figure."""

    def prepare(self, folder: Path, say: Say) -> Path | None:
        """Make, or find, what a first pull starts from; called before the first pull, and again on resuming. None: a
        fresh network."""
        return None

    def ranking(self, folder: Path, say: Say) -> Ranking | None:
        """Make, or find, values of all items to measure the search against, if the domain can."""
        return None

    def score_again(self, item: int, weights: Path, seed: int) -> Fresh:
        """The best policy on episodes of its own."""
        raise NotImplementedError(f"{type(self).__name__} does not score a policy again")

    @property
    def scores_again(self) -> bool:
        """Whether it scores the best policy again."""
        return type(self).score_again is not Domain.score_again


def make_domain(config: SearchConfig, options: dict[str, Any]) -> Domain:
    """The domain by its name, or by "module:Class"."""
    domain = domain_class(config.domain)(config, **options)
    check_ranks(domain.points)
    if not len(domain.points) == len(domain.names) == len(domain.codes):
        counts = f"{len(domain.points)} points, {len(domain.names)} names and {len(domain.codes)} codes"
        raise ValueError(f"{config.domain}: expected one name and one code per point, got {counts}")
    return domain


def domain_class(name: str) -> type[Domain]:
    """The class behind a domain's name."""
    if name == GRIDWORLD:
        from shoal.search.gridworld import Gridworld

        return Gridworld
    module, colon, attribute = name.partition(":")
    if colon:
        import_all([module])
        brought = getattr(sys.modules[module], attribute, None)
        if brought is None:
            raise ValueError(f"expected {name} as a domain, {_DOMAIN}; {module} has no {attribute}")
        return _checked(name, brought)
    task = find(name)
    found = None if task is None else task.search_domain()
    if found is None:
        raise ValueError(f"expected a domain of {', '.join(known_domains())} (or module:Class), got {name!r}")
    return _checked(name, found)


_DOMAIN = "a class derived from shoal.search.domain.Domain with a dataclass Options"


def _checked(name: str, brought: Any) -> type[Domain]:
    is_domain = isinstance(brought, type) and issubclass(brought, Domain)
    if not is_domain or not is_dataclass(brought.Options):
        what = "which has no such Options" if is_domain else "which is not"
        raise ValueError(f"expected {name} as a domain, {_DOMAIN}; got {brought!r}, {what}")
    found: type[Domain] = brought
    return found


def known_domains() -> list[str]:
    """The tasks that can be searched, and the grid world."""
    return [*(task.name for task in load_all()[0] if task.search_domain() is not None), GRIDWORLD]


def default_config(name: str) -> SearchConfig:
    """The settings of `shoal search NAME`."""
    return SearchConfig(domain=name, **domain_class(name).DEFAULTS)


def complete_options(domain: str, options: dict[str, Any]) -> dict[str, Any]:
    """A domain's options with defaults filled in; unknown ones are named."""
    kind = domain_class(domain).Options
    unknown = sorted(set(options) - {one.name for one in fields(kind)})
    if unknown:
        known = ", ".join(one.name for one in fields(kind))
        raise ValueError(f"{domain} has no option {unknown[0]!r}; it has {known}")
    return asdict(kind(**options))
