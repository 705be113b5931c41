"""What thinking before each offer adds to a policy: held-out days played with and without, paired.

Two policies think: `taught` with 32 futures, which the default training starts from, and the agent that the credit
study trained from nothing (rides_credit, seed 201; trained first where the work folder has no weights of it). They
think in an open loop, where later riders are asked generously, and in a closed one, where the agent negotiates with
them; with as many futures as the desk gets to in 0.3 s, the two are compared with each other.

    python -m benchmarks.rides.rides_think [--days 200] [--think 256] [--equal 768] [--closed 6] [--work DIR] [--store]

Goes on where it was stopped: a policy that has been played is not played again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.rides import credit_arms
from shoal.core.arrays import Array

PLACE, NAME, SEED, ITERATIONS, FUTURES = "benchmarks.rides.rides_think", "rides_think", 2026, 300, 32
TRAINED = ("scratch", 201)  # arm and seed of the credit study
Parts = list[dict[str, Any]]


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result; with `full` all days are played again."""
    if not full:
        return stored.read_rows(NAME, PLACE)
    return summarise(study(parsed([]), [], lambda parts: None))


def study(given: argparse.Namespace, parts: Parts, keep: Callable[[Parts], None]) -> Parts:
    """`parts` and those still wanting, played now; `keep` is handed all of them after each."""
    parts = [part for part in parts if part["depends_on"] == depends_on(given)]
    for name, make in (("taught", _taught), ("scratch", _trained)):
        for loop, think in arms(given):
            if not any((part["policy"], part["loop"], part["think"]) == (name, loop, think) for part in parts):
                parts.append(_played(name, loop, think, make(loop, think, given), given))
                net_min = np.mean(parts[-1]["net_min"])
                stored.print_line(f"{name}, {_words(loop, think)}: {net_min:.2f} min a day")
                keep(parts)
    return parts


def arms(given: argparse.Namespace) -> list[tuple[str, int]]:
    """Loop and futures of each way to think; the first is none at all."""
    return [("open", 0), ("open", given.think), ("open", given.equal), ("closed", given.closed)]


def _words(loop: str, think: int) -> str:
    return f"{think} more futures" + (" in a closed loop" if loop == "closed" else "")


def depends_on(given: argparse.Namespace) -> dict[str, Any]:
    """What a stored part was made with."""
    from shoal.rides.policies import finals, thinking

    arm = credit_arms.settings(credit_arms.ARMS[TRAINED[0]])
    numbers = [thinking.JUDGEMENT, thinking.SHOWN, SEED, ITERATIONS, FUTURES]
    played = [finals.JUDGEMENT, finals.SHOWN, finals.FINALISTS, finals.BUILD, finals.POLISH]
    return {
        "days": given.days,
        "numbers": numbers,
        "played": played,
        "trained": arm,
        "equal": [given.equal, given.closed],
    }


def _played(name: str, loop: str, think: int, entrant: Any, given: argparse.Namespace) -> dict[str, Any]:
    from shoal.core.machine import usable_cores
    from shoal.rides.contest.play import contest
    from shoal.rides.options import RidesOptions

    began_s = time.process_time()
    found = contest(
        {name: entrant}, RidesOptions(), days=given.days, seed=SEED, iterations=ITERATIONS, threads=usable_cores()
    )
    return {
        "policy": name,
        "loop": loop,
        "think": think,
        "net_min": [round(float(value), 3) for value in found.net_min(name, "own")],
        "cpu_s": round(time.process_time() - began_s, 1),
        "depends_on": depends_on(given),
        **stored.stamp(),
    }


def _taught(loop: str, think: int, given: argparse.Namespace) -> Any:
    """The network that the default training starts from, as an entrant."""
    from shoal.rides.commands import baseline
    from shoal.rides.contest.play import Entrant
    from shoal.rides.policies.network import taught_network
    from shoal.rides.policies.simple import taught

    entrant = baseline("taught", FUTURES)

    def scores(env: Any, observations: dict[str, Array]) -> Array:
        options = env.options
        return expected_min(taught_network(options.customers, options.prices, options.start_temperature), observations)

    return Entrant(_thinking(taught(), scores, loop, think), entrant.changes, entrant.flexibility)


def _trained(loop: str, think: int, given: argparse.Namespace) -> Any:
    """The agent trained from nothing, as an entrant."""
    from shoal.rides.contest.play import Entrant

    arm, seed = TRAINED
    credit_arms.train(arm, seed, given.work, stored.print_line)
    trained = credit_arms.load(arm, seed, given.work)
    plain = trained.entrant

    def scores(env: Any, observations: dict[str, Array]) -> Array:
        return expected_min(trained.network, observations)

    return Entrant(_thinking(plain.policy, scores, loop, think), plain.changes, plain.flexibility)


def _thinking(act: Any, scores: Any, loop: str, think: int) -> Any:
    from shoal.rides.policies.finals import Finals
    from shoal.rides.policies.thinking import Thinking

    if loop == "closed":
        return Finals(act, scores, think)
    return Thinking(scores, think) if think else act


def expected_min(network: Any, observations: dict[str, Array]) -> Array:
    """The net gain in minutes that a network expects of each offer, float64[N, 16]."""
    import torch

    from shoal.rides.observe import MINUTES

    seen = {name: torch.from_numpy(part) for name, part in observations.items()}
    with torch.inference_mode():
        logits = network.policy(seen).numpy().astype(np.float64)
        sharpness = float(network.log_sharpness.exp())
    return np.asarray(MINUTES * (logits - observations["bias"]) / sharpness)


def summarise(parts: Parts) -> list[Row]:
    """Each policy with thinking less the same without, and closed less open in the same time, paired over days."""
    found = []
    for name in dict.fromkeys(part["policy"] for part in parts):
        made = {(part["loop"], part["think"]): part for part in parts if part["policy"] == name}
        for (loop, think), part in made.items():
            if think and ("open", 0) in made:
                title = f"rides, {name}: {_words(loop, think)} less none, net gain a day"
                found.append(_less(title, part, made["open", 0], 0.0))
        equal, closed = parts[0]["depends_on"]["equal"]
        if ("open", equal) in made and ("closed", closed) in made:
            title = f"rides, {name}: {_words('closed', closed)} less {equal} in an open one, net gain a day"
            found.append(_less(title, made["closed", closed], made["open", equal], None))
    return found or [Row(NAME, None, "", note=f"nothing stored: python -m {PLACE} --store")]


def _less(title: str, part: dict[str, Any], other: dict[str, Any], target: float | None) -> Row:
    from shoal.rides.contest.scores import Bootstrap

    ours, theirs = np.array(part["net_min"]), np.array(other["net_min"])
    gain = Bootstrap(len(ours)).mean((ours - theirs)[None])
    ms = [1000 * one["cpu_s"] / len(ours) / 30 for one in (part, other)]
    note = (
        f"lower end of the 95 % interval; mean {gain['mean']:.2f}, upper {gain['high']:.2f}; "
        f"{ours.mean():.2f} with and {theirs.mean():.2f} without; {len(ours)} days by the planner's own prices; "
        f"{ms[0]:.0f} ms of CPU an offer, {ms[1]:.0f} ms without"
    )
    return Row(title, gain["low"], "min", target, note=note)


def keep(parts: Parts) -> None:
    """Store what there is."""
    stored.write(NAME, f"python -m {PLACE} --store", summarise(parts), parts=parts)


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = stored.arguments(__doc__)
    parser.add_argument("--days", type=int, default=200)
    parser.add_argument("--think", type=int, default=256, help="futures of an open loop")
    parser.add_argument("--equal", type=int, default=768, help="futures of an open loop that take 0.3 s at the desk")
    parser.add_argument("--closed", type=int, default=6, help="futures of a closed loop that take 0.3 s at the desk")
    parser.add_argument("--work", type=Path, default=credit_arms.WORK)
    return parser.parse_args(given)


def main() -> None:
    given = parsed()
    if stored.storing(given):
        study(given, (stored.read(NAME) or {"parts": []})["parts"], keep)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
