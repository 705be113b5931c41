"""A stand-in for the CybORG package with the surface that the adapter uses, playing back recordings."""

from __future__ import annotations

import random
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.cage2.traces import load

# A package on the disk, for what must survive a real import or another process: it is laid out as the real one and
# reads its version.txt when it is imported. Its network never changes: 52 zero bits and a reward of -0.1 a step.
_PACKAGE = """
from pathlib import Path
import gym
version = (Path(__file__).parent / "version.txt").read_text()

class CybORG:
    def __init__(self, path, mode, agents):
        open(path).close()

    def get_last_action(self, agent):
        return "ExploitRemoteService 10.0.0.1"
"""
_AGENTS = "class B_lineAgent: pass\nclass RedMeanderAgent: pass\nclass SleepAgent: pass\n"
_WRAPPERS = """
import numpy as np

class ChallengeWrapper:
    def __init__(self, env, agent_name):
        assert agent_name == "Blue"

    def reset(self):
        return np.zeros(52, np.int64)

    def step(self, action):
        return np.zeros(52, np.int64), -0.1, False, {}
"""
COMPLAINT = "Gym has been unmaintained since 2022"


def write_package(root: Path, *, rules: str = "26ce1c1", without: str = "") -> Path:
    """Write such a package below root, and a gym that complains when it is imported; returns the folder for sys.path.

    `without` is a data file to leave out, as a plain pip install does.
    """
    clear = "    def clearports(self, ip_address): ...\n" if rules == "26ce1c1" else ""
    files = {
        "gym/__init__.py": f"import sys\nprint({COMPLAINT!r}, file=sys.stderr)\n",
        "CybORG/__init__.py": _PACKAGE,
        "CybORG/version.txt": "2.1\n",
        "CybORG/Agents/__init__.py": _AGENTS,
        "CybORG/Agents/Wrappers/__init__.py": _WRAPPERS,
        "CybORG/Simulator/__init__.py": "",
        "CybORG/Simulator/Session.py": f"class RedAbstractSession:\n    def addport(self, ip_address): ...\n{clear}",
        "CybORG/Shared/Scenarios/Scenario2.yaml": "Agents:\n",
    }
    for name, text in files.items():
        if not without or not name.endswith(without):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    return root


def forget_imports() -> None:
    """Neither CybORG nor gym has been imported."""
    for name in [n for n in sys.modules if n.partition(".")[0] in ("CybORG", "gym")]:
        del sys.modules[name]


def install(monkeypatch: pytest.MonkeyPatch, files: dict[str, Path], root: Path) -> list[Any]:
    """Put the package into sys.modules; files maps agent classes to recordings. Returns a journal."""
    journal: list[Any] = []
    package, agents, wrappers = (types.ModuleType(n) for n in ("CybORG", "CybORG.Agents", "CybORG.Agents.Wrappers"))
    package.__file__ = str(root / "CybORG" / "__init__.py")
    scenario = root / "CybORG" / "Shared" / "Scenarios" / "Scenario2.yaml"
    scenario.parent.mkdir(parents=True, exist_ok=True)
    scenario.touch()

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
