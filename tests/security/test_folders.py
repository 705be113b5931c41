"""A folder of runs in which one value is not what it was: `shoal report` writes its page, or says what is wrong."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shoal
from hostile import places
from shoal.cli.commands import report
from shoal.comparison.folder import ComparisonFolder, Job
from shoal.comparison.plan import Arm, Plan
from shoal.config import to_dict
from shoal.runs.manifest import CheckpointError
from shoal.search.loop import search
from shoal.tasks.presets import config_for

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "search"), str(TESTS / "comparison")]
from synthetic import run as synthetic  # noqa: E402
from toy_domain import config  # noqa: E402

# What a damaged disk, a bad merge or somebody's editor may leave: JSON of every type, and numbers at the edges.
EDGES = [
    *(None, True, False, 0, -1, 1, 3, 2**31, -(2**63), 10**30, 10**400, 0.5, -0.5, 5e-324, 1e-200, 1e59, 1e200, -1e308),
    *("", "0", "nan", "x", "../../..", "\x00", "é" * 300, "<b>", "final", "finished"),
    *([], [1], [None], ["a", "b"], [[1.0]], {}, {"a": 1}, {"mean": 1}, {"mean": 0.5, "low": "x", "high": 1.0}),
]
RAW = ["1e999", "-1e999", "NaN", '"\\ud800"', "1" * 5000, "[" * 3000 + "]" * 3000, ""]  # what is no JSON, or hardly


def _comparison(root: Path, alone: bool) -> Path:
    """Of two arms and six seeds, or of one arm."""
    arms = tuple(Arm(name, to_dict(config_for("CartPole-v1", num_envs=4))) for name in ("a", "b")[: 1 if alone else 2])
    plan = Plan(task="CartPole-v1", arms=arms, seeds=6, seed=0, held_out=100, match="samples", primary="final",
                threshold=None, code="c", alone=alone)  # fmt: skip
    folder, rng = ComparisonFolder.create(plan, str(root), "folder", "shoal compare"), np.random.default_rng(3)
    with folder.run:
        for arm, one in enumerate(arms):
            for place in range(plan.seeds):
                folder.keep(Job(arm, place), plan, synthetic(one.name, place, 60.0 + place + arm, rng))
    return folder.path


def _search(root: Path) -> Path:
    found = search(config(root, workflows=7, universal=True), {"fail_every": 5})
    return Path(found.report).parent


def _run(root: Path) -> Path:
    shoal.train("CartPole-v1", epochs=2, num_envs=2, rollout_steps=128, hidden=(4,), runs_dir=str(root), name="run",
                backend="serial", stream=io.StringIO())  # fmt: skip
    shoal.evaluate(root / "run", episodes=2)
    return root / "run"


FOLDERS: dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]] = {
    "comparison": (lambda root: _comparison(root, False), ("config.json", "done/*.json")),
    "seeds": (lambda root: _comparison(root, True), ("config.json", "done/*.json")),
    "search": (_search, ("config.json", "pulls/*/pull.json", "universal/ranking.json")),
    "run": (_run, ("config.json", "evaluation.json", "status.json", "code.json", "machine.json")),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: make(tmp_path_factory.mktemp(name)) for name, (make, _) in FOLDERS.items()}


@pytest.fixture(scope="module", autouse=True)
def _drawn_quickly() -> Iterator[None]:
    """A picture takes half a second and 20 replays as long; they show nothing of what is read here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.search.sections.REPLAYS", 1)
        patch.setattr("shoal.search.sections.svg_of", lambda figure: "<svg ></svg>")
        yield


def try_it(folder: Path) -> str:
    """What came of `shoal report`: nothing, or an error that says what was expected."""
    try:
        report([str(folder)], as_json=True)
    except (ValueError, OSError, CheckpointError) as error:
        said = str(error)
        assert re.search("expected|is damaged|no run|names a module", said), said
        assert len(said) < 6000
        return said
    return ""


def changed(text: str, place: int, value: Any, raw: str | None, gone: bool) -> str:
    """JSON with one value replaced, by JSON or by what is none, or gone."""
    data = json.loads(text)
    inside = [one for one in places(data) if one]
    path = inside[place % len(inside)]
    parent = data
    for step in path[:-1]:
        parent = parent[step]
    if gone:
        del parent[path[-1]]
    else:
        parent[path[-1]] = _MARK if raw is not None else value
    return json.dumps(data).replace(json.dumps(_MARK), raw or "")


_MARK = "what was there"
_VALUES = (
    st.sampled_from(EDGES) | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9)
)


def _fuzz(folder: Path, patterns: tuple[str, ...], examples: int, fixed: bool) -> int:
    """How many of them were refused."""
    refused = 0
    for pattern in patterns:
        files = sorted(folder.glob(pattern))
        assert files, pattern

        @settings(max_examples=examples, deadline=None, derandomize=fixed, database=None,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(st.sampled_from(files), st.integers(0, 10_000), _VALUES, st.none() | st.sampled_from(RAW), st.booleans())
        def one_value(file: Path, place: int, value: Any, raw: str | None, gone: bool) -> None:
            nonlocal refused
            sound = file.read_text()
            try:
                file.write_text(changed(sound, place, value, raw, gone and raw is None))
                refused += bool(try_it(folder))
            finally:
                file.write_text(sound)

        one_value()
    assert not try_it(folder)
    return refused


@pytest.mark.parametrize("name", FOLDERS)
def test_one_damaged_value_of_a_folder_is_named(name: str, made: dict[str, Path]) -> None:
    assert _fuzz(made[name], FOLDERS[name][1], 25, True) > 0


@pytest.mark.parametrize(
    ("file", "was", "becomes", "says"),
    [
        ("done/0-a-s02.json", '"final": 62.0', '"final": "x"', "final as a number or nothing, got 'x'"),
        ("done/1-b-s00.json", '"steps": 2000', '"steps": 1e999', "steps as a whole number, got inf"),
        ("done/1-b-s00.json", '"settings": "b"', '"settings": []', "settings as text, got []"),
        ("done/0-a-s02.json", '"arm": "a"', '"arm": "b"', "arm as 'a', got 'b'"),
        ("config.json", '"seeds": 6', '"seeds": 4611686018427387904', "--seeds of at most 100,000"),
        ("config.json", '"name": "b"', '"name": "a"', "arms of different names"),
    ],
)
def test_the_file_and_the_value_are_named(made: dict[str, Path], file: str, was: str, becomes: str, says: str) -> None:
    path = made["comparison"] / file
    sound = path.read_text()
    assert sound.count(was) == 1
    try:
        path.write_text(sound.replace(was, becomes))
        said = try_it(made["comparison"])
    finally:
        path.write_text(sound)
    assert f"{path} is damaged: expected {says}" in said
    assert said.endswith("Restore it from a backup, or start anew")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FOLDERS)
def test_one_damaged_value_of_a_folder_is_named_for_minutes(name: str, made: dict[str, Path]) -> None:
    assert _fuzz(made[name], FOLDERS[name][1], 1000, False) > 0
