"""Where the time of a run goes: rows, summary and bar agree, and nothing is counted twice."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.report import _environments
from shoal.runs.folder import Run
from shoal.runs.spent import bar, spent

PARTS = ("environment_s", "oracle_s", "acting_s", "estimate_s", "update_s", "save_s", "other_s")


def trained(folder: Path, task: str, **options: Any) -> tuple[list[dict[str, Any]], dict[str, float], str]:
    shoal.train(task, runs_dir=str(folder), name="r", stream=StringIO(), **options)
    return (
        Run.open("r", folder).metrics(),
        json.loads((folder / "r" / "time.json").read_text()),
        (folder / "r" / "report.html").read_text(),
    )


@pytest.mark.parametrize("slices", ["lockstep", "double"])
def test_the_parts_add_up(tmp_path: Path, slices: str) -> None:
    """Environments and acting are the rollout; all parts are what elapsed; the page draws them."""
    more = {"backend": "process", "workers": 1, "slices": slices} if slices == "double" else {"backend": "serial"}
    rows, found, page = trained(
        tmp_path, "CartPole-v1", num_envs=8, rollout_steps=32, epochs=4, save_interval=1, **more
    )
    for row in rows:
        assert row["time/environment_s"] + row["time/acting_s"] == pytest.approx(row["time/collect_s"])
        assert min(row["time/environment_s"], row["time/acting_s"], row["time/estimate_s"]) > 0
    assert sum(row["time/save_s"] for row in rows) > 0
    assert sum(found[part] for part in PARTS) == pytest.approx(found["elapsed_s"], abs=1e-4)
    assert found["elapsed_s"] >= rows[-1]["time/elapsed_s"]
    assert found["oracle_s"] == 0
    assert found["save_s"] > rows[-1]["time/save_s"]  # the last checkpoint comes after the last row
    for part in ("environment", "acting", "estimating", "updating", "saving"):
        assert f"data-tip='{part}: " in page
    assert "data-tip='oracle: " not in page


def test_a_resumed_run_counts_all_of_its_epochs(tmp_path: Path) -> None:
    """Seconds of before a resume are among those of the rows."""
    common = {"num_envs": 4, "rollout_steps": 16, "backend": "serial"}
    _, before, _ = trained(tmp_path, "CartPole-v1", epochs=2, **common)
    shoal.train(resume=tmp_path / "r", epochs=4, stream=StringIO())
    after = json.loads((tmp_path / "r" / "time.json").read_text())
    assert all(after[part] >= before[part] for part in ("environment_s", "acting_s", "update_s", "elapsed_s"))
    assert sum(after[part] for part in PARTS) == pytest.approx(after["elapsed_s"], abs=1e-4)


def test_an_environment_may_say_what_its_oracle_took(tmp_path: Path) -> None:
    """The rides' planning is a part of its own, apart from the environments' other time."""
    options = {"start": "none", "futures": 0, "prices": "insertion", "held_out_days": 0, "customers": 4, "vehicles": 2}
    rows, found, page = trained(
        tmp_path, "rides", num_envs=2, rollout_steps=4, epochs=2, env_kwargs=json.dumps(options)
    )
    assert all(0 < row["time/oracle_s"] < row["time/environment_s"] for row in rows)
    assert found["oracle_s"] == pytest.approx(sum(row["time/oracle_s"] for row in rows), abs=1e-5)
    assert "data-tip='oracle: " in page


def test_rows_of_before_have_no_bar() -> None:
    """An old run folder: nothing is made up."""
    assert spent([{"time/elapsed_s": 3.0, "time/update_s": 1.0}]) == {}
    assert bar({}) == ""
    assert spent([]) == {}


def test_what_is_no_number_is_no_time() -> None:
    """A row that somebody changed."""
    rows = [{"time/elapsed_s": 2.0, "time/environment_s": None, "time/update_s": "<b>", "time/acting_s": 1.0}]
    assert spent(rows)["other_s"] == 1.0
    assert "<b>" not in bar(spent(rows))


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ([{"noise/variance": 1.0, "noise/scale": 400.0}], "more of them would make an update clearer"),
        ([{"noise/variance": 1.0, "noise/scale": 3.0}], "fewer, with more updates"),
        ([{"noise/variance": 1.0, "noise/scale": 9.0}], "twice as many would still"),
        ([{"noise/variance": 1.0}] * 2, "from 2 looks, which is too few"),
        ([{"noise/variance": 1.0}] * 20, "far above their number"),
        ([{"noise/variance": 1.0, "noise/scale": "<b>"}], "from 1 look, which is too few"),
    ],
)
def test_the_page_says_whether_more_environments_would_help(figures: list[dict[str, Any]], says: str) -> None:
    """The noise scale beside the number of environments, in words."""
    page = _environments({"vector": {"num_envs": 8}}, figures)
    assert says in page
    assert "<b>8</b>" in page
    assert "<b></b>" not in page.replace("<b>8</b>", "")
    assert _environments({"vector": {"num_envs": 8}}, [{"epoch": 1}]) == ""
