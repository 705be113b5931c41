"""Fit what an accepted offer is worth on branches of simulated training days.

A day is booked up to a request drawn at random. From there it goes on several times, with the same later requests,
answers and oracle keys: once without an offer, and once for each of a few offers, taken as accepted. The net gain at
the day's end, after polishing the routes, is the target. A value fitted around a timid policy would be too low,
because room is worth more where the others are wide too: so days go on under a generous policy first, and, once there
is a lookahead, under that.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.compiled.random import mix
from shoal.core.seeds import Stream, sequence
from shoal.rides.env import RidesVectorEnv
from shoal.rides.observe import OFFER_COLUMN
from shoal.rides.policies.lookahead import Lookahead, inputs
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS, OFFER_MIN

Array = np.ndarray[Any, Any]
TARGET_CAP_MIN = 30.0  # a turned-away request moves a day by an hour; it must not move a fit


@dataclass(frozen=True)
class Branches:
    """What a fit learns from: D days, each with the observation at its branch and K offers tried there."""

    obs: dict[str, Array]  # observations, [D, ...] each
    tried: Array  # int64[D, K], offers
    gain_min: Array  # float64[D, K]: net gain of the rest of the day against no offer, without this offer's own burden


def generous(p_accept: Array, threshold: Array) -> Array:
    """The most minutes with P(accept) [N, 16] at or above a threshold [N], int64[N]; it asks alike in every branch."""
    minutes = np.where(p_accept >= threshold[:, None], OFFER_MIN, -1)
    minutes[:, NO_CHANGE] = np.maximum(minutes[:, NO_CHANGE], 0)
    return np.asarray(minutes.argmax(1))


def collect_branches(
    env: RidesVectorEnv,
    *,
    seed: int,
    batch: int,
    offers: int = 3,
    polish: int = 200,
    follow: bool = False,
    prices: str | None = None,
) -> Branches:
    """One batch of days of a training environment, which is reset here; each day is branched once.

    `follow`: the days are booked by the environment's lookahead instead of the generous policy. `prices`: those that
    the observation at the branch shows, if others than the days are booked with.
    """
    rng = np.random.default_rng(sequence(seed, Stream.TRAIN, 0x10AD, batch))
    n, customers, iterations = env.num_envs, env.options.customers, env.options.iterations
    patience, refusal = env.options.burden_rates
    # How generous a day is differs from day to day, so that the fit sees narrow and wide ones.
    threshold = rng.choice([0.5, 0.7, 0.9, 2.0], n, p=[0.35, 0.35, 0.15, 0.15])

    def choose() -> Array:
        if follow:
            return np.asarray(env.look()["offers"][:, :, OFFER_COLUMN["lookahead"]].argmax(1))
        days = env.bookings
        return generous(env.world.true_probability(days.now(days.rider), days.now(days.purpose)), threshold)

    env.reset(seed=int(rng.integers(2**31)))
    start = env.bookings
    # All days branch at the same request: the batch stays in step, and requests are drawn evenly over batches.
    at = int(rng.integers(customers))
    for _ in range(at):
        start.book(choose(), iterations)
    obs = env.look(prices)
    others = np.delete(np.arange(NUM_OFFERS), NO_CHANGE)
    tried = np.stack([rng.permutation(others)[:offers] for _ in range(n)])
    net_min = np.empty((n, offers + 1))
    for branch in range(offers + 1):
        env.bookings = bookings = start.copy(with_base=False)
        first = np.full(n, NO_CHANGE) if branch == offers else tried[:, branch]
        bookings.put(first, np.ones(n, np.bool_), iterations)
        for _ in range(at + 1, customers):
            bookings.book(choose(), iterations)
        env.oracle.polish(bookings.plans, mix(bookings.key), polish)
        later = slice(at + 1, customers)
        burden = patience * bookings.agreed_min()[:, later].sum(1) + refusal * bookings.refused()[:, later].sum(1)
        net_min[:, branch] = -bookings.cost_s() / 60.0 - burden
    env.bookings = start
    return Branches(obs, tried, net_min[:, :offers] - net_min[:, [offers]])


def joined(parts: list[Branches]) -> Branches:
    """Several batches as one."""
    names = parts[0].obs
    return Branches(
        {name: np.concatenate([part.obs[name] for part in parts]) for name in names},
        np.concatenate([part.tried for part in parts]),
        np.concatenate([part.gain_min for part in parts]),
    )


def fit_lookahead(
    branches: Branches, *, seed: int = 0, hidden: tuple[int, ...] = (64, 64), epochs: int = 12, device: str = "cpu"
) -> tuple[Lookahead, dict[str, float]]:
    """Train the small network; the epoch with the best error on a fifth of the days, held out, is kept."""
    import torch
    from torch import nn

    day = np.arange(len(branches.tried))[:, None]
    rows = inputs(branches.obs)[day, branches.tried]  # [D, K, F]
    sizes = [rows.shape[-1], *hidden, 1]
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for size, after in itertools.pairwise(sizes):
            layers += [nn.Linear(size, after), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    scores = _fit(
        model, lambda part: model(part["rows"]).squeeze(-1), {"rows": rows}, branches.gain_min, seed, epochs, device
    )
    linear = [layer for layer in model if isinstance(layer, nn.Linear)]
    weights = tuple(layer.weight.detach().t().contiguous().numpy() for layer in linear)
    return Lookahead(weights, tuple(layer.bias.detach().numpy() for layer in linear)), scores


def _fit(
    model: Any, predict: Any, data: dict[str, Array], target_min: Array, seed: int, epochs: int, device: str
) -> dict[str, float]:
    """Least squares by Adam with a one-cycle rate; leaves the best weights of any epoch in `model`."""
    import torch

    target = torch.from_numpy(np.clip(target_min, -TARGET_CAP_MIN, TARGET_CAP_MIN).astype(np.float32)).to(device)
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)).to(device) for name, array in data.items()}
    held_out = torch.arange(len(target)) % 5 == 4
    train, test = (~held_out).nonzero()[:, 0].to(device), held_out.nonzero()[:, 0].to(device)

    def error(rows: Any) -> Any:
        return (predict({name: tensor[rows] for name, tensor in tensors.items()}) - target[rows]).square().mean()

    model.to(device)
    size, best, kept = 128, float("inf"), {}  # days, so three times as many targets
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
        plan = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, epochs * (-(-len(train) // size)))
        with torch.inference_mode():
            before = float(torch.stack([error(part) for part in torch.split(test, 4096)]).mean())
        for _ in range(epochs):
            for part in torch.split(train[torch.randperm(len(train)).to(device)], size):
                loss = error(part)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                plan.step()
            with torch.inference_mode():
                now = float(torch.stack([error(part) for part in torch.split(test, 4096)]).mean())
            if now < best:
                best, kept = now, {name: value.detach().clone() for name, value in model.state_dict().items()}
    model.load_state_dict(kept)
    model.to("cpu")
    variance = float(target[test].var())
    if variance == 0:
        raise ValueError(
            f"expected offers of different worth on the {len(test)} held-out days, all are alike: more days"
        )
    return {
        "held_out_r2": 1 - best / variance,
        "held_out_r2_before": 1 - before / variance,
        "target_sd_min": variance**0.5,
        "offers_tried": float(target.numel()),
        "days": float(len(target)),
    }
