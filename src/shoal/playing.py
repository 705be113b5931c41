"""Watching a saved run: its held-out episodes as a video, in a window, as text, or by their returns."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv
from torch import nn

from shoal.core.errors import EnvFault
from shoal.core.protocols import Batched
from shoal.core.seeds import Stream
from shoal.held_out import Say, check_observations, held_out_seeds
from shoal.held_out import play as play_episodes
from shoal.runs.film import Frames, Writer, check_film, open_film
from shoal.saved_run import Saved, limit_of, open_saved
from shoal.vector.adapt import Stepper
from shoal.vector.foreign import Maker, around, find_spec
from shoal.vector.make import make_vec, name_of
from shoal.vector.preprocess import wrappers_of

RENDER = ("auto", "none", "human", "ansi")
_FRAMES_PER_S = 30.0  # of an environment that does not say


def play(
    run: str | Path,
    *,
    episodes: int = 3,
    video: str | Path | None = None,
    render: str = "auto",
    checkpoint: str | int | None = None,
    deterministic: bool = True,
    seed: int | None = None,
    env: Any = None,
    network: nn.Module | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    imports: Sequence[str] = (),
    max_episode_steps: int | None = None,
    runs_dir: str | Path = "runs",
    say: Say = print,
) -> dict[str, Any]:
    """Play held-out episodes of a run, the first of those that `shoal.evaluate` scores, and show them.

    `video` is a file to write, .gif or .mp4. `render` is "human" (a window), "ansi" (text, which `say` hears frame by
    frame), "none" (returns alone) or "auto": text if the environment has some and no video is written.
    `deterministic=False` samples the actions. The other options are those of `shoal.evaluate`. An environment
    of your own, `env=`, shows what it can show when it is made; with an argument `render_mode` it is made so that it
    can.
    """
    if episodes < 1:
        raise ValueError(f"expected at least 1 episode, got {episodes}")
    if render not in RENDER:
        raise ValueError(f"expected render as {' or '.join(RENDER)}, got {render!r}; a file is written by video=")
    if video is not None and render in ("human", "ansi"):
        raise ValueError(f"expected a video or {render}, got both: an environment shows itself in one way at a time")
    if video is not None:
        check_film(Path(video))
    saved = open_saved(
        run,
        verb="play",
        warn=say,
        checkpoint=checkpoint,
        seed=seed,
        env=env,
        network=network,
        env_kwargs=env_kwargs,
        imports=imports,
        runs_dir=runs_dir,
    )
    if saved.policy.chosen:
        say(saved.policy.chosen)
    wanted = "rgb_array" if video is not None else _wish(render, saved)
    film: Writer | None = None
    if wanted != "none":
        stage = Stage(saved, wanted)
        film = None if video is None else open_film(video, stage.frames_per_s)
        frames = film if film is not None else Printer(say) if wanted == "ansi" else None
        envs = stage.environment(frames)
    else:
        envs = saved.environments(1, episodes, say)
    try:
        stepper = Stepper(envs)
        seeds = held_out_seeds(saved.seed, episodes, saved.policy.seed_scheme)
        limit = limit_of(stepper, max_episode_steps)
        played = play_episodes(saved.policy, stepper, seeds, saved.seed, deterministic=deterministic, max_steps=limit)
        if film is not None:
            film.close()
    except EnvFault as fault:  # `shoal play RUN | head`: whoever read the frames has left
        if getattr(fault, "kind", "") == "BrokenPipeError":
            raise BrokenPipeError from None
        raise
    finally:
        envs.close()
    rows = zip(seeds, played.returns.tolist(), played.lengths.tolist(), played.unfinished.tolist(), strict=True)
    return {
        "task": saved.config.task,
        "epoch": saved.policy.epoch,
        "seed": saved.seed,
        "actions": "deterministic" if deterministic else "sampled",
        "held_out": True,
        "episodes": [
            {"seed": seed, "return": value, "length": length, "unfinished": cut} for seed, value, length, cut in rows
        ],
        "video": None if film is None else str(film.path),
        "frames": None if film is None else film.frames,
    }


def _wish(render: str, saved: Saved) -> str:
    return ("ansi" if "ansi" in modes_of(saved)[0] else "none") if render == "auto" else render


class Stage:
    """One environment of a run that shows itself."""

    def __init__(self, saved: Saved, mode: str) -> None:
        self.saved, self.mode = saved, mode
        modes, metadata = modes_of(saved)
        if mode not in modes:
            can = f"it has {', '.join(modes)}" if modes else "it shows nothing"
            how = "; one of your own is made with render_mode=" if saved.config.given and not modes else ""
            raise ValueError(f"{name_of(saved.made)} has no render mode {mode}: {can}{how}")
        frames_per_s = metadata.get("render_fps") or _FRAMES_PER_S
        self.frames_per_s = float(frames_per_s) if frames_per_s > 0 else _FRAMES_PER_S

    def environment(self, frames: Frames | None) -> VectorEnv[Any, Any, Any]:
        """Alone in a batch, in this process. With "next_step" nobody begins an episode that is not played."""
        make = _maker(self.saved, self.mode)
        filmed = make if frames is None else functools.partial(_filmed, make, frames)
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # its greeting goes to standard output
        screens = {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
        if self.mode == "rgb_array" and sys.platform == "linux" and not screens:
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # which says "error" where there is no screen
        envs = make_vec(filmed, 1, backend="serial", stream=Stream.EVALUATE, autoreset_mode="next_step")
        try:
            check_observations(self.saved.policy, envs)
        except ValueError:
            envs.close()
            raise
        return envs


def modes_of(saved: Saved) -> tuple[list[str], Mapping[str, Any]]:
    """The ways in which an environment can show itself, and its metadata; none of one that exists only as a batch."""
    if not isinstance(saved.made, str) and (not callable(saved.made) or isinstance(saved.made, Batched)):
        return [], {}
    one = _maker(saved, None)()
    if not isinstance(one, gym.Env):
        return [], {}
    metadata, fixed = one.metadata or {}, one.render_mode
    if isinstance(saved.made, str) or _takes_mode(saved.made):
        modes = [str(mode) for mode in metadata.get("render_modes") or ()]
    else:
        modes = [fixed] if fixed else []
    one.close()
    return modes, metadata


def _maker(saved: Saved, mode: str | None) -> Callable[[], Any]:
    more = {} if mode is None else {"render_mode": mode}
    if isinstance(saved.made, str):
        return Maker(find_spec(saved.made), saved.kwargs | more, saved.imports, wrappers_of(saved.config))
    made = functools.partial(saved.made, **more) if more and _takes_mode(saved.made) else saved.made
    return around(made, wrappers_of(saved.config))


def _takes_mode(made: Any) -> bool:
    try:
        return "render_mode" in inspect.signature(made).parameters
    except (TypeError, ValueError):  # of something written in C, say
        return False


def _filmed(make: Callable[[], Any], frames: Frames) -> Camera:
    return Camera(make(), frames)


class Camera(gym.Wrapper[Any, Any, Any, Any]):
    """Hands on what the environment shows after each reset and each step."""

    def __init__(self, env: gym.Env[Any, Any], frames: Frames) -> None:
        super().__init__(env)
        self._frames = frames

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        first = self.env.reset(seed=seed, options=options)
        self._frames.begin()
        self._frames.add(self.env.render())
        return first

    def step(self, action: Any) -> Any:
        answer = self.env.step(action)
        self._frames.add(self.env.render())
        return answer


class Printer:
    """Frames of text, one after the other."""

    def __init__(self, say: Say) -> None:
        self._say, self._episode, self._step = say, 0, 0

    def begin(self) -> None:
        self._episode, self._step = self._episode + 1, 0

    def add(self, frame: Any) -> None:
        self._say(f"episode {self._episode}, step {self._step}\n{frame}")
        self._step += 1
