"""A stand-in for the CybORG package with the surface of SPEC section 3, playing back recordings."""

from __future__ import annotations

import random
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.tasks.cage2.traces import load


def install(monkeypatch: pytest.MonkeyPatch, files: dict[str, Path], root: Path) -> list[Any]:
    """Put the package into sys.modules; files maps agent classes to recordings. Returns a journal."""
    journal: list[Any] = []
    package, agents, wrappers = (types.ModuleType(n) for n in ("CybORG", "CybORG.Agents", "CybORG.Agents.Wrappers"))
    package.__file__ = str(root / "CybORG" / "__init__.py")

    class CybORG:
        def __init__(self, path: str, mode: str, agents: dict[str, type]) -> None:
            assert mode == "sim"
            assert Path(path) == root / "CybORG" / "Shared" / "Scenarios" / "Scenario2.yaml"
            self.recorded = load(files[agents["Red"].__name__])
            journal.append(("construct", agents["Red"].__name__, random.random(), np.random.rand()))  # noqa: NPY002

    class ChallengeWrapper:
        def __init__(self, env: CybORG, agent_name: str) -> None:
            assert agent_name == "Blue"
            self.recorded, self.episode, self.t = env.recorded, -1, 0

        def reset(self) -> np.ndarray:
            self.episode += 1
            self.t = 0
            journal.append(("reset", self.episode, random.random(), np.random.rand()))  # noqa: NPY002
            return np.zeros(52, np.int64)

        def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
            record = self.recorded[self.episode, self.t]
            assert isinstance(action, int)
            assert action == record["blue_action"]
            self.t += 1
            return record["obs"].astype(np.int64), float(record["reward"]), False, {}

    for name in ("B_lineAgent", "RedMeanderAgent", "SleepAgent"):
        setattr(agents, name, type(name, (), {}))
    package.CybORG = CybORG  # type: ignore[attr-defined]
    wrappers.ChallengeWrapper = ChallengeWrapper  # type: ignore[attr-defined]
    for module in (package, agents, wrappers):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return journal
