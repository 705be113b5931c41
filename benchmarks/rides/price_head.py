"""Can the neural oracle's encoder price the 16 offers? A head on it, beside what prices and values them today.

    python -m benchmarks.rides.price_head [--days 384] [--test-days 900] [--passes 12] [--store]

States are the requests of simulated training days. A head on the encoder that ships learns pooled prices, and what 8
sampled futures say an accepted offer is worth, from the requests and what insertion knows; it starts from the insertion
price and the lookahead on it. On other days every predictor is judged by futures of their own, searched thoroughly: how
well it explains what offers are worth, by kind of offer too, and what choosing the best expected net gain by it loses.
A second head that learns from a quarter of the days says how much more days would help.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor, nn

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.core.arrays import Array
from shoal.rides.env import RidesVectorEnv
from shoal.rides.observe import CONTEXT, MINUTES, OFFERS
from shoal.rides.options import RidesOptions
from shoal.rides.policies.futures import BUILD_ITERATIONS, PRICE_ITERATIONS, TRUST, future_values
from shoal.rides.policies.lookahead import Lookahead
from shoal.rides.policies.network import taught_network
from shoal.rides.routing.neural.fleet import City, make_batch
from shoal.rides.routing.neural.network import RoutingNetwork, links_of
from shoal.rides.routing.neural.oracle import days_with
from shoal.rides.routing.neural.weights import load_network
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS, OFFER_EARLIER_MIN, OFFER_LATER_MIN

PLACE, NAME = "benchmarks.rides.price_head", "price_head"
LOSS_TARGET_MIN, TIME_TARGET = 0.3, 0.2  # net minutes a day against 8 futures, and the share of their CPU time
QUICK, MANY, JUDGES, APART = 8, 32, 12, 1000
CHANGES = np.delete(np.arange(NUM_OFFERS), NO_CHANGE)
KINDS = {
    "earlier": (OFFER_EARLIER_MIN > 0) & (OFFER_LATER_MIN == 0),
    "later": (OFFER_EARLIER_MIN == 0) & (OFFER_LATER_MIN > 0),
    "earlier or later": (OFFER_EARLIER_MIN > 0) & (OFFER_LATER_MIN > 0),
}
HEAD, TAUGHT = "head on the encoder", "taught network, no futures"
QUARTER = f"{HEAD}, a quarter of the days"
AT_ONCE = 256  # states in one pass of the head
Say = Callable[[str], None]
States = dict[str, Array]


def rows(say: Say, full: bool = False) -> list[Row]:
    """The stored result; with `full` it is measured again."""
    if not full:
        return stored.read_rows(NAME, PLACE)
    return summarise(measured(parsed([]), say))


class PriceHead(nn.Module):
    """What each offer saves by pooled prices, and what it is worth, beyond what is known already: [B, 16, 2]."""

    def __init__(self, body: RoutingNetwork, width: int = 96) -> None:
        super().__init__()
        self.body = body
        self.day = nn.Linear(2 * body.shape[0] + len(CONTEXT), width)
        self.offer, self.between = nn.Linear(len(OFFERS), width), nn.Linear(width, width)
        self.out = nn.Linear(width, 2)
        nn.init.zeros_(self.out.weight)

    def forward(self, city: City, requests: Array, count: Array, context: Tensor, offers: Tensor) -> Tensor:
        """In minutes; who calls now is the last of the requests."""
        most = int(count.max())
        batch = make_batch(city, requests[:, :most], count)
        tokens = self.body.tokens(batch, links_of(batch))[:, :-1]
        own = tokens[torch.arange(len(tokens)), batch.count - 1]
        mean = (tokens * batch.present[..., None]).sum(1) / batch.count[:, None]
        hidden = torch.relu(self.day(torch.cat([own, mean, context], 1))[:, None] + self.offer(offers))
        out: Tensor = MINUTES * self.out(torch.relu(self.between(hidden)))
        return out


def collect(days: int, seed: int, *, judged: bool) -> tuple[States, dict[str, float]]:
    """Every request of so many days of a mixed policy, and CPU ms a state of what prices it."""
    env = RidesVectorEnv(days, RidesOptions(start="lookahead", knowledge="true", mask="off", futures=0))
    assert env.lookahead is not None
    rng = np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    cpu_s: dict[str, float] = {}
    parts: list[States] = []

    def timed(name: str, call: Callable[[], Array]) -> Array:
        began = time.process_time()
        found = call()
        cpu_s[name] = cpu_s.get(name, 0.0) + time.process_time() - began
        return found

    for _ in range(env.options.customers):
        plans, request = env.bookings.plans, env.bookings.now(env.bookings.requests)
        asked, count, _ = days_with(plans, request[:, None], np.ones(days, np.bool_))
        pooled_min, p_accept, lookahead_min = env.menu.saving_min, env.menu.p_accept, env.lookahead.values(obs)
        pooled = {name: array.copy() for name, array in obs.items()}
        timed("pooled", lambda: env.look("pooled")["offers"])
        quick = timed(f"{MANY if judged else QUICK} futures", lambda: future_values(env, MANY if judged else QUICK))
        state = {
            "asked": asked, "count": count, "p_accept": p_accept, "pooled": pooled_min, "lookahead": lookahead_min,
            f"{QUICK} futures": TRUST * quick[:, :QUICK].mean(1), f"{MANY} futures": TRUST * quick.mean(1),
            TAUGHT: timed(TAUGHT, partial(_taught, env, pooled, lookahead_min)),
        }  # fmt: skip
        if judged:
            thorough = future_values(env, JUDGES, BUILD_ITERATIONS, PRICE_ITERATIONS, first=APART)
            state["target"] = TRUST * thorough.mean(1)
        began = time.process_time()
        obs = env.look("insertion")
        cpu_s["insertion"] = cpu_s.get("insertion", 0.0) + time.process_time() - began
        state |= {
            "insertion": env.menu.saving_min, "context": obs["context"], "offers": obs["offers"],
            "lookahead on insertion": Lookahead.shipped("insertion").values(obs),
        }  # fmt: skip
        parts.append(state)
        score = env.menu.expected_min(lookahead_min, *env.options.burden_rates)
        noise_min = rng.choice((0.0, 0.5, 2.0), days)[:, None]
        obs, *_ = env.step((score + noise_min * rng.gumbel(size=score.shape)).argmax(1))
    env.close()
    states = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return states, {name: 1000 * value / len(states["count"]) for name, value in cpu_s.items()}


@torch.inference_mode()
def _taught(env: RidesVectorEnv, obs: dict[str, Array], lookahead_min: Array) -> Array:
    """The network that training starts from: a head on pooled prices and the bookings, taught on 294,080 states."""
    network = taught_network(env.options.customers, "pooled", env.options.start_temperature)
    seen = {name: torch.from_numpy(part) for name, part in obs.items()}
    return lookahead_min + MINUTES * network.worth(seen).numpy()


def fit(head: PriceHead, city: City, states: States, passes: int, say: Say) -> None:
    """Least squares on both, in the same pass."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    parts = [{"params": head.body.parameters(), "lr": 2e-4}]
    parts.append({"params": [p for n, p in head.named_parameters() if not n.startswith("body.")], "lr": 1e-3})
    optimiser = torch.optim.AdamW(parts, weight_decay=1e-2)
    wanted = np.stack([states["pooled"], states[f"{QUICK} futures"]], -1).clip(-30, 30)
    by_size = np.argsort(states["count"], kind="stable")
    for number in range(passes):
        missed = []
        groups = np.array_split(by_size, -(-len(by_size) // 64))
        for group in rng.permutation(len(groups)):
            chosen = groups[group]
            error = predicted(head, city, states, chosen) - torch.from_numpy(wanted[chosen].astype(np.float32))
            loss = error[:, CHANGES].square().mean((0, 1))
            optimiser.zero_grad()
            loss.sum().backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(head.parameters(), 5.0)
            optimiser.step()
            missed.append(loss.detach().numpy())
        pooled, worth = np.mean(missed, 0)
        say(
            f"pass {number + 1}: squared error of pooled prices {pooled:.2f}, of what offers are worth {worth:.2f} min2"
        )


def predicted(head: PriceHead, city: City, states: States, chosen: Array) -> Tensor:
    """Pooled saving and worth in minutes, float32[n, 16, 2]."""
    context, offers = (torch.from_numpy(states[name][chosen].astype(np.float32)) for name in ("context", "offers"))
    known = np.stack([states["insertion"][chosen], states["lookahead on insertion"][chosen]], -1)
    found = head(city, states["asked"][chosen], states["count"][chosen], context, offers)
    return torch.add(found, torch.from_numpy(known.astype(np.float32)))


def measured(given: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Collect, fit, judge."""
    from shoal.rides.world.world import make_world

    options = RidesOptions()
    city = City.of(make_world(options).problem)
    train, _ = collect(given.days, 11, judged=False)
    say(f"{len(train['count']):,} states to learn from")
    test, cpu_ms = collect(given.test_days, 1_000_003, judged=True)
    few = {name: part[np.arange(len(part)) % given.days < -(-given.days // 4)] for name, part in train.items()}
    worth = {}
    for name, states in ((QUARTER, few), (HEAD, train)):
        head = PriceHead(load_network())
        fit(head, city, states, given.passes, say)
        began = time.process_time()
        with torch.inference_mode():
            groups = np.array_split(np.arange(len(test["count"])), -(-len(test["count"]) // AT_ONCE))
            found = np.concatenate([predicted(head, city, test, group).numpy() for group in groups])
        cpu_ms[name] = 1000 * (time.process_time() - began) / len(test["count"]) + cpu_ms["insertion"]
        worth[name] = found[..., 1]
    cpu_ms |= {TAUGHT: cpu_ms[TAUGHT] + cpu_ms["pooled"], f"{QUICK} futures": cpu_ms[f"{MANY} futures"] * QUICK / MANY}
    wanted = {"target": test["target"], "pooled": test["pooled"]}
    guesses = {name: test[name] for name in ("insertion", "pooled", "lookahead on insertion", "lookahead")}
    guesses |= worth | {TAUGHT: test[TAUGHT]}
    guesses |= {name: test[name] for name in (f"{QUICK} futures", f"{MANY} futures")}
    judged = [
        judge(name, guess, test["target"], test["p_accept"], options, cpu_ms.get(name), given.test_days)
        for name, guess in guesses.items()
    ]
    error = np.square(found[..., 0] - wanted["pooled"])[:, CHANGES].mean()
    start = np.square(test["insertion"] - wanted["pooled"])[:, CHANGES].mean()
    variance = wanted["pooled"][:, CHANGES].var()
    return {
        "judged": judged,
        "pooled_r2": {HEAD: float(1 - error / variance), "insertion": float(1 - start / variance)},
        "states": len(train["count"]),
        "test_states": len(test["count"]),
        "test_days": given.test_days,
    }


def judge(
    name: str,
    worth_min: Array,
    target_min: Array,
    p_accept: Array,
    options: RidesOptions,
    cpu_ms: float | None,
    days: int,
) -> dict[str, Any]:
    """One predictor by the thorough futures. `loss_min`: a day, against choosing by those futures themselves.

    States are those of `days` days, request by request.
    """
    from shoal.rides.observe import Menu

    menu = Menu(np.zeros_like(worth_min), np.ones_like(worth_min, np.bool_), p_accept)
    ours, theirs = (menu.expected_min(one, *options.burden_rates) for one in (worth_min, target_min))
    each = np.arange(len(ours))
    lost = theirs.max(1) - theirs[each, ours.argmax(1)]

    def r2(offers: Array) -> float:
        missed = np.square(worth_min - target_min)[:, offers].mean()
        return float(1 - missed / target_min[:, offers].var())

    wrong = 100.0 * ((ours > 0) != (theirs > 0))
    ranks = [np.corrcoef(rankdata(a), rankdata(b))[0, 1] for a, b in zip(ours, theirs, strict=True) if np.ptp(a)]
    return {
        "name": name,
        "r2": r2(CHANGES),
        "wrong_signs_percent": float(wrong[:, CHANGES].mean()),
        "kinds": {
            kind: {"r2": r2(of_kind), "wrong_signs_percent": float(wrong[:, of_kind].mean())}
            for kind, of_kind in KINDS.items()
        },
        "rank_correlation": float(np.mean(ranks)),
        "loss_min": float(lost.sum() / days),
        "loss_a_day": [round(float(one), 3) for one in lost.reshape(-1, days).sum(0)],
        "cpu_ms": cpu_ms,
    }


def summarise(result: dict[str, Any]) -> list[Row]:
    """The head against 8 futures, then every predictor."""
    from shoal.rides.contest.scores import Bootstrap

    by_name = {one["name"]: one for one in result["judged"]}
    futures = by_name[f"{QUICK} futures"]
    found = []
    for name in (HEAD, TAUGHT):
        extra = np.array(by_name[name]["loss_a_day"]) - np.array(futures["loss_a_day"])
        gain = Bootstrap(len(extra)).mean(extra[None])
        note = f"95 % interval {gain['low']:.2f} to {gain['high']:.2f}, {len(extra):,} paired days"
        title = f"{name}: what choosing by it loses a day against {QUICK} futures"
        found.append(Row(title, gain["mean"], "min", LOSS_TARGET_MIN, "lower", note))
        share = by_name[name]["cpu_ms"] / futures["cpu_ms"]
        found.append(Row(f"{name}: CPU time over that of {QUICK} futures", share, "x", TIME_TARGET, "lower"))
    note = f"insertion {result['pooled_r2']['insertion']:.2f}; learned from {result['states']:,} states"
    found.append(Row(f"{HEAD}: R2 of pooled prices", result["pooled_r2"][HEAD], "", note=note))
    for one in result["judged"]:
        cpu = "" if one["cpu_ms"] is None else f", {one['cpu_ms']:.2f} ms of CPU a state"
        note = (
            f"wrong signs {one['wrong_signs_percent']:.0f} %, rank correlation {one['rank_correlation']:.2f}, "
            f"loses {one['loss_min']:.2f} min a day{cpu}; R2 and wrong signs of offers "
            + ", ".join(
                f"{kind} {part['r2']:.2f} and {part['wrong_signs_percent']:.0f} %"
                for kind, part in one["kinds"].items()
            )
        )
        found.append(Row(f"{one['name']}: R2 of what offers are worth", one["r2"], "", note=note))
    return found


def parsed(given: list[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = stored.arguments(__doc__)
    parser.add_argument("--days", type=int, default=384, help="days to learn from, 30 states each")
    parser.add_argument("--test-days", type=int, default=900)
    parser.add_argument("--passes", type=int, default=12)
    return parser.parse_args(given)


def main() -> None:
    stored.measure_parts(PLACE, parsed(), measured, summarise)


if __name__ == "__main__":
    main()
