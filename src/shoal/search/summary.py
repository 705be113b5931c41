"""What a search found, how sure it is, and whether there was anything to find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.bandit.differences import Difference, repeated_pulls, single_pulls
from shoal.bandit.effects import precedence
from shoal.bandit.gp import FiniteGP, Posterior
from shoal.bandit.ucb import UCB
from shoal.search.domain import Domain, Ranking
from shoal.search.folder import Record
from shoal.search.options import SearchConfig


@dataclass(frozen=True)
class Summary:
    """The answer in figures; `--json` prints it."""

    domain: str
    strategy: str
    pulls: int
    passed: int
    best: dict[str, Any] | None  # None: no pull passed the gate
    next_pick: str
    kernel: str
    difference: dict[str, Any] | None
    verdict: str  # whether orders differ, in words
    effects: list[dict[str, Any]]  # what having one thing before another is worth, most important first
    regret: dict[str, Any] | None  # against the ranking, where there is one


def summarise(
    domain: Domain, config: SearchConfig, records: Sequence[Record], ranking: Ranking | None = None
) -> Summary:
    """The summary of the pulls told."""
    posterior = posterior_of(domain, records)
    best = best_of(records, posterior)
    difference = difference_of(records)
    return Summary(
        domain=config.domain,
        strategy=config.strategy,
        pulls=len(records),
        passed=sum(record.pull.passed for record in records),
        best=None if best is None else _described(best, posterior),
        next_pick=domain.names[next_pick(domain, config, records)],
        kernel=posterior.kernel,
        difference=None if difference is None else asdict(difference),
        verdict=verdict(difference),
        effects=[] if best is None else effects_of(domain, posterior),
        regret=None if ranking is None or best is None else _regret(domain, ranking, best.request.item),
    )


def posterior_of(domain: Domain, records: Sequence[Record]) -> Posterior:
    """Over all items, from the pulls that passed."""
    return FiniteGP(domain.points).posterior(*_columns(records))


def next_pick(domain: Domain, config: SearchConfig, records: Sequence[Record]) -> int:
    """What GP-UCB would ask for now."""
    strategy = UCB(FiniteGP(domain.points), config.seed)
    for record in records:
        strategy.tell(record.request.item, record.pull.mean, record.pull.se, record.pull.passed)
    return strategy.ask()


def best_of(records: Sequence[Record], posterior: Posterior) -> Record | None:
    """Of the pulls that passed, the one whose item has the highest posterior mean; of its pulls, the best."""
    passed = [record for record in records if record.pull.passed]
    return max(passed, key=lambda r: (posterior.mean[r.request.item], r.pull.mean), default=None)


def difference_of(records: Sequence[Record]) -> Difference | None:
    """Whether the items pulled differ: by repetitions where there are some, else by the errors of evaluation."""
    groups: dict[int, list[Record]] = {}
    for record in records:
        if record.pull.passed:
            groups.setdefault(record.request.item, []).append(record)
    repeated = repeated_pulls([[record.pull.mean for record in group] for group in groups.values()])
    if repeated is not None and sum(len(group) - 1 for group in groups.values()) >= 5:
        return repeated
    firsts = [group[0].pull for group in groups.values()]
    return single_pulls([pull.mean for pull in firsts], [pull.se for pull in firsts])


def effects_of(domain: Domain, posterior: Posterior) -> list[dict[str, Any]]:
    """How much each precedence is worth by the posterior, the others being equal, with 95 % intervals."""
    return [
        {
            "first": domain.things[effect.first],
            "second": domain.things[effect.second],
            "value": effect.value,
            "low": effect.value - 1.96 * effect.std,
            "high": effect.value + 1.96 * effect.std,
        }
        for effect in precedence(domain.points, posterior)
    ]


def verdict(difference: Difference | None) -> str:
    """Whether the orders differ, in a sentence."""
    if difference is None:
        return "Too few pulls passed the gate to say whether orders differ."
    noise = (
        "the noise between trainings"
        if difference.test != "Cochran's Q"
        else "the noise of evaluation (what another training seed would change is not told apart from it here)"
    )
    figures = (
        f"{difference.test}, p = {difference.p:.2g}; {100 * difference.share:.0f} % of the variance of a pull lies "
        f"between orders, 95 % interval {100 * difference.share_low:.0f} to {100 * difference.share_high:.0f} %"
    )
    if difference.alike:
        return f"The orders pulled are alike: their spread is no more than {noise} ({figures}). Any of them will do."
    return f"The orders pulled differ by more than {noise} ({figures})."


def _regret(domain: Domain, ranking: Ranking, item: int) -> dict[str, Any]:
    values = np.array(ranking.means)
    top = int(values.argmax())
    place = int((values > values[item]).sum()) + 1
    return {
        "source": ranking.source,
        "best": domain.names[top],
        "best_mean": float(values[top]),
        "mean_of_found": float(values[item]),
        "simple_regret": float(values[top] - values[item]),
        "place": place,
        "of": len(values),
    }


def _described(record: Record, posterior: Posterior) -> dict[str, Any]:
    item, pull = record.request.item, record.pull
    return {
        "item": item,
        "name": record.request.name,
        "pull": record.request.number + 1,
        "mean": pull.mean,
        "low": pull.mean - 1.96 * pull.se,
        "high": pull.mean + 1.96 * pull.se,
        "posterior_mean": float(posterior.mean[item]),
        "posterior_std": float(posterior.std[item]),
        "compliance": pull.details.get("compliance"),
        "weights": pull.weights,
    }


def _columns(records: Sequence[Record]) -> tuple[list[int], list[float], list[float]]:
    passed = [record for record in records if record.pull.passed]
    return (
        [record.request.item for record in passed],
        [record.pull.mean for record in passed],
        [record.pull.se for record in passed],
    )
