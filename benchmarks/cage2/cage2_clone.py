"""What PPO makes of a clone of the decoy-first heuristic: imitate it, train on, score. Not from scratch, and labelled.

    python -m benchmarks.cage2.cage2_clone [--seeds 101 102 103] [--work DIR] [--store]

With --store it stores after every seed and goes on where it was stopped. Without, it shows what is stored.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.cage2.defenders.play import Defender
from shoal.cage2.evaluate import leaderboard
from shoal.cage2.simulator.env import make
from shoal.compiled.vector import CompiledVectorEnv
from shoal.core.seeds import Stream, sequence
from shoal.learn.policy import Agent
from shoal.tasks.presets import config_for
from shoal.training import train

PLACE, NAME, HEURISTIC, EPISODES = "benchmarks.cage2.cage2_clone", "cage2_clone", "decoy-first", 4000
SEEDS = (101, 102, 103)
NUM_ENVS, EPISODE_STEPS = 512, 100
ROUNDS = ((3, False, 1500), (2, True, 1000), (2, True, 1500))  # (episodes an environment, the clone plays, fit steps)
KEPT = ("obs", "mask", "action", "allowed", "value")
BATCH, RATE, LAST_RATE = 2048, 2e-3, 1e-5
SOFTENED = 0.5  # factor on the logits: a clone that is certain of everything does not explore
TRAINING: dict[str, Any] = {
    "normalise_rewards": False,  # the clone's value network knows the rewards as they are
    "policy_epochs": 2,
    "value_epochs": 3,
    "learning_rate": 5e-4,
    "gae_lambda": 0.98,
    "entropy_coef": 0.0,
    "steps": 6_000_000,
}


def lesson(agent: Agent | None, episodes: int, seed: int, kept: dict[str, list[torch.Tensor]]) -> None:
    """Whole episodes of the heuristic, or with `agent` of the clone; what the heuristic would do, and returns."""
    # Red agents are mixed as in training; episodes are of 100 steps, of which the shorter ones are beginnings. The
    # value network therefore fears too much for the rest of a short episode; training corrects that.
    envs = CompiledVectorEnv(make(horizon=EPISODE_STEPS), NUM_ENVS)
    teacher = Defender(HEURISTIC, NUM_ENVS, seed)
    noise = torch.Generator().manual_seed(seed)
    observations, _ = envs.reset(seed=seed)
    begun = np.ones(NUM_ENVS, np.bool_)
    gamma = config_for("cage2").ppo.gamma
    for _ in range(episodes):
        rewards = np.zeros((EPISODE_STEPS, NUM_ENVS), np.float32)
        for t in range(EPISODE_STEPS):
            obs, mask = observations["obs"], observations["action_mask"]
            actions = teacher.act(obs[:, :52], begun=begun).copy()
            allowed = mask[np.arange(NUM_ENVS), actions] != 0
            for name, value in (("obs", obs), ("mask", mask), ("action", actions), ("allowed", allowed)):
                kept[name].append(torch.from_numpy(value.copy()))
            if agent is not None:
                leaves = agent.features.layout.take_apart(observations)
                with torch.inference_mode():
                    params = agent.distribution([torch.from_numpy(np.asarray(leaf)) for leaf in leaves])
                    actions = agent.kind.sample(params, agent.kind.noise((NUM_ENVS,), noise)).numpy()
                teacher.took(actions)
            observations, rewards[t], terminated, truncated, _ = envs.step(actions)
            begun = terminated | truncated
        value, values = np.zeros(NUM_ENVS, np.float32), []
        for t in reversed(range(EPISODE_STEPS)):
            value = rewards[t] + gamma * value
            values.append(torch.from_numpy(value))
        kept["value"] += reversed(values)
    envs.close()


def fit(agent: Agent, kept: dict[str, list[torch.Tensor]], steps: int, done: int, total: int, seed: int) -> float:
    """Gradient steps on all lessons so far; the share of actions in the last of them that the clone gets right."""
    obs, mask, action, allowed, value = (torch.cat(kept[name]) for name in KEPT)
    network: Any = agent.network.train()
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE, fused=True)
    generator, right = torch.Generator().manual_seed(seed), []
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = RATE + (LAST_RATE - RATE) * (done + step) / total
        rows = torch.randint(len(action), (BATCH,), generator=generator)
        features = obs[rows].float()
        logits = agent.kind.mask(network.policy(features), mask[rows] != 0)
        loss = (torch.nn.functional.cross_entropy(logits, action[rows], reduction="none") * allowed[rows]).mean()
        error = (network.value(features) - value[rows]).square().mean()
        optimiser.zero_grad(set_to_none=True)
        (loss + 0.01 * error).backward()
        optimiser.step()
        if step >= steps - 100:
            right.append((logits.detach().argmax(1) == action[rows]).float().mean())
    network.eval()
    return float(torch.stack(right).mean())


def clone(seed: int) -> tuple[Agent, float]:
    """A network that plays as the heuristic does."""
    config = config_for("cage2", seed=seed)
    env = make()
    agent = Agent(env.observation_space, env.action_space, config.ppo, init_seed=seed)
    kept: dict[str, list[torch.Tensor]] = {name: [] for name in KEPT}
    done, right = 0, 0.0
    for number, (episodes, own, steps) in enumerate(ROUNDS):
        word = int(sequence(seed, Stream.TRAIN, 7, number).generate_state(1, np.uint32)[0] >> 1)
        lesson(agent if own else None, episodes, word, kept)
        right = fit(agent, kept, steps, done, sum(steps for *_, steps in ROUNDS), word)
        done += steps
    with torch.no_grad():
        head: Any = agent.network.policy_head
        head.weight *= SOFTENED
        head.bias *= SOFTENED
    return agent, right


def learn(seed: int, work: Path) -> dict[str, Any]:
    """Clone, train on, score the clone and the end."""
    began, cpu = time.perf_counter(), time.process_time()
    torch.set_num_threads(2)
    agent, right = clone(seed)
    cloned_s = time.perf_counter() - began
    stored.print_line(f"seed {seed}: {100 * right:.2f} % of the heuristic's actions after {cloned_s:.0f} s")
    result = train("cage2", network=agent.network, seed=seed, runs_dir=str(work), stream=StringIO(), keep=1000,
                   save_interval=10**6, **TRAINING)  # fmt: skip
    before = leaderboard(result.run, episodes=EPISODES, seed=seed, epoch=0)
    after = leaderboard(result.run, episodes=EPISODES, seed=seed)
    stored.print_line(f"seed {seed}: clone {before['sum']['mean']:.2f}, trained {after['sum']['mean']:.2f}")
    return {
        "seed": seed, "clone_right": right, "clone_sum": before["sum"], "sum": after["sum"], "cells": after["cells"],
        "rules": after["rules"], "episodes": EPISODES, "steps": result.steps, "clone_s": round(cloned_s, 1),
        "wall_s": round(time.perf_counter() - began, 1), "cpu_s": round(time.process_time() - cpu, 1),
        "settings": settings(), **stored.stamp(),
    }  # fmt: skip


def settings() -> dict[str, Any]:
    """What a stored run was made with."""
    return {**TRAINING, "rounds": [list(one) for one in ROUNDS]}


def summarise(runs: Sequence[dict[str, Any]]) -> list[Row]:
    """Means of the seeds, before and after PPO."""
    note = ", ".join(f"seed {run['seed']}: {run['sum']['mean']:.2f}" for run in runs)
    before = ", ".join(f"{run['clone_sum']['mean']:.2f}" for run in runs)
    sums = [run["sum"]["mean"] for run in runs]
    return [
        Row(f"cage2, clone of {HEURISTIC} trained on by PPO, mean of the seeds", float(np.mean(sums)), "sum", None,
            note=note),
        Row(f"cage2, clone of {HEURISTIC} before PPO, mean of the seeds",
            float(np.mean([run["clone_sum"]["mean"] for run in runs])), "sum", None, note=before),
    ]  # fmt: skip


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result; with `full` every seed is cloned and trained again."""
    if full:
        with tempfile.TemporaryDirectory() as folder:
            return summarise([learn(seed, Path(folder)) for seed in SEEDS])
    result = stored.read(NAME)
    runs = [run for run in result["runs"] if run["settings"] == settings()] if result else []
    if result is None or not runs:
        title = f"cage2, clone of {HEURISTIC} trained on by PPO, mean of the seeds"
        return [Row(title, None, "sum", note=f"nothing stored for the present settings: python -m {PLACE} --store")]
    return stored.as_stored(summarise(runs), result)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "shoal-cage2-clone")
    given = parser.parse_args()
    if stored.storing(given):
        runs = [run for run in stored.runs(NAME) if run["settings"] == settings()]
        for seed in given.seeds:
            if seed not in {run["seed"] for run in runs}:
                runs.append(learn(seed, given.work))
                stored.write(NAME, f"python -m {PLACE} --store", summarise(runs), runs=runs)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
