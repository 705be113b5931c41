"""Threads and memory: chosen by what there is to do, and said as it is."""

from __future__ import annotations

import subprocess
import sys

import pytest
from gymnasium import spaces

from shoal.config import PPOConfig, TrainConfig
from shoal.learn import sizing

_MEASURE = """
import functools, threading, time
import gymnasium as gym, numpy as np, torch
from gymnasium import spaces
torch.set_num_threads(1)
from shoal.config import TrainConfig
from shoal.learn.learner import Learner
from shoal.learn.sizing import rollout_bytes
from shoal.vector.serial import SerialVectorEnv

class Wide(gym.Env):
    action_space = spaces.Discrete(4)
    def __init__(self, size):
        self.observation_space = spaces.Box(-1, 1, (size,), np.float64)
        self.seen = self.observation_space.sample()
    def reset(self, *, seed=None, options=None):
        return self.seen, {}
    def step(self, action):
        return self.seen, 0.0, False, False, {}

def learner(size, num_envs, steps):
    config = TrainConfig().replace(num_envs=num_envs, rollout_steps=steps, normalise_observations=True)
    made = Learner(config, SerialVectorEnv([functools.partial(Wide, size)] * num_envs))
    made.start()
    return made

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

small = learner(4, 2, 8)
small.update(small.estimate(small.collect()), 0.0)
before, peak, done = resident(), 0, False

def watch():
    global peak
    while not done:
        peak = max(peak, resident())
        time.sleep(0.002)

thread = threading.Thread(target=watch)
thread.start()
one = learner(4000, 16, 200)
for _ in range(2):
    batch = one.estimate(one.collect())
    one.update(batch, 0.0)
done = True
thread.join()
expected = rollout_bytes(one.config, 16, one.env.single_observation_space, one.env.single_action_space)
print(expected / (peak - before))
"""


def test_the_memory_said_is_the_memory_taken() -> None:
    """Within a fifth, of the arrays and of what encoding and an update make besides."""
    done = subprocess.run([sys.executable, "-c", _MEASURE], capture_output=True, text=True, check=True)
    assert 0.8 < float(done.stdout) < 1.25


def test_environments_that_fit_do_fit() -> None:
    """And one more does not."""
    config = TrainConfig().replace(num_envs=1, memory_budget_gb=0.5)
    space, action = spaces.Box(-1, 1, (500,)), spaces.Discrete(3)
    most = sizing.most_envs(config, space, action)
    assert most > 10
    assert sizing.rollout_bytes(config, most, space, action) <= sizing.budget_bytes(config)
    assert sizing.rollout_bytes(config, most + 1, space, action) > sizing.budget_bytes(config)


def test_what_environments_take_themselves_counts() -> None:
    """Also where it does not grow with their number, as it is computed in chunks: then fewer fit, or none."""
    config = TrainConfig().replace(num_envs=1, memory_budget_gb=0.5)
    space, action = spaces.Box(-1, 1, (500,)), spaces.Discrete(3)

    def chunked(num_envs: int) -> int:
        return min(num_envs, 64) * 2**22

    alone, most = sizing.most_envs(config, space, action), sizing.most_envs(config, space, action, chunked)
    assert 64 < most < alone
    needed = [sizing.rollout_bytes(config, n, space, action) + chunked(n) for n in (most, most + 1)]
    assert needed[0] <= sizing.budget_bytes(config) < needed[1]
    assert sizing.most_envs(config, space, action, lambda num_envs: 2**30) == 0
    said = sizing.check_memory(config, space, action, chunked)
    assert said.endswith("of what its environments compute about 4.0 MB")
    with pytest.raises(ValueError, match=f"At most {most:,} environments would fit"):
        sizing.check_memory(config.replace(num_envs=2 * most), space, action, chunked)


def test_threads_follow_all_layers(monkeypatch) -> None:
    """The first layer counts, and it alone where there is but one."""
    monkeypatch.setattr(sizing, "usable_cores", lambda: 6)
    assert sizing.choose_threads(PPOConfig(hidden=(64, 64), minibatch_size=256), 4) == 1
    assert sizing.choose_threads(PPOConfig(hidden=(512,), minibatch_size=65536), 64) == 6
    assert sizing.choose_threads(PPOConfig(hidden=(64, 64), minibatch_size=256), 28_224) == 6
    assert sizing.choose_threads(PPOConfig(torch_threads=3), 28_224) == 3
