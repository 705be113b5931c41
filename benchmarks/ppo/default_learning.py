"""What `shoal train ID --steps 1000000` learns with no other flag, beside SB3 with the Zoo's settings; three seeds.

    python -m benchmarks.ppo.default_learning [shoal] [sb3] [--tasks ID ...] [--seeds N ...] [--again] [--store]

With --store it learns what is wanting, stores after every seed and goes on where it was stopped; what was learnt with
other settings is learnt again, and with --again all that is asked for, on another machine say: CPU-seconds are only
compared between runs of one processor. Without --store, it shows what is stored.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.interleave import in_fresh_process
from benchmarks.harness.rows import Row
from benchmarks.harness.stored import settings_hash

PLACE, NAME, EPISODES, STEPS = "benchmarks.ppo.default_learning", "default_learning", 100, 1_000_000
# The mean over seeds of the greedy held-out return that `shoal train ID --steps 1000000` is to reach.
TARGETS = {
    "LunarLander-v3": 240.0,
    "BipedalWalker-v3": 250.0,
    "HalfCheetah-v5": 2000.0,
    "Hopper-v5": 2000.0,
    # The Zoo's own run (benchmark.md, PPO, Walker2d-v3, 1M steps) scored 3,479 with a standard deviation of 822: one
    # deviation below.
    "Walker2d-v5": 2600.0,
    "Taxi-v4": 0.0,
    "FrozenLake-v1": 0.70,
    "Blackjack-v1": -0.10,
}
SEEDS = (201, 202, 203)
CPU_SHARE = 0.5  # of SB3's CPU-seconds, at most
_RUN_S = 6 * 3600.0

# rl-baselines3-zoo, hyperparams/ppo.yml: LunarLander-v2, BipedalWalker-v3, HalfCheetah-v3, Hopper-v3, Walker2d-v3.
_LARGE: dict[str, Any] = {"log_std_init": -2, "ortho_init": False, "relu": True, "net_arch": [256, 256]}
ZOO: dict[str, dict[str, Any]] = {
    "LunarLander-v3": {
        "n_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4,
        "ent_coef": 0.01,
    },
    "BipedalWalker-v3": {
        "normalize": True, "n_envs": 32, "n_steps": 2048, "batch_size": 64, "gae_lambda": 0.95, "gamma": 0.999,
        "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 3e-4, "clip_range": 0.18,
    },
    "HalfCheetah-v5": {
        "normalize": True, "n_envs": 1, "n_steps": 512, "batch_size": 64, "gae_lambda": 0.92, "gamma": 0.98,
        "n_epochs": 20, "ent_coef": 0.000401762, "learning_rate": 2.0633e-05, "clip_range": 0.1, "max_grad_norm": 0.8,
        "vf_coef": 0.58096, "policy_kwargs": _LARGE,
    },
    "Hopper-v5": {
        "normalize": True, "n_envs": 1, "n_steps": 512, "batch_size": 32, "gae_lambda": 0.99, "gamma": 0.999,
        "n_epochs": 5, "ent_coef": 0.00229519, "learning_rate": 9.80828e-05, "clip_range": 0.2, "max_grad_norm": 0.7,
        "vf_coef": 0.835671, "policy_kwargs": _LARGE,
    },
    "Walker2d-v5": {
        "normalize": True, "n_envs": 1, "n_steps": 512, "batch_size": 32, "gae_lambda": 0.95, "gamma": 0.99,
        "n_epochs": 20, "ent_coef": 0.000585045, "learning_rate": 5.05041e-05, "clip_range": 0.1, "max_grad_norm": 1.0,
        "vf_coef": 0.871923,
    },
}  # fmt: skip


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """Rows from the stored result; with `full` everything is learnt again."""
    if full:
        return summarise(missing([], ("shoal", "sb3"), say))
    result = stored.read(NAME)
    return stored.as_stored(summarise(current(result["runs"])), result) if result else summarise([])


def missing(
    runs: Sequence[dict[str, Any]],
    who: Iterable[str],
    say: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None] = lambda run: None,
    *,
    tasks: Sequence[str] = tuple(TARGETS),
    seeds: Sequence[int] = SEEDS,
    again: bool = False,
) -> list[dict[str, Any]]:
    """`runs` and those of `tasks` and `seeds` still wanting (`again`: all of them), learnt now; `keep` is handed each
    when it is done."""
    found = current(runs)
    done = set() if again else {key(run) for run in found}
    for seed in seeds:  # seed by seed over all tasks, so that an early stop leaves something of each
        for learner in who:
            for task in tasks if learner == "shoal" else [task for task in tasks if task in ZOO]:
                if (learner, task, seed) in done:
                    continue
                run = in_fresh_process(f"benchmarks.ppo.default_learning:{learner}", _RUN_S, task=task, seed=seed)
                found = [*(one for one in found if key(one) != key(run)), run]
                say(f"{learner}, {task}, seed {seed}: {run['mean']:.2f} greedy, {run['sampled']:.2f} "
                    f"sampled, {run['cpu_s']:.0f} CPU-s")  # fmt: skip
                keep(run)
    return found


def key(run: dict[str, Any]) -> tuple[str, str, int]:
    """One run each of who, task and seed is kept."""
    return run["who"], run["task"], run["seed"]


def current(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those made with the settings of now: others must not be pooled with them."""
    return [run for run in runs if run["settings"] == (settings_hash(run["task"]) if run["who"] == "shoal" else "zoo")]


def shoal(task: str, seed: int) -> dict[str, Any]:
    """In a process of its own: `shoal train TASK --steps 1000000`, then episodes never seen."""
    from shoal.evaluation import evaluate
    from shoal.runs.usage import tree_cpu_s
    from shoal.training import train

    with tempfile.TemporaryDirectory() as folder:
        before_s = tree_cpu_s()
        result = train(task, seed=seed, steps=STEPS, runs_dir=folder, stream=StringIO())
        cpu_s = tree_cpu_s() - before_s
        score = evaluate(result.run, episodes=EPISODES)
    return {
        "who": "shoal",
        "task": task,
        "seed": seed,
        "mean": score["deterministic"]["mean"],
        "interval": [score["deterministic"]["low"], score["deterministic"]["high"]],
        "sampled": score["sampled"]["mean"],
        "steps": result.steps,
        "cpu_s": round(cpu_s, 1),
        "wall_s": round(result.wall_s, 1),
        "settings": settings_hash(task),
        **stored.stamp(),
    }


def sb3(task: str, seed: int) -> dict[str, Any]:
    """In a process of its own: SB3's PPO with the Zoo's settings, then episodes never seen."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    settings = dict(ZOO[task])
    normalise, num_envs = settings.pop("normalize", False), settings.pop("n_envs")
    if given := settings.get("policy_kwargs"):
        layers = given["net_arch"]
        settings["policy_kwargs"] = {
            "log_std_init": given["log_std_init"],
            "ortho_init": given["ortho_init"],
            "activation_fn": torch.nn.ReLU,
            "net_arch": {"pi": layers, "vf": layers},
        }
    env: Any = make_vec_env(task, num_envs, seed=seed)
    held_out: Any = make_vec_env(task, 1, seed=1_000_000 + seed)
    if normalise:
        env = VecNormalize(env, gamma=settings["gamma"])
        held_out = VecNormalize(held_out, training=False, norm_reward=False)
    model = PPO("MlpPolicy", env, device="cpu", seed=seed, **settings)
    began_s, cpu_s = time.perf_counter(), time.process_time()
    model.learn(STEPS)
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    if normalise:
        held_out.obs_rms = env.obs_rms
    scores: dict[bool, Any] = {
        greedy: evaluate_policy(model, held_out, EPISODES, deterministic=greedy, return_episode_rewards=True)[0]
        for greedy in (True, False)
    }
    return {
        "who": "sb3",
        "task": task,
        "seed": seed,
        "mean": statistics.fmean(scores[True]),
        "sampled": statistics.fmean(scores[False]),
        "steps": model.num_timesteps,
        "cpu_s": round(cpu_s, 1),
        "wall_s": round(wall_s, 1),
        "settings": "zoo",
        **stored.stamp(),
    }


def summarise(runs: Sequence[dict[str, Any]]) -> list[Row]:
    """Return by task against its target, and CPU-seconds over SB3's, with every seed's value."""
    found = []
    for task, target in TARGETS.items():
        ours, theirs = (
            {run["seed"]: run for run in runs if run["task"] == task and run["who"] == who} for who in ("shoal", "sb3")
        )
        detail = {
            who: {str(seed): {k: run[k] for k in ("mean", "sampled", "cpu_s")} for seed, run in sorted(by_seed.items())}
            for who, by_seed in (("shoal", ours), ("sb3", theirs))
            if by_seed
        }
        enough = len(ours) >= len(SEEDS)
        note = "" if enough else f"{len(ours)} of {len(SEEDS)} seeds stored for the present settings"
        mean = statistics.fmean(run["mean"] for run in ours.values()) if enough else None
        title = f"{task}, no flags, {STEPS:,} steps: greedy held-out return, mean of {len(SEEDS)} seeds"
        found.append(Row(title, mean, "return", target, note=note, detail=detail, seeds=list(ours)))
        if ours and theirs:
            share = stored.cpu_share(list(ours.values()), list(theirs.values()))
            name = f"{task}: CPU-seconds over those of SB3 with the Zoo's settings, medians"
            found.append(Row(name, share.value, "x", CPU_SHARE, "lower", note=share.note))
    return found


def keep(run: dict[str, Any]) -> None:
    """Into what is stored now, in place of the same seed's before; two of these may run beside each other."""
    runs = [*(one for one in stored.runs(NAME) if key(one) != key(run)), run]
    stored.write(NAME, f"python -m {PLACE} --store", summarise(current(runs)), runs=runs)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("who", nargs="*", help="shoal, sb3 or both, which is the default")
    parser.add_argument("--tasks", nargs="+", choices=TARGETS, metavar="ID", help="those to learn; default: all")
    parser.add_argument("--seeds", nargs="+", type=int, choices=SEEDS, metavar="N", help=f"of {SEEDS}; default: all")
    parser.add_argument("--again", action="store_true", help="learn also what is stored, and replace it")
    given = parser.parse_args(arguments)
    if unknown := set(given.who) - {"shoal", "sb3"}:
        parser.error(f"expected shoal or sb3, got {', '.join(sorted(unknown))}")
    if not given.store and (given.tasks or given.seeds or given.again):
        parser.error("--tasks, --seeds and --again say what to learn: expected --store with them")
    if given.who == ["sb3"] and given.tasks and not set(given.tasks) & set(ZOO):
        parser.error(f"expected for sb3 tasks of {', '.join(ZOO)}, got {', '.join(given.tasks)}")
    if stored.storing(given):
        missing(
            stored.runs(NAME), given.who or ("shoal", "sb3"), stored.print_line, keep,
            tasks=given.tasks or tuple(TARGETS), seeds=given.seeds or SEEDS, again=given.again,
        )  # fmt: skip
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
