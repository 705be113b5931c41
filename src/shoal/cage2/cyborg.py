"""The real CybORG 2.1 as a Gymnasium environment with our observations and actions.

For training or evaluation on the system itself, over the `process` backend; it does about 250 steps a second.
CybORG is an optional dependency, imported when an environment is made.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from shoal.cage2.simulator.env import MIX, make
from shoal.cage2.simulator.memory import (
    MEMORY,
    MEMORY_FEATURES,
    forget,
    remember_bits,
    write_features,
    write_useful,
)
from shoal.cage2.simulator.network import FINAL_RULES, NUM_ACTIONS, NUM_BITS, RULES
from shoal.cage2.simulator.red_agents import REDS

# Editable: its setup.py names no data files, so a plain installation lacks version.txt and the scenarios.
COMMAND = (
    'pip install -e "git+https://github.com/cage-challenge/cage-challenge-2@26ce1c1#egg=CybORG&subdirectory=CybORG"'
)
AGENTS = {"bline": "B_lineAgent", "meander": "RedMeanderAgent", "sleep": "SleepAgent"}


class CyborgMissing(ImportError):
    """CybORG is not installed, or not whole; the message says what is missing and how to install it."""


class CyborgEnv(gym.Env[Any, int]):
    """Scenario2 of an installed CybORG, with the options and spaces of `env.make`.

    It has no seed argument: Python's and NumPy's global generators are seeded before each construction and
    reset, from this environment's own generator, and kept for it from step to step, so an environment is reproducible
    whatever else runs in its process.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        horizon: int | Sequence[int] = 100,
        red: str = "mixed",
        features: str = "memory",
        mask: str = "useful",
        mix: Sequence[float] = MIX,
    ) -> None:
        options = make(horizon, red, features, mask, mix)  # checks them, and says what the spaces are
        self.observation_space, self.action_space = options.observation_space, options.action_space
        self.horizons, self.shares = options.horizons, options.shares
        self.remembers, self.masks = features == "memory", mask == "useful"
        self._wrapper_of = load(quiet=True)
        self._wrappers: dict[str, Any] = {}  # by red agent; building one takes a second
        self._cyborgs: dict[str, Any] = {}
        self._memory = np.zeros(1, MEMORY).view(np.recarray)[0]
        self._steps = self._horizon = 0
        self.red = ""
        self.episode_seed = 0  # what the global generators were seeded with

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw red and horizon, begin an episode; info names the red agent."""
        super().reset(seed=seed)
        self.red = REDS[int(self.np_random.choice(len(REDS), p=self.shares))]
        self._horizon = self.horizons[int(self.np_random.integers(len(self.horizons)))]
        self._steps = 0
        self.episode_seed = int(self.np_random.integers(2**31))
        _seed_globals(self.episode_seed)
        if self.red not in self._wrappers:
            self._cyborgs[self.red], self._wrappers[self.red] = self._wrapper_of(self.red)
            _seed_globals(self.episode_seed)
        bits = _checked_bits(self._wrappers[self.red].reset())
        self._generators = _globals()
        forget(self._memory)
        return self._observation(bits), {"red": self.red}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step; terminated at the horizon. The real `done` is never True and is not asked."""
        if not 0 <= int(action) < NUM_ACTIONS:
            raise ValueError(f"action: expected 0..{NUM_ACTIONS - 1}, got {action}")
        _set_globals(self._generators)  # other environments of this process draw from them too
        observed, reward, _, _ = self._wrappers[self.red].step(int(action))
        self._generators = _globals()
        bits = _checked_bits(observed)
        remember_bits(self._memory, bits, int(action))
        self._steps += 1
        # CybORG rounds to one decimal; what is left is the noise of its sums.
        return (
            self._observation(bits),
            round(float(reward), 1),
            self._steps >= self._horizon,
            False,
            {"red": self.red},
        )

    @property
    def cyborg(self) -> Any:
        """The CybORG of this episode, to be read and not to be stepped."""
        return self._cyborgs[self.red]

    def last_red_action(self) -> str:
        """Red's action of the last step, in CybORG's own words."""
        return str(self.cyborg.get_last_action("Red"))

    def _observation(self, bits: np.ndarray) -> Any:
        """Blue's bits, its memory and its mask, by the functions that the kernel runs."""
        out = np.zeros(MEMORY_FEATURES if self.remembers else NUM_BITS, np.uint8)
        out[:NUM_BITS] = bits
        if self.remembers:
            write_features(self._memory, out)
        if not self.masks:
            return out
        mask = np.zeros(NUM_ACTIONS, np.int8)
        write_useful(self._memory.standing, bits, mask)
        return {"obs": out, "action_mask": mask}


def load(*, quiet: bool = False) -> Any:
    """A function that builds CybORG and the challenge's wrapper for a red agent; CyborgMissing without a whole one.

    `quiet` keeps back what gym prints at its import: once a command is enough, not once for each worker.
    """
    if quiet:
        with contextlib.suppress(ImportError), contextlib.redirect_stderr(io.StringIO()):
            importlib.import_module("gym")
    try:
        package = importlib.import_module("CybORG")
        agents = importlib.import_module("CybORG.Agents")
        wrappers = importlib.import_module("CybORG.Agents.Wrappers")
    except ImportError as error:
        raise CyborgMissing(f"CybORG 2.1 is not installed ({error}); install it with: {COMMAND}") from None
    except OSError as error:  # it reads its version.txt when it is imported
        raise _incomplete(error.filename) from None
    scenario = Path(str(package.__file__)).parent / "Shared" / "Scenarios" / "Scenario2.yaml"
    if not scenario.is_file():
        raise _incomplete(scenario)

    def build(red: str) -> Any:
        cyborg = package.CybORG(str(scenario), "sim", agents={"Red": getattr(agents, AGENTS[red])})
        return cyborg, wrappers.ChallengeWrapper(env=cyborg, agent_name="Blue")

    return build


def installed_rules() -> str:
    """The rules of the CybORG that is installed. Its version cannot tell them (all say 2.1), its code can: a scan
    that replaces what red remembers of a host needs `clearports`, which came after the final leaderboard.
    """
    load()
    try:
        session = importlib.import_module("CybORG.Simulator.Session").RedAbstractSession
    except (ImportError, AttributeError) as error:
        raise CyborgMissing(
            f"the CybORG that is installed is not that of CAGE Challenge 2 ({error}); install it with: {COMMAND}"
        ) from None
    return RULES if hasattr(session, "clearports") else FINAL_RULES


def _incomplete(missing: Any) -> CyborgMissing:
    return CyborgMissing(
        f"CybORG is installed without its data files: {missing} is missing, as after a plain pip install. "
        f"Install it again, editable: {COMMAND}"
    )


def _globals() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()  # noqa: NPY002


def _set_globals(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002


def _seed_globals(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - CybORG draws from the global generators


def _checked_bits(observed: Any) -> np.ndarray:
    """uint8[52] from what the wrapper returned, or an error that says what is wrong with this CybORG."""
    bits = np.asarray(observed)
    if bits.shape != (NUM_BITS,) or not np.isin(bits, (0, 1)).all():
        raise ValueError(
            f"CybORG returned an observation of shape {bits.shape} with values {np.unique(bits)[:5]}, "
            f"expected {NUM_BITS} bits; is it version 2.1 (cage-challenge-2) with ChallengeWrapper?"
        )
    return bits.astype(np.uint8)
