"""Kernels: N copies of a scalar environment, stepped by one compiled loop on the CPU or one CUDA launch.

`step_one` and `reset_one` below are the semantics of a compiled environment (clock, time limit, autoreset,
final observation, finiteness), written once; the CPU loop and the CUDA kernel only choose which environment
is whose. The placeholders `env_reset`, `env_step` and `env_observe` are replaced by the user's functions
when a kernel is built.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.compiled.link import Placeholder
from shoal.compiled.random import begin

WRONG_ACTION = -1  # what a kernel returns instead of the number of ended episodes; nothing has been stepped
NOT_FINITE = -2  # ... and NOT_FINITE - i when environment i gave NaN or infinity

SLOT, CONFIG = Placeholder(), Placeholder()  # the environment's dtypes; see build.Layout
CUDA_GRID: Any = Placeholder()  # numba.cuda.grid


def env_reset(state: Any, rng: Any, params: Any) -> Any:
    """Placeholder of the environment's `reset`."""


def env_step(state: Any, rng: Any, action: Any, params: Any) -> Any:
    """Placeholder of the environment's `step`."""


def env_observe(state: Any, out: Any, mask: Any, params: Any) -> Any:
    """Placeholder of the environment's `observe`."""


def reset_one(slots: Any, i: Any, config: Any) -> None:
    """Begin the next episode of environment i. Its state arrives zeroed: nothing leaks from the last."""
    key, episode = slots[i].key, slots[i].episode
    slots[i] = config.blank
    slot = slots[i]
    slot.key, slot.episode = key, episode + np.uint64(1)
    begin(slot.rng, key, episode)
    env_reset(slot.state, slot.rng, config.params)


def not_finite(values: Any) -> Any:
    """How many numbers are NaN or infinite. No early exit, so that the compiler can vectorise it."""
    count = 0
    for value in values.flat:
        count += value - value != 0
    return count


def step_one(slots: Any, i: Any, action: Any, obs: Any, mask: Any, final_obs: Any, final_mask: Any, config: Any) -> Any:
    """Step environment i and, where its episode ends, begin the next, at once or (NEXT_STEP) in the next step:
    (reward, terminated, truncated, finite).

    `obs` and `mask` are environment i's rows; the final rows are written only when an episode ends. A final
    observation that is not finite leaves the environment as it is, for the error message to look at; the
    other observations are checked by the caller, many at a time.
    """
    slot = slots[i]
    slot.stepping = True  # still set when the user's code raises, so the error can name the environment
    reward, terminated = env_step(slot.state, slot.rng, action, config.params)
    slot.stepping = False
    slot.clock += 1
    truncated = (not terminated) and 0 < config.limit <= slot.clock
    finite = True
    if (terminated or truncated) and config.next_step:
        slot.over = True
    elif terminated or truncated:
        env_observe(slot.state, final_obs, final_mask, config.params)
        finite = not config.check_finite or not_finite(final_obs) == 0
        if finite:
            reset_one(slots, i, config)
    env_observe(slots[i].state, obs, mask, config.params)
    return reward, terminated, truncated, finite


def reset_instead(
    slots: Any, i: Any, obs: Any, mask: Any, rewards: Any, terminated: Any, truncated: Any, config: Any
) -> None:
    """The step of an environment whose episode has ended (NEXT_STEP): begin the next one, whatever the action."""
    reset_one(slots, i, config)
    env_observe(slots[i].state, obs[i], mask[i], config.params)
    rewards[i], terminated[i], truncated[i] = 0, False, False


def wrong_actions(actions: Any, config: Any) -> Any:
    """How many numbers in `actions` lie outside [low, high]; NaN counts. Vectorised, as above."""
    wrong = 0
    if actions.ndim == 1:
        low, high = config.low[0], config.high[0]
        for action in actions.flat:
            wrong += not (low <= action <= high)
    else:
        for i in range(actions.shape[0]):
            for k, action in enumerate(actions[i].flat):
                wrong += not (config.low[k] <= action <= config.high[k])
    return wrong


def step_range(
    slot_bytes: Any,
    actions: Any,
    obs: Any,
    mask: Any,
    final_obs: Any,
    final_mask: Any,
    rewards: Any,
    terminated: Any,
    truncated: Any,
    config_bytes: Any,
    low: Any,
    high: Any,
) -> Any:
    """Step environments low..high-1. Returns how many episodes ended, or WRONG_ACTION, or NOT_FINITE - i.

    First all actions are looked at, not only this range's, so that a wrong one is found before any environment is
    stepped. Threads do that once, with an empty range, and then pass ~low for low: the actions are known to be fine.
    Records come as uint8 and are viewed in here: Numba takes 0.3 us longer to accept a structured array.
    """
    slots, config = slot_bytes.view(SLOT), config_bytes.view(CONFIG)[0]
    if low < 0:
        low = ~low
    elif wrong_actions(actions, config) > 0:
        return WRONG_ACTION
    ended, next_step = 0, config.next_step
    for i in range(low, high):
        if next_step and slots[i].over:
            reset_instead(slots, i, obs, mask, rewards, terminated, truncated, config)
            continue
        reward, is_terminated, is_truncated, finite = step_one(
            slots, i, actions[i], obs[i], mask[i], final_obs[i], final_mask[i], config
        )
        if not finite:
            return NOT_FINITE - i
        rewards[i], terminated[i], truncated[i] = reward, is_terminated, is_truncated
        ended += is_terminated or is_truncated
    if config.check_finite and not_finite(obs[low:high]) + not_finite(rewards[low:high]) > 0:
        for i in range(low, high):
            if not_finite(obs[i]) + not_finite(rewards[i : i + 1]) > 0:
                return NOT_FINITE - i
    return ended


def reset_range(slot_bytes: Any, chosen: Any, obs: Any, mask: Any, config_bytes: Any) -> Any:
    """Begin a new episode where `chosen` (bool[N]) says so, and observe all. Returns 0 or NOT_FINITE - i."""
    slots, config = slot_bytes.view(SLOT), config_bytes.view(CONFIG)[0]
    for i in range(slots.shape[0]):
        if chosen[i]:
            reset_one(slots, i, config)
        env_observe(slots[i].state, obs[i], mask[i], config.params)
        if config.check_finite and not_finite(obs[i]) > 0:
            return NOT_FINITE - i
    return 0


def cuda_step(
    slots: Any,
    actions: Any,
    obs: Any,
    mask: Any,
    final_obs: Any,
    final_mask: Any,
    rewards: Any,
    terminated: Any,
    truncated: Any,
    configs: Any,
    finite: Any,
) -> None:
    """`step_range` on a GPU, one thread an environment. Actions are not checked; `finite` is bool[N]."""
    i = CUDA_GRID(1)
    if i < slots.shape[0]:
        is_finite = True
        if slots[i].over:
            reset_instead(slots, i, obs, mask, rewards, terminated, truncated, configs[0])
        else:
            reward, is_terminated, is_truncated, is_finite = step_one(
                slots, i, actions[i], obs[i], mask[i], final_obs[i], final_mask[i], configs[0]
            )
            rewards[i], terminated[i], truncated[i] = reward, is_terminated, is_truncated
        finite[i] = is_finite and not_finite(obs[i]) + not_finite(rewards[i : i + 1]) == 0


def cuda_reset(slots: Any, chosen: Any, obs: Any, mask: Any, configs: Any) -> None:
    """`reset_range` on a GPU, one thread an environment."""
    i = CUDA_GRID(1)
    if i < slots.shape[0]:
        if chosen[i]:
            reset_one(slots, i, configs[0])
        env_observe(slots[i].state, obs[i], mask[i], configs[0].params)
