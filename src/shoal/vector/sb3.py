"""shoal's batches under Stable-Baselines3: `PPO("MlpPolicy", SB3VecEnv(shoal.make_vec("CartPole-v1", 64)))`.

Needs stable-baselines3, which shoal itself does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from shoal.core.arrays import Array
from shoal.core.errors import EnvFault
from shoal.extras import require
from shoal.vector.adapt import autoreset_mode
from shoal.vector.infos import each_info

require("peers", "shoal.vector.sb3")

from stable_baselines3.common.vec_env import VecEnv  # noqa: E402


class SB3VecEnv(VecEnv):
    """Any Gymnasium VectorEnv that resets in the same step, as Stable-Baselines3 takes it.

    `seed(7)` seeds by shoal's streams, not by 7, 8, 9, ... A batch whose observations hold an "action_mask" has
    `action_masks`, so that MaskablePPO of sb3-contrib works as it is. For the usual log wrap it into SB3's VecMonitor.

    >>> from shoal.vector.make import make_vec
    >>> envs = SB3VecEnv(make_vec("CartPole-v1", 4, backend="serial"))
    >>> envs.seed(7), envs.reset().shape
    ([7, 7, 7, 7], (4, 4))
    >>> observations, rewards, dones, infos = envs.step(np.zeros(4, np.int64))
    >>> len(infos)
    4
    >>> envs.close()
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        if autoreset_mode(envs) != AutoresetMode.SAME_STEP:
            raise ValueError(
                "expected an environment with autoreset_mode same_step, which is what Stable-Baselines3 counts on"
            )
        self.envs = envs
        self._seed: int | None = None
        self._actions: Any = None
        self._masks: Array | None = None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self.reset_infos: list[dict[str, Any]] = [{} for _ in range(envs.num_envs)]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Of the next reset; the streams of all environments descend from it."""
        self._seed = seed
        return [seed] * self.num_envs

    def reset(self) -> Any:
        observations, infos = self.envs.reset(seed=self._seed)
        self._seed, self.reset_infos = None, each_info(infos, self.num_envs)
        return self._seen(observations)

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        observations, rewards, terminated, truncated, merged = self.envs.step(self._actions)
        dones = np.asarray(terminated) | np.asarray(truncated)
        infos = each_info(merged, self.num_envs)
        for i in np.flatnonzero(dones).tolist():
            final, last = infos[i].pop("final_obs"), infos[i].pop("final_info", None) or {}
            self.reset_infos[i] = infos[i]  # what is left is of the episode that has begun
            cut = bool(truncated[i]) and not bool(terminated[i])
            infos[i] = {**last, "terminal_observation": final, "TimeLimit.truncated": cut}
        return self._seen(observations), np.asarray(rewards, np.float32), dones, infos

    def _seen(self, observations: Any) -> Any:
        if isinstance(observations, dict) and "action_mask" in observations:
            self._masks = np.asarray(observations["action_mask"], np.bool_).reshape(self.num_envs, -1)
        return observations

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name == "render_mode":
            return [self.envs.render_mode] * len(self._chosen(indices))
        return self.env_method(attr_name, indices=indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        if indices is not None:
            raise ValueError("expected no indices: shoal sets an attribute of all environments, with a value for each")
        self.envs.set_attr(attr_name, value)  # type: ignore[attr-defined]

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        if method_name == "action_masks" and self._has_masks():
            values: Sequence[Any] = self._present_masks()
        else:
            try:
                values = self.envs.call(method_name, *args, **kwargs)  # type: ignore[attr-defined]
            except EnvFault as fault:
                if fault.kind == "AttributeError":
                    raise AttributeError(str(fault)) from None
                raise
        return [values[i] for i in self._chosen(indices)]

    def _has_masks(self) -> bool:
        return "action_mask" in (getattr(self.observation_space, "spaces", None) or {})

    def _present_masks(self) -> Sequence[Any]:
        if self._masks is None:  # before the first reset: only asked whether there are any
            return [None] * self.num_envs
        return list(self._masks)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False for _ in self._chosen(indices)]

    def get_images(self) -> Sequence[Any]:
        return list(self.envs.render() or [None] * self.num_envs)

    def _chosen(self, indices: Any) -> Sequence[int]:
        if indices is None:
            return range(self.num_envs)
        return [indices] if isinstance(indices, int) else list(indices)
