"""CPU-seconds until CartPole is solved (mean of the last 100 returns at least 475), shoal beside tuned SB3.

    python -m benchmarks.ppo.cartpole_solve [--store]

With --store five seeds, stored after each. Both sides of a seed are measured one after the other, so a run that was
stopped starts anew.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.interleave import PeerMissing, in_fresh_process
from benchmarks.harness.rows import Row

PLACE, NAME, TARGET, SHARE = "benchmarks.ppo.cartpole_solve", "cartpole_solve", 475.0, 0.5
SEEDS = (101, 102, 103, 104, 105)
QUICK_SEEDS, QUICK_S = (101, 102), 200.0  # without --full: the seeds that fit into this time
_RUN_S = 1800.0
# rl-baselines3-zoo, hyperparams/ppo.yml, CartPole-v1
SB3_STEPS, SB3_ENVS = 100_000, 8
SB3_TUNED: dict[str, Any] = {
    "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
}  # fmt: skip


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """Two seeds now, if they fit, and the stored table of all; with `full` all now."""
    began = time.perf_counter()
    try:
        if full:
            return summarise([pair(seed, say) for seed in SEEDS])
        runs: list[dict[str, Any]] = []
        for seed in QUICK_SEEDS:
            longest = max((run["took_s"] for run in runs), default=0.0)
            if time.perf_counter() - began + 1.2 * longest < QUICK_S:
                runs.append(pair(seed, say))
        now = summarise(runs)
    except PeerMissing as error:
        now = [Row(_title(QUICK_SEEDS), None, "seeds", float(len(QUICK_SEEDS)), note=str(error))]
    result = stored.read(NAME)
    if result is None:
        note = f"nothing stored: python -m {PLACE} --store, or --full"
        return [*now, Row(_title(SEEDS), None, "seeds", float(len(SEEDS)), note=note)]
    return [*now, *stored.as_stored(summarise(result["runs"]), result)]


def pair(seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """One seed, SB3 and then shoal, each in a new process."""
    began = time.perf_counter()
    sb3 = in_fresh_process("benchmarks.ppo.cartpole_solve:sb3", _RUN_S, seed=seed)
    shoal = in_fresh_process("benchmarks.ppo.cartpole_solve:shoal", _RUN_S, seed=seed)
    for who, one in (("SB3", sb3), ("shoal", shoal)):
        say(f"CartPole-v1, seed {seed}: {who} {'solved' if one['solved'] else 'NOT solved'} after {one['steps']:,} "
            f"steps, {one['cpu_s']:.1f} CPU-s")  # fmt: skip
    return {"seed": seed, "sb3": sb3, "shoal": shoal, "took_s": time.perf_counter() - began, **stored.stamp()}


def summarise(runs: Sequence[dict[str, Any]]) -> list[Row]:
    """The target's row (on how many seeds it took at most half), and what the seeds took."""
    if not runs:
        note = "no seed was measured"
        return [Row(_title(QUICK_SEEDS), None, "seeds", float(len(QUICK_SEEDS)), note=note)]
    seeds = [run["seed"] for run in runs]
    # An SB3 run that spent its 100,000 steps unsolved counts with what it used: to its favour.
    shares = [run["shoal"]["cpu_s"] / run["sb3"]["cpu_s"] if run["shoal"]["solved"] else None for run in runs]
    good = sum(share is not None and share <= SHARE for share in shares)
    detail: dict[str, Any] = {}
    for who in ("shoal", "sb3"):
        for what in ("cpu_s", "wall_s", "import_cpu_s", "steps", "solved"):
            values = [run[who][what] for run in runs]
            detail[f"{who} {what}"] = [round(v, 2) if isinstance(v, float) else v for v in values]
    rows = [Row(_title(seeds), float(good), "seeds", float(len(seeds)), detail=detail, seeds=seeds)]
    solved = [share for share in shares if share is not None]
    if solved:
        name = f"CartPole-v1 solved: CPU-seconds over SB3's, {len(solved)} of {len(seeds)} seeds, "
        rows += [
            Row(name + "median", statistics.median(solved), "x", seeds=seeds),
            Row(name + "worst", max(solved), "x", seeds=seeds),
        ]
    return rows


def _title(seeds: Sequence[int]) -> str:
    return f"CartPole-v1 solved in at most half of tuned SB3's CPU-seconds, of {len(seeds)} seeds"


def shoal(seed: int) -> dict[str, Any]:
    """In a process of its own: `shoal train CartPole-v1`, with no flags but the seed."""
    cpu_s = time.process_time()
    from shoal.training import train

    def once(**options: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            return train("CartPole-v1", runs_dir=folder, stream=StringIO(), **options)

    once(seed=seed + 1, epochs=1)  # what torch and Gymnasium import when first used is not training
    import_cpu_s = time.process_time() - cpu_s
    result = once(seed=seed, target_return=TARGET)
    return {
        "solved": (result.mean_return or 0.0) >= TARGET,
        "cpu_s": result.cpu_s,  # workers included, and the trial of backends
        "wall_s": result.wall_s,
        "import_cpu_s": import_cpu_s,
        "steps": result.steps,
        "mean_return": result.mean_return,
    }


def sb3(seed: int) -> dict[str, Any]:
    """In a process of its own: SB3 with the zoo's settings, stopped at the same criterion."""
    cpu_s = time.process_time()
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)

    class UntilSolved(BaseCallback):
        """Looks after each rollout, as shoal does; the update after it is still made, by both."""

        solved = False

        def _on_rollout_end(self) -> None:
            returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
            self.solved = len(returns) == 100 and sum(returns) / 100 >= TARGET

        def _on_step(self) -> bool:
            return not self.solved

    def make(seed: int) -> Any:
        return PPO(
            "MlpPolicy",
            make_vec_env("CartPole-v1", SB3_ENVS, seed=seed),
            learning_rate=lambda left: left * 1e-3,
            clip_range=lambda left: left * 0.2,
            device="cpu",
            seed=seed,
            **SB3_TUNED,
        )

    make(seed + 1).learn(SB3_ENVS * SB3_TUNED["n_steps"])
    import_cpu_s = time.process_time() - cpu_s
    until = UntilSolved()
    began, cpu_s = time.perf_counter(), time.process_time()
    model = make(seed).learn(SB3_STEPS, callback=until)
    return {
        "solved": until.solved,
        "cpu_s": time.process_time() - cpu_s,
        "wall_s": time.perf_counter() - began,
        "import_cpu_s": import_cpu_s,
        "steps": model.num_timesteps,
        "mean_return": statistics.fmean(episode["r"] for episode in model.ep_info_buffer),
    }


def main() -> None:
    if not stored.storing(stored.arguments(__doc__).parse_args()):
        stored.show(rows(stored.print_line))
        return
    runs = []
    for seed in SEEDS:
        runs.append(pair(seed, stored.print_line))
        stored.write(NAME, f"python -m {PLACE} --store", summarise(runs), runs=runs)


if __name__ == "__main__":
    main()
