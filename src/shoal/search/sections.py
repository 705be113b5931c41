"""A search as one self-contained HTML page. Everything from data is escaped; nothing remote is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.arrays import Array
from shoal.core.statistics import HALF
from shoal.runs.charts import WIDTH, Line, Point, chart, legend
from shoal.runs.disk import read_json, replace_atomically
from shoal.runs.page import Part, page, pairs, svg_of, text, themed
from shoal.runs.page import table as as_table
from shoal.runs.words import share_text
from shoal.search.bandit.strategies import Told, ranking
from shoal.search.domain import Domain, Ranking, make_domain
from shoal.search.folder import Record, SearchFolder
from shoal.search.replay import Table, contest
from shoal.search.summary import Summary, answer_lines, next_pick, posterior_of, summarise

REPLAYS = 20


def write_page(
    folder: SearchFolder, domain: Domain, records: Sequence[Record], table: Ranking | None, summary: Summary
) -> Path:
    """Write `report.html`; returns its path."""
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
    charts = {"posterior": _posterior(domain, data), "pulls": _pulls(domain, data, curves, own)}
    written = _page(folder, domain, records, table, summary, charts, curves, posterior.noise_std)
    replace_atomically(folder.path / "report.html", written.encode())
    return folder.path / "report.html"


def write_again(search: str | Path, *, runs_dir: str | Path = "runs") -> Path:
    """The page of a search from its folder, whether it is finished or not."""
    folder = SearchFolder.open(search, Path(runs_dir))
    domain = make_domain(folder.config, folder.options)
    records, table = folder.records(), folder.ranking()
    folder.check_fit(domain, records, table)
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
    charts: dict[str, str],
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
        f"next pick of GP-UCB: {summary.next_pick}",
        f"{sum(r.cpu_s for r in records):,.0f} CPU-s and {sum(r.wall_s for r in records):,.0f} s of pulls",
    ]
    command = _read(folder.path / "command.txt")
    machine: dict[str, Any] = {}
    for name in ("machine.json", "code.json"):
        if (folder.path / name).exists():
            machine |= read_json(folder.path / name)
    settings = {
        **folder.run.config["search"], **folder.options,
        "kernel of the model": f"{summary.kernel} on standardised scores",
        "noise of a pull beyond its measured error": f"{noise_std:.2g} (estimated)",
    }  # fmt: skip
    return page(
        folder.run.name,
        f"Search over {len(domain.names)} orders: {config.domain}",
        f"{text(folder.run.name)} &middot; <code>{text(command)}</code>",
        _answer(summary, domain),
        facts,
        [
            Part("What is believed of every order", charts["posterior"]),
            Part("What in an order matters", _effects(summary)),
            Part(
                "The pulls and the regret" if curves else "The pulls",
                charts["pulls"] + _regret(summary, table, curves),
            ),
            Part("Compliance", _compliance(records, summary)),
            Part(*_ranking(domain, table), True),
            Part("An episode of the best order", _episode(folder, domain, summary)),
            Part("Settings", pairs(settings), True),
            Part("Machine and code", pairs(machine), True),
        ],
        wide=len(domain.names) > 30,
    )


def _posterior(domain: Domain, data: dict[str, Any]) -> str:
    """Posterior mean and two standard deviations of every order, best first, with the pulls and the next pick."""
    mean, std = np.asarray(data["mean"], float), np.asarray(data["std"], float)
    order = np.argsort(-mean, kind="stable")
    place = {int(item): at for at, item in enumerate(order)}
    line = Line(
        "posterior mean", mean[order].tolist(), (mean - 2 * std)[order].tolist(), (mean + 2 * std)[order].tolist()
    )
    points = []
    if data["true"] is not None:
        values = np.asarray(data["true"], float)
        points += [Point(place[item], values[item], colour=2, about=f"{domain.names[item]}: {values[item]:.2f} by "
                         f"{data['true_label']}") for item in range(len(values))]  # fmt: skip
    points += [_point(domain, place[pull[1]], pull) for pull in data["pulls"]]
    codes = [domain.codes[item] for item in order]
    next_place = place[int(data["next"])]
    codes[next_place] = f"next: {codes[next_place]}"
    width = max(WIDTH, 60 + 22 * len(order))
    drawn = chart(range(len(order)), [line], label=domain.score, unit="", points=points, names=codes, width=width)
    about = f"{domain.key}; best first. Band: two standard deviations. Dots: pulls; crosses failed the gate."
    about += " next: the next pick of GP-UCB."
    return f"<figure class='large'>{drawn}<figcaption>{text(about)}</figcaption></figure>"


def _pulls(domain: Domain, data: dict[str, Any], curves: dict[str, Array] | None, own: list[float] | None) -> str:
    """Scores in the order of pulling with the best so far; and regret, where it is known."""
    if not data["pulls"]:
        return ""
    best: list[float | None] = []
    for _, _, mean, _, passed in data["pulls"]:
        before = best[-1] if best else None
        best.append(mean if passed and (before is None or mean > before) else before)
    at = [float(pull[0]) for pull in data["pulls"]]
    line = Line("best so far", best)
    points = [_point(domain, pull[0], pull) for pull in data["pulls"]]
    parts = [chart(at, [line], label=domain.score, unit="pull", points=points)]
    if curves is not None:
        lines = []
        for place, (name, regrets) in enumerate(curves.items()):
            mean = regrets.mean(0)
            half = HALF * regrets.std(0, ddof=1) / np.sqrt(len(regrets)) if len(regrets) > 1 else np.zeros_like(mean)
            low = np.maximum(mean - half, 0.0)
            lines.append(
                Line(_STRATEGIES.get(name, name), mean.tolist(), low.tolist(), (mean + half).tolist(), colour=place)
            )
        if own is not None:
            lines.append(Line("this search", [float(value) for value in own], colour=len(lines)))
        label = f"simple regret; mean of {REPLAYS} replays, 95 % bands"
        parts.append(chart(at, lines, label=label, unit="pull", zero=True) + legend(lines))
    if len(parts) == 1:
        return f"<figure class='middle'>{parts[0]}</figure>"
    return f"<div class='charts'>{''.join(f'<figure>{part}</figure>' for part in parts)}</div>"


_STRATEGIES = {"ucb": "GP-UCB", "random": "random search", "halving": "successive halving"}


def _point(domain: Domain, x: float, pull: tuple[int, int, float, float, bool]) -> Point:
    number, item, mean, error, passed = pull
    about = f"pull {number}, {domain.names[item]}: {mean:.2f} \u00b1 {HALF * error:.2f}"
    return Point(
        x, mean, mean - HALF * error, mean + HALF * error, 1, not passed, about + ("" if passed else ", failed")
    )


def _answer(summary: Summary, domain: Domain) -> str:
    return "<br>".join(text(line) for line in answer_lines(summary, domain.score))


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
            f"By {text(found['source'])}, the order found is number {found['place']} of {found['of']}, "
            f"{found['simple_regret']:.2f} below the best ({text(found['best'])})."
        )
    ends = ", ".join(
        f"{text(name)} {values[:, -1].mean():.3f} (mean over pulls {values.mean():.3f})"
        for name, values in curves.items()
    )
    lines.append(f"Replayed {REPLAYS} times over these values, the strategies end at a mean regret of: {ends}.")
    return f"<p>{' '.join(lines)}</p>"


def _effects(summary: Summary) -> str:
    if not summary.effects:
        return "<p>Nothing can be said: no pull passed the gate.</p>"
    rows = [[f"{effect['first']} before {effect['second']}", _worth(effect)] for effect in summary.effects]
    marks = ["strong" if effect["low"] > 0 else "" for effect in summary.effects]
    return (
        "<p>What each precedence is worth by the posterior, the others being equal; in bold where the 95 % interval is "
        f"above 0.</p>{as_table(['precedence', 'worth'], rows, marks)}"
    )


def _worth(effect: dict[str, Any]) -> str:
    return f"{effect['value']:.2f} [{effect['low']:.2f}, {effect['high']:.2f}]"


def _compliance(records: Sequence[Record], summary: Summary) -> str:
    shares = [name for name in _SHARES if any(name in record.pull.details for record in records)]
    head = ["pull", "order", "score", "± 95 %", *(_SHARES[name] for name in shares), "episodes", "ended by", "gate"]
    rows, marks = [], []
    for record in records:
        pull, number = record.pull, record.request.number + 1
        cells = [str(number), record.request.name, f"{pull.mean:.2f}", f"{HALF * pull.se:.2f}"]
        cells += [share_text(pull.details.get(name)) for name in shares]
        cells += [str(pull.details.get("episodes", "-")), str(pull.details.get("stopped", "-"))]
        cells.append("passed" if pull.passed else "failed")
        best = summary.best is not None and summary.best["pull"] == number
        rows.append(cells)
        marks.append(("strong" if best else "") if pull.passed else "bad")
    return as_table(head, rows, marks, wide=[1])


_SHARES = {
    "compliance": "compliance",
    "believed_compliance": "by what was observable",
    "coverage": "coverage",
    "wasted": "wasted",
}


def _ranking(domain: Domain, table: Ranking | None) -> tuple[str, str]:
    """A title and all orders, best first."""
    if table is None:
        return "All orders", ""
    order = np.argsort(-np.array(table.means), kind="stable")
    rows = []
    for place, item in enumerate(order, start=1):
        details = table.details[item] if table.details else {}
        cells = [str(place), domain.names[item], f"{table.means[item]:.2f}", f"{HALF * table.errors[item]:.2f}"]
        rows.append([*cells, share_text(details.get("compliance"))])
    head = ["place", "order", "value", "± 95 %", "compliance"]
    return f"All {len(rows)} orders by {table.source}", as_table(head, rows, wide=[1])


def _episode(folder: SearchFolder, domain: Domain, summary: Summary) -> str:
    if summary.best is None:
        return "<p>None: no pull passed the gate.</p>"
    words, figure = domain.episode(summary.best["item"], folder.path / summary.best["weights"])
    svg = svg_of(figure)
    replace_atomically(folder.run.figures / "episode.svg", svg.encode())
    shape = "small" if figure.get_figwidth() < 6 else "large"
    return f"<p>{text(words)}</p><figure class='{shape}'>{themed(svg)}</figure>"


def _starts(start: str) -> str:
    return {
        "nearest": "the nearest order trained before that passed, the first ones from the domain's own start",
        "base": "the domain's own start",
        "scratch": "a fresh network",
    }[start]


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
