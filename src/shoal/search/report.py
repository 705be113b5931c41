"""A search as one self-contained HTML page. Everything from data is escaped; nothing remote is loaded."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.bandit.strategies import Told, ranking
from shoal.runs.disk import from_json, replace_atomically
from shoal.search.domain import Domain, Ranking, make_domain
from shoal.search.folder import Record, SearchFolder
from shoal.search.replay import Table, contest
from shoal.search.summary import Summary, answer_lines, next_pick, posterior_of, summarise
from shoal.vector.layout import Array

REPLAYS = 20
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2733; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.facts { color: #5b6670; margin-top: .2rem; } code { background: #eef2f6; padding: .1rem .3rem; border-radius: 3px; }
.answer { font-size: 1.15rem; background: #eef2f6; padding: .7rem 1rem; border-radius: 6px; }
table { border-collapse: collapse; font-size: .85rem; } td, th { padding: .15rem .9rem .15rem 0; text-align: right; }
td { white-space: nowrap; } td:nth-child(2), th:nth-child(2) { text-align: left; white-space: normal; }
th { color: #5b6670; font-weight: 500; vertical-align: bottom; }
tr.failed td { color: #b8402a; } tr.best td { font-weight: 600; } svg { width: 100%; height: auto; } .episode svg {
max-width: 60rem; } .way svg { max-width: 26rem; } details { margin: .5rem 0; }
"""


def write_page(
    folder: SearchFolder, domain: Domain, records: Sequence[Record], table: Ranking | None, summary: Summary
) -> Path:
    """Write `report.html` and its figures; returns the page's path."""
    from shoal.figures.posterior import posterior_figure, pulls_figure

    config = folder.config
    posterior = posterior_of(domain, records)
    pulls = [(r.request.number + 1, r.request.item, r.pull.mean, r.pull.se, r.pull.passed) for r in records]
    data = {
        "codes": domain.codes, "mean": posterior.mean, "std": posterior.std, "pulls": pulls, "score": domain.score,
        "next": next_pick(domain, config, records),
        "true": None if table is None else table.means, "true_label": "" if table is None else table.source,
    }  # fmt: skip
    curves = own = None
    if table is not None:
        curves = contest(
            domain.points, Table.of_values(table.means, _noise(records, table)), len(records), range(REPLAYS)
        )
        own = own_regret(records, np.array(table.means))
    figures = {
        "posterior": _svg(posterior_figure(data)),
        "pulls": _svg(pulls_figure(pulls, domain.score, curves, own)),
    }
    for name, svg in figures.items():
        replace_atomically(folder.run.figures / f"{name}.svg", svg.encode())
    page = _page(folder, domain, records, table, summary, figures, curves, posterior.noise_std)
    replace_atomically(folder.path / "report.html", page.encode())
    return folder.path / "report.html"


def write_again(search: str | Path, *, runs_dir: str | Path = "runs") -> Path:
    """The page of a search from its folder, whether it is finished or not."""
    folder = SearchFolder.open(search, Path(runs_dir))
    domain = make_domain(folder.config, folder.options)
    records, table = folder.records(), folder.ranking()
    with folder.run:
        folder.run.lock()
        return write_page(folder, domain, records, table, summarise(domain, folder.config, records, table))


def own_regret(records: Sequence[Record], values: Array) -> list[float]:
    """Simple regret of the search itself after each pull, by the rule of the replays."""
    told: list[Told] = []
    found = []
    for record in records:
        pull = record.pull
        told.append(Told(record.request.item, pull.mean, pull.se, pull.passed))
        found.append(float(values.max() - values[ranking(told)[0]]))
    return found


def _noise(records: Sequence[Record], table: Ranking) -> list[float]:
    """A replayed pull is as noisy as the search's own pulls were."""
    errors = [record.pull.se for record in records]
    return [max(float(np.median(errors)), error) for error in table.errors] if errors else list(table.errors)


def _page(
    folder: SearchFolder,
    domain: Domain,
    records: Sequence[Record],
    table: Ranking | None,
    summary: Summary,
    figures: dict[str, str],
    curves: dict[str, Array] | None,
    noise_std: float,
) -> str:
    config = folder.config
    facts = [
        f"{summary.pulls} pulls by {config.strategy}, {summary.passed} passed the gate (lower end of the 95 % interval "
        f"of compliance at least {100 * config.compliance_threshold:g} %)",
        f"a pull: {config.num_envs} environments, at most {config.episodes_per_env} episodes each, an update every "
        f"{config.update_every_steps} steps, started from {_starts(config.start)}",
        summary.verdict,
        f"kernel {summary.kernel} on standardised scores; pulls of one order differ by an estimated {noise_std:.2g} "
        "beyond their measured errors",
        f"next pick of GP-UCB: {summary.next_pick}",
        f"{sum(r.cpu_s for r in records):,.0f} CPU-s and {sum(r.wall_s for r in records):,.0f} s of pulls",
    ]
    command = _read(folder.path / "command.txt")
    machine: dict[str, Any] = {}
    for name in ("machine.json", "code.json"):
        if (folder.path / name).exists():
            machine |= from_json((folder.path / name).read_bytes())
    settings = {**folder.run.config["search"], **folder.options}
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(folder.run.name)}</title><style>{_STYLE}</style></head><body>
<h1>Search over {len(domain.names)} orders: {_text(config.domain)}</h1>
<p class="facts">{_text(folder.run.name)} &middot; <code>{_text(command)}</code></p>
<p class="answer">{_answer(summary, domain)}</p>
<ul>{"".join(f"<li>{_text(fact)}</li>" for fact in facts)}</ul>
<h2>What is believed of every order</h2>{figures["posterior"]}
<p class="facts">{_text(domain.key)}; first first</p>
<h2>What in an order matters</h2>{_effects(summary)}
<h2>The pulls{" and the regret" if curves else ""}</h2>{figures["pulls"]}{_regret(summary, table, curves)}
<h2>Compliance</h2>{_compliance(records, summary)}
{_ranking(domain, table)}
<h2>An episode of the best order</h2>{_episode(folder, domain, summary)}
<details><summary>Settings</summary>{_pairs(settings)}</details>
<details><summary>Machine and code</summary>{_pairs(machine)}</details>
</body></html>
"""


def _answer(summary: Summary, domain: Domain) -> str:
    return "<br>".join(_text(line) for line in answer_lines(summary, domain.score))


def _regret(summary: Summary, table: Ranking | None, curves: dict[str, Array] | None) -> str:
    if table is None or curves is None:
        return (
            "<p>No regret is shown: nothing says what the other orders are worth. "
            "<code>--universal</code> ranks them all.</p>"
        )
    lines = []
    if summary.regret is not None:
        found = summary.regret
        lines.append(
            f"By {_text(found['source'])}, the order found is number {found['place']} of {found['of']}, "
            f"{found['simple_regret']:.2f} below the best ({_text(found['best'])})."
        )
    ends = ", ".join(
        f"{_text(name)} {values[:, -1].mean():.3f} (mean over pulls {values.mean():.3f})"
        for name, values in curves.items()
    )
    lines.append(f"Replayed {REPLAYS} times over these values, the strategies end at a mean regret of: {ends}.")
    return f"<p>{' '.join(lines)}</p>"


def _effects(summary: Summary) -> str:
    if not summary.effects:
        return "<p>Nothing can be said: no pull passed the gate.</p>"
    rows = [
        ("best" if effect["low"] > 0 else "", ["", f"{effect['first']} before {effect['second']}", _worth(effect)])
        for effect in summary.effects
    ]
    return (
        "<p>What each precedence is worth by the posterior, the others being equal; in bold where the 95 % interval is "
        f"above 0.</p>{_table(['', 'precedence', 'worth'], rows)}"
    )


def _worth(effect: dict[str, Any]) -> str:
    return f"{effect['value']:.2f} [{effect['low']:.2f}, {effect['high']:.2f}]"


def _compliance(records: Sequence[Record], summary: Summary) -> str:
    shares = [name for name in _SHARES if any(name in record.pull.details for record in records)]
    head = ["pull", "order", "score", "± 95 %", *(_SHARES[name] for name in shares), "episodes", "ended by", "gate"]
    rows = []
    for record in records:
        pull, number = record.pull, record.request.number + 1
        cells = [str(number), record.request.name, f"{pull.mean:.2f}", f"{1.96 * pull.se:.2f}"]
        cells += [_share(pull.details.get(name)) for name in shares]
        cells += [str(pull.details.get("episodes", "-")), str(pull.details.get("stopped", "-"))]
        cells.append("passed" if pull.passed else "failed")
        best = summary.best is not None and summary.best["pull"] == number
        rows.append((("best" if best else "") if pull.passed else "failed", cells))
    return _table(head, rows)


_SHARES = {
    "compliance": "compliance",
    "believed_compliance": "by what was observable",
    "coverage": "coverage",
    "wasted": "wasted",
}


def _ranking(domain: Domain, table: Ranking | None) -> str:
    if table is None:
        return ""
    order = np.argsort(-np.array(table.means), kind="stable")
    rows = []
    for place, item in enumerate(order, start=1):
        details = table.details[item] if table.details else {}
        cells = [str(place), domain.names[item], f"{table.means[item]:.2f}", f"{1.96 * table.errors[item]:.2f}"]
        rows.append(("", [*cells, _share(details.get("compliance"))]))
    head = ["place", "order", "value", "± 95 %", "compliance"]
    return (
        f"<h2>All orders by {_text(table.source)}</h2><details><summary>{len(rows)} orders</summary>"
        f"{_table(head, rows)}</details>"
    )


def _episode(folder: SearchFolder, domain: Domain, summary: Summary) -> str:
    if summary.best is None:
        return "<p>None: no pull passed the gate.</p>"
    text, figure = domain.episode(summary.best["item"], folder.path / summary.best["weights"])
    svg = _svg(figure)
    replace_atomically(folder.run.figures / "episode.svg", svg.encode())
    shape = "way" if figure.get_figwidth() < 6 else "episode"
    return f"<p>{_text(text)}</p><div class='{shape}'>{svg}</div>"


def _starts(start: str) -> str:
    return {
        "nearest": "the nearest order trained before that passed, the first ones from the domain's own start",
        "base": "the domain's own start",
        "scratch": "a fresh network",
    }[start]


def _share(value: Any) -> str:
    if not value or value.get("mean") is None:
        return "-"
    low, high = max(0.0, value["low"]), min(1.0, value["high"])  # a normal interval may pass the ends of a share
    return f"{100 * value['mean']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    top = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr class='{kind}'>{''.join(f'<td>{_text(cell)}</td>' for cell in cells)}</tr>" for kind, cells in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"


def _pairs(values: dict[str, Any]) -> str:
    rows = [("", ["", f"{name}: {value}"]) for name, value in values.items()]
    return _table(["", ""], rows)


def _svg(figure: Any) -> str:
    """A figure as SVG, without the XML prologue, which names a remote document type."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": "shoal"})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)
