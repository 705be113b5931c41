"""What the page of a run of rides shows of its evaluation: a sentence, tables, the day and the pictures."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from shoal.core.statistics import ENOUGH_FOR_BOOTSTRAP
from shoal.rides.contest.record import BASE
from shoal.rides.contest.unfold import SCENE
from shoal.runs.disk import from_json
from shoal.runs.folder import Run
from shoal.runs.page import as_image, table, text
from shoal.runs.scores import EVALUATION

PICTURES = {
    "rides-routes": "Routes before and after: the day with the median net gain",
    "rides-windows": "The same day's windows: asked, agreed, served",
    "rides-pareto": "Saving against burden",
    "rides-calibration": "Calibration of P(accept)",
}
TITLE = "Evaluation on held-out days"
_OTHER = (ValueError, KeyError, TypeError, AttributeError)  # of a file that is not an evaluation of this version


def headline(run: Run) -> str:
    """What an operator wants to know, as a sentence."""
    path = run.path / EVALUATION
    if not path.exists():
        command = f"<code>shoal evaluate {text(run.name)}</code>"
        return f"What negotiating saves is not known yet: {command} plays held-out days."
    try:
        results = from_json(path.read_bytes())
        contest = next(iter(results["contests"].values()))
        return _in_words(run.name, contest)
    except (StopIteration, *_OTHER) as error:
        return f"{EVALUATION} is not one of this version ({text(error)}): evaluate the run again."


def spoken(folder: Path) -> str:
    """The same for the terminal."""
    return html.unescape(re.sub("<[^>]*>", "", headline(Run.open(folder, folder.parent))))


def _in_words(name: str, contest: dict[str, Any]) -> str:
    row, price = contest["policies"][name], contest["prices"][-1]
    saved, share, net = row["saved_min"][price], row["improvement_percent"][price]["mean"], row["net_min"][price]
    agree, away = row["acceptance_percent"], row["failure_percent"]["own"]
    parts = [
        f"<b>{'saves' if saved >= 0 else 'loses'} {abs(saved):.0f} minutes of driving a day</b> ({abs(share):.1f} %)",
        f"asks {row['offers']:.0f} of {contest['customers']:d} riders",
        *([] if agree is None else [f"{agree:.0f} % agree"]),
        "nobody is turned away" if away == 0 else f"{away:.2g} % of requests are turned away",
    ]
    interval = "" if net["low"] is None else f" [{net['low']:+.1f}, {net['high']:+.1f}]"
    return (
        f"Negotiating {', '.join(parts)}. Less what riders give, that is {net['mean']:+.1f}{interval} minutes a day "
        f"over {contest['days']:,d} held-out days."
    )


def section(run: Run, quickest: str) -> str:
    """The evaluation of a run as HTML, or the command with the flags of the quickest."""
    path = run.path / EVALUATION
    if not path.exists():
        return (
            f"<p>None yet: <code>shoal evaluate {text(run.name)} {text(quickest)}</code> "
            "plays held-out days and draws them; <code>--days 900</code> is for a verdict.</p>"
        )
    parts = []
    try:
        results = from_json(path.read_bytes())
        ours = {one["run"] for one in results["runs"]}
        for contest in results["contests"].values():
            parts.append(_about(contest, results) + _policies(contest, ours) + _paired(contest, ours))
    except _OTHER as error:
        parts.append(f"<p>{EVALUATION} is not one of this version ({text(error)}): evaluate the run again.</p>")
    parts.append(_day(run))
    for stem, title in PICTURES.items():
        picture = run.figures / f"{stem}.svg"
        if picture.exists():
            image = as_image(picture.read_text(errors="replace"), title)
            parts.append(f"<h3>{text(title)}</h3><figure class='{_SHAPES.get(stem, 'large')}'>{image}</figure>")
    return "".join(parts)


def _day(run: Run) -> str:
    """The day with the median net gain, with a slider through its requests; nothing where none was recorded."""
    path = run.figures / SCENE
    if not path.exists():
        return ""
    from shoal.rides.figures.scene import scene as drawn

    try:
        if path.stat().st_size > MOST_SCENE:
            raise ValueError(f"expected at most {MOST_SCENE:,} bytes")
        markup = drawn(from_json(path.read_bytes()))
    except (OSError, IndexError, *_OTHER) as error:
        return f"<p class='event'>The day could not be drawn: {text(error)}</p>"
    return f"<h3>A day, request by request</h3>{markup}"


MOST_SCENE = 2_000_000  # bytes
_SHAPES = {"rides-calibration": "middle"}


def _about(contest: dict[str, Any], results: dict[str, Any]) -> str:
    solver = results["reference"]
    judge = (
        f"Prices by {solver['solver']} ({solver['iterations']:,d} iterations, best of {solver['seeds']:d}), beside "
        if solver
        else "Prices by "
    )
    riders = "riders known from training" if contest.get("held_out") == "days" else "held-out riders"
    few = ", too narrow for so few" if contest["days"] < ENOUGH_FOR_BOOTSTRAP else ""
    about = (
        f"{contest['days']:,d} days of {contest['customers']:d} requests of {riders}, {contest['vehicles']:d} "
        f"vehicles; the same days for every policy. {judge}the own oracle ({contest['iterations']:d} iterations a "
        f"request). Net gain: route minutes saved, less {contest['patience']:g} per minute a rider agreed to and "
        f"{contest['refusal']:g} per refusal. Brackets: 95 % bootstrap intervals over days{few}."
    )
    return f"<h3>{text(contest['about'])}</h3><p>{text(about)}</p>"


def _policies(contest: dict[str, Any], ours: set[str]) -> str:
    """A row for each policy, in the console's order; a column that nobody has a figure for is left out."""
    prices = list(reversed(contest["prices"]))
    main = prices[0]
    head = [*(f"net gain, min ({price})" for price in prices), "saved %", "agreed min/rider"]
    head += ["refusals a day", "accepted %", "turned away %", "ride / direct", "gap closed"]
    names = sorted(contest["policies"], key=lambda name: float(contest["policies"][name]["net_min"][main]["mean"]))
    rows = []
    for name in names:
        row = contest["policies"][name]
        gap, accepted = row["gap_closed_percent"].get(main), row["acceptance_percent"]
        rows.append([
            *(_interval(row["net_min"][price]) for price in prices),
            _interval(row["improvement_percent"][main], "+.2f"),
            f"{row['agreed_min_per_rider']:.1f}",
            f"{row['refusals']:.1f}",
            "-" if accepted is None else f"{accepted:.0f}",
            f"{row['failure_percent']['own']:.2f}",
            "-" if row["ride_to_direct"]["mean"] is None else f"{row['ride_to_direct']['mean']:.2f}",
            "-" if gap is None or gap["mean"] is None else f"{gap['mean']:.0f} %",
        ])  # fmt: skip
    used = [place for place in range(len(head)) if any(row[place] != "-" for row in rows)]
    shown = [[name, *(row[place] for place in used)] for name, row in zip(names, rows, strict=True)]
    marks = ["strong" if name in ours else "" for name in names]
    kinds = list(contest["policies"][BASE]["agreed_min_by_type"])
    asking = [name for name in names if name != BASE]
    by_type = [[name, *(_minutes(contest["policies"][name]["agreed_min_by_type"][kind]) for kind in kinds)]
               for name in asking]  # fmt: skip
    return (
        table(["", *(head[place] for place in used)], shown, marks)
        + "<p>Minutes agreed to per rider, by hidden type:</p>"
        + table(["", *kinds], by_type, ["strong" if name in ours else "" for name in asking])
    )


def _paired(contest: dict[str, Any], ours: set[str]) -> str:
    """Differences of the runs and of groups of runs against the baselines."""
    prices = list(reversed(contest["prices"]))
    rows, marks = [], []
    for name, group in contest["groups"].items():
        for other, cells in group["differences"].items():
            each = ", ".join(f"{value:+.1f}" for value in cells[prices[0]]["runs"])
            label = f"{name} ({len(group['runs'])} runs) - {other}"
            rows.append([label, *(_interval(cells[price]) for price in prices), each])
            marks.append("strong")
    for name in sorted(ours):
        for other, cells in contest["differences"].get(name, {}).items():
            each_of_one = [""] if contest["groups"] else []
            rows.append([f"{name} - {other}", *(_interval(cells[price]) for price in prices), *each_of_one])
    head = ["", *(f"difference of net gain, min ({price})" for price in prices)]
    head += [f"each run ({prices[0]})"] if contest["groups"] else []
    return "<p>Paired differences, day by day:</p>" + table(head, rows, marks) if rows else ""


def _interval(cell: dict[str, Any], pattern: str = "+.1f") -> str:
    if cell["low"] is None:
        return "-"
    return f"{cell['mean']:{pattern}} [{cell['low']:{pattern}}, {cell['high']:{pattern}}]"


def _minutes(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
