"""A cage2 episode as a picture: hosts x steps, who holds what, who did what, and the reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACCESS_COLOURS = ("#f4f4f2", "#f6c667", "#d1495b")  # none, user, privileged
ACCESS_NAMES = ("no access", "user shell", "privileged")
BLUE, RED = "#1d4e89", "#3b0d11"
BLUE_MARKS = {"Analyse": "o", "Remove": "v", "Restore": "s", "Decoy": "P"}
RED_MARKS = {"Scan": ".", "Exploit": "x", "Escalate": "^", "Impact": "*"}


def draw_episode(data: Mapping[str, Any], ax: Axes, reward_ax: Axes | None = None) -> None:
    """Draw the data of `shoal.cage2.narrate.picture`; the reward strip has an axis of its own, or none.

    Blue's marks sit in the upper half of a cell, red's in the lower; a hollow mark failed.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    hosts, access = data["hosts"], np.asarray(data["access"])
    steps = access.shape[1]
    ax.set_facecolor(ACCESS_COLOURS[0])
    for level in (1, 2):
        for host, line in enumerate(access == level):
            edges = np.flatnonzero(np.diff(np.concatenate([[False], line, [False]]).astype(int)))
            spans = [(start + 0.5, end - start) for start, end in zip(edges[::2], edges[1::2], strict=True)]
            ax.broken_barh(spans, (host - 0.5, 1), facecolors=ACCESS_COLOURS[level], linewidth=0)
    for marks, shapes, colour, shift in (
        (data["blue"], BLUE_MARKS, BLUE, -0.2),
        (data["red"], RED_MARKS, RED, 0.2),
    ):
        for kind, shape in shapes.items():
            for worked in (True, False):
                chosen = [(step, host) for step, host, word, ok in marks if word == kind and ok == worked]
                if not chosen:
                    continue
                x, y = np.array(chosen, float).T
                # Line marks have no inside to leave hollow.
                inside = colour if worked or shape in ".x" else "none"
                ax.plot(x, y + shift, shape, color=colour, mfc=inside, ms=4, mew=0.8, alpha=1.0 if worked else 0.6)
    ax.set_yticks(range(len(hosts)), hosts, fontsize=8)
    ax.set_xlim(0.5, steps + 0.5)
    ax.set_ylim(len(hosts) - 0.5, -0.5)
    ax.set_title(data["title"], fontsize=10)
    handles: list[Any] = [
        Patch(facecolor=c, edgecolor="#999", label=n) for c, n in zip(ACCESS_COLOURS, ACCESS_NAMES, strict=True)
    ]
    for shapes, colour, side in ((BLUE_MARKS, BLUE, "blue"), (RED_MARKS, RED, "red")):
        for kind, shape in shapes.items():
            label = f"{side}: {kind.lower()}"
            handles.append(Line2D([], [], marker=shape, color=colour, linestyle="", markersize=5, label=label))
    handles.append(
        Line2D([], [], marker="s", color=BLUE, mfc="none", alpha=0.6, linestyle="", label="hollow or pale: failed")
    )
    if "User0" in hosts:
        handles.append(Patch(facecolor="none", edgecolor="none", label="User0 is red's from the start"))
    ax.legend(handles=handles, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    if reward_ax is None:
        ax.set_xlabel("step")
        return
    reward_ax.bar(np.arange(1, steps + 1), data["reward"], color=RED, width=0.9)
    reward_ax.set_xlim(0.5, steps + 0.5)
    reward_ax.set_xlabel("step")
    reward_ax.set_ylabel("reward", fontsize=8)


def episode_figure(data: Mapping[str, Any]) -> Any:
    """A whole figure of one episode, with the reward strip below; the caller saves it as PNG or SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(7.0, 0.083 * len(data["reward"]) + 2.9), 4.6), layout="constrained")
    top, strip = figure.subplots(2, 1, height_ratios=(5, 1), sharex=True)
    draw_episode(data, top, strip)
    return figure
