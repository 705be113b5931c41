"""Train a defender that keeps to one workflow, or to all of them: what a pull of the search does."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.cage2.simulator.network import RULES
from shoal.cage2.workflows.align import Gently, Rows, Trial, one_thread
from shoal.cage2.workflows.aligned import OrderedVectorEnv
from shoal.cage2.workflows.alignment import Alignment
from shoal.cage2.workflows.conduct import Share
from shoal.cage2.workflows.orders import Order, name_of, number_of
from shoal.cage2.workflows.policy import MIX, STEPS, Exam, load_policy, order_config, ordered_env, save_policy
from shoal.cage2.workflows.run import finish, order_run, policy_meta
from shoal.callbacks import Callback, Training
from shoal.core.statistics import HALF
from shoal.learn.learner import Learner
from shoal.runs.disk import replace_atomically, to_json
from shoal.stopping import Epochs, Update
from shoal.training import loop

Say = Callable[[str], None]

RESULT, METRICS = "result.json", "metrics.jsonl"


@dataclass(frozen=True)
class OrderResult:
    """A trained order on held-out episodes of 100 steps. Shares are means over episodes with 95 % intervals."""

    order: str
    number: int
    red: str
    start: str  # scratch, or the folder of the weights that training started from
    seed: int
    mean: float  # of the environment's own reward, an episode
    se: float
    low: float
    high: float
    evaluation_episodes: int
    compliance: Share
    believed_compliance: Share
    coverage: Share
    wasted: Share
    passed: bool  # the lower end of compliance reaches the threshold
    compliance_threshold: float
    alignment: str
    episodes: int  # trained, over all environments
    episodes_per_env: float
    updates: int
    chosen_update: int  # the update whose weights were kept; 0: the start was not beaten
    stopped: str  # compliance, or budget
    weights: str  # folder
    cpu_s: float
    rules: str = RULES

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def train_order(
    order: str | int | Order,
    *,
    red: str = "bline",
    start: str | Path | None = None,
    seed: int = 0,
    folder: str | Path,
    num_envs: int = 25,
    episodes_per_env: int = 50,
    min_episodes: int = 10,
    update_every_steps: int = 100,
    compliance_threshold: float = 0.95,
    alignment: str | Alignment = "lagrange",
    early_stop: bool = True,
    learning_rate: float = 0.002,
    mask: str = "useful",
    check_every: int = 5,
    validation_episodes: int = 400,
    evaluation_episodes: int = 500,
    say: Say = lambda text: None,
) -> OrderResult:
    """Train one order and score it on held-out episodes; everything is kept in `folder`, a run like others.

    `start` is the folder of weights to start from (a clone, a universal policy, another order's), None a fresh
    network. Every `check_every` updates after `min_episodes` the policy plays validation episodes, greedily. It stops
    there as soon as the lower end of the compliance interval reaches the threshold and the reward is at least that of
    the start; `early_stop=False` spends the whole budget. The weights kept are those of the best check: compliant
    first, then by reward. The score and the verdict come from other episodes, which nothing was chosen by.
    """
    number = number_of(order)
    folder = Path(folder)
    began = time.process_time()
    aligned = _alignment(alignment, compliance_threshold)
    env = ordered_env(number, red, mask=mask)
    config = order_config(
        seed=seed, warm=start is not None, num_envs=num_envs, update_every_steps=update_every_steps,
        learning_rate=learning_rate,
    )  # fmt: skip
    updates = max(1, episodes_per_env * STEPS // update_every_steps)
    config = config.replace(steps=updates * num_envs * update_every_steps)
    played = {"horizon": (STEPS,), "red": red, "mix": MIX, "mask": mask, "order": name_of(number)}
    with order_run(folder, config, alignment=aligned.method, **played) as run, one_thread():
        envs = OrderedVectorEnv(env, num_envs, alignment=aligned)
        learner = Learner(config, envs)
        if start is not None:
            load_policy(start, learner.agent, env.features)

        def due(done: int) -> bool:
            return done * update_every_steps >= min_episodes * STEPS and (done % check_every == 0 or done == updates)

        exam = Exam(env, validation_episodes, seed, 1)
        trial = Trial(exam, learner, compliance_threshold, due, early=early_stop)
        if start is not None:
            trial.check(0)
        reason = _learn(learner, updates, start is not None, trial, Rows(folder / METRICS, lambda row: say(_line(row))))
        stopped, done = "compliance" if reason == "compliance" else "budget", learner.epoch
        trial.restore()
        weights = save_policy(
            run.checkpoints, learner.agent, trial.chosen,
            policy_meta(env, trial.chosen, learner.steps, order=name_of(number), red=red, seed=seed, mask=mask),
        )  # fmt: skip
        score, conduct = Exam(env, evaluation_episodes, seed, 0).grade(learner.agent)
        episodes, obedience = learner.tracker.completed, conduct.compliance.low
        mean, low, high = score.bounds()
        result = OrderResult(
            order=name_of(number), number=number, red=red, start="scratch" if start is None else str(start), seed=seed,
            mean=mean, se=(high - mean) / HALF, low=low, high=high,
            evaluation_episodes=evaluation_episodes, compliance=conduct.compliance,
            believed_compliance=conduct.believed_compliance, coverage=conduct.coverage, wasted=conduct.wasted,
            passed=obedience is not None and obedience >= compliance_threshold,
            compliance_threshold=compliance_threshold, alignment=aligned.method, episodes=episodes,
            episodes_per_env=episodes / num_envs, updates=done, chosen_update=trial.chosen, stopped=stopped,
            weights=str(weights), cpu_s=time.process_time() - began,
        )  # fmt: skip
        replace_atomically(folder / RESULT, to_json(result.to_json()))
        finish(run, f"ended by {stopped} after {done} updates, the weights of update {trial.chosen} were kept")
    return result


def train_universal(
    folder: str | Path,
    *,
    red: str = "bline",
    start: str | Path | None = None,
    seed: int = 0,
    steps: int = 1_500_000,
    num_envs: int = 500,
    learning_rate: float = 0.001,
    minibatch_size: int = 5_000,
    alignment: str | Alignment = "lagrange",
    mask: str = "useful",
    say: Say = lambda text: None,
) -> Path:
    """One policy for all orders: an order is drawn for each episode. Returns the folder of its weights."""
    folder = Path(folder)
    aligned = _alignment(alignment, 0.95)
    env = ordered_env("drawn", red, mask=mask)
    config = order_config(
        seed=seed, warm=start is not None, num_envs=num_envs, learning_rate=learning_rate,
        minibatch_size=minibatch_size,
    )  # fmt: skip
    updates = max(1, math.ceil(steps / (num_envs * STEPS)))
    config = config.replace(steps=updates * num_envs * STEPS)
    played = {"horizon": (STEPS,), "red": red, "mix": MIX, "mask": mask, "order": "drawn"}
    with order_run(folder, config, alignment=aligned.method, **played) as run, one_thread():
        envs = OrderedVectorEnv(env, num_envs, alignment=aligned)
        learner = Learner(config, envs)
        if start is not None:
            load_policy(start, learner.agent, env.features)
        _learn(learner, updates, start is not None, Rows(folder / METRICS, lambda row: say(_line(row))))
        meta = policy_meta(env, learner.epoch, learner.steps, order="drawn", red=red, seed=seed, mask=mask)
        weights = save_policy(run.checkpoints, learner.agent, learner.epoch, meta)
        finish(run, f"ended after {updates} updates")
        return weights


def _learn(learner: Learner, updates: int, warm: bool, *hooks: Callback) -> str:
    """THE loop, so many updates of it; returns why it ended."""
    learner.start()
    limit = Epochs(updates, Update.of(learner.config))
    return loop(Training(learner, limit), Gently(updates, warm=warm), *hooks)


def _alignment(given: str | Alignment, threshold: float) -> Alignment:
    if isinstance(given, Alignment):
        return given
    return Alignment.named(given, threshold)


def _line(row: dict[str, Any]) -> str:
    """A row for people."""
    parts = [f"update {row['update']:>3}"]
    for label, key, form in (
        ("return", "workflow/return", ".2f"), ("compliance", "workflow/compliance", ".3f"),
        ("coverage", "workflow/coverage", ".3f"), ("wasted", "workflow/wasted", ".3f"),
        ("weight", "workflow/weight", ".2f"), ("validated", "validation/return", ".2f"),
        ("compliance low", "validation/compliance_low", ".3f"),
    ):  # fmt: skip
        if row.get(key) is not None:
            parts.append(f"{label} {row[key]:{form}}")
    return " | ".join(parts)
