"""`check_vector_env`: what every vector environment must keep, shoal's backends and a user's own alike.

>>> from gymnasium.vector import SyncVectorEnv
>>> make = lambda: SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
>>> report = check_vector_env(make, reference=lambda: gym.make("CartPole-v1"), refuses_after_close=False)
>>> report.checked
('spaces', 'arrays', 'seeding', 'episodes', 'autoreset', 'reset_mask', 'close')
>>> sorted(report.seen)
['terminated']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from shoal.core.arrays import Array, Layout
from shoal.vector.adapt import autoreset_mode
from shoal.vector.random_actions import RandomActions

Vec = VectorEnv[Any, Any, Any]


class ContractBroken(AssertionError):
    """A vector environment does not keep what Gymnasium promises; says what was expected and what came."""


@dataclass(frozen=True)
class Report:
    """What was checked. An end of episode that is not in `seen` did not occur, so nothing is known about it."""

    checked: tuple[str, ...]
    seen: frozenset[str]  # of terminated, truncated


def check_vector_env(
    make: Callable[[], Vec],
    *,
    reference: Callable[[], gym.Env[Any, Any]] | None = None,
    steps: int = 60,
    seed: int = 7,
    random: bool = True,
    reset_mask: bool = True,
    refuses_after_close: bool = True,
) -> Report:
    """Check a vector environment; raises ContractBroken at the first thing that is wrong.

    `make` builds it anew. `reference` makes the single environment that it holds N of: with it, first episodes
    (seeded one by one) are compared number by number, up to the true final observation and the infos. `steps`
    should be enough for episodes to end. `random=False`: the environment does not depend on its seed.
    `reset_mask=False`, `refuses_after_close=False`: it has no masked reset; it does not notice a step after close.
    """
    with ExitStack() as to_close:
        env, twin = make(), make()
        to_close.callback(env.close)
        to_close.callback(twin.close)
        checked = ["spaces", "arrays", "seeding"]
        _check_spaces(env)
        _check_arrays(env, seed, steps)
        _check_seeding(env, twin, seed, steps, random)
        if reference is not None:
            checked.append("episodes")
            _check_episodes(env, reference, seed, steps)
        checked.append("autoreset")
        seen = _check_autoreset(env, seed, steps)
        if reset_mask:
            checked.append("reset_mask")
            _check_reset_mask(env, seed)
        checked.append("close")
        _check_close(twin, seed, refuses_after_close)
    return Report(tuple(checked), frozenset(seen))


# -- the checks ----------------------------------------------------------------------------------


def _check_spaces(env: Vec) -> None:
    autoreset_mode(env)
    _expect(isinstance(env.num_envs, int) and env.num_envs >= 1, "num_envs of at least 1", env.num_envs)
    for whole, single in (
        ("observation_space", "single_observation_space"),
        ("action_space", "single_action_space"),
    ):
        batched = batch_space(getattr(env, single), env.num_envs)
        _expect(getattr(env, whole) == batched, f"{whole} to be {single} batched, {batched}", getattr(env, whole))


def _check_arrays(env: Vec, seed: int, steps: int) -> None:
    n, kept = env.num_envs, []
    for _, obs, outcome, infos in _play(env, seed, steps):
        _check_observation(env, obs)
        _expect(isinstance(infos, dict), "infos as a dict", infos)
        for value in outcome:
            _expect(isinstance(value, np.ndarray) and value.shape == (n,), f"an array of shape ({n},)", _brief(value))
        if outcome:
            rewards, terminated, truncated = outcome
            _expect(rewards.dtype.kind == "f", "rewards of a float type", rewards.dtype)
            _expect(terminated.dtype == truncated.dtype == np.bool_, "bool flags", terminated.dtype)
        kept.append((obs, _copy(obs)))
    _expect(
        all(_same(a, b) for a, b in kept),
        "observations that later steps leave alone",
        "arrays that are written over",
    )


def _check_seeding(env: Vec, twin: Vec, seed: int, steps: int, random: bool) -> None:
    first = [(_copy(obs), *outcome) for _, obs, outcome, _ in _play(env, seed, steps)]
    for what, again in (("the same environment reset again", env), ("another one", twin)):
        for t, (_, obs, outcome, _) in enumerate(_play(again, seed, steps)):
            same = _same(obs, first[t][0]) and all(map(np.array_equal, outcome, first[t][1:]))
            _expect(same, f"the same trajectories with the same seed from {what}", f"a difference at step {t}")
    if random:
        other = [obs for _, obs, _, _ in _play(twin, seed + 1, steps)]
        differs = any(not _same(a, b[0]) for a, b in zip(other, first, strict=True))
        _expect(differs, "other trajectories with another seed (random=False if they cannot be)", "the same")


def _check_episodes(env: Vec, reference: Callable[[], gym.Env[Any, Any]], seed: int, steps: int) -> None:
    """Every environment's first episode equals the single environment's with the same seed and actions."""
    n, mode = env.num_envs, autoreset_mode(env)
    seeds = [seed + 1000 * i for i in range(n)]
    singles = [reference() for _ in range(n)]
    alive = [True] * n
    for t, (actions, obs, outcome, infos) in enumerate(_play(env, seeds, steps)):
        for i in [i for i in range(n) if alive[i]]:
            where = f"at step {t} of environment {i}"
            if actions is None:
                expected_obs, expected_info = singles[i].reset(seed=seeds[i])
                ended = False
            else:
                expected_obs, reward, terminated, truncated, expected_info = singles[i].step(_row(actions, i))
                expected = (np.float32(reward), terminated, truncated)
                got = (np.float32(outcome[0][i]), outcome[1][i], outcome[2][i])
                _expect(got == expected, f"(reward, terminated, truncated) = {expected} {where}", got)
                ended = terminated or truncated
            same_step = ended and mode == AutoresetMode.SAME_STEP
            came = infos["final_obs"][i] if same_step else _row(obs, i)
            _expect(_same(came, expected_obs), f"the observation {expected_obs} {where}", came)
            _check_info(infos.get("final_info", {}) if same_step else infos, expected_info, i, where)
            alive[i] = not ended
    for single in singles:
        single.close()


def _check_autoreset(env: Vec, seed: int, steps: int) -> set[str]:
    seen: set[str] = set()
    mode, n = autoreset_mode(env), env.num_envs
    before = np.zeros(n, np.bool_)
    for _, _, outcome, infos in _play(env, seed, steps):
        if not outcome:
            continue
        rewards, terminated, truncated = outcome
        ended = terminated | truncated
        seen |= {name for name, flags in (("terminated", terminated), ("truncated", truncated)) if flags.any()}
        if mode == AutoresetMode.NEXT_STEP:
            quiet = not ended[before].any() and not rewards[before].any()
            _expect(quiet, "reward 0 and no end in the step that only resets (NEXT_STEP)", (rewards, ended))
            before = ended
        elif mode == AutoresetMode.SAME_STEP and ended.any():
            mask = infos.get("_final_obs", False)
            _expect(np.array_equal(mask, ended), f'infos["_final_obs"] to be {ended} (SAME_STEP)', mask)
            for i in np.flatnonzero(ended):
                final = infos["final_obs"][i]
                _expect(
                    env.single_observation_space.contains(final),
                    "a final observation of the single space",
                    _brief(final),
                )
    _expect(bool(seen), f"an episode to end within {steps} steps (give more steps)", "none did")
    return seen


def _check_reset_mask(env: Vec, seed: int) -> None:
    n = env.num_envs
    mask = np.arange(n) % 2 == 0
    obs, _ = env.reset(seed=seed)
    obs, *_ = env.step(RandomActions(env, seed)(obs))
    old, (new, _) = _copy(obs), env.reset(options={"reset_mask": mask.copy()})
    for i in np.flatnonzero(~mask):
        _expect(_same(_row(new, i), _row(old, i)), f"environment {i} untouched by a reset of {mask}", _row(new, i))
    _check_observation(env, new)


def _check_close(env: Vec, seed: int, refuses: bool) -> None:
    obs, _ = env.reset(seed=seed)
    actions = RandomActions(env, seed)(obs)
    env.close()
    env.close()
    _expect(bool(env.closed), "closed to be True after close()", env.closed)
    if not refuses:
        return
    try:
        env.step(actions)
    except Exception:
        return
    raise ContractBroken("expected an exception from step() after close(), got a step")


# -- helpers -------------------------------------------------------------------------------------


def _play(env: Vec, seed: Any, steps: int) -> Iterator[tuple[Any, Any, tuple[Array, ...], dict[str, Any]]]:
    """(actions, observations, (rewards, terminated, truncated), infos) of every step; the reset comes first,
    with actions None and no outcome."""
    obs, infos = env.reset(seed=seed)
    draw = RandomActions(env, seed if isinstance(seed, int) else seed[0])
    yield None, obs, (), infos
    for _ in range(steps):
        actions = draw(obs)
        obs, rewards, terminated, truncated, infos = env.step(actions)
        yield actions, obs, (rewards, terminated, truncated), infos
        ended = terminated | truncated
        if autoreset_mode(env) == AutoresetMode.DISABLED and ended.any():
            obs, _ = env.reset(options={"reset_mask": ended.copy()})


def _check_observation(env: Vec, obs: Any) -> None:
    for part, (path, shape, dtype) in zip(
        Layout(env.single_observation_space).take_apart(obs), Layout(env.single_observation_space).leaves, strict=True
    ):
        good = isinstance(part, np.ndarray) and part.shape == (env.num_envs, *shape) and part.dtype == dtype
        name = "/".join(map(str, path)) or "observations"
        _expect(good, f"{name} as {dtype} of shape {(env.num_envs, *shape)}", _brief(part))
    _expect(env.observation_space.contains(obs), f"observations in {env.observation_space}", obs)


def _check_info(infos: dict[str, Any], expected: dict[str, Any], i: int, where: str) -> None:
    """Gymnasium's form: infos[key][i] where infos["_key"][i]."""
    for key, value in expected.items():
        if isinstance(value, dict):
            _check_info(infos.get(key, {}), value, i, where)
            continue
        mask = infos.get(f"_{key}")
        _expect(mask is not None and bool(mask[i]), f'infos["_{key}"][{i}] True {where}', mask)
        _expect(np.array_equal(infos[key][i], value), f"infos[{key!r}][{i}] = {value!r} {where}", infos[key][i])


def _row(batch: Any, i: Any) -> Any:
    if isinstance(batch, dict):
        return {key: _row(part, i) for key, part in batch.items()}
    return tuple(_row(part, i) for part in batch) if isinstance(batch, tuple) else batch[i]


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return tuple(map(_copy, value)) if isinstance(value, tuple) else np.array(value)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(_same, a, b))
    return bool(np.array_equal(a, b))


def _brief(value: Any) -> str:
    return (
        f"{value.dtype}{list(value.shape)}"
        if isinstance(value, np.ndarray)
        else f"{type(value).__name__} {value!r:.80}"
    )


def _expect(holds: bool, expected: str, got: Any) -> None:
    if not holds:
        raise ContractBroken(f"expected {expected}, got {got}")
