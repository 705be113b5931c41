"""A network that learns to be the scripted follower, for every order at once: where training may start from.

DAgger (Ross, Gordon & Bagnell 2011): first the follower plays, with some random actions mixed in, then the network
itself; the follower says each time what it would have done. The value network learns the returns on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shoal.cage2.simulator.machine import specialised
from shoal.cage2.simulator.network import SLEEP
from shoal.cage2.workflows.aligned import OrderedVectorEnv
from shoal.cage2.workflows.conduct import label_states
from shoal.cage2.workflows.follower import TEMPERS
from shoal.cage2.workflows.policy import (
    GAMMA,
    REWARD_SCALE,
    derived_seed,
    load_policy,
    new_agent,
    order_config,
    ordered_env,
    save_policy,
)
from shoal.core.seeds import Stream, sequence
from shoal.learn.policy import Agent
from shoal.runs import checkpoint

NUM_ENVS = 480
ROUNDS = ((4, False, 600), (2, True, 500), (2, True, 500), (2, True, 500))  # (rollouts, the network plays, fit steps)
BATCH = 1024
RATE, LAST_RATE = 2e-3, 1e-5
MISTAKES = (0.02, 0.05, 0.1, 0.2)  # shares of random actions in half of the environments
SOFTENED = 0.5  # factor on the logits afterwards: a clone that is certain of everything does not explore


def clone_follower(
    folder: str | Path,
    *,
    seed: int = 0,
    temper: str = "thrifty",
    red: str = "mixed",
    rounds: tuple[tuple[int, bool, int], ...] = ROUNDS,
    num_envs: int = NUM_ENVS,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """Weights of a network that follows any order as the scripted follower does; made once, then found in `folder`.

    Takes about half a minute on one core.
    """
    if temper not in ("eager", "thrifty"):
        raise ValueError(f"temper: expected eager or thrifty, got {temper!r}")
    folder = Path(folder)
    env = ordered_env("drawn", red)
    made = {"clone_of": temper, "red": red, "seed": seed, "rounds": [list(r) for r in rounds], "num_envs": num_envs,
            "features": env.features}  # fmt: skip
    agent = new_agent(env, order_config(seed=seed, warm=False).ppo, seed)
    if checkpoint.epochs(folder):
        found = load_policy(folder, agent, env.features)
        if {name: found.get(name) for name in made} == made:
            return folder
        raise ValueError(f"{folder} holds another clone: expected {made}, got {found}. Give another folder")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        lesson = _Lesson(env, num_envs, seed, TEMPERS.index(temper))
        total = sum(steps for _, _, steps in rounds)
        done = 0
        for rollouts, own, steps in rounds:
            lesson.play(rollouts, agent if own else None)
            right = _fit(agent, lesson, steps, done, total, derived_seed(seed, Stream.SHUFFLE, done))
            done += steps
            say(f"clone: {lesson.size:,} examples, {100 * right:.2f} % right")
        with torch.no_grad():
            head: Any = agent.network.policy_head
            head.weight *= SOFTENED
            head.bias *= SOFTENED
        return save_policy(folder, agent, 0, made)
    finally:
        torch.set_num_threads(threads)


class _Lesson:
    """Observations, masks, what the follower would do, and returns: [example, ...], added to by `play`."""

    def __init__(self, env: Any, num_envs: int, seed: int, temper: int) -> None:
        self.envs, self.steps = OrderedVectorEnv(env, num_envs), int(env.horizons[0])
        self.observations, _ = self.envs.reset(seed=derived_seed(seed, Stream.TRAIN, 1))
        self.rng = np.random.default_rng(sequence(seed, Stream.ACT, 1))
        self.noise = torch.Generator().manual_seed(derived_seed(seed, Stream.ACT, 2))
        self.temper, self.labels = temper, np.zeros(num_envs, np.int64)
        self.label = specialised(label_states, self.envs.state, temper, self.labels)
        # Half of the environments see play without mistakes; the value learns from these alone.
        self.mistakes = np.where(np.arange(num_envs) % 2 == 0, 0.0, self.rng.choice(MISTAKES, num_envs))
        self.rows: dict[str, list[Any]] = {"obs": [], "mask": [], "action": [], "value": [], "pure": []}
        self.size = 0

    def play(self, rollouts: int, agent: Agent | None) -> None:
        """Whole episodes of the follower (or, with `agent`, of the network), labelled by the follower."""
        num_envs, steps = self.envs.num_envs, self.steps
        for _ in range(rollouts):
            rewards = np.zeros((steps, num_envs), np.float32)
            for t in range(steps):
                obs, mask = self.observations["obs"], self.observations["action_mask"]
                self.label(self.envs.state, self.temper, self.labels)
                self.labels[mask[np.arange(num_envs), self.labels] == 0] = SLEEP
                for name, value in (("obs", obs), ("mask", mask), ("action", self.labels)):
                    self.rows[name].append(torch.from_numpy(value.copy()))
                self.observations, rewards[t], *_ = self.envs.step(self._actions(obs, mask, agent))
            value = np.zeros(num_envs, np.float32)
            values = []
            for t in reversed(range(steps)):
                value = rewards[t] + GAMMA * value
                values.append(torch.from_numpy((REWARD_SCALE * value).astype(np.float32)))
            self.rows["value"] += reversed(values)
            self.rows["pure"] += [torch.from_numpy(self.mistakes == 0)] * steps
            self.size += steps * num_envs

    @torch.inference_mode()
    def _actions(self, obs: Any, mask: Any, agent: Agent | None) -> Any:
        actions = self.labels.copy()
        if agent is not None:
            leaves = agent.features.layout.take_apart({"obs": obs, "action_mask": mask})
            params = agent.distribution([torch.from_numpy(np.asarray(leaf)) for leaf in leaves])
            actions = agent.kind.sample(params, agent.kind.noise((len(actions),), self.noise)).numpy().copy()
        wrong = self.rng.random(len(actions)) < self.mistakes
        anything = (self.rng.random(mask.shape) * mask).argmax(1)
        actions[wrong] = anything[wrong]
        return actions


def _fit(agent: Agent, lesson: _Lesson, steps: int, done: int, total: int, seed: int) -> float:
    """Gradient steps on random batches of the whole lesson; returns the share of right actions at the end."""
    obs, mask, action, value, pure = (
        torch.cat(lesson.rows[name]) for name in ("obs", "mask", "action", "value", "pure")
    )
    network: Any = agent.network
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE, fused=True)
    generator = torch.Generator().manual_seed(seed)
    right: list[torch.Tensor] = []
    network.train()
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = RATE + (LAST_RATE - RATE) * (done + step) / total
        rows = torch.randint(len(action), (BATCH,), generator=generator)
        features = obs[rows].float()
        logits = agent.kind.mask(network.policy(features), mask[rows] != 0)
        loss = torch.nn.functional.cross_entropy(logits, action[rows])
        error = (network.value(features) - value[rows]).square() * pure[rows]
        optimiser.zero_grad(set_to_none=True)
        (loss + error.mean()).backward()
        optimiser.step()
        if step >= steps - 100:
            right.append((logits.detach().argmax(1) == action[rows]).float().mean())
    network.eval()
    return float(torch.stack(right).mean())
