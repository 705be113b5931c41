"""`shoal evaluate RUN` and `shoal thermostat curve RUN`: how many degrees off, and an evening in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.runs import scores
from shoal.runs.folder import Run
from shoal.tasks import Say, Shown


@dataclass(frozen=True)
class ScoreArgs:
    """Score a run by the mean error in degrees over held-out evenings."""

    evenings: int = 20
    """Held-out evenings."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def score(runs: Sequence[str], given: ScoreArgs, say: Say) -> Shown:
    """Of each run, and keep it in its folder."""
    from shoal.evaluation import evaluate
    from shoal.report import write_again

    found, lines = {}, []
    for name in runs:
        say(f"{name}: {given.evenings} evenings")
        result = evaluate(name, episodes=given.evenings, runs_dir=given.runs_dir)
        error = -result["mean"] / result["deterministic"]["mean_length"]
        found[name] = {"error_c": error, "evenings": given.evenings}
        scores.keep(Run.open(name, Path(given.runs_dir)), "comfort", found[name])
        lines += [f"{name}: {error:.2f} degrees off on average", write_again(name, given.runs_dir)]
    return Shown({"runs": found}, lines)


@dataclass(frozen=True)
class CurveArgs:
    """One evening, step by step."""

    run: str
    """Run folder, or its name under --runs-dir."""
    seed: int = 0
    """The evening."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def curve(given: CurveArgs, say: Say) -> Shown:
    """`shoal thermostat curve RUN`."""
    errors = evening(given.run, given.seed, given.runs_dir)
    return Shown({"error_c": errors}, [f"step {step:>3}  {error:+.1f}" for step, error in enumerate(errors, start=1)])


def evening(run: str | Path, seed: int, runs_dir: str = "runs") -> list[float]:
    """Degrees too warm after each step."""
    import json

    import shoal
    from thermostat.env import Room
    from thermostat.options import RoomOptions

    policy: Any = shoal.load_policy(run, runs_dir=runs_dir)
    env = Room(RoomOptions(**json.loads(policy.config.env_kwargs)))
    observation, _ = env.reset(seed=seed)
    errors, ended = [], False
    while not ended:
        observation, _, _, ended, _ = env.step(policy(observation))
        errors.append(-float(observation[0]))
    return errors
