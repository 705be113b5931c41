"""What a search believes, pulled and regrets. A figure function takes data and an axis; it opens and saves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from shoal.core.statistics import HALF
from shoal.runs.curves import INK, LABEL, MUTED

BAND, PASSED, FAILED, NEXT, TRUE = "#c9d8e8", "#1f4e79", "#b8402a", "#e09f1f", "#3c8d5a"
STRATEGY_COLOURS = {"ucb": INK, "random": "#8a8f98", "halving": "#b8743a"}
STRATEGY_NAMES = {"ucb": "GP-UCB", "random": "random search", "halving": "successive halving"}


def draw_posterior(ax: Axes, data: Mapping[str, Any]) -> None:
    """Posterior mean and +-2 standard deviations of all items, best first, with the pulls and the next pick.

    `data`: codes, mean, std (per item), pulls as (number, item, mean, se, passed), next (an item), and optionally true
    (per item: another source's values).
    """
    mean, std = np.asarray(data["mean"], float), np.asarray(data["std"], float)
    order = np.argsort(-mean, kind="stable")
    place = np.empty(len(order), int)
    place[order] = np.arange(len(order))
    x = np.arange(len(order))
    ax.fill_between(
        x, (mean - 2 * std)[order], (mean + 2 * std)[order], color=BAND, linewidth=0, label="posterior mean ± 2σ"
    )
    ax.plot(x, mean[order], color=INK, linewidth=1.4)
    if data.get("true") is not None:
        ax.plot(
            x, np.asarray(data["true"], float)[order], "D", color=TRUE, mfc="none", ms=3.5, label=data["true_label"]
        )
    for passed, colour, mark, label in ((True, PASSED, "o", "pull, passed"), (False, FAILED, "x", "pull, failed gate")):
        chosen = [pull for pull in data["pulls"] if pull[4] == passed]
        if not chosen:
            continue
        at = [place[item] for _, item, *_ in chosen]
        ax.errorbar(
            at, [pull[2] for pull in chosen], [HALF * pull[3] for pull in chosen],
            fmt=mark, color=colour, ms=4.5, linewidth=0.9, label=label,
        )  # fmt: skip
    for number, item, value, *_ in data["pulls"]:
        ax.annotate(
            str(number), (place[item], value), xytext=(3, 3), textcoords="offset points", fontsize=7, color=LABEL
        )
    chosen_next = place[data["next"]]
    ax.axvline(chosen_next, color=NEXT, linestyle="--", linewidth=1.2, label="next pick of GP-UCB")
    size = 9 if len(x) <= 30 else 7
    ax.set_xticks(x, [data["codes"][item] for item in order], rotation=90, fontsize=size)
    ax.set_xlim(-0.7, len(x) - 0.3)
    ax.set_ylabel(data["score"], fontsize=9, color=LABEL)
    ax.legend(fontsize=8, frameon=False, loc="upper right")
    _plain(ax)


def draw_pulls(ax: Axes, pulls: Sequence[tuple[int, int, float, float, bool]], score: str) -> None:
    """Scores in the order of pulling, and the best so far of those that passed."""
    numbers = [pull[0] for pull in pulls]
    best: list[float] = []
    for _, _, mean, _, passed in pulls:
        before = best[-1] if best else float("nan")
        best.append(mean if passed and not before >= mean else before)
    ax.step(numbers, best, where="post", color=MUTED, linewidth=1.4, label="best so far")
    for passed, colour, mark in ((True, PASSED, "o"), (False, FAILED, "x")):
        chosen = [pull for pull in pulls if pull[4] == passed]
        if chosen:
            ax.errorbar(
                [pull[0] for pull in chosen], [pull[2] for pull in chosen], [HALF * pull[3] for pull in chosen],
                fmt=mark, color=colour, ms=4.5, linewidth=0.9, label="passed" if passed else "failed gate",
            )  # fmt: skip
    ax.set_xlabel("pull", fontsize=9, color=LABEL)
    ax.set_ylabel(score, fontsize=9, color=LABEL)
    ax.legend(fontsize=8, frameon=False)
    _whole_numbers(ax)
    _plain(ax)


def draw_regret(ax: Axes, curves: Mapping[str, Any], own: Sequence[float] | None = None) -> None:
    """Mean simple regret of strategies, float64[seed, pull] each, with 95 % bands over seeds; `own`: this search's."""
    for name, regrets in curves.items():
        values = np.asarray(regrets, float)
        x, mean = np.arange(1, values.shape[1] + 1), values.mean(0)
        error = HALF * values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros_like(mean)
        colour = STRATEGY_COLOURS.get(name, MUTED)
        ax.fill_between(x, np.maximum(mean - error, 0), mean + error, color=colour, alpha=0.18, linewidth=0)
        ax.plot(x, mean, color=colour, linewidth=1.6, label=f"{STRATEGY_NAMES.get(name, name)}, {len(values)} replays")
    if own is not None:
        ax.step(range(1, len(own) + 1), own, where="post", color=NEXT, linewidth=1.6, label="this search")
    ax.set_xlabel("pull", fontsize=9, color=LABEL)
    ax.set_ylabel("simple regret", fontsize=9, color=LABEL)
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=8, frameon=False)
    _whole_numbers(ax)
    _plain(ax)


def posterior_figure(data: Mapping[str, Any]) -> Figure:
    """A whole figure; wider the more items there are."""
    figure = Figure(figsize=(max(10.0, 0.12 * len(data["codes"])), 4.8), layout="constrained")
    draw_posterior(figure.subplots(), data)
    return figure


def pulls_figure(
    pulls: Sequence[tuple[int, int, float, float, bool]],
    score: str,
    curves: Mapping[str, Any] | None = None,
    own: Sequence[float] | None = None,
) -> Figure:
    """The pulls in order and, where there is a table to replay over, the regret beside them."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    if curves is None:
        draw_pulls(figure.subplots(), pulls, score)
        return figure
    left, right = figure.subplots(1, 2)
    draw_pulls(left, pulls, score)
    draw_regret(right, curves, own)
    return figure


def way_figure(
    way: Sequence[tuple[int, int]], corners: Sequence[tuple[str, int, int]], region: int, size: int, title: str
) -> Figure:
    """The way of a grid world's episode: cells (row, column) in order, and regions by name, first row and column."""
    figure = Figure(figsize=(4.6, 4.8), layout="constrained")
    ax = figure.subplots()
    for name, row, column in corners:
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), region, region, facecolor=BAND, edgecolor=MUTED))
        ax.text(column + region / 2 - 0.5, row + region / 2 - 0.5, name, fontsize=6, ha="center", va="center")
    rows, columns = np.array(way, float).T
    ax.plot(columns, rows, color=INK, linewidth=1.3)
    ax.plot(columns[:1], rows[:1], "o", color=TRUE, ms=6)
    ax.plot(columns[-1:], rows[-1:], "s", color=FAILED, ms=6)
    ax.set_xlim(-0.5, size - 0.5)
    ax.set_ylim(size - 0.5, -0.5)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(title, fontsize=8, color=LABEL)
    return figure


def _plain(ax: Axes) -> None:
    ax.grid(color=MUTED, alpha=0.3, linewidth=0.6)
    ax.tick_params(axis="y", labelsize=8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _whole_numbers(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
