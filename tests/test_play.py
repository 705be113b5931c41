"""`shoal play`: the episodes that are scored, to watch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

import shoal
from shoal.cli import main

OPTIONS = {"num_envs": 2, "rollout_steps": 16, "minibatch_size": 32, "backend": "serial", "steps": 64}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    shoal.train("CartPole-v1", runs_dir=str(root), name="pole", **OPTIONS)
    shoal.train("FrozenLake-v1", runs_dir=str(root), name="lake", **OPTIONS)
    return root


def shoal_(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


def of(root: Path, name: str) -> list[str]:
    return [name, "--runs-dir", str(root)]


@pytest.mark.parametrize("kind", ["gif", "mp4"])
def test_a_video_has_the_frames_of_the_episodes_that_are_scored(
    kind: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A video as long as the episodes; their returns are those of `evaluate`, in its order."""
    path = tmp_path / f"out.{kind}"
    assert shoal_("play", *of(root, "pole"), "--episodes", "2", "--video", str(path), "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    score = shoal.evaluate("pole", runs_dir=root, episodes=2, keep=False)["deterministic"]
    assert [row["return"] for row in shown["episodes"]] == score["returns"]
    lengths = [row["length"] for row in shown["episodes"]]
    if kind == "gif":
        with Image.open(path) as film:
            assert film.n_frames == shown["frames"]
            assert film.size == (480, 320)  # 600 x 400 in little
        halves = [1 + -(-length // 2) for length in lengths]  # 50 frames a second are too many; the last one is there
        assert shown["frames"] == sum(halves)
    else:
        import imageio_ffmpeg

        count, seconds = imageio_ffmpeg.count_frames_and_secs(str(path))
        assert shown["frames"] == sum(length + 1 for length in lengths)
        assert count == shown["frames"] + 2 * 40  # the last frame of each stands still for 0.8 s
        assert seconds == pytest.approx(count / 50, abs=0.1)


def test_a_gif_shows_the_pole_fall(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The last frame is not the first of another episode: the pole leans at the end."""
    path = tmp_path / "one.gif"
    shoal.play("pole", runs_dir=root, episodes=1, video=path, say=lambda text: None)
    assert "error" not in capfd.readouterr().err  # SDL, of a machine without a screen
    with Image.open(path) as film:
        first = np.asarray(film.convert("RGB"))
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("RGB"))

    def lean(frame: np.ndarray) -> float:
        brown = (frame[:, :, 0] > 180) & (frame[:, :, 2] < 140) & (frame[:, :, 1] > 120)
        columns = np.flatnonzero(brown.any(0))
        return float(columns[-1] - columns[0])

    assert lean(last) > lean(first) + 5


def test_text_is_printed_frame_by_frame(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a flag, where the environment has it; then the returns."""
    assert shoal_("play", *of(root, "lake"), "--episodes", "1") == 0
    out = capsys.readouterr().out
    assert out.startswith("episode 1, step 0\n")
    steps = int(out.rsplit(" steps", 1)[0].rsplit("  ", 1)[1])
    assert out.count("episode 1, step") == steps + 1
    assert out.count("S\x1b[0mFFF\nFHFH\nFFFH\nHFFG") >= 1  # the map, with the agent at its start
    assert "FrozenLake-v1, epoch 2, deterministic actions" in out


def test_without_pictures_or_text_there_are_returns(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CartPole has no text, and a compiled environment nothing at all."""
    assert shoal_("play", *of(root, "pole"), "--sampled") == 0
    out = capsys.readouterr().out
    assert "sampled actions" in out
    score = shoal.evaluate("pole", runs_dir=root, episodes=3, keep=False)["sampled"]["returns"]
    assert [float(line.split()[3]) for line in out.splitlines()[1:]] == score
    shoal.train("shoal/CartPole-v1", runs_dir=str(root), name="fast", **{**OPTIONS, "backend": "auto"})
    assert shoal_("play", *of(root, "fast"), "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["episodes"]) == 3


def test_a_window_is_opened(root: Path) -> None:
    """`--render human`, on a screen that does not exist."""
    words = [*of(root, "lake"), "--episodes", "1", "--render", "human", "--max-episode-steps", "3", "--json"]
    environment = {**os.environ, "SDL_VIDEODRIVER": "dummy"}
    command = [sys.executable, "-m", "shoal", "play", *words]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["episodes"][0]["length"] <= 3


def test_a_reader_that_leaves_is_no_fault_of_the_environment(root: Path) -> None:
    """`shoal play RUN | head` ends quietly."""
    words = " ".join(of(root, "lake"))
    said = subprocess.run(
        f"{sys.executable} -m shoal play {words} --episodes 40 | head -1",
        shell=True, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert said.stdout == "episode 1, step 0\n"
    assert "Broken" not in said.stderr


class Lamp(gym.Env):
    """An environment of somebody's own, in colour, which counts its steps in red."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space, action_space = gym.spaces.Box(0, 1, (1,), np.float32), gym.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at += 1
        return np.zeros(1, np.float32), 1.0, self.at == 4, False, {}

    def render(self):
        return np.full((16, 16, 3), (60 * self.at, 0, 0), np.uint8)


def test_an_environment_of_ones_own_is_filmed(tmp_path: Path) -> None:
    """Made with its render_mode; each frame once, the last one last."""
    run = shoal.train("lamp", env=Lamp, runs_dir=str(tmp_path), **OPTIONS).run
    shown = shoal.play(run, env=Lamp, episodes=1, video=tmp_path / "lamp.gif", say=lambda text: None)
    assert shown["frames"] == 5
    with Image.open(tmp_path / "lamp.gif") as film:
        reds = []
        for at in range(film.n_frames):
            film.seek(at)
            reds.append(film.convert("RGB").getpixel((3, 3))[0])
            assert film.info["duration"] == (100 if at < 4 else 900)
    assert reds == [0, 60, 120, 180, 240]
    with pytest.raises(
        ValueError, match="has no render mode rgb_array: it shows nothing; one of your own is made with"
    ):
        shoal.play(run, env=lambda: Lamp(), episodes=1, video=tmp_path / "lamp.gif")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--video", "a.avi"], "expected --video as a file that ends in .gif or .mp4, got a.avi"),
        (["--video", "nowhere/a.gif"], "make nowhere first"),
        (["--video", "a.gif", "--render", "human"], "an environment shows itself in one way at a time"),
        (["--render", "ansi"], "CartPole-v1 has no render mode ansi: it has human, rgb_array"),
        (["--episodes", "0"], "expected at least 1 episode, got 0"),
        (["--checkpoint", "best"], "holds no best checkpoint: expected a run that was trained with --evaluate-every"),
        (["--checkpoint", "newest"], "expected --checkpoint as last, best or the number of an epoch, got 'newest'"),
        (["--checkpoint", "9"], "holds no checkpoint of epoch 9; there are: 0, 2"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], said: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a sentence, before anything is written."""
    assert shoal_("play", *of(root, "pole"), *words) == 2
    assert said in capsys.readouterr().err


def test_the_epoch_may_be_chosen(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its number, in play and in evaluate, and from Python."""
    assert shoal_("play", *of(root, "pole"), "--checkpoint", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["epoch"] == 0
    assert shoal_("evaluate", *of(root, "pole"), "--checkpoint", "0", "--episodes", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["epoch"] == 0
    assert shoal.load_policy("pole", runs_dir=root, checkpoint=0).epoch == 0
    assert shoal.load_policy("pole", runs_dir=root, checkpoint="last").epoch == 2


def test_a_missing_package_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its extra, before anything is played."""
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ModuleNotFoundError, match=r'\.mp4 needs imageio-ffmpeg, .*: pip install "shoal\[video\]"'):
        shoal.play("pole", runs_dir=root, video=tmp_path / "a.mp4")
    shoal.play("pole", runs_dir=root, video=tmp_path / "a.gif", episodes=1, say=lambda text: None)
