"""A comparison as one page: the answer, what each claim came to, curves on three axes, effects, every run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.comparison.facts import AXES, RunFacts, flat
from shoal.comparison.folder import ComparisonFolder
from shoal.comparison.metrics import BY_NAME, PRIMARY
from shoal.comparison.verdicts import INSUFFICIENT, Verdict
from shoal.comparison.words import amount, budgets, chance, crashed, detectable, level, measurable, sentence
from shoal.core.statistics import interval
from shoal.runs.charts import Effect, Line, Point, chart, forest, legend
from shoal.runs.curves import on_one_axis
from shoal.runs.disk import replace_atomically
from shoal.runs.page import Card, Part, number, page, pairs, table, text
from shoal.runs.words import figure

if TYPE_CHECKING:
    from shoal.comparison.api import Comparison

UNITS = {"steps": "environment steps", "updates": "gradient steps", "seconds": "seconds"}
NAMED = 16  # characters of an arm's name beside a dot


def write_page(folder: ComparisonFolder, found: Comparison) -> Path:
    """Write `report.html`; returns its path."""
    path = folder.path / "report.html"
    replace_atomically(path, _page(folder, found).encode())
    return path


def _page(folder: ComparisonFolder, found: Comparison) -> str:
    plan = folder.plan
    runs = [run for every in found.arms.values() for run in every]
    total = len(plan.arms) * plan.seeds
    path = folder.path / "command.txt"
    command = path.read_text().strip() if path.exists() else ""
    facts = [
        f"{len(runs)} of {total} trainings are over: {len(found.arms)} arms, {plan.seeds} seeds each, the same in all",
        f"each trained policy played {plan.held_out} held-out episodes; one training is one value",
        f"the arms got the same {' and '.join(plan.match.split(','))}".replace("wall", "seconds"),
        *budgets(found.arms),
        f"declared before: {BY_NAME[found.primary].label}; all other claims share Holm's correction",
    ]
    answers = [text(sentence(one).strip("* ")) for one in found.verdicts if one.primary]
    named = [text(f"{one.arm} against {one.against}: ") for one in found.verdicts if one.primary]
    answer = "<br>".join(name + words for name, words in zip(named, answers, strict=True))
    return page(
        folder.run.name,
        f"{plan.task}: {' or '.join(found.arms)}" if len(found.arms) < 4 else f"{plan.task}: {len(found.arms)} arms",
        f"{text(folder.run.name)} &middot; <code>{text(command)}</code>",
        answer or "No verdict yet.",
        facts,
        [
            Part("Verdicts", _verdicts(found)),
            Part("Learning curves", _curves(found)),
            Part("Effects", _effects(found)),
            Part("Every run", _runs(found)),
            Part("Runs that did not finish", _crashed(found)),
            Part("What differs", _differences(plan.to_json()["arms"])),
            Part("Settings of the first arm", settings_of(plan.to_json()["arms"][0]["config"]), True),
        ],
        wide=True,
        cards=_cards(found),
    )


def _cards(found: Comparison) -> list[Card]:
    """Each arm's own score with its interval."""
    cards: list[Card] = []
    for one in found.verdicts:
        if one.metric != PRIMARY:
            continue
        sides = [(one.against, one.first), (one.arm, one.second)]
        for name, own in sides if not cards else sides[1:]:
            between = "" if own.low is None or own.high is None else f"95 % {figure(own.low)} to {figure(own.high)}"
            cards.append(
                Card(name, figure(own.value) if own.runs else "-", f"held-out IQM, {own.runs} runs; {between}")
            )
    return cards


def _verdicts(found: Comparison) -> str:
    parts = []
    for arm in dict.fromkeys(one.arm for one in found.verdicts):
        own = [one for one in found.verdicts if one.arm == arm]
        rows = [
            [BY_NAME[one.metric].label, one.verdict, amount(one), level(one, "first"), level(one, "second"),
             "-" if one.p is None or one.verdict == INSUFFICIENT else chance(one.p),
             detectable(one)]
            for one in own
        ]  # fmt: skip
        head = ["claim", "verdict", "difference [95 % interval]", own[0].against, arm, "p", "smallest to be seen"]
        marks = ["strong" if one.primary else "" for one in own]
        words = "".join(f"<li>{text(sentence(one).strip('* '))}</li>" for one in own)
        parts.append(
            f"<h3>{text(arm)} against {text(own[0].against)}</h3>{table(head, rows, marks, wide=(0, 1))}"
            f"<details><summary>In words</summary><ul>{words}</ul></details>"
        )
    about = (
        "The last column: the smallest difference that a comparison like this one finds in 80 of 100 cases. Where "
        "there is no evidence of a difference, one smaller than that may well be there. A time to the threshold as "
        "&gt; 1,000 (7 of 10): 7 of 10 runs reached it, the others count with what all had."
    )
    return "".join(parts) + f"<p class='facts'>{about}</p>" if parts else "<p>None yet.</p>"


def _curves(found: Comparison) -> str:
    """Every arm's mean with the 95 % band over its runs, against steps, updates and seconds."""
    figures = ""
    lines: list[Line] = []
    for axis in AXES:
        arms = {name: [run.curve for run in runs if len(run.curve.returns) > 1] for name, runs in found.arms.items()}
        arms = {name: curves for name, curves in arms.items() if curves}
        if not arms:
            return ""
        every = [(curve.axis(axis), curve.returns) for curves in arms.values() for curve in curves]
        at, values = on_one_axis(every)
        lines, start = [], 0
        for place, (name, curves) in enumerate(arms.items()):
            lines.append(_mean_line(name, np.array(values[start : start + len(curves)]), place))
            start += len(curves)
        label = f"mean return by {UNITS[axis]}"
        figures += f"<figure>{chart(at, lines, label=label, unit=UNITS[axis], target=found.frame.threshold)}</figure>"
    about = "Means over runs of the mean return of the last 100 training episodes, with 95 % bands, as far as all went."
    return f"<p class='facts'>{about}</p>{legend(lines)}<div class='charts'>{figures}</div>"


def _mean_line(name: str, values: Any, colour: int) -> Line:
    bands = [interval(column) for column in values.T] if len(values) > 1 else []
    bounds = [band for band in bands if band is not None]
    if len(bounds) < len(values.T):
        return Line(name, values.mean(0).tolist(), colour=colour)
    return Line(name, values.mean(0).tolist(), [low for low, _ in bounds], [high for _, high in bounds], colour=colour)


def _effects(found: Comparison) -> str:
    """Every effect in units of the smallest that the design could have seen; to the right is better."""
    parts = []
    for place, arm in enumerate(dict.fromkeys(one.arm for one in found.verdicts), start=1):
        own = [one for one in found.verdicts if one.arm == arm]
        rows = [row for one in own if (row := _effect(one, place)) is not None]
        if rows:
            heading = f"{text(arm)} against {text(own[0].against)}"
            parts.append(f"<figure><h3>{heading}</h3>{forest(rows, 'worse', 'better')}</figure>")
    if not parts:
        return ""
    about = (
        "95 % intervals. The unit is the smallest effect that a comparison like this one finds in 80 of 100 cases. An "
        "interval that crosses the middle leaves open which arm is better; an arrow is an effect beyond the edge. The "
        "noise scale is neither better nor worse: to the right is more."
    )
    beside = "charts" if len(parts) > 1 else "middle"  # one alone would be as wide as the page
    return f"<p class='facts'>{about}</p><div class='{beside}'>{''.join(parts)}</div>"


def _effect(one: Verdict, colour: int) -> Effect | None:
    if one.effect is None or not measurable(one):
        return None
    sign = BY_NAME[one.metric].better or 1
    ends = [sign * end / one.effect.detectable for end in (one.effect.low, one.effect.high)]
    label = BY_NAME[one.metric].label.partition(" (")[0]
    return Effect(
        label, sign * one.effect.value / one.effect.detectable, min(ends), max(ends),
        f"{label}: {amount(one)}; {one.verdict}", colour, one.primary,
    )  # fmt: skip


def _runs(found: Comparison) -> str:
    """The held-out return of every run: a dot each, and in figures."""
    points, names = [], list(found.arms)
    for place, runs in enumerate(found.arms.values()):
        for at, run in enumerate(runs):
            if run.final is not None:
                beside = place + 0.5 * ((at + 0.5) / len(runs) - 0.5)
                about = f"{run.run}: {figure(run.final)}"
                points.append(Point(beside, run.final, colour=place, crossed=not run.whole, about=about))
    short = [name if len(name) <= NAMED else f"arm {place + 1}" for place, name in enumerate(names)]
    drawn = chart(
        list(range(len(names))), [], label="held-out return of every run", unit="", points=points, names=short
    )
    head = ["seed", *(f"{code}: {name}" if code != name else name for code, name in zip(short, names, strict=True))]
    by_seed: dict[int, dict[str, RunFacts]] = {}
    for name, runs in found.arms.items():
        for run in runs:
            by_seed.setdefault(run.seed, {})[name] = run
    rows = [[str(seed), *(_final(by_seed[seed].get(name)) for name in names)] for seed in by_seed]
    picture = f"<div class='middle'>{drawn}</div>" if points else ""
    return f"{picture}<details><summary>In figures</summary>{table(head, rows)}</details>"


def _final(run: RunFacts | None) -> str:
    if run is None:
        return "-"
    return figure(run.final) if run.whole else run.status


def _crashed(found: Comparison) -> str:
    lines = [f"{run.run} ({run.arm}, seed {run.seed}) {run.status}: {run.reason}" for run in crashed(found.arms)]
    if not lines:
        return ""
    items = "".join(f"<li class='event'>{text(line)}</li>" for line in lines)
    return f"<p>Each counts as no better than the worst run that did finish.</p><ul>{items}</ul>"


def _differences(arms: Sequence[dict[str, Any]]) -> str:
    """Options that are not the same in all arms."""
    flats = [flat(arm["config"]) for arm in arms]
    names = [name for name in flats[0] if any(one.get(name) != flats[0][name] for one in flats)]
    rows = [[name, *(number(one.get(name)) for one in flats)] for name in names]
    return table(["option", *(arm["name"] for arm in arms)], rows) if rows else ""


def settings_of(config: dict[str, Any]) -> str:
    """The settings of all runs of an arm."""
    return pairs(flat(config, ("name", "runs_dir", "seed")))
