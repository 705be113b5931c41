"""Does the credit say what an offer is truly worth? Days are branched at one request and played on, with common noise.

At one request of each day the day goes on twice: with the policy's best change, taken as accepted, and with no offer.
All else is common: requests, moods, the noise of sampled offers, the oracle's keys. The true gain is the difference in
net gain at the day's end, polished; the credit is computed in both worlds. Twice more, it goes on with the policy's own
choice and with that of the taught network, answered as the rider does. Days negotiated again (`--credit negotiated`)
have one credit for all four worlds: they forget what the branched request agreed to.

A credit is computed twice more with other draws, and once with a longer search. Noise in an estimate lowers the slope
of the truth on it, however right it is on average; the slope of the truth on what two independent estimates have in
common (their covariance in place of the variance: instrumental variables) is free of that.

    python -m benchmarks.rides.credit_branch [--days 2560] [--policy ARM SEED] [--work DIR] [--store]

The policy is a training of benchmarks/rides/credit_arms.py, made now unless DIR has it. Every 320 days are kept in DIR
and stored; it goes on where it was stopped.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.rides.credit_arms import ARMS, WORK, Trained, load, settings, train
from shoal.compiled.random import mix
from shoal.core.machine import usable_cores
from shoal.core.seeds import episode_seed
from shoal.rides.bookings import Bookings
from shoal.rides.credit import PRICE_ITERATIONS, Rates, generously, savings_min, uniform
from shoal.rides.env import RidesVectorEnv
from shoal.rides.negotiated import Called, replayed_min
from shoal.rides.observe import anticipate
from shoal.rides.options import RidesOptions
from shoal.rides.policies.onward import Onward
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS

PLACE, NAME, DAYS, SEED, BATCH = "benchmarks.rides.credit_branch", "credit_branch", 2560, 880001, 320
POLICY = ("scratch", 201)
AT = np.array([2, 8, 14, 20, 26])  # requests that days are branched at
SHARES = (0.0, 0.5, 1.0)  # of later riders asked generously, in the credit
POLISH, RESAMPLES = 300, 500
SLOPE_TARGET, GAP_TARGET = 0.8, 0.4
WORLDS = WIDER, PLAIN, OWN, TAUGHT = range(4)
PATIENT = 100  # pricing iterations of the longer search
_NOISE = np.uint64(0xA0761D6478BD642F)  # sets the draws of offers apart from the oracle's
_TWICE = np.uint64(0x8CB92BA72F3D8DD7)  # sets a second estimate apart from the first
Array = np.ndarray[Any, Any]


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result, marked as such; with `full` it is made again."""
    if full:
        with tempfile.TemporaryDirectory() as folder:
            return summarise(measure(DAYS, *POLICY, Path(folder), say), "policy {} {}".format(*POLICY))
    return stored.read_rows(NAME, PLACE)


def measure(
    days: int,
    arm: str,
    seed: int,
    work: Path,
    say: Callable[[str], None],
    keep: Callable[[dict[str, Array]], None] = lambda found: None,
    **options: Any,
) -> dict[str, Array]:
    """By branched day: the true gain, each credit of it, and the same of taught's choice less the policy's own."""
    train(arm, seed, work, say)
    policy = load(arm, seed, work)
    found: dict[str, Array] = {}
    for low in range(0, days, BATCH):
        high = min(low + BATCH, days)
        done = work / f"branched2-{arm}-{seed}-{settings(ARMS[arm])}-{low}-{high}.npz"
        if done.exists() and not options:
            with np.load(done, allow_pickle=False) as data:
                part = {name: data[name] for name in data.files}
        else:
            part = branched(np.arange(low, high), policy, **options)
            np.savez(done, allow_pickle=False, **part)
        found = {name: np.concatenate([found[name], more]) if found else more for name, more in part.items()}
        say(f"{high} of {days} days branched")
        keep(found)
    return found


def branched(numbers: Array, policy: Trained, **options: Any) -> dict[str, Array]:
    """All figures of these days; those that branch at the same request are played side by side."""
    which = numbers % len(AT)
    parts = [_branched(numbers[which == at], int(AT[at]), policy, **options) for at in np.unique(which).tolist()]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _branched(numbers: Array, at: int, policy: Trained, **options: Any) -> dict[str, Array]:
    """Days up to request `at`, then four worlds of each side by side: rows are worlds x days."""
    count, world = len(numbers), np.repeat(WORLDS, len(numbers))
    own = RidesOptions(**{**policy.entrant.changes, "epsilon": 0.0, "credit": "rewards", **options})
    env = RidesVectorEnv(count, own, threads=usable_cores())
    env.flexibility.set_state({**env.flexibility.state(), **policy.entrant.flexibility})
    beginning = env.bookings = Bookings(env.world, count, env.oracle, with_base=False)
    observations, _ = env.reset(seed=[episode_seed(SEED, int(day), 0) for day in numbers])
    customers = own.customers
    at = min(at, customers - 1)
    for _ in range(at):
        beginning.book(_sampled(policy, env, observations), own.iterations)
        observations = env.look()
    logits, key, p = policy.logits(observations), mix(beginning.step_keys()), env.menu.p_accept
    request, before = beginning.now(beginning.requests), beginning.plans.copy()
    change = np.where(np.arange(NUM_OFFERS) == NO_CHANGE, -np.inf, logits).argmax(1)
    mine, taught = logits.argmax(1), _taught(env, observations)
    bookings = env.bookings = Bookings(env.world, len(world), env.oracle, with_base=False)
    env.num_envs = len(world)
    for name, array in bookings._arrays().items():
        array[...] = np.concatenate([beginning._arrays()[name]] * len(WORLDS))
    forced = np.concatenate([change, np.full_like(change, NO_CHANGE), mine, taught])
    bookings.put(forced, bookings.answers(forced) | (world == WIDER), own.iterations)
    for _ in range(at + 1, customers):
        bookings.book(_sampled(policy, env, env.look()), own.iterations)
    env.oracle.polish(bookings.plans, mix(bookings.step_keys()), POLISH)
    rates = Rates(*own.burden_rates)
    burden_min = rates.patience * bookings.agreed_min() + rates.refusal * bookings.refused()  # [rows, C]
    net_min = (-bookings.cost_s() / 60 - burden_min.sum(1)).reshape(len(WORLDS), count)
    itself = burden_min[:, at].reshape(len(WORLDS), count)
    found = {"truth": (net_min + itself)[WIDER] - (net_min + itself)[PLAIN]}
    found |= {"made": mine != NO_CHANGE, "differ": mine != taught}
    found["taught truth"] = net_min[TAUGHT] - net_min[OWN]
    days, agreed = np.arange(count), bookings.agreed_requests().reshape(len(WORLDS), count, -1)
    wide, when = generously(bookings, days), np.full(count, at)

    def credit(place: int, share: float, key: Array, price: int = PRICE_ITERATIONS) -> Array:
        windows = np.where(uniform(key, customers) < share, wide, agreed[place])
        plans, effect = before.copy(), own.offer_effect
        return savings_min(env.oracle, plans, windows, when, request, key, effect, price=price)

    for share in SHARES:
        for place in (WIDER, PLAIN, OWN):
            saved = credit(place, share, key)
            found[f"{place} {share}"] = saved[days, change]
        worth = rates.worth(p, saved)
        found[f"taught {share}"] = worth[days, taught] - worth[days, mine]  # in the policy's own world
    with np.errstate(over="ignore"):
        found["second"] = credit(OWN, SHARES[1], mix(key + _TWICE))[days, change]
    found["patient"] = credit(OWN, SHARES[1], key, PATIENT)[days, change]
    onward = Onward()
    kept = [Called(*(getattr(bookings, name)[day] for name in Called._fields)) for day in days]
    saved = replayed_min(env, onward, policy.entrant.policy, before, kept, when, request, key)
    onward.close()
    worth = rates.worth(p, saved)
    found["again"], found["taught again"] = saved[days, change], worth[days, taught] - worth[days, mine]
    env.close()
    return found


def _sampled(policy: Trained, env: RidesVectorEnv, observations: Any) -> Array:
    return np.asarray((policy.logits(observations) + _gumbel(env.bookings.step_keys())).argmax(1))


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
    with torch.inference_mode():
        return np.asarray(
            network.policy({name: torch.from_numpy(part) for name, part in seen.items()}).argmax(1).numpy()
        )


def summarise(found: dict[str, Array], about: str) -> list[Row]:
    """Bias, correlation and slope of each credit; the gap between the two worlds; taught less own."""
    truth, made = found["truth"], []
    made.append(Row(f"rides credit, {about}: true gain of the best change", *_mean(truth)))
    for share in SHARES:
        name, judged = f"rides credit, {about}, {share:.0%} of later riders asked generously", share == SHARES[1]
        for place, words in ((WIDER, "day with the change"), (PLAIN, "day without"), (OWN, "day as played")):
            target = SLOPE_TARGET if judged and place == OWN else None
            made += _against(f"{name}, {words}", found[f"{place} {share}"], truth, target)
        gap = found[f"{WIDER} {share}"] - found[f"{PLAIN} {share}"]
        value, unit, _, _, note = _mean(gap)
        made.append(Row(f"{name}: credit with the change apart from without", abs(value), unit,
                        GAP_TARGET if judged else None, "lower", f"{value:+.2f} {note}"))  # fmt: skip
    made += _against(f"rides credit, {about}, negotiated again", found["again"], truth, None)
    name, once, second = f"rides credit, {about}, {SHARES[1]:.0%}", found[f"{OWN} {SHARES[1]}"], found["second"]
    made += _against(f"{name}, mean of two estimates", (once + second) / 2, truth, None)
    made += _against(f"{name}, {PATIENT} pricing iterations", found["patient"], truth, None)
    made.append(_in_common(f"{name}: slope of the true gain on what two estimates have in common", once, second, truth))
    differ = found["differ"]
    if differ.sum() > 1:
        made.append(
            Row(f"rides credit, {about}: taught less own where they differ", *_mean(found["taught truth"][differ]))
        )
        for credit, words in [(share, f"{share:.0%} generous") for share in SHARES] + [("again", "negotiated again")]:
            name = f"rides credit, {about}, {words}: what the credit says of taught less own"
            made.append(Row(name, *_mean(found[f"taught {credit}"][differ])))
    return made


def _against(name: str, credit: Array, truth: Array, target: float | None) -> list[Row]:
    """How far a credit is off in the mean, and how much more an offer truly gains where it says a minute more."""
    slope = float(np.cov(credit, truth)[0, 1] / credit.var(ddof=1))
    half = _half(lambda rows: np.cov(credit[rows], truth[rows])[0, 1] / credit[rows].var(ddof=1), len(truth))
    note = f"+- {half:.2f} (95 %), correlation {float(np.corrcoef(credit, truth)[0, 1]):.2f}"
    return [
        Row(f"{name}: credit less true gain", *_mean(credit - truth)),
        Row(f"{name}: slope of the true gain", slope, "", target, note=note),
    ]


def _in_common(name: str, first: Array, second: Array, truth: Array) -> Row:
    """The slope that an estimate without noise would have."""

    def slope(rows: Array) -> Any:
        both = np.cov(np.stack([first[rows], second[rows], truth[rows]]))
        return (both[0, 2] + both[1, 2]) / 2 / both[0, 1]

    half, same = _half(slope, len(truth)), float(np.corrcoef(first, second)[0, 1])
    value = float(slope(np.arange(len(truth))))
    return Row(name, value, "", note=f"+- {half:.2f} (95 %), the two correlate {same:.2f}")


def _half(of: Callable[[Array], Any], days: int) -> float:
    """Half the width of a 95 % interval, by resampling days."""
    rng = np.random.default_rng(0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a handful of days may all be alike
        return 1.96 * float(np.std([of(rng.integers(days, size=days)) for _ in range(RESAMPLES)]))


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
    about, command = f"policy {arm} {seed}", f"python -m {PLACE} --days {given.days} --policy {arm} {seed} --store"
    storing = stored.storing(given)

    def keep(found: dict[str, Array]) -> None:
        if storing:
            stored.write(NAME, command, summarise(found, about), days=len(found["truth"]))

    stored.show(summarise(measure(given.days, arm, seed, given.work, stored.print_line, keep), about))


if __name__ == "__main__":
    main()
