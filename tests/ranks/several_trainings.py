"""What each rank of `test_torchrun` runs: several trainings after one another, and one that fails on rank 1 alone."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

from ranks_tasks import TRAININGS

import shoal
from shoal.core.errors import RankFailed
from shoal.testing.faults import FaultyEnv, TickEnv


def sound_or_not() -> Any:
    return FaultyEnv("raise-step", at_step=40) if os.environ["RANK"] == "1" else TickEnv()


def never_well() -> Any:
    return FaultyEnv("raise-step", at_step=10)


CURVE: dict[str, Any] = {"evaluate_every": 2, "evaluate_episodes": 2, "rank_timeout": 10}


def main(folder: str) -> None:
    quiet: dict[str, Any] = {"runs_dir": folder, "stream": io.StringIO()}
    for name, (task, options) in TRAININGS.items():
        shoal.train(task, name=f"{name}-2", **options, **quiet)
    task, options = TRAININGS["cartpole"]
    halfway = options | {"epochs": 4, "name": "halfway"}
    shoal.train(task, **halfway, **quiet)
    shoal.train(resume=Path(folder) / "halfway", epochs=10, **quiet)
    try:
        faulty: dict[str, Any] = {"num_envs": 4, "epochs": 6, "rollout_steps": 16, "hidden": (8,), "name": "fault"}
        shoal.train(env=sound_or_not, save_interval=50, **faulty, **quiet)
    except Exception as error:
        kind = "RankFailed" if isinstance(error, RankFailed) else type(error).__name__
        Path(folder, f"error-{os.environ['RANK']}").write_text(f"{kind}: {error}")
    try:
        shoal.train(env=TickEnv, evaluate_env=never_well, **faulty | {"name": "curve"}, **CURVE, **quiet)
    except Exception as error:
        Path(folder, f"curve-{os.environ['RANK']}").write_text(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
