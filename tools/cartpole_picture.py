"""Draw docs/images/cartpole.svg: five CartPole-v1 runs of shoal, mean return against environment steps.

    python tools/cartpole_picture.py

Every run is made here and now with the preset's settings; nothing is read from a file.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

import shoal

SEEDS = (1, 2, 3, 4, 5)
SOLVED = 475.0
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "cartpole.svg"


def curve(seed: int, folder: str) -> tuple[list[int], list[float]]:
    """Steps and mean return of the last 100 episodes, one point per epoch that completed an episode."""
    result = shoal.train("CartPole-v1", seed=seed, name=f"seed-{seed}", runs_dir=folder)
    lines = (Path(result.run) / "metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["return/mean_100"] is not None]
    return [row["steps"] for row in rows], [row["return/mean_100"] for row in rows]


def main() -> None:
    mpl.rcParams.update({"svg.hashsalt": "shoal", "svg.fonttype": "none", "font.family": "sans-serif"})
    figure, axis = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            steps, returns = curve(seed, folder)
            axis.plot([step / 1000 for step in steps], returns, color="#2166ac", linewidth=1.2, alpha=0.75)
            axis.plot(steps[-1] / 1000, returns[-1], "o", color="#2166ac", markersize=4)
    axis.axhline(SOLVED, color="#777777", linewidth=0.8, linestyle="--")
    axis.annotate("solved: 475", (1, SOLVED), (0, 4), textcoords="offset points", color="#444444", fontsize=9)
    axis.set(xlabel="environment steps, thousands", xlim=(0, None), ylim=(0, 520))
    axis.set_title("CartPole-v1, five seeds: mean return of the last 100 episodes", loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
