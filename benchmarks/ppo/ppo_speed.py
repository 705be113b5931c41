"""PPO end to end on CartPole, 64 environments, beside Stable-Baselines3 in one process.

python -m benchmarks.ppo.ppo_speed [--store]
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.contestants import factory
from benchmarks.harness.interleave import Contestant, PeerMissing, busy_note, interleave, ratios, speeds, summary
from benchmarks.harness.rows import Row

NUM_ENVS, ROLLOUT, MINIBATCH, EPOCHS = 64, 128, 2048, 4
THREADS = 1  # of torch, for both: 2,048 rows of 64-64 layers gain nothing from a second
ROUNDS, BLOCK_S = 7, 2.0
TARGETS = {"CartPole-v1": 2.0, "shoal/CartPole-v1": 3.5}  # times SB3's steps per second
_BY = "benchmarks.ppo.ppo_speed:"


def rows(say: Callable[[str], None]) -> list[Row]:
    """Steps per second of whole training: collecting, estimating, updating, recording."""
    missing = None
    with contextlib.ExitStack() as stack:
        contestants = [stack.enter_context(Contestant(task, _BY + "ShoalTraining", task=task)) for task in TARGETS]
        try:
            contestants.append(stack.enter_context(Contestant("sb3", _BY + "SB3Training")))
        except PeerMissing as error:
            missing = str(error)
        found = interleave(contestants, ROUNDS, BLOCK_S)
    medians = {one.name: statistics.median(speeds(found, one.name)) for one in contestants}
    per_cpu = {one.name: statistics.median(speeds(found, one.name, "cpu_s")) for one in contestants}
    say("PPO end to end: " + ", ".join(f"{who} {value:,.0f} steps/s" for who, value in medians.items()))
    found_rows = []
    for task, target in TARGETS.items():
        title = f"PPO end to end, {task}, {NUM_ENVS} environments: over SB3 in-process"
        if missing is not None:
            found_rows.append(Row(title, None, "x", target, note=missing))
            continue
        ours = next(one for one in contestants if one.name == task)
        detail = {
            "steps_per_s": {"shoal": round(medians[task]), "sb3": round(medians["sb3"])},
            "steps_per_cpu_s": {"shoal": round(per_cpu[task]), "sb3": round(per_cpu["sb3"])},
            "torch_threads": THREADS,
            "backend": ours.facts["backend"],
        }
        over, over_cpu = ratios(found, task, "sb3"), ratios(found, task, "sb3", "cpu_s")
        found_rows += [
            Row(title, statistics.median(over), "x", target, note=busy_note(found), detail={**detail, **summary(over)}),
            Row(f"{title}, per CPU-second", statistics.median(over_cpu), "x", detail=summary(over_cpu)),
        ]
    return found_rows


class ShoalTraining:
    """shoal's own loop, run folder, metrics and checkpoints included, an epoch at a time."""

    def __init__(self, task: str, env: dict[str, Any] | None = None, **options: Any) -> None:
        """Of a task, or of `env`'s synthetic one; `options` are those of `shoal train`."""
        import torch

        from shoal.config import TrainConfig, to_dict
        from shoal.journal import Journal
        from shoal.learn.learner import Learner
        from shoal.runs.folder import Run
        from shoal.stopping import Budget
        from shoal.tasks.registration import register
        from shoal.training import make_envs

        register()
        torch.set_num_threads(THREADS)
        self._folder = tempfile.TemporaryDirectory()
        config = TrainConfig(task=task).replace(
            num_envs=NUM_ENVS,
            rollout_steps=ROLLOUT,
            minibatch_size=MINIBATCH,
            update_epochs=EPOCHS,
            torch_threads=THREADS,
            steps=10**9,  # never reached: a block ends by the clock
            runs_dir=self._folder.name,
            **options,
        )
        said: list[str] = []
        self._envs = make_envs(config, None if env is None else factory(env), said.append)
        self._budget = Budget.of(config)
        self._run = Run.create(Path(self._folder.name), "bench", to_dict(config), "python -m benchmarks ppo", task)
        self._journal = Journal(self._run, config, self._budget, StringIO())
        self._learner = Learner(config, self._envs)
        self._learner.start()
        self._journal.open(self._learner)
        self.facts = {"backend": said[-1] if said else "", "torch_threads": torch.get_num_threads()}

    def block(self, seconds: float) -> int:
        learner, journal, began = self._learner, self._journal, self._learner.steps
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:  # as in shoal.train
            rollout = learner.collect()
            batch = learner.estimate(rollout)
            metrics = learner.update(batch, self._budget.progress(learner))
            journal.record(learner, metrics)
            journal.save_if_due(learner)
        return learner.steps - began

    def close(self) -> None:
        self._journal.close()
        self._envs.close()
        self._run.close()
        self._folder.cleanup()


class SB3Training:
    """SB3's PPO on its DummyVecEnv, the same network, rollout, minibatches and epochs."""

    def __init__(self) -> None:
        import torch
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env

        torch.set_num_threads(THREADS)
        self._model: Any = PPO(
            "MlpPolicy",
            make_vec_env("CartPole-v1", NUM_ENVS, seed=0),
            n_steps=ROLLOUT,
            batch_size=MINIBATCH,
            n_epochs=EPOCHS,
            policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
            device="cpu",
            seed=0,
        )
        self.facts = {"torch_threads": torch.get_num_threads()}

    def block(self, seconds: float) -> int:
        began = self._model.num_timesteps
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            self._model.learn(NUM_ENVS * ROLLOUT, reset_num_timesteps=False)
        return int(self._model.num_timesteps - began)

    def close(self) -> None:
        self._model.env.close()


if __name__ == "__main__":
    stored.main("benchmarks.ppo.ppo_speed", rows, __doc__)
