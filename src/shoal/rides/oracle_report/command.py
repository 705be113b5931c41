"""`shoal rides oracle report`: the neural oracle beside insertion, the incremental search and PyVRP, in figures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shoal.extras import require
from shoal.runs.provenance import code, machine
from shoal.tasks import Command, Say, Shown

GATED = (10, 20, 30)  # requests a day at which greedy routes must be shorter than those of plain insertion
FINISHED_PERCENT, NEAR_PERCENT = 95.0, 10.0
MOST_REQUESTS, MOST_THREADS = 45, 1024


@dataclass(frozen=True)
class OracleOptions:
    """Compare the neural oracle with the others on held-out days, by number of requests."""

    what: Literal["report"]
    """report: gap to the best known plans, days finished, wrong signs among the 16 offers, CPU time."""
    weights: str = ""
    """Weights to judge (.safetensors); default: those that come with shoal."""
    requests: tuple[int, ...] = (5, 10, 20, 30, 45)
    """Requests a day, one part of the report each."""
    days: int = 32
    """Held-out days of each size that are planned by every oracle."""
    states: int = 16
    """Of each size, states in which all 16 offers are priced (0: none)."""
    pyvrp: int = 1000
    """Iterations of PyVRP a day (0: leave it out; it takes most of the time)."""
    best_of: int = 8
    """Plans of which the network's best counts (1: greedy alone)."""
    batches: tuple[int, ...] = (1, 64, 256, 1024)
    """Days planned at once when the time is taken."""
    timed: tuple[int, ...] = (30,)
    """Requests a day at which the time is taken, of those in --requests."""
    threads: tuple[int, ...] = (1,)
    """Threads with which the time is taken; with several numbers (1 2) one after the other. Plans do not depend on
    them."""
    device: str = "cpu"
    """Where the network is computed: cpu or cuda."""
    out: str = ""
    """File for the report (.json)."""
    figure: str = ""
    """File for a figure of gaps and times (.png, .svg or .pdf)."""
    card: bool = False
    """Write it into the card beside the weights too, where shoal train rides --oracle neural reads it."""

    def __post_init__(self) -> None:
        for name, least in (("days", 2), ("states", 0), ("pyvrp", 0), ("best_of", 1)):
            if getattr(self, name) < least:
                flag = name.replace("_", "-")
                raise ValueError(f"expected --{flag} of at least {least}, got {getattr(self, name)}")
        ranges = {"requests": MOST_REQUESTS, "timed": MOST_REQUESTS, "batches": 1 << 20, "threads": MOST_THREADS}
        for name, most in ranges.items():
            values = getattr(self, name)
            if not values or min(values) < 1 or max(values) > most:
                words = " ".join(map(str, values)) or "none"
                raise ValueError(f"expected --{name} as numbers of 1 to {most:,}, got {words}")
        if self.out and not self.out.endswith(".json"):
            raise ValueError(f"expected --out as a file that ends in .json, got {self.out!r}")
        if self.figure and Path(self.figure).suffix not in (".png", ".svg", ".pdf"):
            raise ValueError(f"expected --figure as a file that ends in .png, .svg or .pdf, got {self.figure!r}")


def report(options: OracleOptions, say: Say = lambda text: None) -> dict[str, Any]:
    """Measure everything; numbers by number of requests, and which claims hold."""
    import numpy as np
    import torch

    from shoal.rides.options import RidesOptions
    from shoal.rides.oracle_report import gaps, offers, speed
    from shoal.rides.routing.neural.oracle import NeuralOracle
    from shoal.rides.routing.neural.weights import SHIPPED, load_network
    from shoal.rides.world.world import make_world

    network = load_network(options.weights)
    file = Path(options.weights or SHIPPED)
    world = make_world(RidesOptions(customers=MOST_REQUESTS))
    source = world.days("held_out", again=True)
    days = np.stack([source.draw(seed).requests for seed in range(max(options.days, options.states))])
    before = torch.get_num_threads()
    torch.set_num_threads(options.threads[0])
    try:
        neural = NeuralOracle(world.problem, network, device=options.device)
        planners = gaps.planners(world.problem, neural.router, best_of=options.best_of, pyvrp=options.pyvrp)
        sizes = []
        for size in options.requests:
            some = days[:, :size]
            found = {name: gaps.planned(world.problem, some[: options.days], one) for name, one in planners.items()}
            part: dict[str, Any] = {"requests": size, "plans": gaps.gaps(found), "offers": [], "speed": []}
            if options.states and size > 1:
                part["offers"] = offers.offer_errors(neural, some[: options.states])
            if size in options.timed:
                for threads in options.threads:
                    torch.set_num_threads(threads)
                    for batch in options.batches:
                        part["speed"] += speed.speed(neural.router, some, batch, threads)
                torch.set_num_threads(options.threads[0])
                part["one_call_for_64"] = speed.batching(neural.router, some)
            sizes.append(part)
            say(f"{size} requests: {_sentence(part)}")
    finally:
        torch.set_num_threads(before)
    return {
        "weights": file.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "code": code(),
        "machine": machine(),
        "device": options.device if options.device == "cpu" else torch.cuda.get_device_name(),
        "threads": list(options.threads),
        "days": options.days,
        "sizes": sizes,
        "claims": claims(sizes),
    }


def claims(sizes: Sequence[dict[str, Any]]) -> dict[str, bool]:
    """What may be said of greedy plans of the network: each claim, and whether these figures bear it out."""
    from shoal.rides.oracle_report.gaps import GREEDY, INSERTION

    found = {}
    for part in sizes:
        rows = {row["oracle"]: row for row in part["plans"]}
        greedy, insertion, size = rows[GREEDY], rows[INSERTION], part["requests"]
        finished = greedy["finished_percent"] >= FINISHED_PERCENT
        found[f"breaks no rule on days of {size} requests"] = greedy["broken"] == 0
        found[f"finishes at least {FINISHED_PERCENT:g} % of days of {size} requests"] = finished
        if size in GATED:
            known = greedy["gap_percent"] is not None and insertion["gap_percent"] is not None
            found[f"finds shorter routes than plain insertion at {size} requests"] = bool(
                known and greedy["gap_percent"] < insertion["gap_percent"]
            )
        if size == max(GATED):
            near = greedy["gap_percent"] is not None and greedy["gap_percent"] <= NEAR_PERCENT
            found[f"stays within {NEAR_PERCENT:g} % of the best known at {size} requests"] = bool(near)
    return found


def lines_of(found: dict[str, Any]) -> list[str]:
    """Three tables, then the claims."""
    plans, offers, times = [], [], []
    for part in found["sizes"]:
        size = part["requests"]
        for row in part["plans"]:
            gap, far = _number(row["gap_percent"], ".2f"), _number(row["gap_p95_percent"], ".1f")
            rest = f"{row['finished_percent']:.0f}", row["broken"], f"{row['cpu_ms_a_day']:.2f}"
            plans.append([size, row["oracle"], gap, far, *rest])
        for row in part["offers"]:
            shown = (_number(row[name], ".2f") for name in ("rank_correlation", "lost_min", "error_min"))
            wrong = _number(row["sign_errors_percent"], ".0f")
            offers.append([size, row["oracle"], wrong, *shown, f"{row['cpu_ms_a_state']:.2f}"])
        times += [
            [size, row["oracle"], row["days"], row["threads"], f"{row['cpu_ms']:.1f}", f"{row['wall_ms']:.1f}"]
            for row in part["speed"]
        ]
    heads = (
        ["requests", "oracle", "gap %", "95th %", "finished %", "broken", "CPU ms a day"],
        ["requests", "16 offers by", "wrong signs %", "rank corr.", "lost min", "error min", "CPU ms"],
        ["requests", "oracle", "days at once", "threads", "CPU ms", "wall ms"],
    )
    lines = []
    for head, rows in zip(heads, (plans, offers, times), strict=True):
        lines += [*_aligned([head, *rows]), ""] if rows else []
    lines += [f"{'holds' if holds else 'FAILS'}  {claim}" for claim, holds in found["claims"].items()]
    return lines


def _aligned(rows: list[list[Any]]) -> list[str]:
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at == 1 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _sentence(part: dict[str, Any]) -> str:
    return ", ".join(f"{row['oracle']} {_number(row['gap_percent'], '.2f')} %" for row in part["plans"])


def write_into_card(found: dict[str, Any], weights: str) -> Path:
    """Put a report into the card beside the weights; the card is made if there is none."""
    from shoal.rides.routing.neural.weights import SHIPPED

    path = Path(weights or SHIPPED).with_suffix(".json")
    card = json.loads(path.read_text()) if path.is_file() else {"weights": found["weights"], "sha256": found["sha256"]}
    path.write_text(json.dumps(card | {"report": found}, indent=2) + "\n")
    return path


def _run(options: OracleOptions, say: Say) -> Shown:
    require("rides", "shoal rides")
    found = report(options, say)
    lines = lines_of(found)
    if options.out:
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        Path(options.out).write_text(json.dumps(found, indent=2) + "\n")
        lines.append(f"report  {options.out}")
    if options.figure:
        from shoal.rides.figures.oracles import report_figure

        Path(options.figure).parent.mkdir(parents=True, exist_ok=True)
        report_figure(found).savefig(options.figure, dpi=150)
        lines.append(f"figure  {options.figure}")
    if options.card:
        lines.append(f"card    {write_into_card(found, options.weights)}")
    return Shown(found, lines, 0)


COMMAND = Command(
    "how good and how fast the neural oracle is, beside the others",
    OracleOptions,
    _run,
    "report [--weights FILE]",
    "what",
)
