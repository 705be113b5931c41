"""One episode of the real CybORG in words: what Blue did and saw, what CybORG says of red, what it cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.cage2.cyborg import CyborgEnv
from shoal.cage2.defenders.play import Defender
from shoal.cage2.simulator.network import BELIEFS, HOSTS, NUM_ACTIONS, NUM_BITS, NUM_HOSTS, action_name
from shoal.core.seeds import Stream, sequence


def record(
    act: Callable[[Any, np.ndarray], np.ndarray] | str,
    horizon: int = 100,
    red: str = "bline",
    seed: int = 0,
    features: str = "memory",
    mask: str = "useful",
    order: str | int = "none",
) -> dict[str, Any]:
    """`act` and the options as in `view.record`; the seed is of the evaluation stream."""
    if order != "none":
        raise ValueError("order: expected none with simulator cyborg: compliance is judged on shoal's own state")
    if isinstance(act, str):
        act, features, mask = Defender(act, 1, seed).act, "plain", "none"
    env = CyborgEnv(horizon=horizon, red=red, features=features, mask=mask)
    first = int(sequence(seed, Stream.EVALUATE, 0).generate_state(1, np.uint32)[0])
    observation, _ = env.reset(seed=first)
    lines, tenths = [], 0
    for t in range(horizon):
        action = int(act(batch_of(observation), np.array([t == 0]))[0])
        assert 0 <= action < NUM_ACTIONS
        observation, reward, *_ = env.step(action)
        tenths += round(10 * reward)
        shown = seen(bits_of(observation))
        lines.append(f"{t + 1:>3}  blue {action_name(action)}; red {env.last_red_action()}; {shown} ({reward + 0.0:g})")
    return {"red": env.red, "total": tenths / 10, "lines": lines}


def seen(bits: np.ndarray) -> str:
    """What Blue's 52 bits show, in words.

    >>> seen(np.zeros(52, np.uint8))
    'nothing shows'
    """
    parts = []
    for host, (active, exploited, low, high) in enumerate(bits.reshape(NUM_HOSTS, 4).tolist()):
        words = ["exploit" if exploited else "scan"] if active or exploited else []
        words += [f"believed {BELIEFS[low + 2 * high]}"] if low or high else []
        if words:
            parts.append(f"{HOSTS[host]} {' and '.join(words)}")
    return ", ".join(parts) if parts else "nothing shows"


def batch_of(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {name: value[None] for name, value in observation.items()}
    return observation[None]


def bits_of(observation: Any) -> np.ndarray:
    whole: np.ndarray = observation["obs"] if isinstance(observation, dict) else observation
    return whole[:NUM_BITS]
