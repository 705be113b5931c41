"""The same CartPole source on a CPU and on a GPU: equal bits, and how fast.

    python -m benchmarks.vector.compiled_on_gpu [--machine "1x H200"] [--out FILE] [--store]

Steps 4,096 CartPoles 100 times with the same actions on every target this machine has, and hashes all that
exists after every step: states, generators, clocks, observations, final observations, rewards, flags. A run
is added to the stored ones under its machine's name, so that a machine without a GPU can add its own hash: to
benchmarks/results with --store, or to a copy of it with --out (on a machine whose tree has no git).
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

if not hasattr(np, "row_stack"):  # numba-cuda 0.30 names it, NumPy 2.5 dropped it
    vars(np)["row_stack"] = np.vstack

import numba

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.compiled.compile import build
from shoal.compiled.env import layout
from shoal.core.arrays import Array
from shoal.core.seeds import env_keys
from shoal.environments.cartpole import CartPole
from shoal.runs import provenance
from shoal.runs.disk import replace_atomically

PLACE, NAME = "benchmarks.vector.compiled_on_gpu", "compiled_on_gpu"
N, STEPS, BLOCK = 4096, 100, 128
WIDE = 1 << 20  # environments that fill a GPU: 4,096 leave it waiting for Python to launch


def the_gpu() -> Any:
    """Numba's CUDA target, imported where it is needed: a machine without a GPU need not have it."""
    from numba import cuda

    return cuda


class OnCpu:
    """The kernels on one CPU thread."""

    def __init__(self, env: CartPole) -> None:
        self.kernels = build(env)

    def load(self, arrays: dict[str, Array]) -> None:
        self.on = {name: array.copy() for name, array in arrays.items()}
        self.slots, self.config = self.on["slots"].view(np.uint8), self.on["config"].view(np.uint8)
        on = self.on
        status = self.kernels.reset(self.slots, on["finite"], on["obs"], on["mask"], self.config)
        assert status == 0, status

    def step(self, t: int) -> None:
        on = self.on
        status = self.kernels.step(
            self.slots, on["actions"][t], on["obs"], on["mask"], on["final_obs"], on["mask"], on["rewards"],
            on["terminated"], on["truncated"], self.config, 0, len(on["rewards"]),
        )  # fmt: skip
        assert status >= 0, status

    def read(self, name: str) -> Array:
        return self.on[name]

    def wait(self) -> None:
        pass


class OnGpu:
    """The kernels of the same functions on the GPU, one thread an environment."""

    def __init__(self, env: CartPole) -> None:
        self.kernels = build(env, target="cuda")

    def load(self, arrays: dict[str, Array]) -> None:
        cuda = the_gpu()

        self.on = on = {name: cuda.to_device(array) for name, array in arrays.items()}
        self.blocks = len(arrays["rewards"]) // BLOCK
        self.actions = [on["actions"][t] for t in range(STEPS)]
        self.kernels.reset[self.blocks, BLOCK](on["slots"], on["finite"], on["obs"], on["mask"], on["config"])

    def step(self, t: int) -> None:
        on = self.on
        self.kernels.step[self.blocks, BLOCK](
            on["slots"], self.actions[t], on["obs"], on["mask"], on["final_obs"], on["mask"], on["rewards"],
            on["terminated"], on["truncated"], on["config"], on["finite"],
        )  # fmt: skip

    def read(self, name: str) -> Array:
        host: Array = self.on[name].copy_to_host()
        return host

    def wait(self) -> None:
        cuda = the_gpu()

        cuda.synchronize()


def start(env: CartPole, n: int = N) -> dict[str, Array]:
    """Everything a run begins with, on the host; keys and actions repeat beyond N environments."""
    plan = layout(env)
    slots = plan.slots(n)
    slots["key"] = np.resize(env_keys(0, N), n)
    obs, mask = plan.observations(n)
    actions = np.random.default_rng(0).integers(0, 2, (STEPS, N))  # int64[100, 4096]
    return {
        "slots": slots,
        "config": plan.config,
        "obs": obs,
        "final_obs": np.zeros_like(obs),
        "mask": mask,
        "rewards": np.zeros(n, np.float32),
        "terminated": np.zeros(n, np.bool_),
        "truncated": np.zeros(n, np.bool_),
        "finite": np.ones(n, np.bool_),
        "actions": np.tile(actions, (1, n // N)),
    }


def measure(target: Any, env: CartPole) -> dict[str, Any]:
    """The hash of a run and its speed."""
    target.load(start(env))
    digest = hashlib.sha256(target.read("slots").tobytes() + target.read("obs").tobytes())
    ended = 0
    for t in range(STEPS):
        target.step(t)
        for name in ("slots", "obs", "final_obs", "rewards", "terminated", "truncated"):
            digest.update(target.read(name).tobytes())
        ended += int(np.count_nonzero(target.read("terminated") | target.read("truncated")))
    return {
        "sha256": digest.hexdigest(),
        "final_state_sha256": hashlib.sha256(target.read("slots").tobytes()).hexdigest(),
        "episodes_ended": ended,
        "compile_s": round(target.kernels.compile_s, 2),
        "steps_per_s": throughput(target, start(env), 20),
    }


def throughput(target: Any, arrays: dict[str, Array], turns: int) -> int:
    """Environment steps a second: the median of so many runs of 100 steps, without copies."""
    seconds = []
    for _ in range(turns):
        target.load(arrays)
        target.wait()
        began = time.perf_counter()
        for t in range(STEPS):
            target.step(t)
        target.wait()
        seconds.append(time.perf_counter() - began)
    return round(len(arrays["rewards"]) * STEPS / statistics.median(seconds))


def gpu_name() -> str | None:
    """The GPU's name, or None without one."""
    try:
        cuda = the_gpu()
        if not cuda.is_available():
            return None
        name = cuda.get_current_device().name  # bytes in Numba's own CUDA target, str in numba-cuda's
        return name.decode() if isinstance(name, bytes) else str(name)
    except ImportError as error:
        print(f"no GPU: {error}", file=sys.stderr)
        return None


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored runs beside each other; `full` changes nothing, since one machine alone cannot make them again."""
    result = stored.read(NAME)
    name = f"compiled CartPole, {N:,} environments, {STEPS} steps: different hashes of everything, CPU and GPU"
    if result is None:
        return [Row(name, None, "hashes", 1, "lower", f"nothing stored: python -m {PLACE} --machine NAME --store")]
    runs = {
        (machine, kind): run for machine, entry in result["machines"].items() for kind, run in entry["runs"].items()
    }
    found = [Row(name, len({run["sha256"] for run in runs.values()}), "hashes", 1, "lower", f"of {len(runs)} runs")]
    for (machine, kind), run in runs.items():
        found.append(Row(f"compiled CartPole, {N:,} environments, {machine}, {kind}", run["steps_per_s"], "steps/s"))
    date = max(entry["date"] for entry in result["machines"].values())
    return [replace(row, measured="stored", date=date, commit=result.get("commit")) for row in found]


def with_this_machine(result: dict[str, Any], machine: str) -> dict[str, Any]:
    """The stored runs and those of this machine, made now."""
    env = CartPole()
    runs: dict[str, Any] = {"cpu": measure(OnCpu(env), env)}
    gpu = gpu_name()
    if gpu is not None:
        target = OnGpu(env)
        runs["cuda"] = measure(target, env) | {"gpu": gpu}
        runs["cuda"][f"steps_per_s_with_{WIDE}_environments"] = throughput(target, start(env, WIDE), 3)
    result["what"] = f"{N} CartPoles, {STEPS} steps, same actions; sha256 over everything after every step"
    result["machines"][machine] = {
        "date": datetime.date.today().isoformat(),
        "commit": provenance.code()["commit"],
        "command": f'python -m {PLACE} --machine "{machine}"',
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
        },
        "runs": runs,
    }
    hashes = [run["sha256"] for entry in result["machines"].values() for run in entry["runs"].values()]
    result["equal"] = len(hashes) > 1 and len(set(hashes)) == 1
    return result


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--machine", help="what to call this machine; without it, the stored runs are shown")
    parser.add_argument("--out", type=Path, help="write the stored runs with this one to a file of its own")
    given = parser.parse_args()
    store = stored.storing(given)
    if given.machine is None:
        stored.show(rows(stored.print_line))
        return
    text = json.dumps(with_this_machine(stored.read(NAME) or {"machines": {}}, given.machine), indent=2) + "\n"
    if given.out is not None:
        given.out.write_text(text)
    if store:
        replace_atomically(stored.results_folder() / f"{NAME}.json", text.encode())
    stored.print_line(text)


if __name__ == "__main__":
    main()
