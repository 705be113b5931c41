"""Totals of cage2 against the real CybORG's: 15 rows x 30, 50 and 100 steps, 20,000 of our episodes a row.

z uses both standard errors; rows without spread must be equal. The seed is fixed and was not chosen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.rows import Row
from shoal.cage2.defenders.play import play

REFERENCE = Path(__file__).parents[2] / "tests" / "data" / "cage2" / "distribution_refs_real.json"
RED_OF = {"B_line": "bline", "Meander": "meander", "Sleep": "sleep"}
DEFENDER_OF = {"random": "random", "sleep": "sleep", "heuristic": "noisy", "D1": "d1", "D2": "d2"}
EPISODES, SEED, LIMIT = 20_000, 0, 3.0
UNEQUAL = 1e9  # stands for a row without spread that is not equal: JSON knows no infinity
_ABSENT = "the references are in the checkout only: tests/data/cage2"


def measure(episodes: int = EPISODES, seed: int = SEED) -> list[dict[str, Any]]:
    """One row per reference row and horizon; `value` is |z|, or 0 or infinity for a row without spread."""
    rows = []
    for name, real in json.loads(REFERENCE.read_text()).items():
        red, defender = name.split("|")
        totals = play(DEFENDER_OF[defender], RED_OF[red], episodes, seed)
        for column, horizon in enumerate(("30", "50", "100")):
            ours, theirs = totals[:, column], real[horizon]
            if theirs["std"] == 0:
                z = 0.0 if (ours == theirs["mean"]).all() else UNEQUAL
            else:
                error = np.hypot(ours.std(ddof=1) / np.sqrt(episodes), theirs["se"])
                z = abs(float((ours.mean() - theirs["mean"]) / error))
            rows.append(
                {
                    "name": f"{name} at {horizon} steps",
                    "value": z,
                    "unit": "|z|",
                    "target": LIMIT,
                    "met": z < LIMIT,
                    "ours": float(ours.mean()),
                    "real": theirs["mean"],
                }
            )
    return rows


def rows(say: Callable[[str], None]) -> list[Row]:
    """The largest |z| of all figures."""
    if not REFERENCE.exists():
        return [Row("cage2 totals against the real CybORG's, largest |z|", None, "|z|", LIMIT, "lower", _ABSENT)]
    found = measure()
    worst = max(found, key=lambda row: float(row["value"]))
    say(f"worst of {len(found)} figures: {worst['name']}")
    detail = {row["name"]: [row["ours"], row["real"], row["value"]] for row in found}
    name = f"cage2 totals against the real CybORG's, largest |z| of {len(found)}"
    return [Row(name, worst["value"], "|z|", LIMIT, "lower", worst["name"], detail)]
