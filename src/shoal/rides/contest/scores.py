"""What a contest says: figures per policy with intervals, paired differences, the share of the gap that was closed.

Intervals are 95 % percentile bootstrap intervals over days; all policies are resampled together, since they played the
same days. Over several training runs the bootstrap has two levels: runs are drawn, and days are drawn, the same days
for every run drawn, since they all played the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.core.seeds import generator
from shoal.rides.contest.record import BASE, Contest
from shoal.rides.routing.problem import NO_CHANGE
from shoal.rides.world.answers import Kind

Array = np.ndarray[Any, Any]
RESAMPLES = 10_000
_CHUNK = 500
KINDS = tuple(kind.name.lower() for kind in Kind)
BEST = "hindsight"  # the other end of the gap


class Bootstrap:
    """The same resamples of days for everything that is asked of it.

    >>> Bootstrap(4).mean(np.ones((1, 4)))
    {'mean': 1.0, 'low': 1.0, 'high': 1.0}
    """

    def __init__(self, days: int, seed: int = 0, resamples: int = RESAMPLES) -> None:
        self.days, self.resamples, self.seed = days, resamples, seed
        rng = generator(seed, 0)
        self._counts = np.empty((resamples, days), np.uint8)  # how often each day was drawn
        for row in range(resamples):
            self._counts[row] = np.bincount(rng.integers(0, days, days), minlength=days)

    def sums(self, columns: Array) -> Array:
        """Column sums over resampled days, float64[resamples, K], of columns float64[K, D]."""
        chunks = (self._counts[low : low + _CHUNK] for low in range(0, self.resamples, _CHUNK))
        return np.concatenate([counts.astype(np.float64) @ columns.T for counts in chunks])

    def mean(self, values: Array) -> dict[str, Any]:
        """Mean of values float64[S, D] and its interval; with more than one row, runs are resampled too."""
        runs = len(values)
        sums = self.sums(values)
        if runs > 1:
            rng = generator(self.seed, 1)
            drawn = rng.multinomial(runs, np.full(runs, 1.0 / runs), len(sums))
            means = (sums * drawn).sum(1) / (runs * self.days)
        else:
            means = sums[:, 0] / self.days
        return _with_interval(float(values.mean()), means)

    def ratio(self, over: Array, under: Array, factor: float = 1.0) -> dict[str, Any]:
        """factor * sum(over) / sum(under) of float64[D] each, and its interval."""
        sums = self.sums(np.stack([over, under]).astype(np.float64))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = factor * sums[:, 0] / sums[:, 1]
        whole = under.sum()
        return _with_interval(float(factor * over.sum() / whole) if whole else float("nan"), ratios)


def _with_interval(value: float, resampled: Array) -> dict[str, Any]:
    if not np.isfinite([value, *resampled]).all():  # a ratio of nothing
        return {"mean": None, "low": None, "high": None}
    low, high = np.quantile(resampled, (0.025, 0.975))
    return {"mean": value, "low": float(low), "high": float(high)}


def summary(
    contest: Contest,
    *,
    against: Sequence[str] = (),
    groups: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """The contest as plain data.

    `against` names the baselines that every other policy is compared with, day by day. `groups` puts training runs
    of one kind under one name: their differences are averaged and get the two-level interval, with every run's value.
    """
    boot = Bootstrap(len(contest.asked), seed, resamples)
    patience, refusal = contest.options.burden_rates
    baselines = [name for name in against if name in contest.played]
    groups = {name: list(members) for name, members in (groups or {}).items() if len(members) > 1}
    return {
        "days": len(contest.asked),
        "held_out": "riders" if contest.world.riders.held_out.any() else "days",
        "customers": contest.options.customers,
        "vehicles": contest.options.vehicles,
        "seed": contest.seed,
        "iterations": contest.options.iterations,
        "patience": patience,
        "refusal": refusal,
        "prices": list(contest.prices),
        "policies": {name: _figures(contest, name, boot) for name in contest.played},
        "differences": {
            name: {other: _difference(contest, [name], other, boot) for other in baselines if other != name}
            for name in contest.played
            if name != BASE
        },
        "groups": {
            name: {
                "runs": members,
                "net_min": {
                    price: boot.mean(np.stack([contest.net_min(one, price) for one in members]))
                    for price in contest.prices
                },
                "differences": {other: _difference(contest, members, other, boot) for other in baselines},
            }
            for name, members in groups.items()
        },
    }


def _difference(contest: Contest, names: Sequence[str], other: str, boot: Bootstrap) -> dict[str, Any]:
    """Net gain of policies less that of another on the same days, by each price."""
    out: dict[str, Any] = {}
    for price in contest.prices:
        values = np.stack([contest.net_min(name, price) for name in names]) - contest.net_min(other, price)
        out[price] = boot.mean(values)
        if len(names) > 1:
            out[price]["runs"] = [float(value) for value in values.mean(1)]
    return out


def _figures(contest: Contest, name: str, boot: Bootstrap) -> dict[str, Any]:
    play, base = contest.played[name], contest.played[BASE]
    agreed, refused, served = play.agreed_min, play.refused, play.served
    made = play.offer != NO_CHANGE
    ride, direct = np.where(served, play.ride_s, 0).sum(1), np.where(served, contest.direct_s, 0).sum(1)
    out: dict[str, Any] = {
        "net_min": {},
        "saved_min": {},
        "improvement_percent": {},
        "mean_of_ratios_percent": {},
        "cost_min": {},
        "failure_percent": {"own": 100 * float((~served).mean())},
        "gap_closed_percent": {},
        "burden_min": float(contest.burden_min(name).mean()),
        "agreed_min": float(agreed.sum(1).mean()),
        "agreed_min_per_rider": float(agreed.mean()),
        "agreed_min_by_type": {
            kind: float(agreed[contest.kind == code].mean()) if (contest.kind == code).any() else None
            for code, kind in enumerate(KINDS)
        },
        "offers": float(made.sum(1).mean()),
        "refusals": float(refused.sum(1).mean()),
        "acceptance_percent": 100 * float(1 - refused.sum() / made.sum()) if made.any() else None,
        "ride_to_direct": boot.ratio(ride, direct),
        "calibration": {"offered": play.offered.metrics(), "menu": play.menu.metrics()},
    }
    for price in contest.prices:
        cost, without = play.total_s(price) / 60, base.total_s(price) / 60
        saved = contest.saved_min(name, price)
        out["net_min"][price] = boot.mean(contest.net_min(name, price)[None])
        out["saved_min"][price] = float(saved.mean())
        out["improvement_percent"][price] = boot.ratio(saved, without, 100)
        out["mean_of_ratios_percent"][price] = float((100 * saved / without).mean())
        out["cost_min"][price] = float(cost.mean())
        if BEST in contest.played and name != BASE:
            out["gap_closed_percent"][price] = boot.ratio(
                contest.net_min(name, price), contest.net_min(BEST, price), 100
            )
    if play.reference_unserved is not None:
        out["reference_errors"] = play.reference_errors
        out["failure_percent"]["reference"] = 100 * float(play.reference_unserved.mean() / served.shape[1])
    return out
