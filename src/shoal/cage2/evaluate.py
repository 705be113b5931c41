"""`shoal evaluate` for runs of cage2: held-out episodes in either simulator, or the challenge's protocol."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shoal.cage2.report import LEADERBOARD, conduct_line
from shoal.evaluation_command import EvaluateArgs as GeneralArgs
from shoal.evaluation_command import evaluate_run
from shoal.runs import scores
from shoal.runs.folder import Run
from shoal.tasks import Say, Shown
from shoal.tasks.saved import parse_env_kwargs


@dataclass(frozen=True)
class EvaluateArgs(GeneralArgs):
    """Score a saved run on held-out episodes, with the most probable and with sampled actions."""

    seed: int | None = None
    """Seed of the evaluation stream; default: the run's (0 with --leaderboard)."""
    leaderboard: bool = False
    """The challenge's protocol, 3 red agents x 30, 50 and 100 steps (--episodes of each, default 1,000)."""
    simulator: Literal["shoal", "cyborg"] | None = None
    """Play in the compiled simulator, or in CybORG if it is installed."""
    rules: Literal["present", "final"] | None = None
    """The present rules, or those of the published leaderboard (docs/cage2-rules.md); default: those that the run was
    trained under. CybORG has its own."""


def evaluate(runs: Sequence[str], given: EvaluateArgs, say: Say) -> Shown:
    """As asked for."""
    if not given.leaderboard:
        shown = evaluate_run(runs, given, say, _changed(runs[0], given) if len(runs) == 1 else None)
        modes = ("deterministic", "sampled")
        kept = [
            f"{mode:15}{conduct_line(shown.data[mode]['conduct'])}" for mode in modes if "conduct" in shown.data[mode]
        ]
        return Shown(shown.data, [*shown.lines[:-1], *kept, shown.lines[-1]])
    if given.record:
        raise ValueError("--record: expected no --leaderboard beside it, whose episodes are not recorded")
    if len(runs) != 1:
        raise ValueError(f"--leaderboard: expected one run, got {len(runs)}: {', '.join(runs)}")
    from shoal.cage2.commands import lines
    from shoal.report import write_again

    found = leaderboard(
        runs[0],
        episodes=1000 if given.episodes is None else given.episodes,
        seed=given.seed or 0,
        simulator=given.simulator or "shoal",
        rules=given.rules,
        checkpoint=given.checkpoint,
        runs_dir=given.runs_dir,
        say=say,
    )
    write_again(runs[0], given.runs_dir)
    return Shown(found, lines(runs[0], found))


def _changed(run: str, given: EvaluateArgs) -> dict[str, str]:
    """Where the episodes are played otherwise than the run's own: its simulator, its rules."""
    from shoal.cage2.commands import rules_of
    from shoal.cage2.simulator.network import RULES_BY_NAME

    own = parse_env_kwargs(Run.open(run, Path(given.runs_dir)).config.get("env_kwargs") or "{}")
    changed = {} if given.simulator is None else {"simulator": str(given.simulator)}
    simulator = str(given.simulator or own.get("simulator", "shoal"))
    if given.rules is not None:
        rules_of(simulator, given.rules)  # refuses what CybORG would not play
        return {**changed, "rules": given.rules}
    if simulator == "cyborg" and own.get("simulator") != "cyborg" and own.get("rules", "present") == "final":
        installed = rules_of(simulator)
        return {**changed, "rules": next(name for name, named in RULES_BY_NAME.items() if named == installed)}
    return changed


def leaderboard(
    run: str | Path,
    *,
    episodes: int = 1000,
    seed: int = 0,
    simulator: str = "shoal",
    rules: str | None = None,
    epoch: int | None = None,
    checkpoint: str | int | None = None,
    keep: bool = True,
    runs_dir: str | Path = "runs",
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """A cage2 run by the challenge's protocol: 3 red agents x 30, 50 and 100 steps, the means and their sum.

    `rules` may be "present", or "final", those of the published leaderboard; by default they are those that the run was
    trained under. `say` hears every few seconds how far it is: the real CybORG takes minutes.
    """
    from shoal.cage2.commands import score_policy
    from shoal.cage2.defender import cage2_policy, under

    act, options = cage2_policy(run, runs_dir, epoch, checkpoint, say)
    result = score_policy(act, episodes, seed, simulator=simulator, say=say, **under(options, simulator, rules))
    result = {"run": str(run), "episodes": episodes, "seed": seed, **result}
    if keep and epoch is None:
        try:
            scores.keep(Run.open(run, Path(runs_dir)), LEADERBOARD, result, but=("cells", "published", "cited"))
        except OSError as error:  # the score is there all the same
            warnings.warn(f"the score was not kept: {error}", stacklevel=2)
    return result
