"""One episode to look at: step by step, in words, and as data for a picture (figures.py draws it)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.cage2.defenders.play import Defender
from shoal.cage2.replay import RED_NAMES, reds_of, write_step
from shoal.cage2.simulator.env import make_vec
from shoal.cage2.simulator.network import (
    ANALYSE,
    DISCOVER,
    ESCALATE,
    EXPLOIT,
    FAILED,
    FIRST_DECOY,
    GENUINE,
    HOSTS,
    IMPACT,
    KINDS,
    NUM_HOSTS,
    PRIVILEGED_SHELL,
    RED_SLEEP,
    REMOVE,
    RESTORE,
    SCAN,
    SSH_BRUTE_FORCE,
    SUBNETS,
    SUCCEEDED,
)
from shoal.cage2.traces import STEP
from shoal.core.seeds import Stream

OVER = ("EternalBlue", "BlueKeep", "HTTP", "HTTPS", "SSH", "SQL", "Haraka", "FTP")


@dataclass(frozen=True)
class Episode:
    """An episode as a recording: `steps` is STEP[step] (see traces.py), `red` the agent's name."""

    steps: np.ndarray
    red: str

    @property
    def total(self) -> float:
        """The return, exact to a tenth."""
        return float(np.rint(self.steps["reward"] * 10).sum()) / 10


def record(
    act: Callable[[Any, np.ndarray], np.ndarray] | str,
    horizon: int = 100,
    red: str = "bline",
    seed: int = 0,
    features: str = "memory",
    mask: str = "useful",
    order: str | int = "none",
    rules: str = "present",
) -> Episode:
    """Play one episode and keep every step. `act(observations, begun) -> actions`, or a baseline's name.

    >>> record("sleep", horizon=3, red="sleep").total
    0.0
    """
    if isinstance(act, str):
        act, features, mask, order = Defender(act, 1, seed).act, "plain", "none", "none"
    # One step longer than shown, so that the last state can be read before the next episode replaces it.
    seen: dict[str, Any] = {"features": features, "mask": mask, "order": order, "rules": rules}
    envs = make_vec(1, stream=Stream.EVALUATE, horizon=horizon + 1, red=red, **seen)
    observations, _ = envs.reset(seed=seed)
    game = envs.state["game"].view(np.recarray)[0]
    steps = np.zeros(horizon, STEP).view(np.recarray)
    for t in range(horizon):
        action = act(observations, np.array([t == 0]))
        observations, rewards, *_ = envs.step(action)
        write_step(game, int(action[0]), -int(np.rint(rewards[0] * 10)), steps[t])
    name = RED_NAMES[int(game.red)]
    envs.close()
    return Episode(steps.view(np.ndarray), name)


def recorded(steps: np.ndarray) -> Episode:
    """One episode of a trace file, STEP[step]."""
    return Episode(steps, RED_NAMES[int(reds_of(steps[None])[0])])


def in_words(episode: Episode) -> list[str]:
    """One line a step: what Blue did, what red did and how it went, what it cost."""
    return [
        f"{t + 1:>3}  {blue_words(step)}; {red_words(step)} ({float(step['reward']) + 0.0:g})"
        for t, step in enumerate(episode.steps)
    ]


def blue_words(step: np.void) -> str:
    """Blue's action in words."""
    action = int(step["blue_action"])
    if action < 2:
        return ("blue sleeps", "blue monitors")[action]
    kind, host = divmod(action - 2, NUM_HOSTS)
    name = HOSTS[host]
    if kind == ANALYSE:
        found = step["obs"][4 * host + 2] and step["obs"][4 * host + 3]
        return f"blue analyses {name}" + (", finds malware" if found else "")
    if kind == REMOVE:
        return f"blue removes shells from {name}"
    if kind == RESTORE:
        return f"blue restores {name}"
    decoy = KINDS[kind].removeprefix("Decoy")
    return f"blue deploys {decoy} on {name}" + (", in vain" if step["blue_success"] == FAILED else "")


def red_words(step: np.void) -> str:
    """Red's action and its outcome in words."""
    kind, target = int(step["red_type"]), int(step["red_target"])
    worked = step["red_success"] == SUCCEEDED
    if kind == RED_SLEEP:
        return "red sleeps"
    if kind == DISCOVER:
        return f"red looks for hosts in {SUBNETS[target]}" + ("" if worked else ", fails")
    name = HOSTS[target]
    shown = bool(step["obs"][4 * target])
    if kind == SCAN:
        return f"red scans {name}, {'seen' if shown else 'not seen'}"
    if kind == EXPLOIT:
        return f"red exploits {name} {_outcome(step, target, shown, worked)}"
    if kind == ESCALATE:
        return f"red escalates on {name}" + ("" if worked else ", fails")
    if not worked:
        return f"red attacks the service of {name}, fails"
    return f"red attacks the service of {name}, " + ("in vain" if step["flags"][0] else "which stands still")


def _outcome(step: np.void, target: int, shown: bool, worked: bool) -> str:
    exploit = int(step["red_exploit"])
    if exploit < 0:
        return "without knowing a port, fails"
    over = f"over {OVER[exploit]}, "
    if worked:
        shell = "privileged shell" if GENUINE[target, exploit] == PRIVILEGED_SHELL else "user shell"
        seen = exploit == SSH_BRUTE_FORCE or step["detected"]
        return f"{over}gets a {shell}, {'seen' if seen else 'not seen'}"
    return f"{over}{'meets a decoy' if target else 'is refused'}" if shown else f"{over}nothing answers"


def picture(episode: Episode) -> dict[str, Any]:
    """Data for a figure of hosts x steps: access and belief uint8[host, step], reward float64[step], marks.

    A mark is (step from 1, host, kind, whether it worked); discoveries and Sleep concern no host.
    """
    steps = episode.steps
    actions = steps["blue_action"].astype(int)
    bits = steps["obs"].reshape(len(steps), NUM_HOSTS, 4)
    blue = []
    for t, action in enumerate(actions):
        if action >= 2:
            kind, host = divmod(int(action) - 2, NUM_HOSTS)
            word = "Decoy" if FIRST_DECOY <= kind < RESTORE else KINDS[kind]
            blue.append((t + 1, host, word, bool(steps["blue_success"][t] != FAILED)))
    words = {SCAN: "Scan", EXPLOIT: "Exploit", ESCALATE: "Escalate", IMPACT: "Impact"}
    red = [
        (t + 1, int(step["red_target"]), words[int(step["red_type"])], bool(step["red_success"] == SUCCEEDED))
        for t, step in enumerate(steps)
        if int(step["red_type"]) in words
    ]
    return {
        "hosts": list(HOSTS),
        "access": np.ascontiguousarray(steps["access"].T),
        "belief": np.ascontiguousarray((bits[:, :, 2] + 2 * bits[:, :, 3]).T),
        "blue": blue,
        "red": red,
        "reward": steps["reward"].astype(float),
        "title": f"{episode.red}, {len(steps)} steps: {episode.total:.1f}",
    }
