"""`shoal evaluate --record`: the best, the median and the worst episode in the report."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

import shoal
from shoal.cli import main
from shoal.report import write_report
from shoal.runs import scores
from shoal.runs.film import CLIP_BYTES, CLIP_FRAMES, Clip
from shoal.runs.folder import Run

OPTIONS = {"num_envs": 2, "rollout_steps": 16, "minibatch_size": 32, "backend": "serial", "steps": 64}


class Coloured(gym.Env):
    """Returns a number that only its seed decides, and shows it as a shade of grey."""

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 10}  # noqa: RUF012
    observation_space, action_space = gym.spaces.Box(0, 1, (1,), np.float32), gym.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        self.worth, self.at = seed % 251, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at += 1
        return np.zeros(1, np.float32), float(self.worth), self.at == 3, False, {}

    def render(self):
        return np.full((8, 8, 3), self.worth, np.uint8)


class Written(Coloured):
    """The same in words, which a page must escape."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012

    def render(self):
        return f"\x1b[41m<b>{self.worth}</b>\x1b[0m step {self.at}"


def shoal_(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


def test_the_report_shows_the_episodes_that_were_best_median_and_worst(tmp_path: Path) -> None:
    """By the returns scored; the clips are of these episodes, with a text for who cannot see them."""
    run = shoal.train("grey", env=Coloured, runs_dir=str(tmp_path), name="grey", **OPTIONS).run
    found = shoal.evaluate(run, env=Coloured, episodes=7, record=True)
    returns = found["deterministic"]["returns"]
    assert [row["return"] for row in found["recorded"]] == [max(returns), sorted(returns)[3], min(returns)]
    assert [returns[row["episode"] - 1] for row in found["recorded"]] == [row["return"] for row in found["recorded"]]
    page = write_report(run).read_text()
    shades = [
        Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB").getpixel((2, 2))[0]
        for data in re.findall(r"src='data:image/gif;base64,([^']+)'", page)
    ]
    assert shades == [row["return"] / 3 for row in found["recorded"]]
    for row in found["recorded"]:
        assert f"alt='The {row['which']} of 7 held-out episodes: episode {row['episode']}, return" in page
    assert page.count("(prefers-reduced-motion: reduce)") == 3


def test_text_is_shown_as_text(tmp_path: Path) -> None:
    """Escaped, without the codes of a terminal, first and last frame included."""
    run = shoal.train("words", env=Written, runs_dir=str(tmp_path), name="words", **OPTIONS).run
    found = shoal.evaluate(run, env=Written, episodes=3, record=True)
    page = write_report(run).read_text()
    for row in found["recorded"]:
        worth = round(row["return"] / 3)
        for at in range(4):
            assert f"<pre>&lt;b&gt;{worth}&lt;/b&gt; step {at}</pre>" in page
    assert "\x1b" not in page


def test_from_the_shell_the_page_stays_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CartPole's 600 x 400 frames; recording changes no score."""
    shoal.train("CartPole-v1", runs_dir=str(tmp_path), name="pole", **OPTIONS)
    words = ["evaluate", "pole", "--runs-dir", str(tmp_path), "--episodes", "5", "--json"]
    assert shoal_(*words) == 0
    plain = json.loads(capsys.readouterr().out)
    assert shoal_(*words, "--record") == 0
    recorded = json.loads(capsys.readouterr().out)
    assert recorded["deterministic"] == plain["deterministic"]
    page = tmp_path / "pole" / "report.html"
    assert page.read_text().count("data:image/gif;base64") == 3
    assert page.stat().st_size < 1_000_000
    assert shoal_(*words) == 0  # a score without clips replaces them: the page shows what belongs together
    assert page.read_text().count("data:image/gif;base64") == 0


def test_a_clip_of_noise_stays_within_its_bytes() -> None:
    """Three of them fit into a page of 3 MB, whatever is shown; the last frame is there."""
    random, clip = np.random.default_rng(0), Clip(30)
    clip.begin()
    for _ in range(300):
        clip.add(random.integers(0, 256, (400, 600, 3)).astype(np.uint8))
    clip.add(np.full((400, 600, 3), 200, np.uint8))
    data = clip.gif()
    assert len(data) <= CLIP_BYTES
    with Image.open(io.BytesIO(data)) as film:
        assert 1 < film.n_frames <= CLIP_FRAMES
        film.seek(film.n_frames - 1)
        assert film.convert("RGB").getpixel((100, 100)) == (200, 200, 200)
    with Image.open(io.BytesIO(clip.still())) as still:
        assert still.convert("RGB").getpixel((100, 100)) == (200, 200, 200)


def test_a_folder_cannot_name_other_files(tmp_path: Path) -> None:
    """evaluation.json may come from anybody: only three names are looked for, and only pictures are taken."""
    run = Run.open(shoal.train("grey", env=Coloured, runs_dir=str(tmp_path), name="g", **OPTIONS).run, tmp_path)
    found = shoal.evaluate(run.path, env=Coloured, episodes=2, record=True)
    (run.figures / "best.gif").write_bytes(b"<svg onload=alert(1)>")
    found["recorded"].append({"which": "../config", "episode": 1, "return": 1, "length": 1, "kind": "pictures"})
    found["recorded"].append("nonsense")
    scores.keep(run, scores.HELD_OUT, found)
    page = write_report(run).read_text()
    assert "expected best.gif as a picture" in page
    assert "onload" not in page
    assert "../config" not in page


def test_what_shows_nothing_is_refused_before_it_is_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A compiled environment; and the challenge's protocol of cage2, which plays thousands."""
    shoal.train("shoal/CartPole-v1", runs_dir=str(tmp_path), name="fast", **{**OPTIONS, "backend": "auto"})
    assert shoal_("evaluate", "fast", "--runs-dir", str(tmp_path), "--record") == 2
    assert "shoal/CartPole-v1: it shows nothing" in capsys.readouterr().err
    assert not (tmp_path / "fast" / "evaluation.json").exists()
    shoal.train("cage2", runs_dir=str(tmp_path), name="net", **{**OPTIONS, "backend": "auto"})
    assert shoal_("evaluate", "net", "--runs-dir", str(tmp_path), "--leaderboard", "--record") == 2
    assert "--record: expected no --leaderboard" in capsys.readouterr().err
