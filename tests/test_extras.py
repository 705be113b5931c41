"""What shoal does without its extras, and what it says about the rest. Packages are hidden in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from shoal.extras import EXTRAS, extra_of, missing, require

ROOT = Path(__file__).parents[1]
OPTIONAL = sorted({package for packages in EXTRAS.values() for package in packages})
PACKAGES = {  # where pip has another name
    "sklearn": "scikit-learn",
    "stable_baselines3": "stable-baselines3",
    "PIL": "pillow",
    "ale_py": "ale-py",
    "imageio_ffmpeg": "imageio-ffmpeg",
}
HIDDEN = f"""
import sys
for name in {OPTIONAL}:
    sys.modules[name] = None  # importing it raises ModuleNotFoundError, as if it was not installed
from shoal.cli import main
main()
"""


def in_a_process(script: str, *args: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", script, *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)


def shoal_alone(*args: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`shoal ...` as after a plain `pip install shoal`."""
    return in_a_process(HIDDEN, *args, folder=folder)


def test_training_and_scoring_need_no_extra(tmp_path: Path) -> None:
    """Nor does the page with its curves."""
    words = "train CartPole-v1 --steps 4000 --num-envs 4 --name one"
    trained = shoal_alone(*words.split(), folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "report could not be written" not in trained.stderr
    page = (tmp_path / "runs" / "one" / "report.html").read_text()
    assert "data-chart=" in page
    scored = shoal_alone("evaluate", "runs/one", "--episodes", "5", folder=tmp_path)
    assert scored.returncode == 0, scored.stderr
    assert "Held-out score" in (tmp_path / "runs" / "one" / "report.html").read_text()


def test_cage2_trains_without_an_extra(tmp_path: Path) -> None:
    """Only pictures as files need matplotlib, not those of the page."""
    words = "train cage2 --steps 2000 --num-envs 8 --name one"
    trained = shoal_alone(*words.split(), folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "class='stage'" in (tmp_path / "runs" / "one" / "report.html").read_text()


NEEDED = {
    "train rides --name one": "rides",
    "tune rides": "rides",
    "evaluate rides --policy myopic --days 2": "rides",
    "rides city": "rides",
    "search gridworld --workflows 3": "search",
    "cage2 play d1 --picture one.png": "cage2",
    "train CartPole-v1 --track tensorboard": "tensorboard",
    "train CartPole-v1 --track wandb": "wandb",
    "train CartPole-v1 --backend ray": "ray",
    "train ALE/Pong-v5": "atari",
    "train MiniGrid-Empty-5x5-v0": "minigrid",
    "train minigrid:MiniGrid-Empty-5x5-v0": "minigrid",
}
EACH = """
import json, os
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
for words in sys.argv[1:]:
    out, err, code = StringIO(), StringIO(), None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(words.split())
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([words, code, out.getvalue(), err.getvalue(), os.listdir()]))
"""


def test_what_needs_an_extra_names_it_before_any_work(tmp_path: Path) -> None:
    """One line, exit code 2, and nothing is left behind."""
    done = in_a_process(HIDDEN.replace("\nmain()\n", EACH), *NEEDED, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [words for words, *_ in answers] == list(NEEDED)
    for words, code, out, err, left in answers:
        assert code == 2, words
        assert f'pip install "shoal[{NEEDED[words]}]"' in err, words
        assert len(err.splitlines()) == 1, err
        assert out == "", words
        assert not left, words


def test_the_extras_are_those_of_the_package() -> None:
    """pyproject.toml and the sentences agree; [all] has every extra that users train with."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        listed = {line.partition(">")[0].partition("[")[0] for line in extras[extra]}
        assert {PACKAGES.get(package, package) for package in packages} <= listed, extra
    everything = extras["all"][0].removeprefix("shoal[").removesuffix("]").split(",")
    assert sorted(everything) == sorted(EXTRAS.keys() - {"peers"})


def test_the_sentence_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is missing, at once."""
    assert missing("rides") == []
    monkeypatch.setitem(sys.modules, "pyvrp", None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ModuleNotFoundError, match="rides needs pyvrp and scipy, which are not installed: pip install"):
        require("rides", "rides")
    assert extra_of("sklearn") == "search"
