"""cage2 as a task: what the library is told of it. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoal.tasks import Check, Command, Say, Shown, Task, plain

if TYPE_CHECKING:
    from shoal.cage2.options import Cage2Options
    from shoal.runs.folder import Run
    from shoal.runs.page import Section

PRESET: dict[str, Any] = {
    "num_envs": 512,
    "rollout_steps": 100,
    "minibatch_size": 4096,
    "update_epochs": 2,
    "learning_rate": 2e-3,
    "lr_final": 1e-5,
    "entropy_coef": 0.01,
    "entropy_schedule": "linear",
    "normalise_rewards": True,
    "hidden": (128, 128),
    "activation": "relu",
    "steps": 18_000_000,
}
ORDER_ROWS = (
    ("own return", "workflow/return", ",.2f"),
    ("compliance", "workflow/compliance", ".3f"),
    ("coverage", "workflow/coverage", ".3f"),
    ("wasted fixes", "workflow/wasted", ".3f"),
    ("violation weight", "workflow/weight", ".2f"),
)
MEANINGS = {
    "workflow/return": "the environment's own return, without the alignment term",
    "workflow/compliance": "share of judged fixes that kept to the order",
    "workflow/believed_compliance": "the same, judged by what the defender could know",
    "workflow/coverage": "share of compromised host-steps that were answered",
    "workflow/wasted": "share of fixes of hosts that were not compromised",
    "workflow/weight": "penalty of a violation in this epoch's reward",
    "workflow/episodes": "episodes that ended in this epoch",
    "workflow/worst_environment": "compliance of the environment with the lowest",
}


class Cage2Task(Task):
    """Defend a network: CybORG's CAGE Challenge 2."""

    name = "cage2"
    about = "defend a network: CybORG's CAGE Challenge 2, compiled and exact"
    preset = PRESET
    curves = (("workflow/return", "own return"), ("workflow/compliance", "compliance with the order"))
    meanings = MEANINGS
    evaluations = (("--leaderboard", ""),)

    @property
    def Options(self) -> type[Cage2Options]:
        from shoal.cage2.options import Cage2Options

        return Cage2Options

    @property
    def commands(self) -> Mapping[str, Command]:
        from shoal.cage2.verbs import COMMANDS

        return COMMANDS

    def console_rows(self, options: Cage2Options) -> Sequence[tuple[str, str, str]]:
        """Of an order, how it is kept to."""
        return () if options.order == "none" else ORDER_ROWS

    def settings(self, options: Cage2Options) -> dict[str, Any]:
        from shoal.cage2.options import settings

        return settings(options)

    def environment(self, options: Cage2Options) -> Any:
        from shoal.cage2.options import environment

        return environment(**plain(options))

    def played(self, options: Cage2Options) -> str:
        from shoal.cage2.defender import cage2_played

        return cage2_played(options)

    def scored(self, episodes: Any) -> dict[str, Any]:
        if episodes.tallies is None:
            return {}
        from shoal.cage2.workflows.conduct import Conduct

        return {"conduct": Conduct.of(episodes.tallies).to_json()}

    def evaluate_options(self, runs: Sequence[str]) -> type[Any] | None:
        from shoal.cage2.evaluate import EvaluateArgs

        return EvaluateArgs if runs else None

    def evaluate(self, runs: Sequence[str], options: Any, say: Say) -> Shown:
        from shoal.cage2.evaluate import evaluate

        return evaluate(runs, options, say)

    def headline(self, run: Run, general: str) -> str:
        from shoal.cage2.report import headline

        return headline(run, general)

    def sections(self, run: Run) -> Sequence[Section]:
        from shoal.cage2.report import Conducts, Episode, Leaderboard

        return Conducts(run), Leaderboard(run), Episode(run)

    def search_domain(self) -> type[Any]:
        from shoal.cage2.workflows.domain import Cage2

        return Cage2

    def checks(self) -> Sequence[Check]:
        """The real simulator, which only recordings and comparisons with it need."""
        from shoal.cage2.cyborg import COMMAND, CyborgMissing, load

        try:
            load(quiet=True)
        except CyborgMissing as error:
            return (Check("cyborg", None, re.split(r"[;.] [iI]nstall it", str(error))[0], COMMAND),)
        except Exception as error:  # an installation of anybody's, with other versions than it was written for
            return (Check("cyborg", False, f"CybORG cannot be imported: {type(error).__name__}: {error}", COMMAND),)
        return (Check("cyborg", True, "CybORG can be imported"),)
