"""PPO on pictures, 84 x 84 x 4 bytes, 64 environments of 50 us, beside Stable-Baselines3: speed, and peak memory.

An environment gives one grey picture a step; both sides stack the last four as a user of either would, shoal by
`--frame-stack 4`, SB3 by its `VecFrameStack`. The network, the settings and the number of threads are the same.

python -m benchmarks.ppo.cnn_speed [--store]
"""

from __future__ import annotations

import contextlib
import functools
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.interleave import (
    Contestant,
    PeerMissing,
    busy_note,
    in_fresh_process,
    interleave,
    ratios,
    speeds,
    summary,
)  # fmt: skip
from benchmarks.harness.rows import Row
from benchmarks.harness.synthetic import SyntheticFrames

NUM_ENVS, ROLLOUT, MINIBATCH, EPOCHS, COST_US, STACK = 64, 128, 256, 4, 50.0, 4
THREADS = 1  # of torch, for both
ROUNDS, BLOCK_S = 3, 1.0  # a block is one rollout with its update, which takes longer than that
SPEED, MEMORY = 1.5, 0.5  # targets: times SB3's steps per second, and of its peak memory
_BY = "benchmarks.ppo.cnn_speed:"
_SETTINGS = f"{NUM_ENVS} environments, 84 x 84 x 4 frames"


def rows(say: Callable[[str], None]) -> list[Row]:
    """Steps per second and memory of whole training: collecting, estimating, updating."""
    try:
        memory = {who: in_fresh_process(f"{_BY}memory", 3600.0, who=who) for who in ("ShoalTraining", "SB3Training")}
        with contextlib.ExitStack() as stack:
            ours, theirs = (
                stack.enter_context(Contestant(name, _BY + who))
                for name, who in (("shoal", "ShoalTraining"), ("sb3", "SB3Training"))
            )
            found = interleave([ours, theirs], ROUNDS, BLOCK_S)
    except PeerMissing as error:
        return [Row(f"PPO on pictures, {_SETTINGS}: over SB3 in-process", None, "x", SPEED, note=str(error))]
    over, over_cpu = ratios(found, "shoal", "sb3"), ratios(found, "shoal", "sb3", "cpu_s")
    detail: dict[str, Any] = {
        "steps_per_s": {who: round(statistics.median(speeds(found, who)), 1) for who in ("shoal", "sb3")},
        "steps_per_cpu_s": {who: round(statistics.median(speeds(found, who, "cpu_s")), 1) for who in ("shoal", "sb3")},
        "torch_threads": THREADS,
        "backend": ours.facts["backend"],
    }
    say(f"PPO on pictures: {detail}")
    mine, other = memory["ShoalTraining"], memory["SB3Training"]
    megabytes = {
        who: {name: round(value / 2**20) for name, value in one.items()}
        for who, one in (("shoal", mine), ("sb3", other))
    }
    name = f"PPO on pictures, {_SETTINGS}"
    speed, after = f"{name}: over SB3 in-process", "beside what was there once its packages were imported"
    whole, part = mine["peak"] / other["peak"], (mine["peak"] - mine["imported"]) / (other["peak"] - other["imported"])
    note = "of the whole process, with Python, torch and workers"
    return [
        Row(speed, statistics.median(over), "x", SPEED, note=busy_note(found), detail={**detail, **summary(over)}),
        Row(f"{speed}, per CPU-second", statistics.median(over_cpu), "x", detail=summary(over_cpu)),
        Row(f"{name}: peak memory over SB3's", whole, "x", MEMORY, "lower", note=note, detail={"MB": megabytes}),
        Row(f"{name}: peak memory over SB3's, {after}", part, "x", None, "lower"),
    ]


def memory(who: str) -> dict[str, int]:
    """In a process of its own: bytes after the imports, and at the peak of two rollouts with their updates."""
    import gymnasium  # noqa: F401
    import torch  # noqa: F401

    if who == "SB3Training":  # each what its user has in memory
        import stable_baselines3  # noqa: F401
    else:
        import shoal.training  # noqa: F401

    imported = _kilobytes("self", "VmRSS")
    training: Any = {"ShoalTraining": ShoalTraining, "SB3Training": SB3Training}[who](epochs=1)  # more take no more
    for _ in range(2):
        training.block(0.001)
    workers = sum(_private_kilobytes(child) for child in _children())
    peak = _kilobytes("self", "VmHWM") + workers
    training.close()
    return {"imported": 1024 * imported, "peak": 1024 * peak, "workers": 1024 * workers}


def _kilobytes(process: str, name: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _children() -> list[str]:
    """All that descend from this process."""
    found, wave = [], [str(os.getpid())]
    while wave:
        tasks = [task for one in wave for task in Path(f"/proc/{one}/task").glob("*/children")]
        wave = [child for task in tasks for child in task.read_text().split()]
        found += wave
    return found


def _private_kilobytes(process: str) -> int:
    """What nobody shares with it: the frames of a rollout are counted once, where they are learnt from."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


class ShoalTraining:
    """shoal's own learner with the environments that `--backend auto` picks."""

    def __init__(self, epochs: int = EPOCHS) -> None:
        import torch

        from shoal.config import TrainConfig
        from shoal.learn.learner import Learner
        from shoal.training import make_envs

        torch.set_num_threads(THREADS)
        config = TrainConfig().replace(
            num_envs=NUM_ENVS,
            rollout_steps=ROLLOUT,
            minibatch_size=MINIBATCH,
            update_epochs=epochs,
            hidden=(),
            network="shared",
            torch_threads=THREADS,
            frame_stack=STACK,
        )
        said: list[str] = []
        self._envs = make_envs(config, functools.partial(SyntheticFrames, COST_US), said.append)
        self._learner = Learner(config, self._envs)
        self._learner.start()
        self.facts = {"backend": said[-1] if said else "", "torch_threads": torch.get_num_threads()}

    def block(self, seconds: float) -> int:
        learner, began = self._learner, self._learner.steps
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            learner.update(learner.estimate(learner.collect()), 0.0)
        return learner.steps - began

    def close(self) -> None:
        self._envs.close()


class SB3Training:
    """SB3's PPO on its DummyVecEnv, the same network, rollout, minibatches and epochs."""

    def __init__(self, epochs: int = EPOCHS) -> None:
        import torch
        from stable_baselines3 import PPO
        from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

        torch.set_num_threads(THREADS)
        make = functools.partial(SyntheticFrames, COST_US)
        self._model: Any = PPO(
            "CnnPolicy",
            VecFrameStack(DummyVecEnv([make] * NUM_ENVS), STACK),
            n_steps=ROLLOUT,
            batch_size=MINIBATCH,
            n_epochs=epochs,
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
    stored.main("benchmarks.ppo.cnn_speed", rows, __doc__)
