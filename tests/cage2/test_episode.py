"""The picture of an episode."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shoal.cage2.figures import draw_episode, episode_figure


def data() -> dict[str, object]:
    access = np.zeros((2, 5), np.uint8)
    access[1, 3:] = 2
    return {
        "hosts": ["one", "two"],
        "access": access,
        "belief": access,
        "blue": [(2, 1, "Restore", True), (3, 0, "Decoy", False)],
        "red": [(1, 1, "Scan", True), (4, 1, "Exploit", True), (5, 1, "Impact", False)],
        "reward": np.array([0, -1, 0, -0.1, -0.1]),
        "title": "a <b> title",
    }


def test_it_is_saved_as_png_and_svg(tmp_path: Path) -> None:
    """Both formats are written and the names are in the picture."""
    figure = episode_figure(data())
    for suffix in ("png", "svg"):
        figure.savefig(tmp_path / f"episode.{suffix}")
        assert (tmp_path / f"episode.{suffix}").stat().st_size > 1000
    top = figure.axes[0]
    assert [label.get_text() for label in top.get_yticklabels()] == ["one", "two"]


def test_it_draws_on_a_given_axis() -> None:
    """Without a second axis the reward strip is left out."""
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    draw_episode(data(), axis)
    assert axis.get_xlabel() == "step"
    assert axis.get_title() == "a <b> title"


def test_the_legend_says_what_a_hollow_mark_is() -> None:
    """Failed actions are drawn hollow or pale."""
    figure = episode_figure(data())
    legend = figure.axes[0].get_legend()
    assert "hollow or pale: failed" in [text.get_text() for text in legend.get_texts()]


def test_access_is_drawn_as_bars_of_its_own_colours() -> None:
    """As shapes, not as a bitmap: their colours can turn on a dark page."""
    from matplotlib.colors import to_hex
    from matplotlib.figure import Figure

    from shoal.cage2.figures import ACCESS_COLOURS

    axis = Figure().subplots()
    draw_episode(data(), axis)
    assert not axis.images
    bars = [
        (to_hex(bar.get_facecolor()[0]), path.get_extents().bounds)
        for bar in axis.collections
        for path in bar.get_paths()
    ]
    assert bars == [(ACCESS_COLOURS[2], (3.5, 0.5, 2.0, 1.0))]
