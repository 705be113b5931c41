"""How much is left to gain for who answers at once: what predictions know of the truth, and what more futures would.

The taught policy plays days of training riders that no training has seen, with 32 futures before each offer. Each offer
that riders are likely to accept is priced twice at the end of its own day (the credit of training, two searches): what
an acceptance truly saves, with the luck of one day. It is compared with what the network predicts from no futures, from
8 and from 32, and with the mean over 8 and over 24 futures. The two means err independently, so their covariances say
what infinitely many futures would explain; the rest is luck that nobody knows when the rider calls. From that follows
how many futures the network's judgement is worth when more of them are sampled (thinking.py).

    python -m benchmarks.rides.rides_ceiling [--days 512] [--store]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.compiled.random import mix
from shoal.core.arrays import Array
from shoal.core.seeds import episode_seed
from shoal.rides.bookings import Bookings
from shoal.rides.credit import Rates, generously, savings_min, uniform
from shoal.rides.env import RidesVectorEnv
from shoal.rides.observe import note_futures
from shoal.rides.options import FUTURES, RidesOptions
from shoal.rides.policies.futures import future_values
from shoal.rides.policies.network import taught_network
from shoal.rides.policies.simple import best_or_none
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS, OFFER_MIN

PLACE, NAME, DAYS, SEED, BATCH = "benchmarks.rides.rides_ceiling", "rides_ceiling", 512, 990001, 256
FEW = 8  # futures; the others are independent of these
LIKELY = 0.3  # P(accept) from which an offer counts
RESAMPLES = 1000
_ESTIMATES = (np.uint64(0x9FB21C651E98DF25), np.uint64(0xD6E8FEB86659FD93))  # set the credits' draws apart
PARTS = ("one", "truth", "none", "few", "all", "mean few", "mean others", "noise")
ONE, TRUTH, NONE, FEW_SHOWN, ALL_SHOWN, MEAN_FEW, MEAN_OTHERS, NOISE = range(len(PARTS))


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result; with `full` the days are played again."""
    return summarise(measure(DAYS, say)) if full else stored.read_rows(NAME, PLACE)


def measure(days: int, say: Callable[[str], None], **options: Any) -> dict[str, Array]:
    """By day: sums of products of PARTS over offers, and what the choices by fewer futures gain less those by all."""
    found: dict[str, Array] = {}
    for low in range(0, days, BATCH):
        part = _measured(np.arange(low, min(low + BATCH, days)), **options)
        found = {name: np.concatenate([found[name], more]) if found else more for name, more in part.items()}
        say(f"{len(found['products'])} of {days} days")
    return found


def _measured(numbers: Array, **options: Any) -> dict[str, Array]:
    count = len(numbers)
    quiet: dict[str, Any] = {"held_out_days": 0, "credit": "rewards", "background": False, "futures": 0}
    env = RidesVectorEnv(count, RidesOptions(**quiet, **options))
    env.exploring = False
    bookings = env.bookings = Bookings(env.world, count, env.oracle, with_base=False)
    observations, _ = env.reset(seed=[episode_seed(SEED, int(day), 0) for day in numbers])
    rates, steps = Rates(*env.options.burden_rates), []
    while True:
        values = future_values(env, FUTURES)
        p = env.menu.p_accept
        judged = {shown: judgements(env, observations, values[:, :shown]) for shown in (0, FEW, FUTURES)}
        predicted = {shown: worth_if_accepted(net, p, rates) for shown, net in judged.items()}
        chosen = {shown: best_or_none(net) for shown, net in judged.items()}
        means = values[:, :FEW].mean(1), values[:, FEW:].mean(1)
        request = bookings.now(bookings.requests)
        steps.append((predicted, chosen, means, values.var(1, ddof=1), p.copy(), request.copy(),
                      mix(bookings.step_keys()), bookings.plans.copy(), int(bookings.t[0])))  # fmt: skip
        bookings.book(chosen[FUTURES], env.options.iterations)
        if bookings.t[0] == bookings.customers:
            break
        observations = env.look()
    products, fewer = np.zeros((count, len(PARTS), len(PARTS))), np.zeros((2, count))
    agreed, wide = bookings.agreed_requests(), generously(bookings, np.arange(count))
    for predicted, chosen, means, noise, p, request, key, plans, t in steps:
        saved = np.zeros((count, NUM_OFFERS))
        for other in _ESTIMATES:
            with np.errstate(over="ignore"):
                keys = mix(key + other)
            windows = np.where(uniform(keys, bookings.customers) < 0.5, wide, agreed)
            when, effect = np.full(count, t), env.options.offer_effect
            saved += savings_min(env.oracle, plans.copy(), windows, when, request, keys, effect) / len(_ESTIMATES)
        counts = (p > LIKELY) & (np.arange(NUM_OFFERS) != NO_CHANGE)
        columns = np.stack(
            [np.ones_like(saved), saved, predicted[0], predicted[FEW], predicted[FUTURES], *means, noise]
        )
        columns = np.where(counts, columns, 0.0)
        products += np.einsum("iko,jko->kij", columns, columns)
        worth, rows = rates.worth(p, saved), np.arange(count)
        own = worth[rows, chosen[FUTURES]]
        fewer += [worth[rows, chosen[shown]] - own for shown in (0, FEW)]
    env.close()
    return {"products": products, "by none": fewer[0], "by few": fewer[1]}


def judgements(env: RidesVectorEnv, observations: dict[str, Array], values: Array) -> Array:
    """The taught network's expected net gain of each offer, float64[N, 16], when it is shown these futures."""
    from benchmarks.rides.rides_think import expected_min

    seen = {name: part.copy() for name, part in observations.items()}
    if values.shape[1]:
        note_futures(seen, values.mean(1), values.shape[1])
    options = env.options
    return expected_min(taught_network(options.customers, options.prices, options.start_temperature), seen)


def worth_if_accepted(net_min: Array, p: Array, rates: Rates) -> Array:
    """The minutes that an acceptance saves, from the net gain expected of the offer."""
    return np.asarray((net_min + rates.refusal * (1 - p)) / np.maximum(p, LIKELY) + rates.patience * OFFER_MIN)


def summarise(found: dict[str, Array]) -> list[Row]:
    """What predictions explain of the truth, what infinitely many futures would, and what choices by fewer lose."""
    products, days = found["products"], len(found["products"])
    rng = np.random.default_rng(0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a handful of days may show no covariance
        drawn = [figures(products[rng.integers(days, size=days)].sum(0)) for _ in range(RESAMPLES)]
        whole, made = figures(products.sum(0)), list[Row]()
    for name, value in whole.items():
        low, high = np.nanquantile([one[name] for one in drawn], (0.025, 0.975))
        unit = "%" if name.startswith("explained") else "min²" if "variance" in name else "ratio"
        made.append(Row(f"rides, {name}", value, unit, note=f"[{low:.3g}, {high:.3g}] over {days} days"))
    for name, words in (("by none", "no futures"), ("by few", f"{FEW} futures")):
        half = 1.96 * float(found[name].std(ddof=1)) / days**0.5
        title = f"rides, choices by {words} less those by {FUTURES}, by the credit of the same requests"
        made.append(Row(title, float(found[name].mean()), "min", note=f"a day, +- {half:.2f} (95 %)"))
    return made


def figures(sums: Array) -> dict[str, float]:
    """From sums of products over offers."""
    mean = sums[ONE] / sums[ONE, ONE]
    cov = sums / sums[ONE, ONE] - np.outer(mean, mean)
    truth = cov[TRUTH, TRUTH]
    known = cov[TRUTH, MEAN_FEW] * cov[TRUTH, MEAN_OTHERS] / cov[MEAN_FEW, MEAN_OTHERS]  # min2, by all futures
    scale = known / np.sqrt(cov[TRUTH, MEAN_FEW] * cov[TRUTH, MEAN_OTHERS])  # truth a minute that futures promise
    noise = mean[NOISE] * scale**2
    found = {"explained by infinitely many futures": 100 * known / truth}
    for part, words in ((NONE, "no futures"), (FEW_SHOWN, f"{FEW} futures"), (ALL_SHOWN, f"{FUTURES} futures")):
        explained = cov[TRUTH, part] ** 2 / cov[part, part]
        found[f"explained by the network with {words}"] = 100 * explained / truth
        found[f"variance of the error of the network with {words}"] = known - explained
        found[f"futures that the judgement with {words} is worth"] = noise / (known - explained)
    found["slope of the truth on the network with 32 futures"] = cov[TRUTH, ALL_SHOWN] / cov[ALL_SHOWN, ALL_SHOWN]
    found["minutes saved for a minute that futures promise"] = scale
    return {name: float(value) for name, value in found.items()}


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    given = parser.parse_args()
    if stored.storing(given):
        found = summarise(measure(given.days, stored.print_line))
        stored.write(NAME, f"python -m {PLACE} --days {given.days} --store", found, days=given.days)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
