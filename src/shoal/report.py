"""A run folder in, one self-contained HTML page out. Everything from data is escaped; nothing remote is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shoal.extras import install, missing
from shoal.runs import scores
from shoal.runs.conduct import conduct_line
from shoal.runs.disk import read_json, replace_atomically
from shoal.runs.folder import Run
from shoal.runs.meanings import MEANINGS
from shoal.runs.page import Part, number, page, pairs, svg_of, table, text, themed

RETURN = "return/mean_100"
_TASK_CURVES = (  # shown where a run has them
    ("rides/net_min", "net gain, minutes a day"),
    ("rides/improvement", "minutes saved, %"),
    ("workflow/return", "own return"),
    ("workflow/compliance", "compliance with the order"),
)
_CURVES = (
    (RETURN, "mean return, last 100 episodes"),
    *_TASK_CURVES,
    ("length/mean_100", "mean episode length"),
    ("policy/entropy", "entropy"),
    ("policy/kl", "KL per update"),
    ("value/explained_variance", "explained variance"),
    ("time/steps_per_s", "steps per second"),
)
_RIDES_TWICE = (RETURN, "length/mean_100")  # the return is the net gain, the length the number of requests
_MOST_EVENTS = 200


def write_report(run: str | Path | Run, *, runs_dir: str | Path = "runs") -> Path:
    """Write `report.html` and `figures/curves.svg` of a training run; returns the page's path."""
    folder = run if isinstance(run, Run) else Run.open(run, Path(runs_dir))
    config = folder.config
    if "task" not in config:
        kind = "a search, whose page shoal.search.sections writes" if "search" in config else "neither run nor search"
        raise ValueError(f"{folder.path}: expected the folder of a training run, got {kind}")
    rows = folder.metrics()
    pictures = _pictures(rows, config)
    if pictures:
        replace_atomically(folder.figures / "curves.svg", _side_by_side(pictures).encode())
    path = folder.path / "report.html"
    replace_atomically(path, _page(folder, rows, pictures).encode())
    return path


def _page(run: Run, rows: list[dict[str, Any]], pictures: list[str]) -> str:
    config, last, kept = run.config, rows[-1] if rows else {}, scores.kept(run)
    machine, code = (read_json(run.path / name) for name in ("machine.json", "code.json"))
    command, events = (run.path / "command.txt").read_text().strip(), run.events()
    facts = [
        f"status {run.status}: {run.status_message}",
        f"{number(last.get('steps', 0))} steps, {number(last.get('episodes', 0))} episodes, "
        f"{number(last.get('epoch', 0))} epochs",
        f"mean return of the last 100 training episodes {number(last.get(RETURN))}",
        _exactness(events, kept),
    ]
    settings = {f"{group}.{name}": value for group in ("vector", "ppo", "run") for name, value in config[group].items()}
    if config["task"] == "rides":
        from shoal.rides.contest import report as rides_report

        answer, scored = rides_report.headline(run), [Part(rides_report.TITLE, rides_report.section(run))]
    else:
        answer, scored = _answer(run, last, kept), [Part("Held-out score", _scores(kept))]
    return page(
        run.name,
        config["task"],
        f"{text(run.name)} &middot; <code>{text(command)}</code>",
        answer,
        facts,
        [
            *scored,
            Part("Training", _charts(run, rows, pictures)),
            Part("Episodes", _episodes(run)),
            Part("Events", _events(events)),
            Part("Last epoch", pairs(last, MEANINGS) if last else ""),
            Part("Settings", pairs({"task": config["task"], "env_kwargs": config.get("env_kwargs"), **settings}), True),
            Part("Machine and code", pairs({**machine, **code}), True),
        ],
    )


def _exactness(events: list[dict[str, Any]], kept: dict[str, Any]) -> str:
    """What is known of reproducing the run, and no more."""
    inexact = [str(event.get("text")) for event in events if event.get("event") == "inexact"]
    if inexact:
        return "inexact: " + "; ".join(inexact)
    replayed = _part(kept, scores.HELD_OUT).get("replayed_alike")
    if replayed is None:
        return "nothing is known against reproducing it bit for bit (no episode has been replayed)"
    if replayed is not True:
        return "not reproducible: a held-out episode that was played again with its seed went otherwise"
    return "nothing is known against reproducing it bit for bit; a held-out episode went the same twice"


# -- scores --------------------------------------------------------------------------------------------


def _part(values: Any, name: str) -> dict[str, Any]:
    """A part of a file that anybody may have written: an object, or as if it was not there."""
    found = values.get(name) if isinstance(values, dict) else None
    return found if isinstance(found, dict) else {}


def _answer(run: Run, last: dict[str, Any], kept: dict[str, Any]) -> str:
    """The page in a sentence or two."""
    found, parts = _part(kept, scores.HELD_OUT), []
    if found:
        late = found.get("epoch") != last.get("epoch")
        at = f" (epoch {text(number(found.get('epoch')))} of {text(number(last.get('epoch')))})" if late else ""
        parts.append(
            f"On {text(number(found.get('episodes')))} episodes that it has never seen, the trained policy{at} returns "
            f"<b>{text(number(found.get('mean')))}</b> on average{_between(found)}."
        )
        conduct = _part(_part(found, "deterministic"), "conduct")
        if conduct:
            parts.append(_conduct_text(conduct))
    board = _part(kept, scores.LEADERBOARD)
    if board:
        total = _part(board, "sum")
        parts.append(
            f"By the challenge's protocol its sum is <b>{text(number(total.get('mean'), ',.2f'))}</b>"
            f"{_between(total, ',.2f')}."
        )
    if not found and not board:
        mean = last.get(RETURN)
        if mean is not None:
            parts.append(f"The last 100 training episodes returned {text(number(mean))} on average.")
        parts.append(
            f"No held-out score yet: <code>shoal evaluate {text(run.name)}</code> plays episodes that training has "
            "never seen."
        )
    return " ".join(parts)


def _between(score: dict[str, Any], pattern: str = ",.5g") -> str:
    if score.get("low") is None or score.get("high") is None:
        return ""
    low, high = (text(number(score[end], pattern)) for end in ("low", "high"))
    return f", 95 % interval {low} to {high}"


def _conduct_text(conduct: dict[str, Any]) -> str:
    try:
        line = conduct_line(conduct)
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""
    return text(f"Under its order, {line}.")


def _scores(kept: dict[str, Any]) -> str:
    found, board = _part(kept, scores.HELD_OUT), _part(kept, scores.LEADERBOARD)
    return (_held_out(found) if found else "") + (_leaderboard(board) if board else "")


def _held_out(found: dict[str, Any]) -> str:
    rows, conducts = [], []
    for mode in ("deterministic", "sampled"):
        score = _part(found, mode)
        interval = "-" if score.get("low") is None else f"{number(score['low'])} to {number(score.get('high'))}"
        figures = (number(score.get(name)) for name in ("median", "worst", "best", "mean_length", "unfinished"))
        rows.append([mode, number(score.get("episodes")), number(score.get("mean")), interval, *figures])
        if _part(score, "conduct"):
            conducts.append(f"<li>{text(mode)}: {_conduct_text(_part(score, 'conduct'))}</li>")
    head = ["actions", "episodes", "mean return", "95 % interval", "median", "worst", "best", "length", "unfinished"]
    about = (
        f"Played {text(found.get('at', ''))} at epoch {text(number(found.get('epoch')))}, evaluation seed "
        f"{text(number(found.get('seed')))}."
    )
    if any(_part(found, mode).get("unfinished") for mode in ("deterministic", "sampled")):
        limit = text(number(found.get("max_episode_steps")))
        about += f" Unfinished episodes were cut after {limit} steps; their returns so far are counted."
    skipped = found.get("skipped")
    damaged = "".join(
        f"<li class='event'>a newer checkpoint is damaged: {text(reason)}</li>"
        for reason in (skipped if isinstance(skipped, list) else [])
    )
    return f"{table(head, rows)}<ul>{damaged}{''.join(conducts)}</ul><p class='facts'>{about}</p>"


def _leaderboard(board: dict[str, Any]) -> str:
    """The nine means of cage2's challenge and what others have published."""
    cells = [cell for cell in board.get("cells") or [] if isinstance(cell, dict)]
    rows = [
        [
            cell.get("red"), number(cell.get("horizon")), number(cell.get("mean"), ",.2f"),
            f"{number(cell.get('low'), ',.2f')} to {number(cell.get('high'), ',.2f')}",
            number(cell.get("median"), ",.2f"), number(cell.get("worst"), ",.2f"), number(cell.get("episodes")),
        ]
        for cell in cells
    ]  # fmt: skip
    head = ["attacker", "steps", "mean return", "95 % interval", "median", "worst", "episodes"]
    sums = [["this run", number(_part(board, "sum").get("mean"), ",.2f"), board.get("rules")]]
    sums += [
        [row.get("name"), number(row.get("sum"), ",.2f"), row.get("rules")]
        for row in board.get("published") or []
        if isinstance(row, dict)
    ]
    return (
        f"<h3>Leaderboard</h3><p class='facts'>Played {text(board.get('at', ''))} in the simulator "
        f"{text(board.get('simulator'))}; sums under different rules are not comparable.</p>"
        + table(["defender", "sum of the nine means", "rules"], sums, ["strong"], wide=[2])
        + table(head, rows)
    )


# -- pictures and lists ----------------------------------------------------------------------------------


def _pictures(rows: list[dict[str, Any]], config: dict[str, Any]) -> list[str]:
    """A small chart for every curve that the rows have values of, as SVG; none without matplotlib."""
    if missing("report"):
        return []
    from shoal.runs.curves import curve_figure

    found = []
    target = config["run"].get("target_return")
    for key, label in _CURVES:
        values = {row.get(key) for row in rows} - {None}
        if values and not (config["task"] == "rides" and key in _RIDES_TWICE):
            found.append(svg_of(curve_figure(rows, key, label, target if key == RETURN else None)))
    return found


def _charts(run: Run, rows: list[dict[str, Any]], pictures: list[str]) -> str:
    if pictures:
        return f"<div class='charts'>{''.join(f'<div>{themed(picture)}</div>' for picture in pictures)}</div>"
    return _undrawn(run, "report", "curves") if rows and missing("report") else "No epoch has been recorded yet."


def _undrawn(run: Run, extra: str, what: str) -> str:
    """What to install for a picture, and how it then gets onto the page."""
    return (
        f"<p>No {what} drawn, since matplotlib is not installed: <code>{text(install(extra))}</code>, then "
        f"<code>shoal report {text(run.name)}</code>.</p>"
    )


def _side_by_side(pictures: list[str], columns: int = 2) -> str:
    """Several SVGs of one size as one."""
    size = re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', pictures[0])
    if size is None:
        raise ValueError(f"expected an SVG with a viewBox, got one that begins {pictures[0][:80]!r}")
    width, height = float(size[1]), float(size[2])
    placed = "".join(
        svg.replace("<svg ", f'<svg x="{i % columns * width}" y="{i // columns * height}" ', 1)
        for i, svg in enumerate(pictures)
    )
    view = f"0 0 {columns * width} {-(-len(pictures) // columns) * height}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}">{placed}</svg>'


def _episodes(run: Run) -> str:
    """Episodes to look at, for a task that can draw them."""
    if run.config["task"] != "cage2":
        return ""
    if missing("cage2"):
        return _undrawn(run, "cage2", "episode")
    from shoal.cage2.commands import play
    from shoal.cage2.defender import cage2_policy
    from shoal.cage2.figures import episode_figure

    try:
        defend, options = cage2_policy(run.path)
    except ValueError as error:  # a network of the user's own: there is nothing here to rebuild it from
        return f"<p>No episode drawn: {text(error)}</p>"
    parts = ["<p>A held-out episode against each attacker.</p>"]
    for red in ("bline", "meander"):
        data = play(defend, red=red, **options)["picture"]
        svg = svg_of(episode_figure({**data, "title": f"{run.name} against {data['title']}"}))
        replace_atomically(run.figures / f"episode-{red}.svg", svg.encode())
        parts.append(f"<figure class='large'>{themed(svg)}</figure>")
    return "".join(parts)


def _events(events: list[dict[str, Any]]) -> str:
    if not events:
        return "<p>None: no fault, no restart, no alarm.</p>"
    lines = [
        f"<li class='event'>{text(e.get('at', ''))} {text(e.get('event', ''))} {text(e.get('text', ''))}</li>"
        for e in events[-_MOST_EVENTS:]
    ]
    return f"<ul>{''.join(lines)}</ul>"
