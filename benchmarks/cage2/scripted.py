"""The baselines' scores: nine-cell sums over 4,000 episodes a cell, present rules.

The decoy-first defender was written while looking at the episodes of seed 5; the seed here was not used for that.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.harness.rows import Row
from shoal.cage2.commands import score
from shoal.cage2.defenders.play import DEFENDERS

EPISODES, SEED = 4000, 2026
TARGET = -52.0  # decoy-first


def rows(say: Callable[[str], None]) -> list[Row]:
    """One row per baseline, with its interval, cells, quantiles and worst episodes."""
    found = []
    for name in DEFENDERS:
        result = score(name, EPISODES, SEED)
        total = result["sum"]
        say(f"{name}: {total['mean']:.2f}")
        detail = {"interval": [total["low"], total["high"]], "rules": result["rules"], "cells": result["cells"]}
        target = TARGET if name == "decoy-first" else None
        found.append(Row(f"cage2 {name}, sum of nine means", total["mean"], "sum", target, detail=detail))
    return found
