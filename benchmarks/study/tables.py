"""Tables of the study for docs/results.md and docs/comparing.md, from the stored rows."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.figures import Results, cells, number
from benchmarks.harness.rows import Row
from benchmarks.study import scaling, verdicts
from benchmarks.study.arms import BY_NAME
from shoal.comparison.facts import AXES
from shoal.comparison.metrics import BY_NAME as METRICS

NAME = "num_envs_study"
TASKS = {"cartpole": "CartPole-v1", "cage2": "cage2", "rides": "rides"}
REQUESTS = 30  # of a day of rides: its steps
CLAIMS = {  # label of the metric: what is said of it
    "final performance (held-out return, IQM)": "held-out return",
    "steps to the threshold": "steps to the threshold",
    "updates to the threshold": "gradient steps to the threshold",
    "seconds to the threshold": "CPU-seconds to the threshold",
    "training return after equal seconds": "training return after equal CPU-seconds",
    "spread between runs (distance from the median)": "spread between runs",
    "gap between training and held-out": "training less held-out return",
    "throughput": "steps per CPU-second",
}
PROMISES = (
    ("30-50 % fewer samples to a target", "steps to the threshold"),
    ("10-20 % higher final performance", "final performance (held-out return, IQM)"),
    ("half the variance between runs", "spread between runs (distance from the median)"),
    ("2-3 times faster to a target", "seconds to the threshold"),
    ("15-25 % better on unseen instances: training less held-out return", "gap between training and held-out"),
)


def environments_study(results: Results, *parts: str) -> str:
    """Every claim of some parts: both levels, the difference and the verdict; then every seed's held-out return."""
    found, lines = _claims(results), []
    for part in parts:
        came = _came(results, part)
        for arm in dict.fromkeys(arm for one, arm, _ in found if one == part):
            trainings = _row(results, f"{part}: trainings")
            threshold = _row(results, f"{part}: threshold, mean training return")
            wall = part.endswith("-wall")
            matched = ", the same seconds on an idle machine" if wall else ""
            about = f"**{TASKS[part.partition('-')[0]]}, {arm} environments against 64{matched}.**"
            if threshold is not None and threshold.value is not None:
                about += f" Threshold {number(threshold.value)}: {threshold.note}."
            if trainings is not None and trainings.value is not None:
                about += f" {number(trainings.value, 0)} {trainings.note} trainings are over."
            lines += [
                about,
                "",
                cells("what", "64", arm, "difference [95 % interval]", "verdict"),
                "|---|---|---|---|---|",
            ]
            for label, name in CLAIMS.items():
                if (row := found.get((part, arm, label))) is not None:
                    told = row.detail
                    levels = _levels(told["levels"], _hits(came, label, arm), told["seeds"])
                    name = name.replace("CPU-second", "second") if wall else name
                    lines.append(cells(name, *levels, told["difference"], f"{told['verdict']}, {told['seeds']} seeds"))
            lines += ["", *_every_seed(found[part, arm, next(iter(CLAIMS))]), ""]
    return "\n".join(lines).rstrip()


def promises(results: Results) -> str:
    """What 256 environments were said to bring over 64, and what the study says."""
    found = _claims(results)
    tasks = [part for part in TASKS if any(one == part for one, _, _ in found)]
    lines = [cells("256 environments instead of 64", *(TASKS[task] for task in tasks)), "|---" * (1 + len(tasks)) + "|"]
    for promise, label in PROMISES:
        said = (_said(found.get((task, "256", label)), _hits(_came(results, task), label, "256")) for task in tasks)
        lines.append(cells(promise, *said))
    return "\n".join(lines)


def _said(row: Row | None, hits: tuple[int, int] | None) -> str:
    if row is None:
        return "not measured"
    told = row.detail
    if told["verdict"] == "insufficient":
        return f"not settled ({told['seeds']} seeds)"
    if len({value for values in told["each"].values() for value in values}) == 1:
        return f"{told['verdict']}: every run has the same value ({told['seeds']} seeds)"
    provisional = ", provisional" if told["seeds"] < 10 else ""
    return (
        f"**{told['verdict']}**: {_least(hits, told['seeds'])}{told['difference']} ({told['seeds']} seeds{provisional})"
    )


def _came(results: Results, part: str) -> dict[str, dict[str, int]]:
    """Of each axis and arm of a part: how many runs came to the threshold."""
    facts = verdicts.facts_of(results.data(NAME)["parts"])
    return verdicts.reached(part, facts) if part in facts else {}


def _hits(came: dict[str, dict[str, int]], label: str, arm: str) -> tuple[int, int] | None:
    """Of 64 environments and of an arm; None of a claim that is no time to the threshold."""
    axis = next((axis for axis in AXES if METRICS[axis].label == label), "")
    return (came[axis]["64"], came[axis][arm]) if axis in came else None


def _levels(levels: list[float], hits: tuple[int, int] | None, seeds: int) -> list[str]:
    """Both arms' figures; of a time to the threshold, `hits` says how many runs of each arm came to it."""
    return [_level(level, hit, seeds) for level, hit in zip(levels, hits or (seeds, seeds), strict=True)]


def _level(level: float, hits: int, seeds: int) -> str:
    if hits == 0:
        return "not reached"
    return number(level) + (f" or more ({hits} of {seeds} reached it)" if hits < seeds else "")


def _least(hits: tuple[int, int] | None, seeds: int) -> str:
    """Where 64 environments reached the threshold and not all runs of the others did, these needed more than it says.

    >>> _least((10, 3), 10), _least((10, 10), 10), _least((9, 3), 10), _least(None, 10)
    ('at least ', '', '', '')
    """
    return "at least " if hits is not None and hits[0] == seeds > hits[1] else ""


def _every_seed(row: Row) -> list[str]:
    each: dict[str, list[float]] = row.detail["each"]
    return [
        f"Held-out return of every seed, {arm} environments: {', '.join(number(value) for value in values)}."
        for arm, values in each.items()
    ]


def _claims(results: Results) -> dict[tuple[str, str, str], Row]:
    """Rows by part, arm and label."""
    found = {}
    for row in results.rows(NAME):
        head, _, label = row.name.partition(": ")
        part, _, rest = head.partition(", ")
        if " environments against " in rest:
            found[part, rest.partition(" environments")[0], label] = row
    return found


def _row(results: Results, name: str) -> Row | None:
    return next((row for row in results.rows(NAME) if row.name == name), None)


def study_budgets(results: Results) -> str:
    """What every run of the study is given, and how many held-out episodes it plays, from where that is defined."""
    parts = {task: BY_NAME[task] for task in TASKS}
    given = {task: f"{number(float(part.common['steps']), 0)} steps" for task, part in parts.items()}
    days = parts["rides"].common["steps"] // REQUESTS
    given["rides"] = f"{number(float(days), 0)} days ({given['rides']})"
    return "; ".join(
        f"{TASKS[task]}: {given[task]}, {part.held_out} held-out {'days' if task == 'rides' else 'episodes'}"
        for task, part in parts.items()
    )


def predicted(results: Results) -> str:
    """Samples of 256 environments over 64 until a target: as the noise scale has it, and as the study measured it."""
    lines = [cells("task", "noise scale, by fifths of the training", "predicted", "measured"), "|---|---|---|---|"]
    measured = _claims(results)
    for task, shown in TASKS.items():
        found = [row.value for row in results.rows("noise_over_training") if f"noise scale, {task}," in row.name]
        scales = [value for value in found if value is not None]
        if not scales:
            continue
        ratios = [(1 + 256 / scale) / (1 + 64 / scale) for scale in scales]
        row = measured.get((task, "256", "steps to the threshold"))
        told = "not measured"
        if row is not None:
            (first, second), seeds = row.detail["levels"], row.detail["seeds"]
            bound = _least(_hits(_came(results, task), "steps to the threshold", "256"), seeds)
            told = f"{bound}{second / first:.2f} times ({seeds} seeds)"
        each = ", ".join("out of sight" if value is None else number(value) for value in found)
        lines.append(cells(shown, each, f"{min(ratios):.2f} to {max(ratios):.2f} times", told))
    return "\n".join(lines)


def scaling_table(results: Results) -> str:
    """Samples, times, speed-ups and memory by task and number of environments."""
    lines = [
        cells(
            "task, environments", "samples an epoch", "epoch, s", "samples/s", "speed-up", "samples per CPU-second",
            "speed-up per CPU-second", "memory of environments, MB", "of rollout and learner", "of the first updates",
        ),
        "|---" * 10 + "|",
    ]  # fmt: skip
    first: dict[str, Row] = {}
    found = {row.name: row for row in results.rows("scaling")}
    names = [f"{task}, {count} environments" for task in scaling.TASKS for count in scaling.NUMBERS]
    for name in dict.fromkeys([*names, *found]):
        row = found.get(name)
        if row is None:
            lines.append(cells(name.removesuffix(" environments"), "not measured", *[""] * 8))
            continue
        task, told = row.name.rpartition(", ")[0], row.detail
        base = first.setdefault(task, row)
        assert row.value is not None
        assert base.value is not None
        memory = [number(max(0.0, told["memory_mb"][part]), 1) for part in told["memory_mb"]]
        speed_up, per_cpu = row.value / base.value, told["per_cpu_s"] / base.detail["per_cpu_s"]
        lines.append(
            cells(
                row.name.removesuffix(" environments"), number(told["samples"], 0), number(told["epoch_s"]),
                number(row.value, 0), f"{speed_up:.1f}", number(told["per_cpu_s"], 0), f"{per_cpu:.1f}", *memory,
            )
        )  # fmt: skip
    return "\n".join(lines)


TABLES: tuple[Any, ...] = (environments_study, promises, study_budgets, predicted, scaling_table)
