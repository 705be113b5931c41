"""Run folders that version 0.1.0 wrote are scored, loaded and resumed by this one."""

from __future__ import annotations

import json
import shutil
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.runs.folder import Run

OLD = Path(__file__).parent / "data" / "runs-0.1.0"
RUNS = {"cartpole": "ActorCritic", "cage2": "ActorCritic", "rides": "RidesNetwork"}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_0_1_0_goes_on(name: str, tmp_path: Path) -> None:
    """Its policy acts, its held-out score is kept, training continues exactly, and its page is written."""
    folder = Path(shutil.copytree(OLD / name, tmp_path / name))
    assert json.loads((folder / "code.json").read_text())["shoal"] == "0.1.0"
    policy = shoal.load_policy(folder)
    assert type(policy.agent.network).__name__ == RUNS[name]
    before = Run(folder).last_row()
    assert policy.epoch == before["epoch"]
    scored = shoal.evaluate(folder, episodes=2, num_envs=2)
    assert np.isfinite(scored["mean"])
    result = shoal.train(resume=folder, epochs=before["epoch"] + 1, stream=StringIO())
    assert (result.status, result.epochs) == ("finished", before["epoch"] + 1)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == list(range(1, result.epochs + 1))
    assert "inexact" not in (folder / "events.jsonl").read_text()
    assert "2 episodes that it has never seen" in (folder / "report.html").read_text() or name == "rides"
