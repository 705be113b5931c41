"""The recordings of the real CybORG, and a way to play the scalar functions by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.cage2.simulator.blue import blue_act
from shoal.cage2.simulator.network import DISCOVER, HOSTS, KINDS, SUBNETS, action_index
from shoal.cage2.simulator.red_agents import SLEEPER
from shoal.cage2.simulator.step import STATE, conclude, start

from .standin import forget_imports, write_package

DATA = Path(__file__).parents[1] / "data" / "cage2"
TRACES = sorted(DATA.glob("traces_*.npz"))


class Hand:
    """A network played by hand, in plain Python: Blue's and red's action of each step are given."""

    def __init__(self) -> None:
        self.s: Any = np.zeros(1, STATE).view(np.recarray)[0]
        start(self.s, SLEEPER)

    def step(
        self, blue: str = "Sleep", red: int = 0, target: str = "", exploit: int = -1, detected: int = 1
    ) -> tuple[int, float]:
        """(red's success, reward) of one step; Blue's action as in the challenge's list."""
        kind, _, host = blue.partition(" ")
        action = ("Sleep", "Monitor").index(kind) if not host else action_index(KINDS.index(kind), HOSTS.index(host))
        deployed, revealed = blue_act(self.s, action)
        self.s.red_type = red
        self.s.red_target = (SUBNETS if red == DISCOVER else HOSTS).index(target) if target else -1
        cost = conclude(self.s, deployed, revealed, exploit, detected)
        return int(self.s.red_success), -cost / 10

    def shows(self, host: str) -> str:
        """The four bits of a host."""
        h = HOSTS.index(host)
        return "".join(str(int(bit)) for bit in self.s.bits[4 * h : 4 * h + 4])

    def hold(self, host: str) -> None:
        """Give red a user session that Remove cannot kill and that costs nothing."""
        self.s.user_fixed |= 1 << HOSTS.index(host)


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture(scope="session")
def data() -> Path:
    return DATA


@pytest.fixture(scope="session")
def traces() -> list[Path]:
    assert len(TRACES) == 10
    return TRACES


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """`installed(rules=..., without=...)`: that package (standin.py) is what `import CybORG` finds, in workers too."""

    def install(**how: str) -> None:
        folder = str(write_package(tmp_path / "site", **how))
        forget_imports()
        monkeypatch.syspath_prepend(folder)
        paths = [folder, os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))

    yield install
    forget_imports()
