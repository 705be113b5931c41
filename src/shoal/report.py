"""A run folder in, one self-contained HTML page out. Everything from data is escaped; nothing remote is loaded."""

from __future__ import annotations

import html
import io
from pathlib import Path
from typing import Any

from shoal.figures.curves import curve, target_line
from shoal.runs.disk import read_json, replace_atomically
from shoal.runs.store import Run

_CURVES = (
    ("return/mean_100", "mean return, last 100 episodes"),
    ("length/mean_100", "mean episode length"),
    ("policy/entropy", "entropy"),
    ("policy/kl", "KL per update"),
    ("value/explained_variance", "explained variance"),
    ("time/steps_per_s", "steps per second"),
)
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2733; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.facts { color: #5b6670; margin-top: .2rem; } code { background: #eef2f6; padding: .1rem .3rem; border-radius: 3px; }
table { border-collapse: collapse; font-size: .9rem; } td, th { padding: .15rem .8rem .15rem 0; text-align: left;
vertical-align: top; } th { color: #5b6670; font-weight: 500; } svg { width: 100%; height: auto; }
details { margin: .5rem 0; } .event { color: #8a2f1d; white-space: pre-wrap; }
"""


def write_report(run: str | Path | Run, *, runs_dir: str | Path = "runs") -> Path:
    """Write `report.html` and `figures/curves.svg` of a run; returns the page's path."""
    folder = run if isinstance(run, Run) else Run.open(run, Path(runs_dir))
    rows = folder.metrics()
    picture = _picture(rows, folder.config)
    if picture:
        replace_atomically(folder.figures / "curves.svg", picture.encode())
    path = folder.path / "report.html"
    replace_atomically(path, _page(folder, rows, picture + _episodes(folder)).encode())
    return path


def _episodes(run: Run) -> str:
    """Episodes to look at, for a task that can draw them."""
    if run.config["task"] == "rides":
        from shoal.rides_report import section

        return section(run)
    if run.config["task"] != "cage2":
        return ""
    from shoal.defender import cage2_policy
    from shoal.figures.episode import episode_figure
    from shoal.tasks.cage2.commands import play

    try:
        defend, options = cage2_policy(run.path)
    except ValueError as error:  # a network of the user's own: there is nothing here to rebuild it from
        return f"<p>No episode drawn: {_text(error)}</p>"
    parts = ["<h2>A held-out episode against each attacker</h2>"]
    for red in ("bline", "meander"):
        svg = _svg(episode_figure(play(defend, red=red, **options)["picture"]))
        replace_atomically(run.figures / f"episode-{red}.svg", svg.encode())
        parts.append(svg)
    return "".join(parts)


def _picture(rows: list[dict[str, Any]], config: dict[str, Any]) -> str:
    if not rows:
        return ""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7.5), layout="constrained")
    for axis, (key, label) in zip(figure.subplots(3, 2).ravel(), _CURVES, strict=True):
        curve(axis, rows, key, label)
        target = config["run"].get("target_return")
        if key == "return/mean_100" and target is not None:
            target_line(axis, target)
    return _svg(figure)


def _svg(figure: Any) -> str:
    """A figure as SVG, without the XML prologue, which names a remote document type."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": "shoal"})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _page(run: Run, rows: list[dict[str, Any]], picture: str) -> str:
    config, last = run.config, rows[-1] if rows else {}
    machine, code = (read_json(run.path / name) for name in ("machine.json", "code.json"))
    command = (run.path / "command.txt").read_text().strip()
    events = run.events()
    inexact = [event["text"] for event in events if event.get("event") == "inexact"]
    facts = [
        f"status {run.status}: {run.status_message}",
        f"{last.get('steps', 0):,} steps, {last.get('episodes', 0):,} episodes, {last.get('epoch', 0):,} epochs",
        f"mean return of the last 100 episodes {_number(last.get('return/mean_100'))}",
        "reproducible bit for bit" if not inexact else "inexact: " + "; ".join(inexact),
    ]
    settings = {f"{group}.{name}": value for group in ("vector", "ppo", "run") for name, value in config[group].items()}
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(run.name)}</title><style>{_STYLE}</style></head><body>
<h1>{_text(config["task"])}</h1>
<p class="facts">{_text(run.name)} &middot; <code>{_text(command)}</code></p>
<ul>{"".join(f"<li>{_text(fact)}</li>" for fact in facts)}</ul>
{picture or "<p>No epoch has been recorded yet.</p>"}
<h2>Events</h2>{_events(events)}
<h2>Last epoch</h2>{_table(last)}
<details><summary>Settings</summary>{_table(settings)}</details>
<details><summary>Machine and code</summary>{_table({**machine, **code})}</details>
</body></html>
"""


def _events(events: list[dict[str, Any]]) -> str:
    if not events:
        return "<p>None: no fault, no restart, no alarm.</p>"
    lines = [
        f"<li class='event'>{_text(e.get('at', ''))} {_text(e.get('event', ''))} {_text(e.get('text', ''))}</li>"
        for e in events
    ]
    return f"<ul>{''.join(lines[-200:])}</ul>"


def _table(values: dict[str, Any]) -> str:
    rows = "".join(f"<tr><th>{_text(name)}</th><td>{_text(_number(value))}</td></tr>" for name, value in values.items())
    return f"<table>{rows}</table>"


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.5g}" if isinstance(value, float) else str(value)


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)
