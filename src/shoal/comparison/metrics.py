"""The claims that a comparison settles, and the value of each for each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from shoal.comparison.facts import AXES, Curve, RunFacts
from shoal.comparison.statistics import Statistic, iqm, log_mean, mean

PRIMARY = "final"


@dataclass(frozen=True)
class Metric:
    """One claim. `better`: 1 where more is better, -1 where less is, 0 where neither."""

    name: str
    label: str
    better: Literal[-1, 0, 1]
    statistic: Statistic
    ratio: bool = False  # the statistic is a logarithm: shown as a ratio
    unit: str = ""


METRICS = (
    Metric(PRIMARY, "final performance (held-out return, IQM)", 1, iqm),
    Metric("steps", "steps to the threshold", -1, mean, unit="steps"),
    Metric("updates", "updates to the threshold", -1, mean, unit="gradient steps"),
    Metric("seconds", "seconds to the threshold", -1, mean, unit="s"),
    Metric("at_updates", "training return after equal updates", 1, mean),
    Metric("at_seconds", "training return after equal seconds", 1, mean),
    Metric("spread", "spread between runs (distance from the median)", -1, mean),
    Metric("gap", "gap between training and held-out", 0, mean),  # below 0 while training returns lag behind
    Metric("throughput", "throughput", 1, log_mean, ratio=True, unit="steps/s"),
    Metric("noise", "gradient noise scale", 0, log_mean, ratio=True, unit="environments"),
)
BY_NAME = {metric.name: metric for metric in METRICS}
TIMED = ("seconds", "at_seconds", "throughput")  # they mean something between runs on one machine only


@dataclass(frozen=True)
class Frame:
    """What all runs of a comparison are read against."""

    threshold: float | None
    horizon: dict[str, float]  # per axis: as far as every whole run went
    worst: float | None  # the lowest held-out return of any: what a run that crashed counts as

    @staticmethod
    def of(runs: Sequence[RunFacts], threshold: float | None) -> Frame:
        whole = [run for run in runs if run.whole]
        horizon = {axis: min((float(getattr(run, axis)) for run in whole), default=0.0) for axis in AXES}
        if threshold is None:
            threshold = default_threshold(whole)
        return Frame(threshold, horizon, min((run.final for run in whole if run.final is not None), default=None))


def default_threshold(runs: Sequence[RunFacts]) -> float | None:
    """Three quarters of the way from where the training returns begin to where those of the worse arm end."""
    arms: dict[str, list[Curve]] = {}
    for run in runs:
        if run.curve.returns:
            arms.setdefault(run.arm, []).append(run.curve)
    if not arms:
        return None
    begun = [sum(curve.returns[0] for curve in curves) / len(curves) for curves in arms.values()]
    ended = [sum(curve.returns[-1] for curve in curves) / len(curves) for curves in arms.values()]
    return float(f"{min(begun) + 0.75 * (min(ended) - min(begun)):.4g}")


def values_of(metric: str, runs: Sequence[RunFacts], frame: Frame) -> dict[int, float]:
    """The values of an arm's runs, by seed."""
    found = {run.seed: value for run in runs for value in [value_of(metric, run, frame)] if value is not None}
    if metric != "spread":
        return found
    middle = median(found.values()) if found else 0.0
    return {seed: abs(value - middle) for seed, value in found.items()}


def value_of(metric: str, run: RunFacts, frame: Frame) -> float | None:
    """The value of one run; None where it has none. A run that crashed is no better than the worst and never reached
    the threshold."""
    if metric == PRIMARY:
        return run.final if run.whole else frame.worst
    if metric in AXES:
        return time_to(run, metric, frame)
    if not run.whole:
        return None
    if metric.startswith("at_"):
        return _return_at(run.curve, metric.removeprefix("at_"), frame)
    if metric == "spread":
        return run.final
    if metric == "gap":
        return None if run.training is None or run.sampled is None else run.training - run.sampled
    if metric == "throughput":
        return run.steps / run.seconds if run.seconds > 0 and run.steps > 0 else None
    return run.noise


def reached(run: RunFacts, axis: str, frame: Frame) -> bool:
    """Whether it came to the threshold as far as all runs are known."""
    if frame.threshold is None or not run.whole:
        return False
    found = _crossing(run.curve, axis, frame.threshold)
    return found is not None and found <= frame.horizon[axis]


def time_to(run: RunFacts, axis: str, frame: Frame) -> float | None:
    """How long to the threshold; a run that has not reached it where the shortest run ends counts as that long."""
    if frame.threshold is None or not frame.horizon[axis] > 0:
        return None
    found = _crossing(run.curve, axis, frame.threshold) if run.whole else None
    return frame.horizon[axis] if found is None else min(found, frame.horizon[axis])


def _crossing(curve: Curve, axis: str, threshold: float) -> float | None:
    for place, value in zip(curve.axis(axis), curve.returns, strict=True):
        if value >= threshold:
            return float(place)
    return None


def _return_at(curve: Curve, axis: str, frame: Frame) -> float | None:
    """The last training return before the end of what all runs have."""
    found = None
    for place, value in zip(curve.axis(axis), curve.returns, strict=True):
        if place <= frame.horizon[axis] * (1 + 1e-9):
            found = value
    return found
