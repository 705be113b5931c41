"""Measured on this machine, peers side by side: python -m benchmarks GROUP [GROUP ...], or all

    python -m benchmarks ppo                     a table; figures that take hours are read from benchmarks/results
    python -m benchmarks vector ppo cage2 rides  several groups, in this order
    python -m benchmarks ppo --json              {"results": [{"name", "value", "unit", "target", "met", ...}]}
    python -m benchmarks ppo --full              what takes hours is made again too
    python -m benchmarks rides --instances DIR   DIR holds Li and Lim's lc101.txt, lc201.txt, lr101.txt, lr201.txt
    python -m benchmarks vector --store          write what was measured now to benchmarks/results

Run it in the checkout's root. A figure is one module, benchmarks/GROUP/NAME.py, with one result, results/NAME.json:
`python -m benchmarks.ppo.classic_control` runs one alone. What takes hours goes on where it was stopped there, with
--store. Nothing is stored from a tree with changes that are not committed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.runs.provenance import cores_usable

Say = Callable[[str], None]
FAILED = "failed"  # how the note of a figure begins that could not be measured


class Group(NamedTuple):
    """The figures of a group."""

    now: tuple[str, ...]  # measured whenever the group is: rows(say)
    kept: tuple[str, ...] = ()  # take long, so they are read unless asked for again: rows(say, full)


GROUPS = {
    "vector": Group(
        (
            "process_speed",
            "auto_backend",
            "compiled_speed",
            "startup",
            "wakeup",
            "ray_speed",
            "rank_speed",
            "slices_speed",
        ),
        ("process_parts", "compiled_on_gpu", "rank_learning"),
    ),
    "ppo": Group(
        ("ppo_speed", "cnn_speed", "tanh"),
        ("cartpole_solve", "classic_control", "default_learning", "image_learning", "tune_search"),
    ),
    "cage2": Group(("cage2",), ("cage2_score", "cage2_clone", "final_rules")),
    "faults": Group(("fault_matrix",), ("long_run",)),
    "rides": Group(
        ("rides_bench",),
        (
            "rides_learning",
            "rides_credit",
            "rides_steps",
            "rides_ceiling",
            "rides_think",
            "rides_shift",
            "rides_sweep",
            "neural_oracle",
            "neural_refit",
            "neural_on_gpu",
            "neural_training",
            "price_head",
        ),
    ),
    "study": Group(("noise_cost",), ("num_envs_study", "noise_over_training", "scaling")),
    "search": Group(
        ("bandit_speed",),
        ("bandit_synthetic", "search_time", "search_regret", "workflow_table", "workflow_alignment"),
    ),
}


def run(
    *groups: str,
    full: bool = False,
    instances: str | None = None,
    store: bool = False,
    say: Say = lambda text: None,
) -> Iterator[Row]:
    """The rows of groups or of `all`, figure by figure; `say` hears of each measurement as it is made."""
    unknown = [group for group in groups if group not in GROUPS and group != "all"]
    if unknown or not groups:
        got = ", ".join(map(repr, unknown)) or "none"
        raise ValueError(f"expected groups of {', '.join(GROUPS)} or all, got {got}")
    asked = list(GROUPS) if "all" in groups else list(dict.fromkeys(groups))
    if instances is not None:
        if "rides" not in asked:
            raise ValueError(f"--instances is for the group rides, got it with {' '.join(asked)}")
        if not Path(instances).is_dir():
            raise ValueError(f"expected --instances as a folder with lc101.txt and others, got {instances}")
    if store and full:
        raise ValueError(
            "expected --store without --full: what takes hours is stored piece by piece by its own module, "
            "for instance python -m benchmarks.ppo.classic_control --store"
        )
    if store:
        stored.require_clean()
    say(load_warning())
    return _rows(asked, full, instances, store, say)


def _rows(groups: Sequence[str], full: bool, instances: str | None, store: bool, say: Say) -> Iterator[Row]:
    for group in groups:
        for name in (*GROUPS[group].now, *GROUPS[group].kept):
            place, load = f"benchmarks.{group}.{name}", os.getloadavg()[0]
            try:
                found = _measured(place, name in GROUPS[group].kept, full, instances, say)
            except RuntimeError as error:  # the other figures are still worth having
                say(str(error))
                yield Row(name, None, "", note=f"{FAILED}: {str(error).strip().splitlines()[-1]}")
                continue
            yield from found
            if store and name in GROUPS[group].now:
                stored.write(name, f"python -m {place} --store", found, load_before=round(load, 2))


def _measured(place: str, kept: bool, full: bool, instances: str | None, say: Say) -> list[Row]:
    figure: Any = importlib.import_module(place)
    found: list[Row]
    if place.endswith(".rides_bench"):
        found = figure.rows(say, full, instances)
    else:
        found = figure.rows(say, full) if kept else figure.rows(say)
    return found


def load_warning() -> str:
    """How busy this machine is with other things: every ratio to a peer with more processes suffers from it."""
    load, cores = os.getloadavg()[0], cores_usable()
    busy = ": other programs are running, the figures will be off" if load > 0.25 * cores else ""
    return f"load {load:.2f} on {cores} cores before the measurement{busy}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the groups' table, or its JSON; 1 if something could not be measured, 2 if it was asked for wrongly."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("groups", nargs="+", metavar="GROUP", help=f"{', '.join(GROUPS)} or all")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--full", action="store_true", help="make again what takes hours")
    parser.add_argument("--instances", metavar="DIR", help="rides: folder of Li and Lim's instance files")
    parser.add_argument("--store", action="store_true", help="write what was measured now to benchmarks/results")
    given = parser.parse_args(arguments)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        found = []
        for row in run(*given.groups, full=given.full, instances=given.instances, store=given.store, say=say):
            found.append(row)
            if not given.json:
                print(row, flush=True)
        if given.json:
            print(json.dumps({"results": [row.to_json() for row in found]}, allow_nan=False))
    except (ValueError, stored.DirtyTree) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    return int(any(row.note.startswith(FAILED) for row in found))


if __name__ == "__main__":
    sys.exit(main())
