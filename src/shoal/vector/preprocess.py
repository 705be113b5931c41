"""What is done to observations before the policy sees them: `--frame-skip`, `--grey`, `--resize`, `--frame-stack` and
`--leave-out`. A recipe goes around each environment, wherever it lives, and stands in the run's config.json; so
training, evaluation, `shoal play` and `policy.wrap(env)` see the same bytes.

Greys and averages are computed in whole numbers (a float32 product of them is exact), so they are the same on every
machine.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from shoal.config import TrainConfig
from shoal.core.arrays import Array, Layout
from shoal.core.pictures import channels_last, is_picture
from shoal.vector.foreign import Wrap

_EXACT = 2**24  # whole numbers that a float32 holds
_LUMA = np.array([299, 587, 114], np.float32)  # ITU-R BT.601, in thousandths


class Unfit(ValueError):
    """These observations cannot be treated so."""


@dataclass(frozen=True)
class Preprocess:
    """The recipe; a wrapper of environments."""

    frame_skip: int = 1
    grey: bool = False
    resize: int | None = None
    frame_stack: int = 1
    leave_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: TrainConfig) -> Preprocess:
        """That of a run."""
        return cls(config.frame_skip, config.grey, config.resize, config.frame_stack, config.leave_out)

    def __bool__(self) -> bool:
        return self != Preprocess()

    def __str__(self) -> str:
        """As flags.

        >>> str(Preprocess(grey=True, resize=84, frame_stack=4))
        '--grey --resize 84 --frame-stack 4'
        """
        said = [f"--frame-skip {self.frame_skip}"] if self.frame_skip > 1 else []
        said += ["--grey"] if self.grey else []
        said += [f"--resize {self.resize}"] if self.resize is not None else []
        said += [f"--frame-stack {self.frame_stack}"] if self.frame_stack > 1 else []
        said += [f"--leave-out {' '.join(self.leave_out)}"] if self.leave_out else []
        return " ".join(said)

    def __call__(self, env: gym.Env[Any, Any]) -> Preprocessed:
        return Preprocessed(env, self)


def wrappers_of(config: TrainConfig) -> tuple[Wrap, ...]:
    """All that goes around each environment of a run, innermost first: `--wrapper`, then the recipe."""
    recipe = Preprocess.of(config)
    return (*config.wrappers, recipe) if recipe else config.wrappers


class Observer:
    """Observations of one environment as its policy takes them, an episode at a time.

    >>> camera = spaces.Box(0, 255, (210, 160, 3), np.uint8)
    >>> observer = Observer(Preprocess(grey=True, resize=84, frame_stack=4), camera)
    >>> observer.space.shape, observer.first(camera.sample()).shape, observer.next(camera.sample()).shape
    ((84, 84, 4), (84, 84, 4), (84, 84, 4))
    """

    def __init__(self, recipe: Preprocess, space: spaces.Space[Any]) -> None:
        kept = _without(space, recipe.leave_out)
        self._layout = Layout(kept)
        self.pictures = [at for at, (_, shape, dtype) in enumerate(self._layout.leaves) if is_picture(shape, dtype)]
        changed = recipe.grey or recipe.resize is not None or recipe.frame_stack > 1
        if changed and not self.pictures:
            flags = Preprocess(1, recipe.grey, recipe.resize, recipe.frame_stack)
            raise Unfit(
                f"{flags}: expected a picture in the observation, a Box of uint8 with height, width and channels, got "
                f"{space}. Leave the flags out"
            )
        names = [path for path, _, _ in self._layout.leaves]
        self._lenses = (
            {at: Lens(recipe, self._layout.leaves[at][1], "/".join(map(str, names[at]))) for at in self.pictures}
            if changed
            else {}
        )
        self.space = _replaced(kept, {names[at]: lens.space for at, lens in self._lenses.items()})
        self._seen = Layout(self.space)

    def first(self, observation: Any) -> Any:
        """The first observation of an episode: a stack holds it several times."""
        return self._assembled(observation, "first")

    def next(self, observation: Any) -> Any:
        """Any other."""
        return self._assembled(observation, "next")

    def parts(self, observation: Any) -> list[Any]:
        """The leaves of a raw observation that are kept."""
        return self._layout.take_apart(observation)

    def assemble(self, parts: Sequence[Any]) -> Any:
        """The inverse, of raw leaves."""
        return self._layout.assemble(parts)

    def _assembled(self, observation: Any, how: str) -> Any:
        parts = self._layout.take_apart(observation)
        for at, lens in self._lenses.items():
            parts[at] = getattr(lens, how)(parts[at])
        return self._seen.assemble(parts)


class Lens:
    """One picture: grey, small, and the last frames as channels, the newest last. Channels come out last; where a stack
    would have more of them than rows, frames stay an axis of their own, the first."""

    def __init__(self, recipe: Preprocess, shape: tuple[int, ...], name: str) -> None:
        self._shape, self._grey = shape, recipe.grey
        self._what = f"the observation{f' part {name}' if name else ''}"
        if len(shape) == 4:
            raise Unfit(f"{recipe}: expected single frames, {self._what} is a stack of them already, {shape}")
        self._last = channels_last(shape)
        height, width, channels = (*shape, 1) if len(shape) == 2 else shape if self._last else (*shape[1:], shape[0])
        if self._grey and channels not in (1, 3, 4):
            raise Unfit(f"--grey: expected 1, 3 or 4 channels, {self._what} has {channels}")
        self._colours, self._channels = channels, 1 if self._grey else channels
        self._small = None
        if recipe.resize is not None:
            self._small = Shrink(height, width, recipe.resize)
            height = width = recipe.resize
        self._stack = recipe.frame_stack
        self._apart = self._stack * self._channels > height and self._stack > 1
        one = (height, width, self._channels)
        full = (self._stack, *one) if self._apart else (*one[:2], self._stack * self._channels)
        self._frames = np.zeros(full, np.uint8)
        self.space = spaces.Box(0, 255, full, np.uint8)

    def first(self, frame: Any) -> Array:
        """Of an episode."""
        seen = self._developed(frame)
        if self._apart:
            self._frames[:] = seen
        else:
            self._frames[:] = np.tile(seen, self._stack)
        return self._frames.copy()

    def next(self, frame: Any) -> Array:
        """The frames before move up; the oldest goes."""
        seen, flat = self._developed(frame), self._frames.reshape(-1)
        if self._stack > 1:
            by = seen.size if self._apart else self._channels
            flat[:-by] = flat[by:]  # all bytes at once: where it moves a pixel too far the new frame comes
        if self._apart:
            self._frames[-1] = seen
        else:
            self._frames[..., -self._channels :] = seen
        return self._frames.copy()

    def _developed(self, frame: Any) -> Array:
        """uint8[h, w, c] of one frame as the environment gives it."""
        if not (isinstance(frame, np.ndarray) and frame.shape == self._shape and frame.dtype == np.uint8):
            got = f"{frame.dtype}{list(frame.shape)}" if isinstance(frame, np.ndarray) else type(frame).__name__
            raise ValueError(f"expected {self._what} as uint8{list(self._shape)}, got {got}")
        seen: Array = frame[..., None] if frame.ndim == 2 else frame if self._last else frame.transpose(1, 2, 0)
        if self._grey and self._colours > 1:
            luma = (seen[..., :3].reshape(-1, 3).astype(np.float32) @ _LUMA).astype(np.int32)
            seen = ((luma + 500) // 1000).astype(np.uint8).reshape(*seen.shape[:2], 1)
        return seen if self._small is None else self._small(seen)


class Shrink:
    """A picture of another size: each new pixel is the mean of the area that it covers, rounded half up.

    >>> Shrink(2, 4, 2)(np.array([[0, 10, 20, 30], [10, 20, 30, 41]], np.uint8)[..., None])[..., 0]
    array([[ 5, 25],
           [15, 36]], dtype=uint8)
    """

    def __init__(self, height: int, width: int, side: int) -> None:
        self._area = height * width
        kind = np.float32 if 255 * self._area < _EXACT else np.float64
        self._whole = np.int32 if 255 * self._area < 2**29 else np.int64
        self._rows, self._columns = shares(height, side, kind), shares(width, side, kind)

    def __call__(self, picture: Array) -> Array:
        """uint8[H, W, C] -> uint8[side, side, C]."""
        height, width, channels = picture.shape
        values = picture.reshape(height, width * channels).astype(self._rows.dtype)
        sums = (self._rows @ values).reshape(-1, width, channels)
        sums = (sums[..., 0] @ self._columns.T)[..., None] if channels == 1 else self._columns @ sums
        whole = sums.astype(self._whole)
        made: Array = ((2 * whole + self._area) // (2 * self._area)).astype(np.uint8)
        return made


@functools.cache
def shares(before: int, after: int, kind: type) -> Array:
    """[after, before]: how much of each old pixel a new one covers, in whole numbers that sum to `before` in a row.

    >>> shares(5, 2, np.float32).tolist()
    [[2.0, 2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0, 2.0]]
    """
    new, old = np.arange(after)[:, None], np.arange(before)[None, :]
    overlap = np.minimum((new + 1) * before, (old + 1) * after) - np.maximum(new * before, old * after)
    made: Array = np.maximum(overlap, 0).astype(kind)
    return made


class Preprocessed(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations are treated by a recipe. With `frame_skip` an action is repeated; rewards are
    summed, and pictures are the brighter of the last two frames, since some games draw an object every other frame."""

    def __init__(self, env: gym.Env[Any, Any], recipe: Preprocess) -> None:
        super().__init__(env)
        self.recipe = recipe
        self._observer = Observer(recipe, env.observation_space)
        self.observation_space = self._observer.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._observer.first(observation), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        skip = self.recipe.frame_skip
        for turn in range(1, skip):
            if terminated or truncated:
                break
            before = self._copied(observation) if turn == skip - 1 else None
            observation, more, terminated, truncated, info = self.env.step(action)
            reward = float(reward) + float(more)
            if before is not None:
                observation = self._brighter(before, observation)
        return self._observer.next(observation), reward, terminated, truncated, info

    def _copied(self, observation: Any) -> list[Array]:
        """An environment may draw its next frame over this one."""
        parts = self._observer.parts(observation)
        return [np.array(parts[at]) for at in self._observer.pictures]

    def _brighter(self, before: list[Array], observation: Any) -> Any:
        parts = self._observer.parts(observation)
        for at, old in zip(self._observer.pictures, before, strict=True):
            parts[at] = np.maximum(old, parts[at])
        return self._observer.assemble(parts)


def _without(space: spaces.Space[Any], names: Sequence[str]) -> spaces.Space[Any]:
    """A Dict without these parts."""
    if not names:
        return space
    known = list(space.spaces) if isinstance(space, spaces.Dict) else []
    for name in names:
        if name not in known:
            parts = f"its parts are {', '.join(map(str, known))}" if known else f"it has no parts: {space}"
            raise Unfit(f"--leave-out {name}: no such part of the observation; {parts}")
    assert isinstance(space, spaces.Dict)
    kept = [(name, part) for name, part in space.spaces.items() if name not in names]
    if not kept:
        raise Unfit(f"--leave-out {' '.join(names)}: nothing of the observation would be left")
    return spaces.Dict(kept)


def _replaced(space: spaces.Space[Any], by_path: dict[tuple[Any, ...], spaces.Space[Any]]) -> spaces.Space[Any]:
    """The space with other leaves at these paths; the order of keys stays."""
    if () in by_path:
        return by_path[()]
    if not by_path:
        return space
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(key, _replaced(part, _below(by_path, key))) for key, part in space.spaces.items()])
    assert isinstance(space, spaces.Tuple)
    return spaces.Tuple([_replaced(part, _below(by_path, at)) for at, part in enumerate(space.spaces)])


def _below(by_path: dict[tuple[Any, ...], spaces.Space[Any]], key: Any) -> dict[tuple[Any, ...], spaces.Space[Any]]:
    return {path[1:]: space for path, space in by_path.items() if path[0] == key}
