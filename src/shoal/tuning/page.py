"""A search of settings as one page: what to use, the finalists, the best so far, every trial."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.extras import require
from shoal.runs.charts import Line, Point, chart, legend
from shoal.runs.disk import from_json, replace_atomically
from shoal.runs.page import Card, Part, page, pairs, table, text
from shoal.runs.words import figure
from shoal.tuning.folder import FINALS, FOUND, PLAN, REACHED, STUDY
from shoal.tuning.loop import LOOKS, Final, Found, SearchPlan, base_of
from shoal.tuning.space import Space, flags

WHAT = {"steps": "steps to the target", "cpu": "CPU-seconds to the target", "return": "return at the end"}
STATES = {"COMPLETE": "finished", "PRUNED": "pruned", "RUNNING": "under way", "FAIL": "failed", "WAITING": "waiting"}


@dataclass(frozen=True)
class Tried:
    """A trial: its settings, its value as people read it (None: none, or the target was not reached), its curve."""

    number: int
    state: str
    value: float | None
    settings: dict[str, Any]
    curve: dict[int, float]  # mean return by twentieths of the budget


def write_page(folder: Path) -> Path:
    """Write `report.html` of a search, finished or not; returns its path."""
    require("tune", "the page of a search")
    plan = SearchPlan(**from_json((folder / PLAN).read_bytes()))
    base = base_of(plan)
    measure = plan.measure or ("return" if base.run.target_return is None else "steps")
    trials, found = _trials(folder, Space(base), measure), _found(folder, plan)
    path = folder / "report.html"
    own = trials[0].settings if trials else {}
    body = page(
        folder.name,
        f"{plan.task}: search of settings",
        f"{text(folder.name)} &middot; <code>shoal tune {text(plan.task)} --search</code>",
        _answer(plan, measure, trials, found),
        [
            f"measured: {WHAT[measure]}" + (f" {figure(base.run.target_return)}" if measure != "return" else ""),
            f"{len(trials)} of {plan.trials} trials, of which {sum(one.state == 'pruned' for one in trials)} pruned",
            f"{plan.finalists} finalists and the task's own settings, each with {plan.seeds} new seeds",
        ],
        [
            Part("Settings to use", _use(plan, found, own)),
            Part("Finalists", _finalists(found, measure)),
            Part("Best so far", _so_far(trials, measure)),
            Part("Learning curves of the trials", _curves(trials, found, base.run.target_return)),
            Part("Trials", _table(trials, measure)),
            Part("Plan", pairs({**vars(plan), "budget of a trial, steps": base.run.steps}), True),
        ],
        wide=True,
        cards=_cards(found, measure, trials),
    )
    replace_atomically(path, body.encode())
    return path


def _trials(folder: Path, space: Space, measure: str) -> list[Tried]:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = JournalStorage(JournalFileBackend(str(folder / STUDY)))
    found = []
    for trial in optuna.load_study(study_name="search", storage=storage).get_trials(deepcopy=False):
        if trial.params.keys() != space.own.keys():
            continue  # begun, and stopped before its settings were chosen
        state = STATES.get(trial.state.name, trial.state.name.lower())
        value = trial.value if state == "finished" and trial.user_attrs.get(REACHED, True) else None
        shown = None if value is None else _shown(value, measure)
        curve = {step: -value for step, value in trial.intermediate_values.items()}
        found.append(Tried(trial.number, state, shown, space.options(trial.params), curve))
    return found


def _found(folder: Path, plan: SearchPlan) -> Found | None:
    """What the search came to, if it has and no finalist is missing."""
    path = folder / FOUND
    if not path.exists() or not (folder / FINALS).exists():
        return None
    kept = from_json(path.read_bytes())
    finals = [
        Final(one["number"], _tuples(one["settings"]), one["values"], one["reached"], one["own"])
        for one in kept["finals"]
    ]
    if kept["plan"]["trials"] != plan.trials:
        return None  # more trials were asked for since
    return Found(plan, kept["measure"], kept["target"], kept["trials"], kept["pruned"], finals, kept["folder"])


def _tuples(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


def _shown(value: float, measure: str) -> float:
    return -value if measure == "return" else value


def _final(final: Final, measure: str) -> str:
    return figure(_shown(final.median, measure)) if any(final.reached) else "not reached"


def _answer(plan: SearchPlan, measure: str, trials: Sequence[Tried], found: Found | None) -> str:
    if found is None:
        done = sum(one.state in ("finished", "pruned", "failed") for one in trials)
        return (
            f"The search is not finished: {done} of {plan.trials} trials. To continue it, run the same command again."
        )
    own = next(final for final in found.finals if final.own)
    few = f" {plan.seeds} seeds are no verdict: <code>shoal compare</code> tests it." if plan.seeds < 10 else ""
    if found.in_vain:
        return f"{text(found.in_vain[0].upper() + found.in_vain[1:])}."
    if found.best.own:
        return (
            f"Nothing better was found than the task's own settings ({text(_final(own, measure))} {WHAT[measure]}, "
            f"median of {plan.seeds} seeds)."
        )
    return (
        f"Trial {found.best.number} is best: <b>{text(_final(found.best, measure))}</b> {WHAT[measure]}, the task's "
        f"own settings {text(_final(own, measure))} (medians of {plan.seeds} seeds that no trial has seen).{few}"
    )


def _cards(found: Found | None, measure: str, trials: Sequence[Tried]) -> list[Card]:
    if found is None:
        return [Card("trials", str(len(trials)), "so far")]
    if found.in_vain:
        return []
    own = next(final for final in found.finals if final.own)
    cards = [Card("the task's own settings", _final(own, measure), f"{WHAT[measure]}, median")]
    if not found.best.own:
        cards.append(Card(f"trial {found.best.number}", _final(found.best, measure), f"{WHAT[measure]}, median"))
    return cards


def _use(plan: SearchPlan, found: Found | None, own: dict[str, Any]) -> str:
    """The command and the preset to paste, and what differs from the task's own settings."""
    if found is None or found.in_vain:
        return ""
    best = found.best.settings
    command = f"shoal train {plan.task}" + ("" if found.best.own else f" {flags(best)}")
    preset = f"{json.dumps(plan.task)}: {best!r},"
    rows = [[name, _value(own.get(name)), _value(value)] for name, value in best.items() if own.get(name) != value]
    differing = table(["option", "the task's own", f"trial {found.best.number}"], rows) if rows else ""
    return (
        f"<pre><code>{text(command)}</code></pre>{differing}"
        f"<details><summary>As a preset</summary><pre><code>{text(preset)}</code></pre></details>"
    )


def _finalists(found: Found | None, measure: str) -> str:
    """A dot for each seed that reached the target; and the figures."""
    if found is None:
        return ""
    finals = sorted(found.finals, key=lambda one: one.median)
    names = ["own settings" if final.own else f"trial {final.number}" for final in finals]
    points = [
        Point(
            place + 0.4 * ((at + 0.5) / len(final.values) - 0.5), _shown(value, measure), colour=place,
            about=f"{name}, seed {at}: {figure(_shown(value, measure))}",
        )
        for place, (name, final) in enumerate(zip(names, finals, strict=True))
        for at, (value, there) in enumerate(zip(final.values, final.reached, strict=True))
        if there
    ]  # fmt: skip
    drawn = chart(list(range(len(names))), [], label=WHAT[measure], unit="", points=points, names=names, zero=True)
    rows = [
        [name, _final(final, measure),
         *(figure(_shown(value, measure)) if there else "not reached"
           for value, there in zip(final.values, final.reached, strict=True))]
        for name, final in zip(names, finals, strict=True)
    ]  # fmt: skip
    head = ["settings", "median", *(f"seed {place}" for place in range(len(finals[0].values)))]
    marks = ["strong" if final is found.best else "" for final in finals]
    return (f"<div class='middle'>{drawn}</div>" if points else "") + table(head, rows, marks)


def _so_far(trials: Sequence[Tried], measure: str) -> str:
    """The value of each trial, and the best of those before."""
    better = max if measure == "return" else min
    values = [one.value for one in trials]
    best: list[float | None] = []
    for value in values:
        before = [one for one in (value, best[-1] if best else None) if one is not None]
        best.append(better(before) if before else None)
    if not any(value is not None for value in values):
        return ""
    numbers = [one.number for one in trials]
    points = [
        Point(one.number, one.value, colour=1, about=f"trial {one.number}: {figure(one.value)}")
        for one in trials
        if one.value is not None
    ]
    drawn = chart(numbers, [Line("best so far", best)], label=WHAT[measure], unit="trial", points=points)
    about = "One seed for each trial, so chance is in it. Trials without a dot were pruned or did not reach the target."
    return f"<p class='facts'>{about}</p><div class='middle'>{drawn}</div>"


def _curves(trials: Sequence[Tried], found: Found | None, target: float | None) -> str:
    """All of them quietly, the task's own and the best in colour."""
    at = [100 * look / LOOKS for look in range(LOOKS + 1)]
    loud = {} if found is None else {found.best.number: f"trial {found.best.number}"}
    loud[0] = "the task's own settings"
    lines = []
    for one in sorted(trials, key=lambda one: one.number in loud):
        last = max(one.curve, default=-1)
        values: list[float | None] = []
        for look in range(last + 1):  # one epoch may go over several looks
            values.append(one.curve.get(look, values[-1] if values else None))
        if values:
            values += [None] * (LOOKS - last)
            name = loud.get(one.number, f"trial {one.number}")
            colour = 7 if one.number not in loud else 0 if one.number == 0 else 1
            lines.append(Line(name, values, colour=colour, thin=one.number not in loud))
    if not lines:
        return ""
    label = "mean return, last 100 episodes"
    named = legend([line for line in lines if not line.thin])
    drawn = chart(at, lines, label=label, unit="% of the budget", target=target)
    return f"{named}<div class='middle'>{drawn}</div>"


def _table(trials: Sequence[Tried], measure: str) -> str:
    if not trials:
        return ""
    names = list(dict.fromkeys(name for one in trials for name in one.settings))
    rows = []
    for one in trials:
        told = one.state if one.state != "finished" else "not reached" if one.value is None else figure(one.value)
        rows.append([one.number, told, *(_value(one.settings.get(name)) for name in names)])
    done = [one.value for one in trials if one.value is not None]
    best = (max(done) if measure == "return" else min(done)) if done else None
    marks = ["strong" if best is not None and one.value == best else "" for one in trials]
    return table(["trial", WHAT[measure], *names], rows, marks)


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return (
        " ".join(map(str, value))
        if isinstance(value, tuple)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
