"""Runs that nobody trained: facts drawn from known distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.comparison.facts import Curve, RunFacts

Draw = Callable[[np.random.Generator], float]


def run(arm: str, seed: int, final: float | None, rng: np.random.Generator, **changes: Any) -> RunFacts:
    """A finished run of 20 epochs; its curve crosses 80 somewhere, its speed and noise are random."""
    returns = np.sort(rng.normal(60.0, 20.0, 20))
    seconds = np.cumsum(rng.lognormal(0.0, 0.3, 20))
    curve = Curve(
        steps=[100 * (i + 1) for i in range(20)],
        updates=[4.0 * (i + 1) for i in range(20)],
        seconds=seconds.tolist(),
        returns=returns.tolist(),
    )
    sampled = None if final is None else final + rng.normal(0.0, 2.0)
    facts: dict[str, Any] = {
        "arm": arm, "seed": seed, "run": f"{arm}-{seed}", "status": "finished", "reason": "", "settings": arm,
        "code": "c", "machine": "m", "num_envs": 8, "final": final, "sampled": sampled,
        "training": float(returns[-1]), "steps": 2000, "updates": 80.0, "seconds": float(seconds[-1]),
        "noise": float(rng.lognormal(3.0, 0.5)), "curve": curve,
    }  # fmt: skip
    return RunFacts(**{**facts, **changes})


def arms(seeds: int, rng: np.random.Generator, draw: Draw, effect: float = 0.0) -> dict[str, list[RunFacts]]:
    """Two arms; the second one's final performance is better by `effect`."""
    first = [run("a", seed, draw(rng), rng) for seed in range(seeds)]
    second = [run("b", seed, draw(rng) + effect, rng) for seed in range(seeds)]
    return {"a": first, "b": second}
