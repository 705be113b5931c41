"""Fit the lookahead network on branches of simulated training days.

A day is booked by a generous policy up to a request drawn at random. From there it goes on several times, with the same
later requests, answers and oracle keys: once without an offer, and once for each of a few offers, taken as accepted. The
saving at the day's end, after polishing the routes, is the target. A value fitted around a timid policy would be too
low, because room is worth more where the others are wide too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.tasks.rides.env import RidesVectorEnv
from shoal.tasks.rides.lookahead import Lookahead, inputs
from shoal.tasks.rides.routing.problem import NO_CHANGE, NUM_OFFERS, OFFER_MIN
from shoal.vector.rng import mix
from shoal.vector.seeding import Stream, sequence

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Branches:
    """What a fit learns from: one row per offer tried."""

    rows: Array  # float32[B, F], inputs of the offer
    saving_min: Array  # float64[B], at the end of the day, against no offer
    day: Array  # int64[B], which day it was: rows of a day belong together


def generous(env: RidesVectorEnv, threshold: float) -> Array:
    """The most minutes with P(accept) at or above a threshold; state-independent, so that branches ask alike."""
    minutes = np.where(env.menu.p_accept >= threshold, OFFER_MIN, -1)
    minutes[:, NO_CHANGE] = np.maximum(minutes[:, NO_CHANGE], 0)
    return np.asarray(minutes.argmax(1))


def collect_branches(
    env: RidesVectorEnv, *, seed: int, offers: int = 3, polish: int = 200, first_day: int = 0
) -> Branches:
    """One batch of days of `env` (a training one, reset here), each branched once: `offers` rows a day."""
    rng = np.random.default_rng(sequence(seed, Stream.TRAIN, 0x10AD, first_day))
    n, customers = env.num_envs, env.options.customers
    obs, _ = env.reset(seed=int(rng.integers(2**31)))
    # All days branch at the same request: the batch stays in step, and requests are drawn evenly over batches.
    at = int(rng.integers(customers))
    # How generous the day is before and after differs from day to day, so that the fit sees narrow and wide days.
    threshold = rng.choice([0.5, 0.7, 0.9, 2.0], n, p=[0.35, 0.35, 0.15, 0.15])
    for _ in range(at):
        obs, *_ = env.step(generous(env, threshold[:, None]))
    tried = np.stack([rng.permutation(np.delete(np.arange(NUM_OFFERS), NO_CHANGE))[:offers] for _ in range(n)])
    rows = inputs(obs)[np.arange(n)[:, None], tried]  # [n, offers, F]

    start = env.bookings
    later = [env.world.true_probability(start.rider[:, t], start.purpose[:, t]) for t in range(customers)]
    final_s = np.empty((n, offers + 1))
    for branch in range(offers + 1):
        bookings = start.copy(with_base=False)
        first = np.full(n, NO_CHANGE) if branch == offers else tried[:, branch]
        bookings.put(first, np.ones(n, np.bool_), env.options.iterations)
        for t in range(at + 1, customers):
            minutes = np.where(later[t] >= threshold[:, None], OFFER_MIN, -1)
            minutes[:, NO_CHANGE] = 0
            bookings.book(minutes.argmax(1), env.options.iterations)
        env.oracle.polish(bookings.plans, mix(bookings.key), polish)
        final_s[:, branch] = bookings.cost_s()
    saving = (final_s[:, [offers]] - final_s[:, :offers]) / 60.0
    day = np.repeat(first_day + np.arange(n), offers)
    return Branches(rows.reshape(n * offers, -1), saving.ravel(), day)


def fit(
    branches: Branches, *, seed: int = 0, hidden: tuple[int, ...] = (32, 32), epochs: int = 60
) -> tuple[Lookahead, dict[str, float]]:
    """Train the network; the epoch with the best error on a fifth of the days, held out, is kept."""
    import torch
    from torch import nn

    held_out = branches.day % 5 == 4
    rows, target = torch.from_numpy(branches.rows), torch.from_numpy(branches.saving_min.astype(np.float32))
    target = target.clamp(-30, 30)  # a turned-away request moves a day by an hour; it must not move the fit
    train, test = torch.from_numpy(np.flatnonzero(~held_out)), torch.from_numpy(np.flatnonzero(held_out))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = [rows.shape[1], *hidden, 1]
        layers: list[nn.Module] = []
        for i in range(len(sizes) - 1):
            layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]
        model = nn.Sequential(*layers[:-1])
        optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
        best, kept = float("inf"), None
        plan = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, epochs * (-(-len(train) // 1024)))
        for _ in range(epochs):
            for part in train[torch.randperm(len(train))].split(1024):
                loss = nn.functional.mse_loss(model(rows[part])[:, 0], target[part])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                plan.step()
            with torch.inference_mode():
                error = float(nn.functional.mse_loss(model(rows[test])[:, 0], target[test]))
            if error < best:
                best, kept = error, [p.detach().clone() for p in model.parameters()]
    assert kept is not None
    variance = float(target[test].var())
    scores = {"held_out_r2": 1 - best / variance, "target_sd_min": variance**0.5, "rows": float(len(rows))}
    weights, biases = kept[::2], kept[1::2]
    return Lookahead(tuple(w.t().contiguous().numpy() for w in weights), tuple(b.numpy() for b in biases)), scores
