"""A comparison for people: a table, and a sentence for each verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.comparison.facts import AXES, RunFacts
from shoal.comparison.metrics import BY_NAME, Frame
from shoal.comparison.verdicts import INSUFFICIENT, NO_EVIDENCE, Verdict, as_ratio, shares
from shoal.runs.words import columns, decimals, figure

NOT_REACHED = "not reached"
COUNTED = ("steps", "gradient steps", "steps/s")


def lines_of(
    task: str, arms: Mapping[str, Sequence[RunFacts]], verdicts: Sequence[Verdict], frame: Frame, primary: str
) -> list[str]:
    """The whole comparison."""
    lines = [f"{task}: {' | '.join(f'{name} ({_runs(len(runs))})' for name, runs in arms.items())}", *budgets(arms)]
    for arm in dict.fromkeys(one.arm for one in verdicts):
        own = [one for one in verdicts if one.arm == arm]
        lines += ["", f"{arm} against {own[0].against}", *_table(own), ""]
        lines += [sentence(one) for one in own]
    if frame.threshold is not None:
        lines += ["", *_threshold(arms, frame)]
    lines += _provisos(arms, verdicts, primary)
    return lines


def budgets(arms: Mapping[str, Sequence[RunFacts]]) -> list[str]:
    """What a run of each arm has had, on average: whether the arms were matched as they were meant to be."""
    lines = []
    for name, runs in arms.items():
        whole = [run for run in runs if run.whole]
        if whole:
            steps, updates, seconds = (
                sum(getattr(run, axis) for run in whole) / len(whole) for axis in ("steps", "updates", "seconds")
            )
            lines.append(f"a run of {name}: {steps:,.0f} steps, {updates:,.0f} gradient steps, {seconds:,.1f} s")
    return lines


def sentence(one: Verdict) -> str:
    """A verdict that can be quoted."""
    label = BY_NAME[one.metric].label
    about = f"{'* ' if one.primary else '  '}{label}: {one.verdict}"
    if one.effect is None:
        return f"{about} ({one.note})" if one.note else about
    text = f"{about}. {amount(one)}"
    if one.verdict == NO_EVIDENCE and not measurable(one):
        text += "; every pair of runs has the same value, so nothing can be told apart here"
    elif one.verdict == NO_EVIDENCE:
        text += f"; a difference of {detectable(one)} would have been found in 80 % of such comparisons"
    elif one.verdict != INSUFFICIENT and one.p is not None:
        text += f", p {chance(one.p)}"
    text += _censored(one)
    return f"{text} ({one.note})" if one.note else text


def chance(p: float) -> str:
    """A p-value.

    >>> chance(3.5e-13), chance(0.0057)
    ('< 0.001', '0.006')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def amount(one: Verdict) -> str:
    """The effect with its interval."""
    if one.effect is None:
        return "-"
    metric, found = BY_NAME[one.metric], one.effect
    ends = (found.value, found.low, found.high)
    if metric.ratio:
        value, low, high = (_times(as_ratio(end)) for end in ends)
        return f"{value} [{low}, {high}] times"
    value, low, high = (signed(end, places(metric.unit, *ends)) for end in ends)
    share = ""
    if one.first.value > 0 and metric.name in AXES:
        share = f", {100 * found.value / one.first.value:+.0f} %"
    return f"{value} [{low}, {high}]{f' {metric.unit}' if metric.unit else ''}{share}"


def detectable(one: Verdict) -> str:
    """The smallest effect that the design could have seen; "-" where there was no spread that would tell."""
    if one.effect is None or not measurable(one):
        return "-"
    if BY_NAME[one.metric].ratio:
        return f"{_times(as_ratio(one.effect.detectable))} times"
    unit, value = BY_NAME[one.metric].unit, one.effect.detectable
    return f"{figure(value, places(unit, value))}{f' {unit}' if unit else ''}"


def measurable(one: Verdict) -> bool:
    """Whether its runs differ by more than rounding: of runs that are all alike nothing says what could be seen."""
    if one.effect is None or not math.isfinite(one.effect.detectable):
        return False
    least = 1e-9 if BY_NAME[one.metric].ratio else 0.5e-8  # below it `figure` shows nothing but zeros
    return one.effect.detectable > least


def level(one: Verdict, which: str) -> str:
    """One arm's own figure. A mean that holds runs which did not reach the threshold is a lower bound of theirs."""
    own = one.first if which == "first" else one.second
    value = own.value
    if not math.isfinite(value):
        return "-"
    if BY_NAME[one.metric].ratio:
        value = as_ratio(value)
    text = figure(value, places(BY_NAME[one.metric].unit, value))
    hits = own.runs if one.reached is None else one.reached[which == "second"]
    if hits == 0:
        return NOT_REACHED
    return text if hits == own.runs else f"> {text} ({hits} of {own.runs})"


def _censored(one: Verdict) -> str:
    """Of a time to the threshold: which runs did not come to it."""
    if one.reached is None:
        return ""
    sides = zip((one.against, one.arm), one.reached, (one.first.runs, one.second.runs), strict=True)
    told = [f"{name}: {hits or 'none'} of {runs}" for name, hits, runs in sides if hits < runs]
    return (
        f"; not all runs reached it ({', '.join(told)}), the others count as long as all were watched" if told else ""
    )


def places(unit: str, *values: float) -> int:
    """Decimals of figures of that unit; what is counted has none.

    >>> places("steps", 87_244.8), places("steps", 68.4), places("s", 1.994)
    (0, 2, 3)
    """
    counted = unit in COUNTED and max(map(abs, values)) >= 100
    return 0 if counted else decimals(*values)


def signed(value: float, digits: int) -> str:
    """With its sign, and no minus zero."""
    text = figure(value, digits)
    return f"+{text}" if value > 0 and not text.startswith("-") else text


def _times(value: float) -> str:
    return f"{value:.3g}"


def _table(verdicts: Sequence[Verdict]) -> list[str]:
    rows = [
        [f"{'* ' if one.primary else '  '}{BY_NAME[one.metric].label}", level(one, "first"), level(one, "second"),
         amount(one), one.verdict]
        for one in verdicts
    ]  # fmt: skip
    head = ["  what", verdicts[0].against, verdicts[0].arm, "difference [95 % interval]", "verdict"]
    return columns([head, *rows], right=(1, 2))


def _threshold(arms: Mapping[str, Sequence[RunFacts]], frame: Frame) -> list[str]:
    lines = [
        f"Threshold: a mean training return of {frame.threshold:g}. A run that does not reach it is kept: it counts "
        'with what all runs had, and a mean of such runs and others is shown as "> ..." with how many reached it.'
    ]
    for axis in AXES:
        found = shares(arms, frame, axis)
        unit = BY_NAME[axis].unit
        within = f"{frame.horizon[axis]:,.0f} {unit}" if axis != "seconds" else f"{frame.horizon[axis]:,.1f} s"
        reach = ", ".join(f"{name} {hits} of {runs}" for name, (hits, runs) in found.items())
        lines.append(f"  within {within}: {reach}")
    return lines


def _provisos(arms: Mapping[str, Sequence[RunFacts]], verdicts: Sequence[Verdict], primary: str) -> list[str]:
    lines = [
        "",
        f"* is the one claim that was declared ({primary}); all others share Holm's correction. One run is one value: "
        "episodes of a run are no replicates.",
    ]
    for run in crashed(arms):
        lines.append(f"not finished: {run.run} ({run.arm}, seed {run.seed}) {run.status}: {run.reason}")
    if crashed(arms):
        lines.append("a run that did not finish counts as no better than the worst one that did")
    if any(one.effect is not None and not one.effect.paired for one in verdicts):
        lines.append("the arms share no seeds: they were compared without pairs")
    return lines


def crashed(arms: Mapping[str, Sequence[RunFacts]]) -> list[RunFacts]:
    """Runs that did not come to their end, or whose score is no number."""
    return [run for runs in arms.values() for run in runs if not run.whole]


def data_of(
    task: str, arms: Mapping[str, Sequence[RunFacts]], verdicts: Sequence[Verdict], frame: Frame, primary: str
) -> dict[str, Any]:
    """The comparison as plain data."""
    return {
        "task": task,
        "primary": primary,
        "threshold": frame.threshold,
        "horizon": frame.horizon,
        "arms": [
            {"name": name, "finals": [run.final for run in runs], "seeds": [run.seed for run in runs],
             "settings": sorted({run.settings for run in runs}), "code": sorted({run.code for run in runs})}
            for name, runs in arms.items()
        ],
        "verdicts": [{**one.to_json(), "words": sentence(one).strip()} for one in verdicts],
        "reached": {axis: shares(arms, frame, axis) for axis in AXES},
        "crashed": [{"run": run.run, "arm": run.arm, "seed": run.seed, "reason": run.reason} for run in crashed(arms)],
    }  # fmt: skip


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
