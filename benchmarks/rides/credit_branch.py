"""Does the credit say what an offer is truly worth? Days are branched at one request and played on, with common noise.

At one request of each day the day goes on twice: with the policy's best change, taken as accepted, and with no offer.
All else is common: requests, moods, the noise of sampled offers, the oracle's keys. The true gain is the difference in
net gain at the day's end, polished; the credit is computed in both worlds. Twice more, it goes on with the policy's own
choice and with that of the taught network, answered as the rider does.

    python -m benchmarks.rides.credit_branch [--days 2560] [--policy ARM SEED] [--work DIR] [--store]

The policy is a training of benchmarks/rides/credit_arms.py, made now unless DIR has it. 256 days take a few minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.rides.credit_arms import WORK, Trained, load, train
from shoal.compiled.random import mix
from shoal.core.machine import usable_cores
from shoal.core.seeds import episode_seed
from shoal.rides.credit import Rates, generously, savings_min, uniform
from shoal.rides.env import RidesVectorEnv
from shoal.rides.observe import anticipate
from shoal.rides.options import RidesOptions
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS

PLACE, NAME, DAYS, SEED, BATCH = "benchmarks.rides.credit_branch", "credit_branch", 2560, 880001, 320
POLICY = ("scratch", 201)
AT = np.array([2, 8, 14, 20, 26])  # requests that days are branched at
SHARES = (0.0, 0.5, 1.0)  # of later riders asked generously, in the credit
POLISH = 300
SLOPE_TARGET, GAP_TARGET = 0.8, 0.4
WORLDS = WIDER, PLAIN, OWN, TAUGHT = range(4)
_NOISE = np.uint64(0xA0761D6478BD642F)  # sets the draws of offers apart from the oracle's
Array = np.ndarray[Any, Any]


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result, marked as such; with `full` it is made again."""
    if full:
        with tempfile.TemporaryDirectory() as folder:
            return summarise(measure(DAYS, *POLICY, Path(folder), say), "policy {} {}".format(*POLICY))
    return stored.read_rows(NAME, PLACE)


def measure(days: int, arm: str, seed: int, work: Path, say: Callable[[str], None], **options: Any) -> dict[str, Array]:
    """By branched day: the true gain, each credit of it, and the same of taught's choice less the policy's own."""
    train(arm, seed, work, say)
    policy = load(arm, seed, work)
    parts = []
    for low in range(0, days, BATCH):
        parts.append(branched(np.arange(low, min(low + BATCH, days)), policy, **options))
        say(f"{min(low + BATCH, days)} of {days} days branched")
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def branched(numbers: Array, policy: Trained, **options: Any) -> dict[str, Array]:
    """Four worlds of each day side by side: rows are worlds x days."""
    count, world = len(numbers), np.repeat(WORLDS, len(numbers))
    own = RidesOptions(**{**policy.entrant.changes, "epsilon": 0.0, "credit": "rewards", **options})
    env = RidesVectorEnv(len(world), own, threads=usable_cores())
    env.flexibility.set_state({**env.flexibility.state(), **policy.entrant.flexibility})
    observations, _ = env.reset(seed=[episode_seed(SEED, int(day), 0) for day in numbers] * len(WORLDS))
    bookings, customers = env.bookings, own.customers
    at = AT[numbers % len(AT)].clip(max=customers - 1)  # int64[count]
    before, kept = Plans(env.world.problem, count, customers), {}  # type: Plans, dict[str, Array]
    while True:
        logits = policy.logits(observations)
        offers = (logits + _gumbel(bookings.step_keys())).argmax(1)
        here = bookings.t == np.tile(at, len(WORLDS))
        if here.any():
            change = np.where(np.arange(NUM_OFFERS) == NO_CHANGE, -np.inf, logits).argmax(1)
            now = {"change": change, "own": logits.argmax(1), "taught": _taught(env, observations)}
            now |= {
                "key": mix(bookings.step_keys()),
                "request": bookings.now(bookings.requests),
                "p": env.menu.p_accept,
            }
            branch = np.flatnonzero(here[:count])
            before.copy_rows(bookings.plans, branch, branch)
            for name, value in now.items():
                kept.setdefault(name, np.zeros((count, *value.shape[1:]), value.dtype))[branch] = value[branch]
            forced = np.choose(world, [change, np.full_like(change, NO_CHANGE), now["own"], now["taught"]])
            offers = np.where(here, forced, offers)
        bookings.put(offers, bookings.answers(offers) | (here & (world == WIDER)), own.iterations)
        if bookings.t[0] == customers:
            break
        observations = env.look()
    env.oracle.polish(bookings.plans, mix(bookings.step_keys()), POLISH)
    rates = Rates(*own.burden_rates)
    burden_min = rates.patience * bookings.agreed_min() + rates.refusal * bookings.refused()  # [rows, C]
    net_min = (-bookings.cost_s() / 60 - burden_min.sum(1)).reshape(len(WORLDS), count)
    itself = burden_min[np.arange(len(world)), np.tile(at, len(WORLDS))].reshape(len(WORLDS), count)
    found = {"truth": (net_min + itself)[WIDER] - (net_min + itself)[PLAIN]}
    found |= {"made": kept["own"] != NO_CHANGE, "differ": kept["own"] != kept["taught"]}
    found["taught truth"] = net_min[TAUGHT] - net_min[OWN]
    days, agreed = np.arange(count), bookings.agreed_requests().reshape(len(WORLDS), count, -1)
    wide = generously(bookings, days)
    for share in SHARES:
        for place in (WIDER, PLAIN, OWN):
            windows = np.where(uniform(kept["key"], customers) < share, wide, agreed[place])
            args = before.copy(), windows, at, kept["request"], kept["key"], own.offer_effect
            saved = savings_min(env.oracle, *args)
            found[f"{place} {share}"] = saved[days, kept["change"]]
            worth = rates.worth(kept["p"], saved)
        found[f"taught {share}"] = worth[days, kept["taught"]] - worth[days, kept["own"]]  # in the policy's own world
    env.close()
    return found


def _gumbel(keys: Array) -> Array:
    """Noise float64[N, 16] of sampled offers, a function of day and request."""
    return np.asarray(-np.log(-np.log(uniform(keys + _NOISE, NUM_OFFERS) + 1e-12)))


def _taught(env: RidesVectorEnv, observations: dict[str, Array]) -> Array:
    """What the taught network would offer: it sees the lookahead, the policy may not."""
    import torch

    from shoal.rides.policies.lookahead import Lookahead
    from shoal.rides.policies.network import taught_network

    seen = {name: part.copy() for name, part in observations.items()}
    anticipate(seen, env.menu, Lookahead.shipped("pooled").values(seen), None, env.options.burden_rates)
    network = taught_network(env.options.customers, "pooled", env.options.start_temperature)
    parts = [torch.from_numpy(seen[name].reshape(env.num_envs, -1)) for name in network.slices]
    with torch.inference_mode():
        return np.asarray(network.policy(torch.cat(parts, 1)).argmax(1).numpy())


def summarise(found: dict[str, Array], about: str) -> list[Row]:
    """Bias, correlation and slope of each credit; the gap between the two worlds; taught less own."""
    truth, made = found["truth"], []
    made.append(Row(f"rides credit, {about}: true gain of the best change", *_mean(truth)))
    for share in SHARES:
        name, judged = f"rides credit, {about}, {share:.0%} of later riders asked generously", share == SHARES[1]
        for place, words in ((WIDER, "day with the change"), (PLAIN, "day without"), (OWN, "day as played")):
            credit = found[f"{place} {share}"]
            made.append(Row(f"{name}: credit less true gain, {words}", *_mean(credit - truth)))
            slope = float(np.cov(credit, truth)[0, 1] / credit.var(ddof=1))
            correlation = float(np.corrcoef(credit, truth)[0, 1])
            target = SLOPE_TARGET if judged and place == OWN else None
            made.append(Row(f"{name}: slope of the true gain, {words}", slope, "", target, note=f"r {correlation:.2f}"))
        gap = found[f"{WIDER} {share}"] - found[f"{PLAIN} {share}"]
        value, unit, _, _, note = _mean(gap)
        made.append(Row(f"{name}: credit with the change less without", value, unit, GAP_TARGET if judged else None,
                        "lower", note))  # fmt: skip
    differ = found["differ"]
    if differ.any():
        made.append(
            Row(f"rides credit, {about}: taught less own where they differ", *_mean(found["taught truth"][differ]))
        )
        for share in SHARES:
            name = f"rides credit, {about}, {share:.0%} generous: what the credit says of taught less own"
            made.append(Row(name, *_mean(found[f"taught {share}"][differ])))
    return made


def _mean(values: Array) -> tuple[float, str, None, Literal["higher"], str]:
    half = 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5
    return float(values.mean()), "min", None, "higher", f"+- {half:.2f} (95 %), {len(values)} days"


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--policy", nargs=2, default=POLICY, metavar=("ARM", "SEED"))
    parser.add_argument("--work", type=Path, default=WORK)
    given = parser.parse_args()
    arm, seed = given.policy[0], int(given.policy[1])
    found = summarise(measure(given.days, arm, seed, given.work, stored.print_line), f"policy {arm} {seed}")
    if stored.storing(given):
        stored.write(NAME, f"python -m {PLACE} --days {given.days} --policy {arm} {seed} --store", found)
    stored.show(found)


if __name__ == "__main__":
    main()
