"""What `shoal train ID` learns from pictures with no other flag: MiniGrid to its default budget, and Pong to a million
steps beside SB3 with the same settings at as many; three seeds.

    python -m benchmarks.ppo.image_learning [minigrid] [pong] [sb3] [--minutes 60] [--seeds 201] [--store]

With --store it learns what is wanting and stores after every run. Pong takes about an hour a seed on two cores: with
--minutes a training stops after so long, is scored and stored as far as it came, and goes on from there in the next
call (its run folder is runs/image_learning). What was learnt with other settings is learnt again. Without --store it
shows what is stored.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.interleave import in_fresh_process
from benchmarks.harness.rows import Row
from benchmarks.harness.stored import settings_hash

PLACE, NAME, EPISODES = "benchmarks.ppo.image_learning", "image_learning", 100
PONG, PONG_STEPS, PONG_EPISODES = "ALE/Pong-v5", 1_000_000, 10  # an episode of Pong takes a thousand steps and more
# The mean over seeds of the greedy held-out return.
TARGETS = {"MiniGrid-Empty-5x5-v0": 0.9, "MiniGrid-DoorKey-5x5-v0": 0.85}
SEEDS = (201, 202, 203)
SB3_SEEDS = (201,)
RANDOM_EPISODES = 30
WHO = ("minigrid", "pong", "sb3")
_RUN_S = 12 * 3600.0


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """Rows from the stored result; with `full` everything is learnt again."""
    if full:
        return summarise(missing([], WHO, say))
    result = stored.read(NAME)
    return stored.as_stored(summarise(current(result["runs"])), result) if result else summarise([])


def missing(
    runs: Sequence[dict[str, Any]],
    what: Sequence[str],
    say: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None] = lambda run: None,
    minutes: float | None = None,
    seeds: Sequence[int] = SEEDS,
) -> list[dict[str, Any]]:
    """`runs` and those still wanting, learnt now; `keep` is handed each when it is done, or as far as it came."""
    found = {key(run): run for run in current(runs)}
    wanted: list[tuple[str, str, int]] = []
    if "minigrid" in what:
        wanted += [("shoal", task, seed) for seed in seeds for task in TARGETS]
    if "pong" in what:
        wanted += [("random", PONG, 0), *(("shoal", PONG, seed) for seed in seeds)]
    if "sb3" in what:
        wanted += [("sb3", PONG, seed) for seed in SB3_SEEDS]
    for who, task, seed in wanted:
        if found.get((who, task, seed), {}).get("whole"):
            continue
        options = {"task": task, "seed": seed} | ({"minutes": minutes} if who == "shoal" else {})
        run = in_fresh_process(f"{PLACE}:{who}", _RUN_S, **options)
        say(f"{who}, {task}, seed {seed}: {run['mean']:.2f} after {run['steps']:,} steps, {run['cpu_s']:.0f} CPU-s")
        found[key(run)] = run
        keep(run)
    return list(found.values())


def key(run: dict[str, Any]) -> tuple[str, str, int]:
    """Of which there is one run."""
    return run["who"], run["task"], run["seed"]


def current(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those made with the settings of now: others must not be pooled with them."""
    return [run for run in runs if run["settings"] == settings_hash(run["task"])]


def shoal(task: str, seed: int, minutes: float | None = None) -> dict[str, Any]:
    """In a process of its own: `shoal train TASK`, then episodes never seen."""
    from io import StringIO

    from shoal import Callback
    from shoal.evaluation import evaluate
    from shoal.runs.folder import Run
    from shoal.runs.usage import tree_cpu_s
    from shoal.training import train

    deadline = time.monotonic() + 60 * minutes if minutes is not None else None

    class Until(Callback):
        def on_epoch(self, training: Any) -> None:
            if deadline is not None and time.monotonic() > deadline:
                training.stop("its time is up")

    folder, before_s = Path("runs") / NAME, tree_cpu_s()
    name = f"{task.rpartition('/')[2]}-{settings_hash(task)}-{seed}"
    shared: dict[str, Any] = {"callbacks": [Until()], "stream": StringIO()}
    spent = folder / f"{name}.cpu_s"  # of the calls before
    begun = (folder / name).exists()
    if begun and not any((folder / name / "checkpoints").iterdir()):  # it was killed before its first one
        shutil.rmtree(folder / name)
        begun = False
    if begun:
        result = train(resume=folder / name, **shared)
    else:
        more: dict[str, Any] = {"steps": PONG_STEPS} if task == PONG else {}
        result = train(task, seed=seed, name=name, runs_dir=str(folder), **more, **shared)
    cpu_s = tree_cpu_s() - before_s + (float(spent.read_text()) if spent.exists() else 0.0)
    spent.write_text(str(cpu_s))
    score = evaluate(result.run, episodes=PONG_EPISODES if task == PONG else EPISODES)
    wanted = Run.open(result.run, folder).config["run"]["steps"]
    return {
        "who": "shoal",
        "task": task,
        "seed": seed,
        "mean": score["deterministic"]["mean"],
        "interval": [score["deterministic"]["low"], score["deterministic"]["high"]],
        "sampled": score["sampled"]["mean"],
        "training": result.mean_return,
        "steps": result.steps,
        "whole": result.steps >= wanted,
        "cpu_s": round(cpu_s, 1),
        "settings": settings_hash(task),
        **stored.stamp(),
    }


def random(task: str, seed: int) -> dict[str, Any]:
    """In a process of its own: what actions drawn at random earn."""
    import gymnasium as gym
    import numpy as np

    from shoal.core.seeds import Stream, episode_seed
    from shoal.core.statistics import interval
    from shoal.tasks.presets import config_for
    from shoal.vector.foreign import find_spec
    from shoal.vector.preprocess import Preprocess

    began_s = time.process_time()
    config = config_for(task)
    env: Any = Preprocess.of(config)(gym.make(find_spec(task), **json.loads(config.env_kwargs)))
    draws = np.random.default_rng(seed)
    returns, steps = [], 0
    for episode in range(RANDOM_EPISODES):
        env.reset(seed=episode_seed(seed, 0, episode, Stream.EVALUATE))
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(int(draws.integers(env.action_space.n)))
            total, over, steps = total + reward, terminated or truncated, steps + 1
        returns.append(total)
    return {
        "who": "random",
        "task": task,
        "seed": seed,
        "mean": statistics.fmean(returns),
        "interval": list(interval(np.array(returns), seed) or ()),
        "steps": steps,
        "whole": True,
        "cpu_s": round(time.process_time() - began_s, 1),
        "settings": settings_hash(task),
        **stored.stamp(),
    }


def sb3(task: str, seed: int) -> dict[str, Any]:
    """In a process of its own: SB3's PPO, the same network, settings and pictures, then episodes never seen."""
    import gymnasium as gym
    import numpy as np
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    from shoal.runs.usage import tree_cpu_s
    from shoal.tasks.presets import config_for
    from shoal.vector.foreign import find_spec
    from shoal.vector.preprocess import Preprocess

    config = config_for(task, steps=PONG_STEPS)
    ppo, recipe, kwargs = config.ppo, Preprocess.of(config), json.loads(config.env_kwargs)

    def make(clip: bool) -> Any:
        env: Any = Monitor(recipe(gym.make(find_spec(task), **kwargs)))
        return gym.wrappers.TransformReward(env, lambda reward: float(np.sign(float(reward)))) if clip else env

    num_envs: Any = config.vector.num_envs
    model = PPO(
        "CnnPolicy",
        DummyVecEnv([partial(make, True)] * num_envs),
        n_steps=ppo.rollout_steps,
        batch_size=ppo.minibatch_size,  # type: ignore[arg-type]
        n_epochs=ppo.update_epochs,
        learning_rate=lambda left: left * ppo.learning_rate,  # type: ignore[operator]
        clip_range=ppo.clip,
        ent_coef=ppo.entropy_coef,  # type: ignore[arg-type]
        device="cpu",
        seed=seed,
    )
    before_s = tree_cpu_s()
    model.learn(PONG_STEPS)
    cpu_s = tree_cpu_s() - before_s
    held_out = DummyVecEnv([partial(make, False)])
    held_out.seed(1_000_000 + seed)
    scores: dict[bool, Any] = {
        greedy: evaluate_policy(model, held_out, PONG_EPISODES, deterministic=greedy, return_episode_rewards=True)[0]
        for greedy in (True, False)
    }
    return {
        "who": "sb3",
        "task": task,
        "seed": seed,
        "mean": statistics.fmean(scores[True]),
        "sampled": statistics.fmean(scores[False]),
        "steps": model.num_timesteps,
        "whole": True,
        "cpu_s": round(cpu_s, 1),
        "settings": settings_hash(task),
        **stored.stamp(),
    }


def summarise(runs: Sequence[dict[str, Any]]) -> list[Row]:
    """Return by task against its target, with every seed's; a value needs every seed at its whole budget."""
    found = []
    for task, target in TARGETS.items():
        ours = of("shoal", task, runs)
        title = f"{task}, no flags: greedy held-out return, mean of {len(SEEDS)} seeds"
        numbers = [run["seed"] for run in ours]
        found.append(
            Row(title, mean_of(ours), "return", target, note=wanting(ours), detail=detail(ours), seeds=numbers)
        )
    ours, theirs, chance = of("shoal", PONG, runs), of("sb3", PONG, runs), of("random", PONG, runs)
    luck = max((run["interval"][1] for run in chance if run["interval"]), default=None)
    title = f"{PONG}, no flags, {PONG_STEPS:,} steps: greedy held-out return, mean of {len(SEEDS)} seeds"
    note = "; ".join(filter(None, [wanting(ours), "the target is the upper end of random play's interval"]))
    more = {"shoal": detail(ours), "sb3": detail(theirs), "random": detail(chance)}
    found.append(Row(title, mean_of(ours), "return", luck, note=note, detail=more, seeds=[run["seed"] for run in ours]))
    whole = [run for run in ours if run["whole"]]
    name, share = f"{PONG}: CPU-seconds over those of SB3 at as many steps", stored.cpu_share(whole, theirs)
    found.append(Row(name, share.value, "x", None, "lower", note=share.note))
    return found


def of(who: str, task: str, runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the order of seeds."""
    return sorted((run for run in runs if (run["who"], run["task"]) == (who, task)), key=lambda run: int(run["seed"]))


def mean_of(runs: Sequence[dict[str, Any]]) -> float | None:
    """None until all seeds have had their whole budget."""
    whole = [run["mean"] for run in runs if run["whole"]]
    return statistics.fmean(whole) if len(whole) >= len(SEEDS) else None


def wanting(runs: Sequence[dict[str, Any]]) -> str:
    """What is still to be learnt, and how far the others have come."""
    whole = sum(run["whole"] for run in runs)
    partly = [f"seed {run['seed']} has {run['steps']:,} steps" for run in runs if not run["whole"]]
    return "" if whole >= len(SEEDS) else "; ".join([f"{whole} of {len(SEEDS)} seeds have their whole budget", *partly])


def detail(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Every seed's."""
    names = ("mean", "sampled", "training", "interval", "steps", "cpu_s")
    return {str(run["seed"]): {name: run[name] for name in names if name in run} for run in runs}


def keep(run: dict[str, Any]) -> None:
    """Into what is stored now, in place of the same seed's before."""
    runs = [one for one in stored.runs(NAME) if key(one) != key(run)] + [run]
    stored.write(NAME, f"python -m {PLACE} --store", summarise(current(runs)), runs=runs)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("what", nargs="*", help=f"{', '.join(WHO)}; default: all")
    parser.add_argument("--minutes", type=float, help="stop each training of shoal's after so long, and keep it")
    parser.add_argument("--seeds", nargs="+", type=int, choices=SEEDS, default=SEEDS, help="those of shoal's to train")
    given = parser.parse_args()
    if unknown := set(given.what) - set(WHO):
        parser.error(f"expected {', '.join(WHO)}, got {', '.join(sorted(unknown))}")
    if stored.storing(given):
        before = stored.runs(NAME)
        missing(before, given.what or WHO, stored.print_line, keep, given.minutes, given.seeds)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
