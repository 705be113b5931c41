"""A run folder in, one self-contained HTML page out. Everything from data is escaped; nothing remote is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.config import to_dict
from shoal.runs import best, scores
from shoal.runs.charts import Line, chart
from shoal.runs.clips import clips
from shoal.runs.disk import read_json, replace_atomically
from shoal.runs.folder import Run
from shoal.runs.kinds import TRAINING, kind_of, told_for
from shoal.runs.meanings import MEANINGS
from shoal.runs.page import Card, Part, Section, between, number, page, pairs, table, text
from shoal.runs.settings import settings as settings_of
from shoal.runs.spent import bar, spent
from shoal.runs.words import finite
from shoal.tasks import Task, task_or_default
from shoal.tasks.presets import config_for

RETURN = "return/mean_100"
HELD_OUT = "held_out/return"
_CURVES = (
    (RETURN, "mean return, last 100 episodes"),
    (HELD_OUT, "held-out return while it trained"),
    ("held_out/sampled_return", "the same episodes, sampled actions"),
    ("length/mean_100", "mean episode length"),
    ("policy/entropy", "entropy"),
    ("policy/kl", "KL per update"),
    ("value/explained_variance", "explained variance"),
    ("noise/scale", "gradient noise scale, environments"),
    ("time/steps_per_s", "steps per second"),
)
_MOST_EVENTS = 200
_FEW_LOOKS = 5
_MOST_INFOS = 8  # columns, and curves


def write_report(run: str | Path | Run, *, runs_dir: str | Path = "runs") -> Path:
    """Write `report.html` of a training run; returns the page's path."""
    folder = run if isinstance(run, Run) else Run.open(run, Path(runs_dir))
    if kind_of(folder) != TRAINING:
        raise ValueError(told_for(folder, TRAINING))
    path = folder.path / "report.html"
    replace_atomically(path, _page(folder, folder.metrics()).encode())
    return path


def write_again(run: str | Path | Run, runs_dir: str | Path = "runs") -> str:
    """The page with a new score, as a line for people; a page that cannot be written takes nothing from the score."""
    try:
        return f"report   {write_report(run, runs_dir=runs_dir)}"
    except (OSError, ValueError) as error:
        return f"the report was not written: {error}"


def _page(run: Run, rows: list[dict[str, Any]]) -> str:
    config, last, kept = settings_of(run), rows[-1] if rows else {}, scores.kept(run)
    machine, code = (read_json(run.path / name) for name in ("machine.json", "code.json"))
    command, events = (run.path / "command.txt").read_text().strip(), run.events()
    facts = [
        f"status {run.status}: {run.status_message}",
        f"{number(last.get('steps', 0))} steps, {number(last.get('episodes', 0))} episodes, "
        f"{number(last.get('epoch', 0))} epochs",
        f"mean return of the last 100 training episodes {number(last.get(RETURN))}",
        *(str(event.get("text")) for event in events if event.get("event") == "began with"),
        *_best(run),
        _exactness(events, kept),
    ]
    settings = {name: config.get(name) for name in ("task", "env_kwargs")}
    settings |= {
        f"{group}.{name}": value for group in ("vector", "ppo", "run") for name, value in config[group].items()
    }
    task = task_or_default(config["task"])
    return page(
        run.name,
        config["task"],
        f"{text(run.name)} &middot; <code>{text(command)}</code>",
        task.headline(run, _answer(run, last, kept)),
        facts,
        [
            Part("Held-out score", _held_out(scores.part(kept, scores.HELD_OUT))),
            Part("Episodes", clips(run, scores.part(kept, scores.HELD_OUT))),
            *_sections(task, run),
            Part("Training", _charts(rows, config)),
            Part("Environments", _environments(config, rows)),
            Part("Where the time went", bar(spent(rows))),
            Part("Faults and events", _events(events)),
            Part("Settings that differ from the defaults", _differences(config)),
            Part("Last epoch", pairs(last, {**MEANINGS, **task.meanings}) if last else "", True),
            Part(
                "All settings",
                pairs({"task": config["task"], "env_kwargs": config.get("env_kwargs"), **settings}),
                True,
            ),
            Part("Machine and code", pairs({**machine, **code}), True),
        ],
        cards=_cards(last, kept),
    )


def _best(run: Run) -> list[str]:
    """Which checkpoint is taken, where the run was evaluated while it trained."""
    found = best.read(run)
    if found is None:
        return []
    return [f"best checkpoint: epoch {number(found.epoch)}, {found.metric} {number(found.score)} while it trained"]


def _exactness(events: list[dict[str, Any]], kept: dict[str, Any]) -> str:
    """What is known of reproducing the run, and no more."""
    inexact = [str(event.get("text")) for event in events if event.get("event") == "inexact"]
    if inexact:
        return "inexact: " + "; ".join(inexact)
    replayed = scores.part(kept, scores.HELD_OUT).get("replayed_alike")
    if replayed is None:
        return "reproducible bit for bit, as far as is known (no episode was played twice)"
    if replayed is not True:
        return "not reproducible: a held-out episode that was played again with its seed went otherwise"
    return "reproducible bit for bit, as far as is known: a held-out episode played twice went the same way"


# -- scores --------------------------------------------------------------------------------------------


def _answer(run: Run, last: dict[str, Any], kept: dict[str, Any]) -> str:
    """The page in a sentence or two."""
    found, parts = scores.part(kept, scores.HELD_OUT), []
    if found:
        late = found.get("epoch") != last.get("epoch")
        at = f" (epoch {text(number(found.get('epoch')))} of {text(number(last.get('epoch')))})" if late else ""
        parts.append(
            f"On {text(number(found.get('episodes')))} episodes that it has never seen, the trained policy{at} returns "
            f"<b>{text(number(found.get('mean')))}</b> on average{between(found)}."
        )
    else:
        mean = last.get(RETURN)
        if mean is not None:
            parts.append(f"The last 100 training episodes returned {text(number(mean))} on average.")
        parts.append(
            f"No held-out score yet: <code>shoal evaluate {text(run.name)}</code> plays episodes that training has "
            "never seen."
        )
    return " ".join(parts)


def _cards(last: dict[str, Any], kept: dict[str, Any]) -> list[Card]:
    """The headline figures, each with its interval where it has one."""
    found = scores.part(kept, scores.HELD_OUT)
    cards = []
    if found.get("mean") is not None:
        note = between(found).removeprefix(", ") or f"{number(found.get('episodes'))} episodes"
        cards.append(Card("held-out return", number(found["mean"]), note))
    cards.append(Card("training return", number(last.get(RETURN)), "mean of the last 100 episodes"))
    cards.append(Card("steps", number(last.get("steps", 0)), f"{number(last.get('episodes', 0))} episodes"))
    seconds, cpu_s = last.get("time/elapsed_s"), last.get("time/cpu_s")
    if isinstance(seconds, int | float) and seconds > 0 and isinstance(last.get("steps"), int):
        cards.append(Card("steps per second", f"{last['steps'] / seconds:,.0f}", "of the whole training"))
        cpu = f"{number(cpu_s, ',.1f')} CPU-s of the training process" if cpu_s is not None else ""
        cards.append(Card("seconds of training", f"{seconds:,.1f}", cpu))
    if last.get("noise/scale") is not None:
        cards.append(Card("gradient noise scale", _rounded(last["noise/scale"]), "environments useful now"))
    return cards


def _rounded(value: float) -> str:
    """Three digits count: 2,030, and not 2.03e+03."""
    return number(float(f"{value:.3g}"), ",.9g")


def _held_out(found: dict[str, Any]) -> str:
    if not found:
        return ""
    rows: list[list[str]] = []
    infos = list(scores.part(scores.part(found, "deterministic"), "infos"))[:_MOST_INFOS]
    for mode in ("deterministic", "sampled"):
        score = scores.part(found, mode)
        said = scores.part(score, "infos")
        interval = "-" if score.get("low") is None else f"{number(score['low'])} to {number(score.get('high'))}"
        figures = (number(score.get(name)) for name in ("median", "worst", "best", "mean_length", "unfinished"))
        rows.append([mode, number(score.get("episodes")), number(score.get("mean")), interval, *figures])
        rows[-1] += [number(said.get(name)) for name in infos]
    head = ["actions", "episodes", "mean return", "95 % interval", "median", "worst", "best", "length", "unfinished"]
    head += infos
    about = (
        f"Played {text(found.get('at', ''))} at epoch {text(number(found.get('epoch')))}, evaluation seed "
        f"{text(number(found.get('seed')))}."
    )
    if any(scores.part(found, mode).get("unfinished") for mode in ("deterministic", "sampled")):
        limit = text(number(found.get("max_episode_steps")))
        about += f" Unfinished episodes were cut after {limit} steps; their returns so far are counted."
    skipped = found.get("skipped")
    damaged = "".join(
        f"<li class='event'>a newer checkpoint is damaged: {text(reason)}</li>"
        for reason in (skipped if isinstance(skipped, list) else [])
    )
    return f"{table(head, rows)}<ul>{damaged}</ul><p class='facts'>{about}</p>"


# -- pictures and lists ----------------------------------------------------------------------------------


def _charts(rows: list[dict[str, Any]], config: dict[str, Any]) -> str:
    """A chart for every curve that the rows have values of."""
    if not rows:
        return "No epoch has been recorded yet."
    found, task = [], task_or_default(config["task"])
    targets = {RETURN: config["run"].get("target_return"), HELD_OUT: config["run"].get("evaluate_target")}
    said = [name for name in dict.fromkeys(name for row in rows for name in row) if name.startswith("info/")]
    own = [(name, f"{name.removeprefix('info/')}, mean of the last 100 episodes") for name in said[:_MOST_INFOS]]
    for key, label in dict((_CURVES[0], *task.curves, *own, *_CURVES[1:])).items():
        # Some metrics are not of every epoch.
        there = [(at, row) for row in rows if key in row and (at := finite(row.get("steps"))) is not None]
        steps, values = [at for at, _ in there], [finite(row.get(key)) for _, row in there]
        if set(values) - {None} and key not in task.hidden_curves:
            target = finite(targets.get(key))
            drawn = chart(steps, [Line(label, values)], label=label, unit="environment steps", target=target)
            found.append(f"<figure>{drawn}</figure>")
    about = "Values under the pointer; with the keyboard: tab to a chart, then the arrow keys."
    return f"<p class='facts'>{about}</p><div class='charts'>{''.join(found)}</div>" if found else ""


def _differences(config: dict[str, Any]) -> str:
    """Options that are not as `shoal train TASK` has them, beside what that is."""
    try:
        usual = to_dict(config_for(config["task"], env_kwargs=config.get("env_kwargs") or "{}"), full=True)
    except Exception:  # a task that is not installed here, or not any more: nothing can be said
        return ""
    rows = []
    for group in ("vector", "ppo", "run"):
        for name, value in config[group].items():
            if name not in _NO_SETTINGS and name in usual[group] and _plain(usual[group][name]) != _plain(value):
                rows.append([name, number(value), number(usual[group][name])])
    if not rows:
        return "<p>None: every option is as <code>shoal train</code> has it for this task.</p>"
    return table(["option", "this run", "default for the task"], rows, wide=(1, 2))


_NO_SETTINGS = {"name", "runs_dir", "seed", "track", "save_interval", "keep", "torch_threads"}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _environments(config: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Their number, beside the number at which noise and signal of the gradient are alike."""
    count, looks = config["vector"].get("num_envs"), sum("noise/variance" in row for row in rows)
    scales = [value for row in rows if isinstance(value := row.get("noise/scale"), int | float)]
    if not looks or not isinstance(count, int):
        return ""
    begins = f"<p>This run has <b>{count:,}</b> environments. "
    if not scales:
        seen = f"could not be told from {looks} look{'s' if looks > 1 else ''}"
        says = "is too few to say more" if looks < _FEW_LOOKS else "means that it is far above their number"
        return f"{begins}The noise scale of the policy's gradient {seen}, which {says}.</p>"
    scale = float(scales[-1])
    if scale > 2 * count:
        says = "more of them would make an update clearer, almost in proportion"
    elif scale < count / 2:
        says = "more of them would hardly make an update clearer; fewer, with more updates, learn from fewer samples"
    else:
        says = "twice as many would still make an update clearer, four times as many little more"
    return (
        f"{begins}The noise scale of the policy's gradient is <b>{text(_rounded(scale))}</b> environments at its "
        f"end, from {looks} look{'s' if looks > 1 else ''}: so many make noise and signal alike, so {says}.</p>"
    )


def _sections(task: Task, run: Run) -> Sequence[Section]:
    """A task's own sections. What is wrong with one is said in its place: the rest of the page is worth having."""
    try:
        return [_Guarded(section) for section in task.sections(run)]
    except Exception as error:
        return [Part(task.name or run.config["task"], _broken(error))]


class _Guarded(Section):
    def __init__(self, section: Section) -> None:
        self._section, self.title, self.folded = section, section.title, section.folded

    def html(self) -> str:
        try:
            return self._section.html()
        except Exception as error:
            return _broken(error)


def _broken(error: Exception) -> str:
    return f"<p class='event'>This section could not be made: {text(type(error).__name__)}: {text(error)}</p>"


def _events(events: list[dict[str, Any]]) -> str:
    if not events:
        return "<p>None: no fault, no restart, no alarm.</p>"
    lines = []
    for event in events[-_MOST_EVENTS:]:
        kind, said = str(event.get("event", "")), str(event.get("text", ""))
        kind = "" if said.startswith(kind) else f"{kind} "  # "alarm, timid: ..." names its kind already
        lines.append(f"<li class='event'>{text(event.get('at', ''))} {text(kind + said)}</li>")
    return f"<ul>{''.join(lines)}</ul>"
