"""What a search found, how sure it is, and whether there was anything to find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.core.arrays import Array
from shoal.core.statistics import normal
from shoal.search.bandit.differences import Difference, repeated_pulls, single_pulls
from shoal.search.bandit.effects import precedence
from shoal.search.bandit.gp import FiniteGP, Posterior
from shoal.search.bandit.ucb import UCB
from shoal.search.domain import Domain, Ranking
from shoal.search.findings import p_value, percent, sentence
from shoal.search.folder import Record
from shoal.search.options import SearchConfig


@dataclass(frozen=True)
class Summary:
    """The answer in figures; `--json` prints it."""

    domain: str
    strategy: str
    pulls: int
    passed: int
    found: str  # what was found, in a sentence
    played: str  # where the episodes were played, if the domain says
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
        found=sentence(records, *_material(domain)),
        played=domain.played,
        best=None if best is None else _described(best, posterior, domain.judged),
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
            **_bounds(effect.value, effect.std),
        }
        for effect in precedence(domain.points, posterior)
        if effect.first not in domain.immaterial and effect.second not in domain.immaterial
    ]


def _material(domain: Domain) -> tuple[Array, list[str]]:
    """Rank vectors and names of the things whose place can matter."""
    kept = [thing for thing in range(len(domain.things)) if thing not in domain.immaterial]
    ranks: Array = domain.points[:, kept].argsort(1).argsort(1)
    return ranks, [domain.things[thing] for thing in kept]


def answer_lines(summary: Summary, score: str) -> list[str]:
    """The answer for people: what was found, the order picked, its score on fresh episodes, and where it was played."""
    lines = [summary.found]
    best = summary.best
    if best is not None:
        lines.append(f"Picked by the posterior: {best['name']}. {score.capitalize()}: {score_line(best)}.")
    if summary.played:
        lines.append(summary.played)
    return lines


def score_line(best: dict[str, Any]) -> str:
    """The score of the best: on fresh episodes first, since the search's own chose it."""
    own = f"{best['mean']:.2f} [{best['low']:.2f}, {best['high']:.2f}]"
    fresh = best["fresh"]
    if fresh is None:
        return f"{own} on the episodes that chose it"
    again = f"{fresh['mean']:.2f} [{fresh['low']:.2f}, {fresh['high']:.2f}] on {fresh['episodes']:,} fresh episodes"
    return f"{again} ({own} on those that chose it)"


def verdict(difference: Difference | None) -> str:
    """Whether the orders differ, in a sentence."""
    if difference is None:
        return "Too few pulls passed the gate to say whether orders differ."
    repeated = difference.test != "Cochran's Q"
    noise = "the noise between trainings" if repeated else "the noise of evaluation"
    figures = (
        f"{difference.test}, {p_value(difference.p)}; {percent(difference.share)} of the variance of a pull lies "
        f"between orders, 95 % interval {percent(difference.share_low)} to {percent(difference.share_high)}"
    )
    if difference.alike:
        return f"The orders pulled are alike: their spread is no more than {noise} ({figures}). Any of them will do."
    seeds = "" if repeated else " Another training seed may be part of it."
    return f"The orders pulled differ by more than {noise} ({figures}).{seeds}"


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


def _bounds(mean: float, error: float) -> dict[str, float]:
    low, high = normal(mean, error)
    return {"low": low, "high": high}


def _described(record: Record, posterior: Posterior, judged: str) -> dict[str, Any]:
    item, pull, fresh = record.request.item, record.pull, record.fresh
    return {
        "item": item,
        "name": record.request.name,
        "pull": record.request.number + 1,
        "mean": pull.mean,
        **_bounds(pull.mean, pull.se),
        "posterior_mean": float(posterior.mean[item]),
        "posterior_std": float(posterior.std[item]),
        "fresh": None if fresh is None else {**asdict(fresh), "low": fresh.low, "high": fresh.high},
        "compliance": pull.details.get("compliance"),
        "judged": judged,
        "weights": pull.weights,
    }


def _columns(records: Sequence[Record]) -> tuple[list[int], list[float], list[float]]:
    passed = [record for record in records if record.pull.passed]
    return (
        [record.request.item for record in passed],
        [record.pull.mean for record in passed],
        [record.pull.se for record in passed],
    )
