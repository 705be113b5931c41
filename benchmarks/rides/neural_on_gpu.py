"""The neural oracle on a GPU, beside the compiled oracles on the CPU cores of the same machine.

    python -m benchmarks.rides.neural_on_gpu [--machine "1x H200" --commit HASH --out FILE]

Wall time of planning many days in one call (30 requests each), gap and days finished as decoded there, bits for any
chunk, memory a day, and the time of an epoch of PPO over either oracle. Without --machine the stored result is shown;
a machine with a GPU writes it to --out (its tree may have no git, hence --commit).
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row

PLACE, NAME = "benchmarks.rides.neural_on_gpu", "neural_on_gpu"
BATCHES, REQUESTS, REPEATS = (1, 64, 256, 1024, 4096, 16384), 30, 3
EPOCHS, WIDE = 4, (256, 1024)  # of PPO, and its environments
Say = Callable[[str], None]


def rows(say: Say, full: bool = False) -> list[Row]:
    """The stored result; `full` changes nothing, since it takes a GPU."""
    result = stored.read(NAME)
    if result is None:
        note = f"nothing stored: python -m {PLACE} --machine NAME --out FILE, then --store"
        return [Row("neural oracle on a GPU", None, "ms", note=note)]
    found = [replace(row, note=row.note + f"; {result['gpu']}") for row in summarise(result)]
    return [replace(row, measured="stored", date=result["date"], commit=result["commit"]) for row in found]


def summarise(result: dict[str, Any]) -> list[Row]:
    """Wall times first."""
    found = []
    for row in result["times"]:
        days = f"{row['days']:,} days of {REQUESTS} requests, one call, wall time"
        note = f"{result['cores']} threads for the compiled oracle: {row['incremental_ms']:.0f} ms with 30 iterations, "
        note += f"{row['insertion_ms']:.0f} ms by insertion; best of 8 orders {row['best_of_8_ms']:.0f} ms"
        found.append(Row(f"neural oracle on a GPU, {days}", row["greedy_ms"], "ms", better="lower", note=note))
    part = result["plans"]
    title = f"neural oracle on a GPU, {part['days']:,} days of {REQUESTS} requests"
    found += [
        Row(f"{title}: days with other routes than on the CPU", part["other_routes"], "days", better="lower",
            note=f"mean cost {part['cost_gpu_s'] / part['cost_cpu_s'] - 1:+.5%} of the CPU's"),
        Row(f"{title}: chunks that changed a bit", part["chunks_that_differ"], "chunks", 0, "lower",
            note=f"of {part['chunks']}"),
        Row(f"{title}: memory a day", part["memory_a_day_mb"], "MB", better="lower", note="at the peak of a call"),
    ]  # fmt: skip
    for row in result["training"]:
        title = f"PPO over the neural oracle, {row['num_envs']:,} environments: an epoch"
        note = f"over the incremental oracle on {result['cores']} threads: {row['incremental_s']:.2f} s"
        found.append(Row(f"{title}, oracle and network on a GPU", row["neural_s"], "s", better="lower", note=note))
    return found


def measured(say: Say) -> dict[str, Any]:
    """Everything, on this machine."""
    import torch

    from shoal.rides.options import RidesOptions
    from shoal.rides.routing.neural.router import Router
    from shoal.rides.routing.neural.weights import load_network
    from shoal.rides.world.world import make_world

    cores = len(os.sched_getaffinity(0))
    world = make_world(RidesOptions(customers=REQUESTS))
    source = world.days("held_out", again=True)
    some = np.stack([source.draw(seed).requests for seed in range(1024)])
    router = Router(load_network(), world.problem, device="cuda")
    times = []
    for batch in BATCHES:
        days = some[np.arange(batch) % len(some)]
        count = np.full(batch, REQUESTS)
        row = {
            "days": batch,
            "greedy_ms": _wall_ms(partial(router.route, days, count)),
            "best_of_8_ms": _wall_ms(partial(router.route, days, count, starts=8)),
            "insertion_ms": _wall_ms(partial(_compiled, world.problem, days, cores, 0)),
            "incremental_ms": _wall_ms(partial(_compiled, world.problem, days, cores, 30)),
        }
        say(json.dumps(row))
        times.append(row)
    plans = _plans(world.problem, some, say)
    training = [_training(count, say) for count in WIDE]
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cores": cores, "times": times,
            "plans": plans, "training": training}  # fmt: skip


def _wall_ms(call: Callable[[], object]) -> float:
    call()
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        found.append(1000 * (time.perf_counter() - began))
    return statistics.median(found)


def _compiled(problem: Any, days: Any, threads: int, iterations: int) -> None:
    from shoal.rides.routing.oracle import ESCALATE, RoutingOracle
    from shoal.rides.routing.plans import Plans

    oracle, plans = RoutingOracle(problem, threads), Plans(problem, *days.shape)
    keys = np.arange(len(days)).astype(np.uint64)
    for step in range(days.shape[1]):
        oracle.add(plans, days[:, step].copy(), keys, iterations, ESCALATE if iterations else ())
    oracle.close()


def _plans(problem: Any, some: Any, say: Say) -> dict[str, Any]:
    """What is decoded there: beside the CPU's routes, for several chunks, and its memory."""
    import torch

    from shoal.rides.routing.neural.router import Router
    from shoal.rides.routing.neural.weights import load_network

    count = np.full(len(some), REQUESTS)
    cpu = Router(load_network(), problem).route(some, count)
    wide, many = some[np.arange(8192) % len(some)], np.full(8192, REQUESTS)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    gpu = Router(load_network(), problem, device="cuda", chunk=8192).route(wide, many)
    memory_mb = (torch.cuda.max_memory_allocated() - before) / len(wide) / 2**20
    chunks = (1024, 2048, 4096)
    differ = 0
    for chunk in chunks:
        again = Router(load_network(), problem, device="cuda", chunk=chunk).route(wide, many)
        differ += not (np.array_equal(again.stops, gpu.stops) and np.array_equal(again.cost_s, gpu.cost_s))
    same = (gpu.stops[: len(some)] == cpu.stops).all((1, 2))
    whole = gpu.placed[: len(some)].all(1) & cpu.placed.all(1)
    found = {
        "days": len(some), "other_routes": int((~same).sum()), "finished": float(gpu.placed[: len(some)].all(1).mean()),
        "cost_gpu_s": float(gpu.cost_s[: len(some)][whole].mean()), "cost_cpu_s": float(cpu.cost_s[whole].mean()),
        "chunks": len(chunks), "chunks_that_differ": differ, "memory_a_day_mb": memory_mb,
    }  # fmt: skip
    say(json.dumps(found))
    return found


def _training(num_envs: int, say: Say) -> dict[str, Any]:
    """Median seconds of an epoch, from the rows that a run writes."""
    import tempfile
    from io import StringIO

    from shoal import train

    found: dict[str, Any] = {"num_envs": num_envs}
    for oracle in ("incremental", "neural"):
        kwargs = {"start": "none", "futures": 0, "held_out_days": 0, "prices": "insertion", "oracle": oracle}
        kwargs |= {"oracle_device": "cuda"} if oracle == "neural" else {}
        with tempfile.TemporaryDirectory() as folder:
            done = train(
                "rides", env_kwargs=json.dumps(kwargs), num_envs=num_envs, epochs=EPOCHS, device="cuda",
                runs_dir=folder, name="r", stream=StringIO(),
            )  # fmt: skip
            lines = (Path(done.run) / "metrics.jsonl").read_text().splitlines()
        metrics = [json.loads(line) for line in lines]
        found[f"{oracle}_s"] = statistics.median(np.diff([row["time/elapsed_s"] for row in metrics]))
        found[f"{oracle}_row"] = {name: metrics[-1][name] for name in metrics[-1] if "time" in name or "oracle" in name}
    say(json.dumps(found))
    return found


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--machine", help="what to call this machine; without it, the stored result is shown")
    parser.add_argument("--commit", default="", help="the commit that is measured")
    parser.add_argument("--out", type=Path, help="write the result to this file")
    given = parser.parse_args()
    if given.machine is None:
        stored.show(rows(stored.print_line))
        return
    result = {"machine": given.machine, "commit": given.commit, "date": datetime.date.today().isoformat()}
    result |= {"command": f'python -m {PLACE} --machine "{given.machine}"', **measured(stored.print_line)}
    stored.show(summarise(result))
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
