"""Teach a network what offers are worth: sampled futures of simulated training days, thorough ones as the target.

At every request of a day some futures are sampled quickly, as the agent will see them, and a few others, independent
of those, are searched thoroughly: their mean is what the network shall predict. It learns how far to trust the quick
ones by how many there are, the lookahead beside them, and what neither knows. All 15 changes are priced at once,
with a tenth of the noise of days branched once (lookahead.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from shoal.core.seeds import Stream, sequence
from shoal.rides.env import RidesVectorEnv
from shoal.rides.fit.lookahead import TARGET_CAP_MIN
from shoal.rides.observe import MINUTES, OFFER_COLUMN, note_futures
from shoal.rides.options import FUTURES
from shoal.rides.policies.futures import BUILD_ITERATIONS, PRICE_ITERATIONS, TRUST, future_values
from shoal.rides.policies.network import RidesNetwork
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS

Array = np.ndarray[Any, Any]
SHOWN = (0, 4, 8, 16, FUTURES)  # numbers of quick futures that a network learns to use
TARGETS = 6  # thorough futures behind a target
_APART = 1000  # thorough futures are numbered from here: none of them is among the quick ones
_NOISE_MIN = (0.0, 0.2, 0.5, 2.0)  # of the days' own choices, so that lessons cover what a policy in training does
_CHANGES = np.delete(np.arange(NUM_OFFERS), NO_CHANGE)


@dataclass(frozen=True)
class Lessons:
    """S states: what the agent sees without futures, what quick futures say, and what thorough ones do."""

    obs: dict[str, Array]  # float16[S, ...] each
    quick_min: Array  # float16[S, len(SHOWN), 16]: means of the first so many quick futures
    target_min: Array  # float16[S, 16]
    day: Array  # int64[S], which day a state is of


def collect_lessons(env: RidesVectorEnv, *, seed: int, batch: int) -> Lessons:
    """Every request of one batch of days of a training environment that has a lookahead and shows no futures."""
    if env.lookahead is None or env.options.futures:
        raise ValueError(
            f"expected an environment with a lookahead and futures=0, got start={env.options.start!r} and "
            f"futures={env.options.futures}"
        )
    rng = np.random.default_rng(sequence(seed, Stream.TRAIN, 0xF17, batch))
    noise_min = rng.choice(_NOISE_MIN, env.num_envs)[:, None]
    obs, _ = env.reset(seed=int(rng.integers(2**31)))
    parts = []
    for _ in range(env.options.customers):
        quick_min = future_values(env, FUTURES)
        target_min = TRUST * future_values(env, TARGETS, BUILD_ITERATIONS, PRICE_ITERATIONS, first=_APART).mean(1)
        shown = [quick_min[:, :count].mean(1) if count else np.zeros_like(target_min) for count in SHOWN]
        parts.append(
            Lessons(
                {name: array.astype(np.float16) for name, array in obs.items() if name != "action_mask"},
                np.stack(shown, 1).astype(np.float16),
                target_min.astype(np.float16),
                batch * env.num_envs + np.arange(env.num_envs),
            )
        )
        value_min = 0.6 * TRUST * quick_min.mean(1) + 0.4 * env.lookahead.values(obs)
        score = env.menu.expected_min(value_min, *env.options.burden_rates)
        obs, *_ = env.step((score + noise_min * rng.gumbel(size=score.shape)).argmax(1))
    return joined(parts)


def joined(parts: list[Lessons]) -> Lessons:
    """Several batches as one."""
    return Lessons(
        {name: np.concatenate([part.obs[name] for part in parts]) for name in parts[0].obs},
        np.concatenate([part.quick_min for part in parts]),
        np.concatenate([part.target_min for part in parts]),
        np.concatenate([part.day for part in parts]),
    )


def teach(
    network: RidesNetwork, lessons: Lessons, *, seed: int = 0, steps: int = 5000, size: int = 1024, device: str = "cpu"
) -> dict[str, float]:
    """Fit the policy's `worth` in place; R2 on a twentieth of the days, held out, by the number of futures shown."""
    network.to(device)
    held_out = lessons.day % 20 == 19
    train, test = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    if not len(train) or not len(test):
        raise ValueError(f"expected lessons of at least 20 days, got {len(np.unique(lessons.day))}")
    target = np.clip(lessons.target_min.astype(np.float32), -TARGET_CAP_MIN, TARGET_CAP_MIN)[:, _CHANGES]
    rng = np.random.default_rng(sequence(seed, Stream.TRAIN, 0x7EAC))

    def predict(rows: Array, shown: Array) -> torch.Tensor:
        obs = {name: array[rows].astype(np.float32) for name, array in lessons.obs.items()}
        futures = np.array(SHOWN)[shown]
        note_futures(obs, lessons.quick_min[rows, shown], futures)
        known_min = obs["offers"][:, _CHANGES, OFFER_COLUMN["value"]] * MINUTES
        worth = network.worth({name: torch.from_numpy(part).to(device) for name, part in obs.items()})[:, _CHANGES]
        return torch.from_numpy(known_min).to(device) + MINUTES * worth

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-3)
        plan = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, steps)
        for _ in range(steps):
            rows = rng.choice(train, size)
            error = predict(rows, rng.integers(len(SHOWN), size=size)) - torch.from_numpy(target[rows]).to(device)
            optimiser.zero_grad()
            torch.autograd.backward(error.square().mean())
            optimiser.step()
            plan.step()
    scores = {}
    for index, futures in enumerate(SHOWN):
        with torch.inference_mode():
            guess = predict(test, np.full(len(test), index)).cpu().numpy()
        missed = np.square(guess - target[test]).mean()
        scores[f"held_out_r2_{futures}_futures"] = float(1 - missed / target[test].var())
    network.to("cpu")
    return scores
