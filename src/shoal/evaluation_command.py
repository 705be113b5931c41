"""`shoal evaluate RUN` as it is typed: its options, and a score as lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.runs.words import decimals, figure
from shoal.tasks import Say, Shown


@dataclass(frozen=True)
class EvaluateArgs:
    """Score a saved run on held-out episodes, with the most probable and with sampled actions.

    Runs of some tasks have flags of their own: shoal evaluate RUN --help shows them.
    """

    episodes: int | None = None
    """Held-out episodes per mode (deterministic and sampled); default: 100."""
    num_envs: int | None = None
    """Environments that play; default: a fast number. It does not change the score."""
    max_episode_steps: int | None = None
    """Steps after which an endless episode is cut; default: the environment's own limit, otherwise 20,000."""
    seed: int | None = None
    """Seed of the evaluation stream; default: the run's."""
    checkpoint: str | None = None
    """last, best or the number of an epoch; default: the best by --evaluate-every, if the run has one, otherwise the
    last."""
    record: bool = False
    """Show the best, the median and the worst episode in the report, as short clips."""
    imports: tuple[str, ...] = ()
    """Modules that register environments, imported first: --import MODULE, once for each."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def evaluate_run(
    runs: Sequence[str], given: EvaluateArgs, say: Say, env_kwargs: Mapping[str, Any] | None = None
) -> Shown:
    """The evaluation that every task has; `env_kwargs` in place of the run's own."""
    if len(runs) != 1:
        got = f"{len(runs)}: {', '.join(runs)}" if runs else "none: shoal evaluate RUN (or --run RUN)"
        raise ValueError(f"expected one run to evaluate, got {got}")
    from shoal.evaluation import evaluate
    from shoal.runs.folder import Run

    result = evaluate(
        runs[0],
        episodes=100 if given.episodes is None else given.episodes,
        num_envs=given.num_envs,
        seed=given.seed,
        checkpoint=given.checkpoint,
        record=given.record,
        env_kwargs=env_kwargs,
        imports=given.imports,
        max_episode_steps=given.max_episode_steps,
        runs_dir=given.runs_dir,
        say=say,
    )
    page = Run.open(runs[0], Path(given.runs_dir)).path / "report.html"  # with this score
    return Shown(result, [*score_lines(result), f"report   {page}"])


def score_lines(result: Mapping[str, Any]) -> list[str]:
    """A score as a table."""
    lines = [
        f"{result['task']}, epoch {result['epoch']}, {result['episodes']} held-out episodes, "
        f"evaluation seed {result['seed']}"
    ]
    if "played" in result:
        lines.append(result["played"])
    lines.append(f"{'':15}{'mean':>10}  {'95 % interval':^23}{'median':>10}{'worst':>10}{'best':>10}{'length':>9}")
    modes = [result[mode] for mode in ("deterministic", "sampled")]
    places = decimals(*(row[name] for row in modes for name in ("mean", "low", "high", "median", "worst", "best")))
    for mode, row in zip(("deterministic", "sampled"), modes, strict=True):
        mean, low, high, median, worst, best = (
            figure(row[name], places) for name in ("mean", "low", "high", "median", "worst", "best")
        )
        bounds = "-" if row["low"] is None else f"[{low}, {high}]"
        lines.append(f"{mode:15}{mean:>10}  {bounds:^23}{median:>10}{worst:>10}{best:>10}{row['mean_length']:>9,.0f}")
    named = {name: None for row in modes for name in row.get("infos", {})}  # in their order
    for name in named:
        deterministic, sampled = (figure(row.get("infos", {}).get(name)) for row in modes)
        lines.append(f"{name}: {deterministic} deterministic, {sampled} sampled, means of the episodes' last infos")
    return lines
