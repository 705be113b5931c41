"""From runs to verdicts: better, worse, no evidence of a difference, or insufficient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from shoal.comparison.facts import AXES, RunFacts
from shoal.comparison.metrics import BY_NAME, METRICS, PRIMARY, TIMED, Frame, Metric, reached, values_of
from shoal.comparison.statistics import LEAST, SURE_FROM, Effect, Estimate, effect, estimate, holm

ALPHA = 0.05
NO_EVIDENCE, INSUFFICIENT = "no evidence of a difference", "insufficient"


@dataclass(frozen=True)
class Verdict:
    """One claim about one arm against another."""

    metric: str
    arm: str
    against: str
    verdict: str  # better, worse, higher, lower, no evidence of a difference, insufficient
    primary: bool
    first: Estimate  # of the arm that it is compared with
    second: Estimate
    effect: Effect | None  # of a ratio, its logarithm
    p: float | None  # corrected
    note: str = ""
    reached: tuple[int, int] | None = None  # of times to the threshold: how many runs of each arm came to it

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "label": BY_NAME[self.metric].label, "ratio": BY_NAME[self.metric].ratio}


Arms = Mapping[str, Sequence[RunFacts]]


def judge(arms: Arms, threshold: float | None = None, primary: str = PRIMARY) -> list[Verdict]:
    """Every claim about every arm against the first one. `primary` is the one claim that was declared; all others share
    Holm's correction, so that there is at most one chance in 20 of any of them by luck."""
    if primary not in BY_NAME:
        raise ValueError(f"expected the primary metric as one of {', '.join(BY_NAME)}, got {primary!r}")
    names = list(arms)
    frame = Frame.of([run for runs in arms.values() for run in runs], threshold)
    found = [
        _compared(metric, arms, (names[0], name), frame, metric.name == primary)
        for name in names[1:]
        for metric in METRICS
    ]
    for chosen in (True, False):
        places = [i for i, one in enumerate(found) if one.primary is chosen and one.effect is not None]
        corrected = holm([one.effect.p for i in places for one in [found[i]] if one.effect is not None])
        for i, p in zip(places, corrected, strict=True):
            found[i] = _decided(replace(found[i], p=p))
    return sorted(found, key=lambda one: (names.index(one.arm), not one.primary))


def _compared(metric: Metric, arms: Arms, names: tuple[str, str], frame: Frame, primary: bool) -> Verdict:
    groups = [values_of(metric.name, arms[name], frame) for name in names]
    common = sorted(set(groups[0]) & set(groups[1]))
    paired = len(common) >= max(2, min(map(len, groups)))
    first, second = ([group[seed] for seed in (common if paired else sorted(group))] for group in groups)
    estimates = [estimate(group, metric.statistic) for group in (first, second)]
    blank = Verdict(metric.name, names[1], names[0], INSUFFICIENT, primary, estimates[0], estimates[1], None, None)
    if metric.name in AXES and frame.threshold is not None:
        seeds = [common if paired else sorted(group) for group in groups]
        hits = [_hits(arms[name], own, metric.name, frame) for name, own in zip(names, seeds, strict=True)]
        blank = replace(blank, reached=(hits[0], hits[1]))
    both = [run for name in names for run in arms[name]]
    why, runs = _why_insufficient(metric, both, frame), min(len(first), len(second))
    if why or runs < 2:
        return replace(blank, note=why or _too_few(runs))
    found = effect(first, second, metric.statistic, paired)
    return replace(blank, effect=found, note=_too_few(runs) if runs < LEAST else "")


def _hits(runs: Sequence[RunFacts], seeds: Sequence[int], axis: str, frame: Frame) -> int:
    """How many of the runs with these seeds reached the threshold."""
    return sum(run.seed in seeds and reached(run, axis, frame) for run in runs)


def _why_insufficient(metric: Metric, both: Sequence[RunFacts], frame: Frame) -> str:
    if metric.name in AXES:
        if frame.threshold is None:
            return "no run has a learning curve"
        if not any(reached(run, metric.name, frame) for run in both):
            return f"no run reached {frame.threshold:g}; --threshold sets another for a new comparison"
    if metric.name in TIMED and len(machines := sorted({run.machine for run in both})) > 1:
        return f"the runs were made on different machines or cores: {'; '.join(machines)}"
    if metric.name == "noise" and all(run.noise is None for run in both):
        return "the noise meter was off, or there was too little to measure"
    return ""


def _too_few(runs: int) -> str:
    return f"{runs} {'run' if runs == 1 else 'runs'} each, {LEAST} are the least for a verdict"


def _decided(one: Verdict) -> Verdict:
    """The verdict that a corrected p-value allows."""
    assert one.effect is not None
    assert one.p is not None
    metric, runs = BY_NAME[one.metric], min(one.first.runs, one.second.runs)
    if runs < LEAST:
        return one
    note = f"provisional: {runs} runs, {SURE_FROM} are the least for a firm verdict" if runs < SURE_FROM else ""
    if not one.p < ALPHA or one.effect.value == 0:
        if one.effect.p < ALPHA and one.effect.value != 0:
            note = "; ".join(
                filter(None, (note, "its interval alone leaves out none, but so many claims were looked at"))
            )
        return replace(one, verdict=NO_EVIDENCE, note=note)
    up = one.effect.value > 0
    if metric.better == 0:
        return replace(one, verdict="higher" if up else "lower", note=note)
    return replace(one, verdict="better" if up == (metric.better > 0) else "worse", note=note)


def shares(arms: Arms, frame: Frame, axis: str) -> dict[str, tuple[int, int]]:
    """Of each arm: how many runs reached the threshold, of how many."""
    return {name: (sum(reached(run, axis, frame) for run in runs), len(runs)) for name, runs in arms.items()}


def as_ratio(value: float) -> float:
    """A logarithm as the ratio that it is of, kept to what JSON can hold."""
    return math.exp(min(max(value, -700.0), 700.0))
