"""cage2's workflows as a domain: in which order should a defender fix hosts? `shoal search cage2`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from shoal.cage2 import narrate as view
from shoal.cage2.commands import where_line
from shoal.cage2.replay import write_step
from shoal.cage2.simulator.env import make_vec
from shoal.cage2.simulator.network import RULES
from shoal.cage2.traces import STEP
from shoal.cage2.workflows.clone import clone_follower
from shoal.cage2.workflows.orders import ORDERS, PLACE, UNITS, classes
from shoal.cage2.workflows.policy import Exam, load_policy, new_agent, order_config, ordered_env
from shoal.cage2.workflows.train import train_order, train_universal
from shoal.core.seeds import Stream
from shoal.core.statistics import HALF
from shoal.learn.policy import Agent
from shoal.search.bandit.orders import all_ranks
from shoal.search.domain import Domain, Fresh, Pull, Ranking, Say
from shoal.search.options import SearchConfig

WORDS = {
    "defender": "defender",
    "enterprise": "enterprise servers",
    "op_server": "operational server",
    "op_host": "operational hosts",
    "user": "user hosts",
}
CODES = {"defender": "D", "enterprise": "E", "op_server": "S", "op_host": "H", "user": "U"}
STEPS = 100
RANKING_EPISODES = 500
FRESH_EPISODES, FRESH_EXAM = 2000, 2  # exams 0 and 1 of a pull's seed are its verdict and its checks


@dataclass(frozen=True)
class Cage2SearchOptions:
    """The orders to search, and the red agent."""

    red: Literal["bline", "meander", "sleep", "mixed"] = "bline"
    """The red agent that pulls are trained and scored against."""
    orders: Literal["24", "120"] = "24"
    """One order of each class (24), or all orders of the five unit types (120): the defender's place changes nothing,
    so that five of them are alike."""
    alignment: Literal["lagrange", "reward"] = "lagrange"
    """How training is kept to an order: a multiplier on violations, or a reward for the rate of compliance."""


class Cage2(Domain):
    """A pull trains a defender under one order and scores the environment's own reward over 100 steps."""

    Options = Cage2SearchOptions
    judged = "fixes"
    look = "shoal cage2 play"

    def __init__(
        self, config: SearchConfig, red: str = "bline", orders: str = "24", alignment: str = "lagrange"
    ) -> None:
        for name, value, known in (
            ("red", red, ("bline", "meander", "sleep", "mixed")),
            ("orders", orders, ("24", "120")),
            ("alignment", alignment, ("lagrange", "reward")),
        ):
            if value not in known:
                raise ValueError(f"--{name}: expected {' | '.join(known)}, got {value!r}")
        self.config, self.red, self.alignment = config, red, alignment
        if orders == "120":
            self.numbers = list(range(len(ORDERS)))
            self.points = PLACE.astype(np.int64)
            kept: tuple[str, ...] = UNITS
        else:  # the members that put the defender last, as orders of the other four
            self.numbers = [members[0] for members in classes()]
            self.points = PLACE[self.numbers][:, 1:].astype(np.int64)
            kept = UNITS[1:]
            assert sorted(map(tuple, self.points)) == sorted(map(tuple, all_ranks(4)))
        chosen = [[unit for unit in ORDERS[number] if unit in kept] for number in self.numbers]
        self.things = [WORDS[unit] for unit in kept]
        self.key = ", ".join(f"{CODES[unit]} {WORDS[unit]}" for unit in kept)
        self.names = [" > ".join(WORDS[unit] for unit in order) for order in chosen]
        self.codes = ["".join(CODES[unit] for unit in order) for order in chosen]
        self.immaterial = [kept.index("defender")] if "defender" in kept else []
        self.played = where_line(RULES, "shoal")
        self.score = f"reward of a 100-step episode against {red}"

    def prepare(self, folder: Path, say: Say) -> Path | None:
        """A clone of the scripted follower, for every order at once: what a first pull starts from."""
        return clone_follower(folder, seed=self.config.seed, say=say)

    def pull(self, item: int, *, start: Path | None, seed: int, folder: Path, say: Say) -> Pull:
        """Train one workflow (docs/workflows.md) and score it on held-out episodes."""
        config = self.config
        found = train_order(
            self.numbers[item],
            red=self.red,
            start=start,
            seed=seed,
            folder=folder,
            num_envs=config.num_envs,
            episodes_per_env=config.episodes_per_env,
            min_episodes=config.min_episodes,
            update_every_steps=config.update_every_steps,
            compliance_threshold=config.compliance_threshold,
            alignment=self.alignment,
        )
        shares = ("compliance", "believed_compliance", "coverage", "wasted")
        kept = ("order", "episodes", "updates", "chosen_update", "stopped", "evaluation_episodes", "rules")
        details: dict[str, Any] = {name: asdict(getattr(found, name)) for name in shares}
        details |= {name: getattr(found, name) for name in kept}
        return Pull(found.mean, found.se, found.passed, found.weights, details)

    def score_again(self, item: int, weights: Path, seed: int) -> Fresh:
        """The policy on episodes of an exam of its own: neither of the pull's verdict nor of its checks."""
        env = ordered_env(self.numbers[item], self.red)
        score, conduct = Exam(env, FRESH_EPISODES, seed, FRESH_EXAM).grade(self._agent(env, weights))
        mean, _, high = score.bounds()
        return Fresh(mean, (high - mean) / HALF, FRESH_EPISODES, asdict(conduct.compliance))

    def ranking(self, folder: Path, say: Say) -> Ranking:
        """One policy trained on orders drawn for each episode, then every order played by it on the same episodes."""
        say("training one policy on all orders")
        base = self.prepare(folder.parent / "base", say)
        weights = train_universal(folder / "policy", red=self.red, start=base, seed=self.config.seed, say=say)
        means, errors, details = [], [], []
        for place, number in enumerate(self.numbers):
            env = ordered_env(number, self.red)
            agent = self._agent(env, weights)
            score, conduct = Exam(env, RANKING_EPISODES, self.config.seed).grade(agent)
            assert score.mean is not None
            assert score.high is not None
            means.append(score.mean)
            errors.append((score.high - score.mean) / HALF)
            details.append({"compliance": asdict(conduct.compliance), "coverage": asdict(conduct.coverage)})
            if (place + 1) % 24 == 0:
                say(f"ranked {place + 1} of {len(self.numbers)} orders")
        source = f"one policy trained on all orders, {RANKING_EPISODES} episodes each"
        return Ranking(source, means, errors, details)

    def episode(self, item: int, weights: Path) -> tuple[str, Any]:
        """Who held what, who did what, and what it cost."""
        from shoal.cage2.figures import episode_figure

        number = self.numbers[item]
        agent = self._agent(ordered_env(number, self.red), weights)
        # One step longer than shown, so that the last state can be read before the next episode replaces it.
        envs = make_vec(
            1, stream=Stream.EVALUATE, horizon=STEPS + 1, red=self.red, features="memory", mask="useful", order=number
        )
        observations, _ = envs.reset(seed=self.config.seed)
        game = envs.state["game"].view(np.recarray)[0]
        steps = np.zeros(STEPS, STEP).view(np.recarray)
        for t in range(STEPS):
            action = _act(agent, observations)
            observations, rewards, *_ = envs.step(action)
            write_step(game, int(action[0]), -int(np.rint(rewards[0] * 10)), steps[t])
        envs.close()
        red = self.red if self.red != "mixed" else "the red agent drawn"
        episode = view.Episode(steps.view(np.ndarray), red)
        text = f"{self.names[item]} against {red}, a held-out episode: {episode.total:.1f} over {STEPS} steps."
        return text, episode_figure(view.picture(episode))

    def _agent(self, env: Any, weights: Path) -> Agent:
        agent = new_agent(env, order_config(seed=self.config.seed, warm=True).ppo)
        load_policy(weights, agent, env.features)
        return agent


@torch.inference_mode()
def _act(agent: Agent, observations: Any) -> Any:
    rows = [torch.from_numpy(np.asarray(part)) for part in agent.features.layout.take_apart(observations)]
    return agent.kind.to_env(agent.kind.mode(agent.distribution(rows).cpu()).numpy())
