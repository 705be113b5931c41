"""How large steps 64 and 256 environments need, and what the time for credit is best spent on; chosen on training days.

Brief trainings from nothing with insertion prices, by the shipped settings but for what an arm says: the same number of
days each, so 256 environments make a fourth of the updates. Two more arms spend the credit's time otherwise, at about
equal cost: half the requests with two independent estimates each, or fewer requests with a longer search. All are
played on the same days of training riders that no training has seen, planned by the own oracle and searched once more
when they are over. Held-out days are not touched: settings are chosen here.

    python -m benchmarks.rides.rides_steps [--seeds S ...] [--days 512] [--store]

Stored run by run: it goes on where it was stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.compiled.random import mix
from shoal.core.arrays import Array
from shoal.core.protocols import Acting
from shoal.core.seeds import episode_seed
from shoal.learn.learner import Learner
from shoal.learn.sizing import choose_threads
from shoal.rides.bookings import Bookings
from shoal.rides.credit import PRICE_ITERATIONS, Rates, RebuiltDays, savings_min
from shoal.rides.env import RidesVectorEnv
from shoal.rides.examination import POLISH
from shoal.rides.options import RidesOptions
from shoal.rides.routing.plans import Plans
from shoal.tasks.networks import own_network
from shoal.tasks.presets import config_for
from shoal.training import make_envs

PLACE, NAME, SEEDS, DAYS, SEED = "benchmarks.rides.rides_steps", "rides_steps", (301, 302, 303), 512, 990001
TRAINED = 2_560  # days
_OWN = {"futures": 0, "held_out_days": 0, "start": "none", "prices": "insertion"}
_SMALL = {"learning_rate": 1e-3, "clip": 0.2}
Parts = list[dict[str, Any]]


@dataclass(frozen=True)
class Arm:
    """What differs from the shipped settings."""

    options: dict[str, Any] = field(default_factory=dict)  # of `shoal train`
    requests: int = 15  # of each day that are credited
    estimates: int = 1  # of each request's credit, averaged
    price: int = PRICE_ITERATIONS


SHIPPED, SMALL, LARGE_64, SMALL_64 = "256, large steps", "256, small steps", "64, large steps", "64, small steps"
TWICE, PATIENT = "256, large steps, 8 requests twice", "256, large steps, 6 requests, longer search"
ARMS = {
    SHIPPED: Arm(),
    LARGE_64: Arm({"num_envs": 64}),
    SMALL: Arm(_SMALL),
    SMALL_64: Arm({"num_envs": 64, **_SMALL}),
    TWICE: Arm(requests=8, estimates=2),
    PATIENT: Arm(requests=6, price=100),
}
PAIRS = (
    (SHIPPED, LARGE_64), (SMALL, SMALL_64), (SHIPPED, SMALL), (LARGE_64, SMALL_64),
    (SHIPPED, SMALL_64),  # what --auto-scale makes of 64's settings, less these
    (TWICE, SHIPPED), (PATIENT, SHIPPED),
)  # fmt: skip


class Costlier(RebuiltDays):
    """Credit with more search: several estimates averaged, or a longer search for prices."""

    def __init__(self, arm: Arm, *settings: Any) -> None:
        super().__init__(*settings)
        self.arm = arm

    def savings_min(self, days: Plans, kept: list[Any], t: Array, request: Array, key: Array) -> Array:
        """The mean over estimates with draws of their own."""
        found = []
        for number in range(self.arm.estimates):
            with np.errstate(over="ignore"):
                keys = mix(key + np.uint64(number))
            windows = self.windows(kept, keys)
            found.append(
                savings_min(self.oracle, days.copy(), windows, t, request, keys, self.effect, price=self.arm.price)
            )
        return np.asarray(np.mean(found, 0))


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result, marked as such; with `full` it is made again."""
    return summarise(study([], SEEDS, DAYS, say, lambda parts: None)) if full else stored.read_rows(NAME, PLACE)


def study(
    parts: Parts, seeds: Sequence[int], days: int, say: Callable[[str], None], keep: Callable[[Parts], None]
) -> Parts:
    """`parts` and those still wanting; `keep` is handed all of them after each."""
    for seed in seeds:  # a seed of all arms first: a study that is stopped early has then said the most
        for name in ARMS:
            if not any((part["arm"], part["seed"], len(part["net_min"])) == (name, seed, days) for part in parts):
                parts = [*parts, trained(name, seed, days)]
                net, sampled = (np.mean(parts[-1][which]) for which in ("net_min", "sampled_min"))
                say(f"{name}, seed {seed}: {net:.2f}, sampled {sampled:.2f}, {parts[-1]['train_cpu_s']:.0f} CPU-s")
                keep(parts)
    return parts


def trained(name: str, seed: int, days: int) -> dict[str, Any]:
    """One training, and its days."""
    arm = ARMS[name]
    own = _OWN | {"credit_requests": arm.requests}
    config: Any = config_for("rides", env_kwargs=json.dumps(own), seed=seed, **({"episodes": TRAINED} | arm.options))
    torch.set_num_threads(choose_threads(config.ppo))
    envs: Any = make_envs(config, None, lambda text: None)
    if (arm.estimates, arm.price) != (1, PRICE_ITERATIONS):
        options = envs.options
        rates = Rates(*options.burden_rates)
        credit = Costlier(arm, envs.oracle, options.offer_effect, rates, arm.requests, options.credit_generous)
        envs._coach._rebuilt = credit
    learner = Learner(config, envs, own_network=own_network("rides", own))
    learner.start()
    epochs = -(-config.run.episodes // config.vector.num_envs)
    began_s = time.process_time()
    for epoch in range(epochs):
        learner.update(learner.estimate(learner.collect()), epoch / epochs)
    cpu_s = time.process_time() - began_s
    flexibility, policy = envs.flexibility.state(), learner.policy()
    net_min, sampled_min = (played(policy, envs.options, flexibility, days, sure) for sure in (True, False))
    envs.close()
    return {
        "arm": name, "seed": seed, "train_cpu_s": round(cpu_s, 1), "days_trained": epochs * config.vector.num_envs,
        "net_min": net_min.round(3).tolist(), "sampled_min": sampled_min.round(3).tolist(), **stored.stamp(),
    }  # fmt: skip


def played(act: Acting, options: RidesOptions, flexibility: dict[str, Array], days: int, sure: bool) -> Array:
    """What each tuning day comes to, in minutes less than nothing: only differences between policies say anything."""
    quiet = replace(options, background=False, credit="rewards", held_out_days=0)
    env = RidesVectorEnv(days, quiet)
    env.exploring = False
    env.flexibility.set_state(flexibility)
    bookings = env.bookings = Bookings(env.world, days, env.oracle, with_base=False)
    observations, _ = env.reset(seed=[episode_seed(SEED, day, 0) for day in range(days)])
    while True:
        offers = act(observations, deterministic=sure, batched=True)
        bookings.book(np.asarray(offers, np.int64), options.iterations)
        if bookings.t[0] == bookings.customers:
            break
        observations = env.look()
    env.oracle.polish(bookings.plans, mix(bookings.step_keys()), POLISH)
    patience, refusal = options.burden_rates
    burden_min = patience * bookings.agreed_min().sum(1) + refusal * bookings.refused().sum(1)
    env.close()
    return np.asarray(-bookings.cost_s() / 60.0 - burden_min)


def summarise(parts: Parts) -> list[Row]:
    """Each arm less its partner, paired over days, resampled over days and seeds."""
    from shoal.rides.contest.scores import Bootstrap

    found = []
    for ours, theirs in PAIRS:
        seeds = sorted({part["seed"] for part in parts})
        both = [{part["seed"]: part for part in parts if part["arm"] == name} for name in (ours, theirs)]
        shared = [seed for seed in seeds if all(seed in one for one in both)]
        if not shared:
            continue
        cpu_s = [np.mean([one[seed]["train_cpu_s"] for seed in shared]) for one in both]
        for which, words in (("net_min", "most probable offers"), ("sampled_min", "sampled offers")):
            mine, other = (np.array([one[seed][which] for seed in shared]) for one in both)
            gain = Bootstrap(mine.shape[1]).mean(mine - other)
            note = (
                f"[{gain['low']:.2f}, {gain['high']:.2f}] over {len(shared)} seeds and {mine.shape[1]} days; "
                f"each seed {', '.join(f'{one:+.2f}' for one in (mine - other).mean(1))}; "
                f"trained in {cpu_s[0]:.0f} and {cpu_s[1]:.0f} CPU-s"
            )
            found.append(Row(f"rides, {ours} less {theirs}: net gain a day, {words}", gain["mean"], "min", note=note))
    return found or [Row(NAME, None, "", note=f"nothing stored: python -m {PLACE} --store")]


def keep(parts: Parts) -> None:
    """Store what there is."""
    stored.write(NAME, f"python -m {PLACE} --store", summarise(parts), parts=parts)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--days", type=int, default=DAYS)
    given = parser.parse_args()
    if stored.storing(given):
        study((stored.read(NAME) or {"parts": []})["parts"], given.seeds, given.days, stored.print_line, keep)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
