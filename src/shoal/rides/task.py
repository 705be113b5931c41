"""rides as a task: what the library is told of it. Nothing heavy is imported before it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoal.tasks import Check, Command, Say, Shown, Spaces, Task

if TYPE_CHECKING:
    from torch import nn

    from shoal.config import PPOConfig
    from shoal.rides.options import RidesOptions
    from shoal.runs.folder import Run
    from shoal.runs.page import Section

PRESET: dict[str, Any] = {  # the rest follows from the options: recipes.py
    "env_threads": "auto",
    "gamma": 1.0,
    "normalise_rewards": True,
}
CONSOLE_ROWS = (
    ("average cost (min)", "rides/cost_min", ",.1f"),
    ("improvement %", "rides/improvement", ".2f"),
    ("net gain (min)", "rides/net_min", ".2f"),
    ("failure rate %", "rides/failure_rate", ".2f"),
    ("acceptance %", "rides/acceptance", ".1f"),
    ("minutes agreed", "rides/agreed_min", ".0f"),
    ("credit claimed (min)", "credit/claimed", ".2f"),
    ("epsilon", "flexibility/epsilon", ".3f"),
    ("flexibility loss", "flexibility/log_loss", ".4f"),
    ("types E/L/I/B", "flexibility/types", "s"),
)
MEANINGS = {
    "rides/cost_min": "minutes driven on a day, penalties included",
    "rides/base_cost_min": "the same day without offers",
    "rides/improvement": "minutes saved, % of the day without offers",
    "rides/net_min": "minutes saved a day, less the burden on riders",
    "rides/agreed_min": "minutes that riders agreed to, a day",
    "rides/offers": "offers of a change, a day",
    "rides/acceptance": "share of offers accepted, %",
    "rides/failure_rate": "share of requests turned away, %",
    "held_out/net_min": "net gain on a few held-out days, most probable offers",
    "held_out/sampled_min": "the same, offers sampled as in training",
    "held_out/myopic_min": "the same days, myopic policy",
    "held_out/lookahead_min": "the same days, lookahead",
    "oracle/taken": "days whose decoded plan was kept (--oracle neural), %",
    "oracle/fell_back": "days that the decoder did not finish, %",
    "flexibility/epsilon": "share of steps that ignore the mask",
    "flexibility/types": "riders by most probable type: early / late / inflexible / both",
    "flexibility/type_accuracy": "share of those types that is right",
    "flexibility/log_loss": "log loss of predicted answers",
    "flexibility/brier": "Brier score of predicted answers",
    "flexibility/ece": "calibration error of predicted answers",
    "flexibility/answers": "answers predicted before they were learned from",
    "flexibility/train_loss": "loss of the last training on answers",
    "flexibility/trained_on": "answers it was trained on",
    "flexibility/train_s": "seconds it took",
}


class Rides(Task):
    """Negotiate time windows with riders of a dial-a-ride service."""

    name = "rides"
    about = "negotiate time windows with riders of a dial-a-ride service"
    extra = "rides"
    preset = PRESET
    curves = (("rides/net_min", "net gain, minutes a day"), ("rides/improvement", "minutes saved, %"))
    hidden_curves = ("return/mean_100", "length/mean_100")  # the net gain again, and the number of requests
    meanings = MEANINGS
    evaluations = (
        ("--days 60 --reference-iterations 200 --reference-seeds 1", "a first look, some minutes"),
        ("--days 900", "a verdict: an hour and more"),
    )
    evaluate_aliases = {"--episodes": "--days"}  # noqa: RUF012  (an episode is a day)

    @property
    def Options(self) -> type[RidesOptions]:
        from shoal.rides.options import RidesOptions

        return RidesOptions

    @property
    def commands(self) -> Mapping[str, Command]:
        from shoal.rides.verbs import COMMANDS

        return COMMANDS

    def console_rows(self, options: RidesOptions) -> Sequence[tuple[str, str, str]]:
        return CONSOLE_ROWS

    def settings(self, options: RidesOptions) -> dict[str, Any]:
        """A rollout is one whole day of every environment; the rest follows from where the advantages come from."""
        from shoal.rides.recipes import recipe

        return {"rollout_steps": options.customers, **recipe(options)}

    def environment(self, options: RidesOptions) -> Any:
        from shoal.rides.options import RidesTask

        return RidesTask(options)

    def network(self, options: RidesOptions, spaces: Spaces, config: PPOConfig) -> nn.Module:
        from gymnasium.spaces import Dict

        from shoal.rides.policies.network import make_network

        start = {name: getattr(options, name) for name in ("start", "start_temperature", "prices")}
        observations, actions = spaces
        assert isinstance(observations, Dict)
        return make_network(observations, actions, config, **start)

    def evaluate_options(self, runs: Sequence[str]) -> type[Any]:
        from shoal.rides import evaluate

        return evaluate.RunContestArgs if runs else evaluate.baselines_options()

    def evaluate(self, runs: Sequence[str], options: Any, say: Say) -> Shown:
        from shoal.rides import evaluate

        return evaluate.evaluate(runs, options, say) if runs else evaluate.baselines(options, say)

    def headline(self, run: Run, general: str) -> str:
        from shoal.rides.contest.page import headline

        return headline(run)

    def sections(self, run: Run) -> Sequence[Section]:
        from shoal.rides.contest.page import TITLE, section
        from shoal.runs.page import Part

        return (Part(TITLE, section(run, self.evaluations[0][0])),)

    def checks(self) -> Sequence[Check]:
        """The solver that builds and judges plans."""
        from shoal.extras import install, version

        found = version("pyvrp")
        if found is None:
            return (Check("pyvrp", None, "PyVRP is not installed; rides needs it", install("rides")),)
        return (Check("pyvrp", True, f"PyVRP {found}"),)
