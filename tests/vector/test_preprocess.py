"""What is done to observations before the policy sees them: by hand on small pictures, and against averages."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from shoal.config import TrainConfig
from shoal.core.arrays import Array
from shoal.vector.make import make_vec
from shoal.vector.preprocess import Observer, Preprocess, Shrink, Unfit, shares, wrappers_of


class Frames(gym.Env[Any, Any]):
    """Step t shows a picture in which every byte is 10 t, and earns t. `where` is a key of a Dict."""

    action_space = spaces.Discrete(2)

    def __init__(
        self, shape: tuple[int, ...] = (8, 8, 3), where: str = "", blink: bool = False, length: int = 9
    ) -> None:
        self.shape, self.where, self.blink, self.length = shape, where, blink, length
        picture = spaces.Box(0, 255, shape, np.uint8)
        parts = {"words": spaces.Text(5), where: picture, "speed": spaces.Box(-1, 1, (2,))}
        self.observation_space = spaces.Dict(list(parts.items())) if where else picture
        self._frame = np.zeros(shape, np.uint8)  # one array, drawn over again and again

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at += 1
        return self._look(), float(self.at), False, self.at >= self.length, {}

    def _look(self) -> Any:
        self._frame[...] = 0 if self.blink and self.at % 2 == 0 else 10 * self.at
        if not self.where:
            return self._frame
        return {"words": "go", self.where: self._frame, "speed": np.full(2, self.at / 10, np.float32)}


def seen(recipe: Preprocess, **options: Any) -> list[Any]:
    """All observations of an episode."""
    env = recipe(Frames(**options))
    found, over = [env.reset(seed=0)[0]], False
    while not over:
        observation, _, terminated, truncated, _ = env.step(0)
        assert env.observation_space.contains(observation)
        found.append(observation)
        over = terminated or truncated
    return found


@pytest.mark.parametrize(
    ("shape", "stacked"),
    [((8, 8, 1), (8, 8, 4)), ((1, 8, 8), (8, 8, 4)), ((40, 40), (40, 40, 4)), ((3, 12, 12), (12, 12, 12)),
     ((8, 8, 3), (4, 8, 8, 3)), ((3, 8, 8), (4, 8, 8, 3))],
)  # fmt: skip
def test_a_stack_holds_the_last_frames(shape: tuple[int, ...], stacked: tuple[int, ...]) -> None:
    """Oldest first; the first observation of an episode is there four times; another episode knows nothing of it."""
    recipe = Preprocess(frame_stack=4)
    env = recipe(Frames(shape))
    assert env.observation_space.shape == stacked
    for _ in range(2):
        expected = [0, 0, 0, 0]
        found = [env.reset(seed=1)[0]] + [env.step(0)[0] for _ in range(5)]
        for time, observation in enumerate(found):
            expected = [*expected[1:], 10 * time]
            apart = observation if len(stacked) == 4 else np.moveaxis(observation.reshape(*stacked[:2], 4, -1), 2, 0)
            assert [np.unique(frame).tolist() for frame in apart] == [[value] for value in expected]


def test_what_was_given_stays_as_it_was() -> None:
    """Observations are the caller's to keep."""
    kept = seen(Preprocess(frame_stack=2), shape=(8, 8, 1))
    assert [(int(one[0, 0, 0]), int(one[0, 0, 1])) for one in kept[:4]] == [(0, 0), (0, 10), (10, 20), (20, 30)]


def test_grey_is_luma_rounded() -> None:
    """0.299 R + 0.587 G + 0.114 B, of the last axis or the first; what is grey already stays."""
    picture = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    exact = picture.astype(np.int64) @ [299, 587, 114]
    expected = ((exact + 500) // 1000).astype(np.uint8)[..., None]
    for given in (picture, np.ascontiguousarray(picture.transpose(2, 0, 1)), np.dstack([picture, picture[..., :1]])):
        observer = Observer(Preprocess(grey=True), spaces.Box(0, 255, given.shape, np.uint8))
        np.testing.assert_array_equal(observer.first(given), expected)
    grey = Observer(Preprocess(grey=True), spaces.Box(0, 255, (40, 30), np.uint8))
    np.testing.assert_array_equal(grey.first(np.full((40, 30), 7, np.uint8)), np.full((40, 30, 1), 7))


def averaged(picture: Array, side: int) -> Array:
    """Every pixel repeated `side` times both ways and averaged block by block, in exact numbers."""
    height, width, channels = picture.shape
    large = picture.astype(np.int64).repeat(side, 0).repeat(side, 1)
    sums = large.reshape(side, height, side, width, channels).sum((1, 3))
    return ((2 * sums + height * width) // (2 * height * width)).astype(np.uint8)


@pytest.mark.parametrize(
    ("shape", "side"), [((210, 160, 1), 84), ((96, 96, 3), 84), ((7, 5, 2), 12), ((300, 300, 1), 3), ((5, 5, 1), 5)]
)
def test_a_resized_picture_is_the_mean_of_areas(shape: tuple[int, ...], side: int) -> None:
    """To the bit, smaller and larger, of more bytes than a float32 can sum too."""
    picture = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    np.testing.assert_array_equal(Shrink(*shape[:2], side)(picture), averaged(picture, side))
    assert (shares(shape[0], side, np.float64).sum(1) == shape[0]).all()
    white = np.full(shape, 255, np.uint8)
    assert (Shrink(*shape[:2], side)(white) == 255).all()


def test_an_action_is_repeated() -> None:
    """Rewards are summed, the picture is the brighter of the last two; an episode that ends ends the repetition."""
    env = Preprocess(frame_skip=4)(Frames((8, 8, 1), blink=True, length=6))
    env.reset(seed=0)
    observation, reward, *_ = env.step(0)
    assert (int(observation.max()), reward) == (30, 1 + 2 + 3 + 4)  # frame 4 is dark
    observation, reward, _, truncated, _ = env.step(0)
    assert (int(observation.max()), reward, truncated) == (0, 5 + 6, True)


def test_a_part_of_a_dict() -> None:
    """The picture alone is changed, text goes, the order of the others stays."""
    recipe = Preprocess(grey=True, resize=4, frame_stack=2, leave_out=("words",))
    env = recipe(Frames((12, 12, 3), where="camera"))
    assert isinstance(env.observation_space, spaces.Dict)
    assert list(env.observation_space.spaces) == ["camera", "speed"]
    assert env.observation_space["camera"].shape == (4, 4, 2)
    env.reset(seed=0)
    observation = env.step(0)[0]
    assert observation["camera"][0, 0].tolist() == [0, 10]
    assert observation["speed"].tolist() == [np.float32(0.1)] * 2


@pytest.mark.parametrize("method", ["serial", "process", "split"])
def test_every_backend_sees_the_same(method: str) -> None:
    """Episode by episode, the last observation of each included."""
    recipe = Preprocess(frame_skip=2, grey=True, resize=6, frame_stack=3)
    make = functools.partial(Frames, (12, 12, 3), length=5)
    more = {} if method == "serial" else {"workers": 2}
    envs = make_vec(make, 3, backend=method, wrappers=[recipe], **more)
    single = recipe(make())
    expected = single.reset(seed=0)[0]
    observations = envs.reset(seed=0)[0]
    for _ in range(8):
        np.testing.assert_array_equal(observations, np.stack([expected] * 3))
        observations, rewards, _, truncated, infos = envs.step(np.zeros(3, np.int64))
        expected, reward, _, over, _ = single.step(0)
        assert rewards.tolist() == [reward] * 3
        assert truncated.tolist() == [over] * 3
        if over:
            np.testing.assert_array_equal(np.stack(infos["final_obs"]), np.stack([expected] * 3))
            expected = single.reset()[0]
    envs.close()


@pytest.mark.parametrize(
    ("recipe", "options", "said"),
    [
        (Preprocess(frame_stack=4), {"shape": (8,)}, "--frame-stack 4: expected a picture in the observation"),
        (Preprocess(grey=True), {"shape": (8, 8, 2)}, "--grey: expected 1, 3 or 4 channels, the observation has 2"),
        (Preprocess(resize=4), {"shape": (4, 8, 8, 3)}, "expected single frames.* is a stack of them already"),
        (Preprocess(leave_out=("noise",)), {"where": "camera"}, "--leave-out noise: no such part.*words, camera"),
        (Preprocess(leave_out=("noise",)), {}, "--leave-out noise: no such part.*it has no parts"),
        (Preprocess(leave_out=("words", "camera", "speed")), {"where": "camera"}, "nothing of the observation would"),
    ],
)
def test_what_does_not_fit_is_refused(recipe: Preprocess, options: dict[str, Any], said: str) -> None:
    """In plain words, wherever the environment is built."""
    with pytest.raises(Unfit, match=said):
        recipe(Frames(**options))
    for backend in ("serial", "process"):
        with pytest.raises(ValueError, match=said) as caught:
            make_vec(functools.partial(Frames, **options), 2, backend=backend, wrappers=[recipe])
        assert "environment 0" not in str(caught.value)


def test_a_frame_that_is_not_as_promised() -> None:
    """It is named; nothing is broadcast."""
    observer = Observer(Preprocess(frame_stack=2), spaces.Dict(eye=spaces.Box(0, 255, (8, 8, 3), np.uint8)))
    with pytest.raises(
        ValueError, match=r"expected the observation part eye as uint8\[8, 8, 3\], got float32\[8, 8, 3\]"
    ):
        observer.first({"eye": np.zeros((8, 8, 3), np.float32)})


def test_recipes_are_settings() -> None:
    """They go around the other wrappers, travel to workers, and at their defaults there is none."""
    assert wrappers_of(TrainConfig()) == ()
    config = TrainConfig().replace(wrappers=("a:B",), frame_stack=4, resize=84, gray=True)
    assert wrappers_of(config) == ("a:B", Preprocess(grey=True, resize=84, frame_stack=4))
    recipe = Preprocess.of(config)
    assert pickle.loads(pickle.dumps(recipe)) == recipe == cloudpickle.loads(cloudpickle.dumps(recipe))
    for name, value in (("frame_stack", 0), ("frame_skip", 0), ("resize", 0)):
        with pytest.raises(ValueError, match=f"expected --{name.replace('_', '-')} as a whole number of at least 1"):
            config.replace(**{name: value})
    with pytest.raises(ValueError, match="--frame-stack 4 goes around each environment of a Gymnasium id"):
        make_vec("shoal/CartPole-v1", 2, wrappers=[Preprocess(frame_stack=4)])
