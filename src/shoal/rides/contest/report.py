"""Evaluations of rides: contests of runs and baselines, and their pictures.

An evaluation leaves `evaluation.json` and four pictures in the folder of every run that took part; the run's page
shows them (shoal.rides.contest.page).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from shoal.rides.commands import BASELINES, baseline, run_contests
from shoal.rides.contest.record import BASE, Contest
from shoal.rides.contest.unfold import SCENE, scene
from shoal.rides.options import FUTURES, RidesOptions
from shoal.rides.policies.learned import Negotiator
from shoal.runs.disk import from_json, replace_atomically, to_json
from shoal.runs.page import svg_of
from shoal.runs.scores import EVALUATION

OF_AGENT = "rollout:agent"  # the policy of this name plays futures with a run's own agent


def evaluate_runs(
    runs: Sequence[str | Path],
    *,
    policies: Sequence[str] = (),
    reference: tuple[int, int] | None = (1000, 2),
    threads: int = 1,
    runs_dir: str | Path = "runs",
    futures: int | None = None,
    think: int = 0,
    think_loop: Literal["open", "closed"] = "open",
    checkpoint: str | None = None,
    baselines: Sequence[str] = BASELINES,
    say: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> tuple[dict[str, Any], list[Path]]:
    """Trained runs against the baselines on held-out days; returns the results and the folders that got them.

    Several runs must be of the same options: they are then trainings of one kind with different seeds, and get the
    two-level interval. Baselines use what the first run learned of its riders. `reference` is (iterations, seeds) of
    the independent solver, or None. `futures`: how many the runs sample before each offer, if not as by default.
    `think`: how many more futures each samples before an offer, as one more entrant called "RUN, thinking",
    and in which loop (finals.py). `checkpoint` is "last", "best" or an epoch.
    `baselines` are those that everybody is compared with, `policies` play along; "rollout:agent" plays futures with
    each run's agent, as one more entrant called "RUN, rollout".
    """
    of: dict[str, Any] = {"runs_dir": runs_dir, "futures": futures, "checkpoint": checkpoint}
    agents = [Negotiator(run, **of) for run in runs]
    for agent in agents:
        if agent.policy.chosen:
            say(f"{agent.name}: {agent.policy.chosen}")
    first = agents[0]
    for other in agents[1:]:
        if other.options != first.options:
            raise ValueError(
                f"expected runs of the same options, got {_differences(first.options, other.options)} in {first.name} "
                f"and {other.name}: runs of different options are never pooled"
            )
    names = [agent.name for agent in agents]
    if len(set(names)) < len(names):
        raise ValueError(f"expected every run once, got {', '.join(names)}")
    entrants = {name: agent.entrant() for name, agent in zip(names, agents, strict=True)}
    entrants |= {name: baseline(name) for name in dict.fromkeys((*baselines, *policies)) if name != OF_AGENT}
    if OF_AGENT in policies:
        entrants |= {f"{agent.name}, rollout": agent.rollout() for agent in agents}
        baselines = (*baselines, *names)
    if think:
        thinking = [Negotiator(run, **of, think=think, loop=think_loop) for run in runs]
        entrants |= {f"{agent.name}, thinking": agent.entrant() for agent in thinking}
        baselines = tuple(dict.fromkeys((*baselines, *names)))
    contests, played = run_contests(
        entrants,
        first.options,
        flexibility=first.flexibility or None,
        against=baselines,
        groups={"trained": names},
        reference=_reference(reference, first.path.parent),
        workers=threads,
        threads=threads,
        say=say,
        **settings,
    )
    results = _results(contests, reference, [_identity(agent) for agent in agents])
    for name, agent in zip(names, agents, strict=True):
        kept = _earlier(agent.path / EVALUATION, results)
        replace_atomically(agent.path / EVALUATION, to_json({**results, "contests": kept | contests, "run": name}))
        if "base" in contests:
            write_pictures(played, name, agent.path / "figures", ours=names)
    return results, [agent.path for agent in agents]


def evaluate_policies(
    policies: Sequence[str],
    options: RidesOptions,
    *,
    reference: tuple[int, int] | None = (1000, 2),
    threads: int = 1,
    cache_dir: str | Path = "runs",
    pictures: str | Path | None = None,
    say: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> tuple[dict[str, Any], list[Path]]:
    """Baselines alone on held-out days, with what histories teach of riders; returns the results and the pictures."""
    asked = options.futures if options.futures != RidesOptions().futures else FUTURES
    entrants = {name: baseline(name, asked) for name in dict.fromkeys((BASE, *policies))}
    contests, played = run_contests(
        entrants,
        options,
        against=list(entrants),
        reference=_reference(reference, Path(cache_dir)),
        workers=threads,
        threads=threads,
        say=say,
        **settings,
    )
    drawn: list[Path] = []
    if pictures is not None:
        last = [name for name in entrants if name != BASE]
        drawn = write_pictures(played, last[-1] if last else BASE, Path(pictures))
    return _results(contests, reference, []), drawn


def _identity(agent: Negotiator) -> dict[str, Any]:
    return {"run": agent.name, "epoch": agent.epoch, "futures": agent.options.futures}


def _earlier(path: Path, results: dict[str, Any]) -> dict[str, Any]:
    """Contests of an earlier evaluation of the same runs at the same prices: a shift test does not undo the others."""
    try:
        old = from_json(path.read_bytes())
        same = all(old[name] == results[name] for name in ("runs", "reference"))
        return dict(old["contests"]) if same else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _differences(one: RidesOptions, other: RidesOptions) -> str:
    pairs = ((name, getattr(one, name), getattr(other, name)) for name in vars(one))
    return ", ".join(f"{name} {mine} and {theirs}" for name, mine, theirs in pairs if mine != theirs)


def _results(contests: dict[str, Any], reference: tuple[int, int] | None, runs: list[dict[str, Any]]) -> dict[str, Any]:
    solver = None if reference is None else {"solver": "PyVRP", "iterations": reference[0], "seeds": reference[1]}
    return {"task": "rides", "runs": runs, "reference": solver, "contests": contests}


def _reference(budget: tuple[int, int] | None, folder: Path) -> Callable[[Any], Any] | None:
    """Makes the independent solver for a problem; its prices are kept beside the runs: none is paid for twice."""
    if budget is None:
        return None

    def make(problem: Any) -> Any:
        from shoal.rides.routing.reference import Reference

        folder.mkdir(parents=True, exist_ok=True)
        return Reference(problem, iterations=budget[0], seeds=budget[1], cache=folder / "rides-reference.cache")

    return make


# -- pictures ----------------------------------------------------------------------------------------


def write_pictures(contest: Contest, name: str, folder: Path, ours: Sequence[str] = ()) -> list[Path]:
    """The four pictures of a policy in a contest, as SVG, and the data of the day on the page."""
    from shoal.rides.desk import day_view
    from shoal.rides.figures import day as rides_day
    from shoal.rides.figures import scores as rides_scores

    day = day_view.typical_day(contest, name)
    price = contest.prices[-1]
    net = contest.net_min(name)
    title = f"held-out day {day + 1} of {len(net)}: net gain {net[day]:+.1f} minutes, the median"
    figures = {
        "rides-routes": rides_day.routes_figure(
            contest.world.city, day_view.before_and_after(contest, name, day), title
        ),
        "rides-windows": rides_day.windows_figure(day_view.windows(contest, name, day), f"{name}, {title}"),
        "rides-pareto": rides_scores.pareto_figure(day_view.saving_and_burden(contest, price), ours, price),
        "rides-calibration": rides_scores.calibration_figure(day_view.reliability(contest, name)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    replace_atomically(folder / SCENE, to_json(scene(contest, name, day), indent=None))
    paths = []
    for stem, figure in figures.items():
        paths.append(folder / f"{stem}.svg")
        replace_atomically(paths[-1], svg_of(figure).encode())
    return paths
