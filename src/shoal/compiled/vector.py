"""N compiled environments as one Gymnasium vector environment.

An environment is a small class, a namespace of plain scalar Python functions; see `CompiledEnv`, and
examples/compiled_env.py for a whole one. `CompiledVectorEnv` steps N of them with one call into machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from shoal.compiled import kernels
from shoal.compiled.compile import Kernels, build
from shoal.compiled.env import CompiledEnv, layout
from shoal.compiled.infos import FinalInfos
from shoal.compiled.threads import StepThreads
from shoal.core.errors import EnvFault, EnvRaised, NotFinite, ShapeError, repeated
from shoal.core.own import OwnVectorEnv, cast_actions, check_mask, one_each, parse_autoreset
from shoal.core.seeds import Stream, env_keys

__all__ = ["CompiledEnv", "CompiledVectorEnv"]

_INT8, _BOOL, _FLOAT32 = np.dtype(np.int8), np.dtype(np.bool_), np.dtype(np.float32)


class CompiledVectorEnv(OwnVectorEnv):
    """N copies of a `CompiledEnv`, stepped together; a finished one begins its next episode in the same step, or in
    the next one with `autoreset_mode="next_step"`.

    >>> from shoal.environments.cartpole import CartPole
    >>> envs = CompiledVectorEnv(CartPole, num_envs=4)
    >>> obs, _ = envs.reset(seed=0)
    >>> obs, rewards, terminated, truncated, infos = envs.step(np.array([0, 1, 0, 1]))
    >>> obs.shape, obs.dtype.name, rewards.tolist()
    ((4, 4), 'float32', [1.0, 1.0, 1.0, 1.0])

    The same seed gives the same bits for any `num_envs` and any number of threads. `threads="auto"`
    measures the first steps and uses threads only where they pay. `kernels.cached` and `kernels.compile_s`
    say what compilation cost; `on_compile` is called with a sentence before one that takes seconds.
    """

    writes_out = checks_finite = True

    def __init__(
        self,
        env: CompiledEnv | type[CompiledEnv],
        num_envs: int,
        threads: int | Literal["auto"] = 1,
        stream: Stream = Stream.TRAIN,
        on_compile: Callable[[str], None] | None = None,
        autoreset_mode: str | AutoresetMode = "same_step",
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs: expected at least 1, got {num_envs}")
        if threads != "auto" and (not isinstance(threads, int) or threads < 1):
            raise ValueError(f'threads: expected a positive integer or "auto", got {threads!r}')
        self.env = env() if isinstance(env, type) else env
        self.features_version = self.env.features
        self.num_envs = num_envs
        self.stream = stream
        self.metadata = {"autoreset_mode": parse_autoreset(autoreset_mode), "render_modes": []}
        self.single_observation_space, self.single_action_space = (
            self.env.observation_space,
            self.env.action_space,
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._layout = layout(self.env)
        self._next_step = self.next_step
        self._layout.config["next_step"] = self._next_step
        self.kernels: Kernels = build(self.env, on_compile=on_compile)
        self._slots = self._layout.slots(num_envs)  # slot[N]
        self._slot_bytes = self._slots.view(np.uint8)  # uint8[N * itemsize], the same memory
        self._config_bytes = self._layout.config.view(np.uint8)
        self._actions = np.zeros((num_envs, *self._layout.action_shape), self._layout.action_dtype)
        self._masked = self._layout.masked
        self._obs_shape, self._obs_dtype = (num_envs, *self._layout.obs_shape), self._layout.obs_dtype
        self._no_mask = np.empty((num_envs, *self._layout.mask_shape), np.int8)
        self._seeds: list[int] | None = None  # per environment; None before the first reset
        self._failed: EnvFault | None = None
        # The last observation of each episode that ended in the last step; other rows are not initialised.
        self.final_obs: Any = None
        self._threads = StepThreads(self.kernels.step, num_envs, threads)

    # -- the Gymnasium interface -------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode everywhere, or where options["reset_mask"] (bool[N]) is True.

        An int seeds all environments, by streams that do not depend on N; a list seeds one each, as if it
        were environment 0 of a run with that seed. None goes on with the next episodes of the seeds given
        before; of an environment that never had one, with a seed from the operating system.
        """
        self._check_usable(resetting=True)
        n = self.num_envs
        chosen = self._reset_mask(options)
        if chosen.all():
            self._failed = None  # every slot is filled anew: nothing of what was broken is left
        self._check_usable()
        if seed is None and self._seeds is None:
            seed = int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
        if isinstance(seed, int | np.integer):
            self._seed(chosen, [int(seed)] * n, env_keys(int(seed), n, self.stream, self.first_env))
        elif seed is not None:
            if len(seed) != n:
                raise ValueError(f"seed: expected an int or a list of {n} ints, one an environment, got {len(seed)}")
            self._seed_each(chosen, seed)
        obs, mask = self._empty()
        status = self.kernels.reset(self._slot_bytes, chosen, obs, mask, self._config_bytes)
        if status < 0:
            raise self._fail(self._not_finite(status, obs))
        return {"obs": obs, "action_mask": mask} if self._masked else obs, {}

    def step(self, actions: Any, out: Any = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of every environment: (obs, float32[N], terminated bool[N], truncated bool[N], infos).

        `out`: where to write the observations, an array (a dict of arrays for a Dict space) such as a row
        of the caller's rollout buffer; it is what comes back as obs. Without it they are fresh arrays.
        Where an episode ended, obs is the first of the next, and the true last one is in infos["final_obs"]
        (Gymnasium's form) and, without any copying, in row i of `self.final_obs`.
        """
        if self._seeds is None or self._failed is not None or self.closed:
            self._check_usable()
            raise gym.error.ResetNeeded(f"{self.env.name}: call reset() before step()")
        n, own = self.num_envs, self._actions
        fits = type(actions) is np.ndarray and actions.dtype is own.dtype and actions.shape == own.shape
        own[...] = actions if fits else self._castable(actions)
        # Every result is a fresh array: an np.empty costs 0.1 us, and the next step overwrites nothing.
        obs, mask = self._empty() if out is None else self._checked(out)
        arguments = self._arguments(obs, mask)
        final_obs, final_mask, rewards, terminated, truncated = arguments[4:9]
        try:
            ended = self.kernels.step(*arguments, 0, n) if self._threads.is_plain else self._threads.run(arguments)
        except Exception as error:
            raise self._fail(self._raised(error)) from error
        if ended < 0:
            if ended == kernels.WRONG_ACTION:
                raise self._wrong_action()
            raise self._fail(self._not_finite(ended, obs))
        result = {"obs": obs, "action_mask": mask} if self._masked else obs
        if self._next_step:
            self.final_obs = result
            return result, rewards, terminated, truncated, {}
        self.final_obs = {"obs": final_obs, "action_mask": final_mask} if self._masked else final_obs
        infos = FinalInfos(self.final_obs, terminated, truncated) if ended else {}
        return result, rewards, terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        self.closed = True
        self._threads.close()

    # -- the environment itself: one description, which all N share --------------------------------------

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`getattr(env, name)` (a param by its name), called once if it can be called; the same for all N."""
        self._check_usable()
        params = self._layout.config["params"][0]
        if self.env.params is not None and name in (self.env.params.names or ()):
            return (params[name].item() if params[name].ndim == 0 else params[name].copy(),) * self.num_envs
        value = getattr(self.env, name)
        return (value(*args, **kwargs) if callable(value) else value,) * self.num_envs

    def set_attr(self, name: str, values: Any) -> None:
        """Give a param, or `max_episode_steps`, another value from the next step on. All environments share it."""
        self._check_usable()
        first, *others = one_each(values, self.num_envs)
        if not all(np.array_equal(first, other) for other in others):
            raise ValueError(f"{self.env.name}.{name} is shared by all environments: expected one value, got {values}")
        if name == "max_episode_steps":
            self._layout.config["limit"] = first or 0
            self.env.max_episode_steps = first
        elif self.env.params is not None and name in (self.env.params.names or ()):
            self._layout.config["params"][name][0] = first
            self.env.param_values = {**self.env.param_values, name: first}
        else:
            known = sorted(["max_episode_steps", *(self.env.params.names or () if self.env.params is not None else ())])
            raise ValueError(f"{self.env.name}: only {', '.join(known)} can be set, the rest is compiled; got {name!r}")

    @property
    def np_random_seed(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The seed that each environment was last given."""
        return tuple(self._seeds) if self._seeds is not None else (None,) * self.num_envs

    @property
    def over(self) -> np.ndarray:
        """bool[N]: the episode has ended, and the next step only resets. All False in SAME_STEP."""
        return self._slots["over"].copy()

    @property
    def threads(self) -> int:
        """How many threads step: with "auto", 1 until the first steps have been timed."""
        return self._threads.count

    # -- state, for checkpoints and for looking inside ------------------------------------------------

    @property
    def state(self) -> np.ndarray:
        """The states of all environments, state[N], aligned; a view that may be written to."""
        return self._slots["state"]

    @property
    def episode_steps(self) -> np.ndarray:
        """Steps each environment has taken in its current episode: int64[N], a view."""
        return self._slots["clock"]

    def get_state(self) -> dict[str, np.ndarray]:
        """All that the next steps depend on, as plain arrays, for `set_state` to go on to the same bits."""
        if self._seeds is None:
            raise gym.error.ResetNeeded(f"{self.env.name}: call reset() before get_state()")
        return {
            "slots": self._slot_bytes.reshape(self.num_envs, -1).copy(),  # uint8[N, itemsize]
            "seeds": np.array(self._seeds, np.uint64),  # uint64[N]
        }

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Take up a state from `get_state` of the same environment class and number of environments."""
        shapes = {"slots": (self.num_envs, self._slots.itemsize), "seeds": (self.num_envs,)}
        dtypes = {"slots": np.uint8, "seeds": np.uint64}
        if set(state) != set(shapes):
            raise ValueError(f"state of {self.env.name}: expected {sorted(shapes)}, got {sorted(state)}")
        for name, shape in shapes.items():
            array = state[name]
            if array.shape != shape or array.dtype != dtypes[name]:
                raise ShapeError(
                    f"state[{name!r}] of {self.env.name}: expected {np.dtype(dtypes[name])}{list(shape)}, "
                    f"got {array.dtype}{list(array.shape)}; it was saved with another environment or num_envs"
                )
        slots = np.ascontiguousarray(state["slots"]).view(self._slots.dtype)[:, 0]
        if slots["over"].any() and not self._next_step:
            raise ValueError(f"state of {self.env.name}: it was saved with autoreset_mode next_step, this is same_step")
        self._slots[:] = slots
        self._failed = None
        self._seeds = state["seeds"].tolist()

    # -- inside ------------------------------------------------------------------------------------

    def _castable(self, actions_like: Any) -> np.ndarray:
        own = self._actions
        actions: np.ndarray = np.asarray(actions_like)
        if actions.shape != own.shape:
            raise ShapeError(f"actions: expected shape {own.shape}, got {actions.shape}")
        return cast_actions(actions, own.dtype)

    def _empty(self) -> tuple[np.ndarray, np.ndarray]:
        """Observations and masks for all, not initialised: obs_dtype[N, ...], int8[N, ...]."""
        obs = np.empty(self._obs_shape, self._obs_dtype)
        return obs, np.empty(self._no_mask.shape, _INT8) if self._masked else self._no_mask

    def _arguments(self, obs: np.ndarray, mask: np.ndarray) -> tuple[Any, ...]:
        """The arrays of a step, as the kernel takes them; what it writes beside the observations is new."""
        n = self.num_envs
        rewards, terminated, truncated = np.empty(n, _FLOAT32), np.empty(n, _BOOL), np.empty(n, _BOOL)
        return (self._slot_bytes, self._actions, obs, mask, *self._empty(), rewards, terminated, truncated,
                self._config_bytes)  # fmt: skip

    def _checked(self, out: Any) -> tuple[np.ndarray, np.ndarray]:
        """The caller's arrays: a kernel writes into them blindly, so they must fit."""
        if not self._masked:
            return _writable("out", out, self._obs_shape, self._obs_dtype), self._no_mask
        return (
            _writable("out['obs']", out["obs"], self._obs_shape, self._obs_dtype),
            _writable("out['action_mask']", out["action_mask"], self._no_mask.shape, _INT8),
        )

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray:
        if not options or "reset_mask" not in options:
            return np.ones(self.num_envs, np.bool_)
        mask = check_mask(options["reset_mask"], self.num_envs)
        if self._seeds is None and not mask.all():
            raise gym.error.ResetNeeded(f"{self.env.name}: reset all environments once before resetting some")
        return np.ascontiguousarray(mask)

    def _seed(self, chosen: np.ndarray, seeds: list[int], keys: np.ndarray) -> None:
        self._slots["key"][chosen] = keys[chosen]
        self._slots["episode"][chosen] = 0
        old = self._seeds or seeds
        self._seeds = [new if take else kept for new, kept, take in zip(seeds, old, chosen, strict=True)]

    def _seed_each(self, chosen: np.ndarray, seeds: Sequence[int | None]) -> None:
        """A seed for each; None leaves an environment to its next episode."""
        given = np.array([seed is not None for seed in seeds])
        if self._seeds is None and not given.all():
            spare = np.random.SeedSequence().generate_state(self.num_envs, np.uint32)
            seeds, given = [int(spare[i]) if seed is None else seed for i, seed in enumerate(seeds)], given | True
        whole = [0 if seed is None else int(seed) for seed in seeds]
        keys = np.array([env_keys(seed, 1, self.stream)[0] for seed in whole], np.uint64)
        self._seed(chosen & given, whole, keys)

    def _check_usable(self, resetting: bool = False) -> None:
        if self.closed:
            raise gym.error.ClosedEnvironmentError(f"{type(self).__name__} has been closed; make a new one")
        if self._failed is not None and not resetting:
            raise repeated(self._failed, "reset all its environments")

    def _fail(self, error: Exception) -> Exception:
        """Some environments have stepped and others not: from now on the batch only repeats what happened."""
        if isinstance(error, EnvFault):
            self._failed = error
        return error

    def _wrong_action(self) -> ValueError:
        low, high = (self._layout.config[name][0].reshape(self._layout.action_shape) for name in ("low", "high"))
        fits = (self._actions >= low) & (self._actions <= high)
        i = int(np.flatnonzero(~fits.reshape(self.num_envs, -1).all(1))[0])
        return ValueError(
            f"action of environment {i}: expected {self.single_action_space}, got "
            f"{self._actions[i].tolist()}; no environment has been stepped"
        )

    def _not_finite(self, status: int, obs: np.ndarray) -> NotFinite:
        i = kernels.NOT_FINITE - status
        what = "a reward" if np.isfinite(obs[i]).all() else "an observation"
        return NotFinite(f"{self.env.name} gave {what} that is not finite{self._when(i)}", **self._where(i))

    def _raised(self, error: Exception) -> Exception:
        at = np.flatnonzero(self._slots["stepping"])
        if not at.size:
            return error  # not the environment's code
        i, kind = int(at[0]), type(error).__name__
        where = self._where(i)
        where["step"] += 1  # the step that raised has not been counted
        return EnvRaised(f"{self.env.name}.step raised {error!r}{self._when(i)}", kind=kind, **where)

    def _when(self, i: int) -> str:
        return f" in episode {int(self._slots['episode'][i]) - 1}"

    def _where(self, i: int) -> dict[str, Any]:
        return {
            "env": i,
            "seed": self._seeds[i] if self._seeds else None,
            "step": int(self._slots["clock"][i]),
        }


def _writable(name: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if type(array) is np.ndarray and array.shape == shape and array.dtype == dtype:
        flags = array.flags
        if flags.c_contiguous and flags.writeable:
            return array
    got = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
    raise ShapeError(f"{name}: expected a C-contiguous, writable {dtype}{list(shape)}, got {got}")
