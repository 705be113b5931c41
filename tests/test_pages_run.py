"""What the pages for newcomers show is run, and errors that a page quotes are those of the code."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import shoal

ROOT = Path(__file__).parents[1]


def python_of(page: str) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL))


# What makes the code of a page short where fewer steps do not; README.md and tutorial.md: test_pages_commands.py.
SHORTER = {
    "workflows.md": {
        'clone_follower("runs/clone")': 'clone_follower("runs/clone", rounds=((20, False, 1),), num_envs=24)',
        'red="bline", start': 'num_envs=4, episodes_per_env=2, min_episodes=1, validation_episodes=8, '
        'evaluation_episodes=8, red="bline", start',
    },
}  # fmt: skip
PAGES = [
    "from-sb3.md", "from-cleanrl.md", "training.md", "environments.md", "cage2.md", "architecture.md",
    "reliability.md", "workflows.md",
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block after the other, in a folder of its own; with fewer steps."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shoal.training.write_report", lambda run: None)
    code = re.sub(r"steps=[\d_]+", "steps=2_000", python_of(page))
    for long, short in SHORTER.get(page, {}).items():
        assert long in code
        code = code.replace(long, short)
    assert "shoal" in code
    exec(compile(code, page, "exec"), {"__name__": "page"})


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`shoal.train` with fewer steps, in a folder of its own."""
    train = shoal.train
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shoal.training.write_report", lambda run: None)
    small = {"steps": 512, "num_envs": 2, "rollout_steps": 64, "minibatch_size": 64}
    monkeypatch.setattr(shoal, "train", lambda *task, **options: train(*task, **{**small, **options}))
    return shoal.train


def test_the_classes_of_the_page_on_own_code_work(quick: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback trains as shown; the loss term and the tracker, which the page only defines, are used as it says."""
    code = python_of("own-code.md")
    page: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "own-code.md", "exec"), page)
    (tmp_path / "my_trackers.py").write_text(re.sub(r"^shoal\.train\(.*\n", "", code, flags=re.MULTILINE))
    monkeypatch.syspath_prepend(tmp_path)
    try:
        run = quick(
            "CartPole-v1",
            name="all",
            track="my_trackers:ReturnsCsv",
            callbacks=[page["PushesRight"](), page["SmallLogits"]()],
        )
    finally:
        sys.modules.pop("my_trackers", None)
    rows = shoal.runs.Run.open("all", tmp_path / "runs").metrics()
    assert len(rows) == 4
    for row in rows:
        assert 0 <= row["own/right"] <= 1
        assert row["loss/SmallLogits"] >= 0
    assert len((Path(run.run) / "returns.csv").read_text().splitlines()) == 1 + len(rows)


def test_the_python_of_the_page_on_atari_runs(quick: Any) -> None:
    """With the run that the page's commands make, in short."""
    pytest.importorskip("ale_py")
    quick("ALE/Pong-v5", name="pong", steps=64, num_envs=1, rollout_steps=32, minibatch_size=32, update_epochs=1)
    page: dict[str, Any] = {"__name__": "page"}
    exec(compile(python_of("atari.md"), "atari.md", "exec"), page)
    assert page["env"].observation_space.contains(page["observation"])


def texts_of_the_code() -> str:
    """Every text in the source, those in parts as one, with a mark where a value is filled in."""
    found = []
    for path in (ROOT / "src" / "shoal").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_the_errors_of_the_page_are_those_of_the_code() -> None:
    """Word for word, but for what is filled in."""
    quoted = re.findall(r"\*\*`([^`]+)`\*\*", (ROOT / "docs" / "errors.md").read_text())
    assert len(quoted) > 20
    there = texts_of_the_code()
    unknown = [text for text in quoted if text not in there and not _filled(text, there)]
    assert not unknown


def _filled(text: str, there: str) -> bool:
    """`no environment 'ALE/Pong-v5'` is a text of the code with a value in it."""
    known = {
        "no environment 'ALE/Pong-v5'": "no environment \0",
        "[environment 3, worker pid 4711, seed 5, step 17]": "worker pid",
    }
    return text in known and known[text] in there
