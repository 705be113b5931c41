"""A domain whose pulls take milliseconds, for tests: an order is worth less the further it is from a hidden one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.runs.folder import Run
from shoal.search.bandit.orders import all_ranks, kendall
from shoal.search.domain import Domain, Pull, Ranking, Say
from shoal.search.folder import Record, SearchFolder
from shoal.search.options import SearchConfig

TOY = "toy_domain:Toy"
BEST = 17


@dataclass(frozen=True)
class ToyOptions:
    """What a pull costs, and which fail."""

    pull_s: float = 0.0
    """Seconds that a pull takes."""
    fail_every: int = 0
    """Every so many-th item fails the gate; 0: none."""
    broken: int = -1
    """An item whose pull raises."""


class Toy(Domain):
    """A pull remembers in its weights what it started from, so a wrong start would change the scores that follow."""

    Options = ToyOptions
    score = "reward"

    def __init__(self, config: SearchConfig, pull_s: float = 0.0, fail_every: int = 0, broken: int = -1) -> None:
        self.pull_s, self.fail_every, self.broken = pull_s, fail_every, broken
        self.points = all_ranks(4)
        self.names = ["<" + "".join("abcd"[thing] for thing in np.argsort(ranks)) + ">" for ranks in self.points]
        self.codes = [name.strip("<>") for name in self.names]
        self.things, self.key = list("abcd"), "a <a>, b <b>"
        self.values = -kendall(self.points, self.points[[BEST]])[:, 0]

    def prepare(self, folder: Path, say: Say) -> Path | None:
        """A base whose history is empty."""
        folder.mkdir(exist_ok=True)
        (folder / "history").write_text("base")
        return folder

    def pull(self, item: int, *, start: Path | None, seed: int, folder: Path, say: Say) -> Pull:
        if item == self.broken:
            raise ArithmeticError(f"item {item} is broken")
        history = "" if start is None else (start / "history").read_text()
        weights = folder / "weights"
        weights.mkdir()  # refuses what an unfinished attempt left behind
        time.sleep(self.pull_s)
        (weights / "history").write_text(f"{history},{item}")
        luck = np.random.default_rng([seed, *history.encode()]).standard_normal()
        passed = not (self.fail_every and item % self.fail_every == 0)
        share = {"mean": 0.99, "low": 0.98, "high": 1.0}
        details: dict[str, Any] = {"history": history, "compliance": share, "episodes": 10, "stopped": "compliance"}
        return Pull(float(self.values[item] + 0.1 * luck), 0.1, passed, str(weights), details)

    def ranking(self, folder: Path, say: Say) -> Ranking:
        return Ranking("the truth", self.values.tolist(), [0.1] * len(self.values))

    def episode(self, item: int, weights: Path) -> tuple[str, Any]:
        from matplotlib.figure import Figure

        return f"an episode of {self.names[item]}", Figure(figsize=(3, 3))


def config(folder: Path, **changes: Any) -> SearchConfig:
    settings: dict[str, Any] = {"domain": TOY, "workflows": 10, "seed": 3, "name": "s", "runs_dir": str(folder)}
    return SearchConfig(**(settings | changes))


def pulls(folder: Path) -> list[Record]:
    return SearchFolder(Run(folder / "s")).records()


def essence(records: list[Record]) -> list[tuple[Any, ...]]:
    """What must not depend on speed or crashes: everything but the times."""
    return [(record.request, record.pull) for record in records]
