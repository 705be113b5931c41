"""Search of settings by Optuna: trials are trainings, pruned by their learning curves; finalists get several seeds.

Everything is in one folder: the study (a journal that Optuna appends to), each finished final, and what was found. A
search that was stopped goes on; the trial that was under way is trained again, with the settings that it had.
"""

from __future__ import annotations

import json
import shutil
import statistics
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from shoal.callbacks import Callback, Training
from shoal.config import TrainConfig
from shoal.core.seeds import derived_seed
from shoal.extras import require
from shoal.runs.disk import from_json, replace_atomically, to_json
from shoal.runs.words import figure
from shoal.tasks import environment
from shoal.tasks.presets import config_for
from shoal.tasks.saved import parse_env_kwargs
from shoal.training import train
from shoal.tuning.folder import FINALS, FOUND, PLAN, REACHED, STUDY
from shoal.tuning.space import Space, flags
from shoal.vector.foreign import find_spec

Say = Callable[[str], None]
Measure = Literal["steps", "cpu", "return"]
RETURN = "return/mean_100"
LOOKS = 20  # at the learning curve, over the budget
UNTRIED = 4  # trials before any is pruned
WORST = 1e30  # of a training in which no episode ended
_TRIAL, _FINAL = 0, 1  # streams of seeds


@dataclass(frozen=True)
class SearchPlan:
    """What is searched, and how."""

    task: str
    trials: int = 20
    measure: Measure | None = None  # None: steps where the task has a target, otherwise return
    steps: int | None = None  # of a trial; None: the task's own budget
    seed: int = 0
    finalists: int = 3
    seeds: int = 3
    env_kwargs: str = "{}"

    def __post_init__(self) -> None:
        for name, least in (("trials", 1), ("finalists", 1), ("seeds", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"expected --{name} of at least {least}, got {getattr(self, name)}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"expected --steps of at least 1, got {self.steps}")


@dataclass(frozen=True)
class Final:
    """A finalist: its trial, its settings, what each seed came to (less is better), and which reached the target."""

    number: int
    settings: dict[str, Any]
    values: list[float]
    reached: list[bool]
    own: bool = False  # the task's own settings

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(frozen=True)
class Found:
    """What a search came to. Values are costs (steps or CPU-seconds to the target) or returns with the sign turned."""

    plan: SearchPlan
    measure: Measure
    target: float | None
    trials: int
    pruned: int
    finals: list[Final]
    folder: str
    best: Final = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "best", min(self.finals, key=lambda final: (final.median, not final.own)))

    @property
    def in_vain(self) -> str:
        """What to say where no finalist came to the target, so that none is known to be better; else nothing."""
        if any(any(final.reached) for final in self.finals):
            return ""
        return f"no finalist reached {figure(self.target)}: give --steps a larger budget, or --measure return"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "flags": flags(self.best.settings), "is_own": self.best.own}

    def lines(self) -> list[str]:
        """For people."""
        what = {"steps": "steps to the target", "cpu": "CPU-seconds to the target", "return": "return at the end"}
        sign = -1.0 if self.measure == "return" else 1.0
        lines = [f"{self.trials} trials, {self.pruned} of them pruned; {what[self.measure]}, median (and each seed)"]
        for final in sorted(self.finals, key=lambda one: one.median):
            each = zip(final.values, final.reached, strict=True)
            values = ", ".join(figure(sign * value) if there else "not reached" for value, there in each)
            name = "the task's own settings" if final.own else f"trial {final.number}"
            mark = "->" if final is self.best else "  "
            middle = final.median if any(final.reached) else None
            lines.append(f"{mark} {name:<24}{figure(None if middle is None else sign * middle):>12}  ({values})")
        if self.in_vain:
            return [*lines, self.in_vain]
        if self.best.own:
            return [*lines, "nothing better was found than the settings that the task has"]
        own = next(final for final in self.finals if final.own)
        better = f"median {figure(sign * self.best.median)}, the task's own settings {figure(sign * own.median)}"
        return [
            *lines,
            better + _few(self.plan.seeds),
            f"use      shoal train {self.plan.task} {flags(self.best.settings)}",
            f"preset   {json.dumps(self.plan.task)}: {self.best.settings!r},",
        ]


def _few(seeds: int) -> str:
    return f"; {seeds} seeds are no verdict: shoal compare says whether they differ" if seeds < 10 else ""


def search(plan: SearchPlan, folder: str | Path, say: Say = lambda text: None) -> Found:
    """Begin a search, or go on with the one in the folder."""
    require("tune", "shoal tune --search")
    base = base_of(plan)
    if base.run.steps is None:
        raise ValueError(f"expected --steps for {plan.task}, whose budget is not in steps")
    _known(plan)
    measure = plan.measure or ("return" if base.run.target_return is None else "steps")
    if measure != "return" and base.run.target_return is None:
        raise ValueError(f"--measure: expected return for {plan.task}, which has no target to reach; got {measure}")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    _settle(place, plan)
    work = _Search(plan, measure, base, place, say)
    work.trials()
    found = work.finals()
    replace_atomically(place / FOUND, to_json(found.to_json()))
    return found


def base_of(plan: SearchPlan) -> TrainConfig:
    """The task's own settings, with the budget of a trial."""
    return config_for(plan.task, env_kwargs=plan.env_kwargs, **({} if plan.steps is None else {"steps": plan.steps}))


def _known(plan: SearchPlan) -> None:
    """A name that does not exist is told before there is a folder."""
    made, _ = environment(plan.task, parse_env_kwargs(plan.env_kwargs))
    if isinstance(made, str):
        find_spec(made)


def _settle(place: Path, plan: SearchPlan) -> None:
    """The plan of a new folder; of one that is there, it must be the same but for the number of trials."""
    path = place / PLAN
    if path.exists():
        before = SearchPlan(**from_json(path.read_bytes()))
        differing = [name for name, value in asdict(before).items() if value != asdict(plan)[name] and name != "trials"]
        if differing:
            told = ", ".join(f"{name} {getattr(before, name)}, now {getattr(plan, name)}" for name in differing)
            raise ValueError(f"{place}: a search that was begun otherwise ({told}): choose another --name")
    elif any(place.iterdir()):
        raise FileExistsError(f"{place}: expected an empty folder or that of a search, got one with other files")
    replace_atomically(path, to_json(asdict(plan)))


class _Search:
    """One search under way."""

    def __init__(self, plan: SearchPlan, measure: Measure, base: TrainConfig, place: Path, say: Say) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.optuna: Any = optuna
        self.plan, self.measure, self.base, self.place, self.say = plan, measure, base, place, say
        self.space = Space(base)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=UNTRIED, n_warmup_steps=LOOKS // 5)
        storage = JournalStorage(JournalFileBackend(str(place / STUDY)))
        self.study: Any = optuna.create_study(
            storage=storage, study_name="search", direction="minimize", pruner=pruner, load_if_exists=True
        )

    def trials(self) -> None:
        """All that are not done yet; the first is the task's own settings."""
        state = self.optuna.trial.TrialState
        if not self.study.get_trials(deepcopy=False):
            self.study.enqueue_trial(self.space.own)
        for trial in self.study.get_trials(states=(state.RUNNING,)):  # stopped in the middle
            self._run(self.optuna.trial.Trial(self.study, trial._trial_id))
        over = (state.COMPLETE, state.PRUNED, state.FAIL)
        while (done := len(self.study.get_trials(states=over))) < self.plan.trials:
            # A sampler for each trial: its draws depend on the seed, its number and what came before, not on stops.
            self.study.sampler = self.optuna.samplers.TPESampler(
                seed=derived_seed(self.plan.seed, 2, done), n_startup_trials=2 * UNTRIED
            )
            self._run(self.study.ask())

    def _run(self, trial: Any) -> None:
        options = self.space.choose(trial)
        name = f"trial-{trial.number:03d}"
        value, look = self._train(name, options, derived_seed(self.plan.seed, _TRIAL, trial.number), trial)
        state = self.optuna.trial.TrialState
        trial.set_user_attr(REACHED, look.reached)
        if look.pruned:
            self.study.tell(trial, state=state.PRUNED)
        else:
            self.study.tell(trial, value)
        told = "pruned" if look.pruned else self._told(value, look.reached)
        self.say(f"trial {trial.number + 1} of {self.plan.trials}: {told}  ({flags(options)})")

    def _told(self, value: float, reached: bool) -> str:
        if not reached:
            return f"target {figure(self.base.run.target_return)} not reached"
        if self.measure == "return":
            return f"return {figure(-value)}"
        return f"{value:,.0f} steps" if self.measure == "steps" else f"{value:,.1f} CPU-s"

    def finals(self) -> Found:
        """The best trials and the task's own settings, each with other seeds, the same for all."""
        state = self.optuna.trial.TrialState
        done = [trial for trial in self.study.get_trials() if trial.state == state.COMPLETE]
        chosen = sorted(done, key=lambda trial: (trial.value, trial.number))[: self.plan.finalists]
        own = next(trial for trial in self.study.get_trials() if trial.number == 0)
        path = self.place / FINALS
        kept: dict[str, list[Any]] = from_json(path.read_bytes()) if path.exists() else {}
        trials = chosen if own.number in {one.number for one in chosen} else [*chosen, own]
        for place in range(self.plan.seeds):  # by turns, so that a busy hour of the machine slows all of them
            seed = derived_seed(self.plan.seed, _FINAL, place)
            for trial in trials:
                key = f"{trial.number}-{place}"
                if key not in kept:
                    value, look = self._train(f"final-{key}", self.space.options(trial.params), seed, None)
                    kept[key] = [value, look.reached]
                    replace_atomically(path, to_json(kept))
                    self.say(f"finalist trial {trial.number}, seed {place}: {self._told(value, look.reached)}")
        finals = []
        for trial in trials:
            values, reached = zip(*(kept[f"{trial.number}-{place}"] for place in range(self.plan.seeds)), strict=True)
            options = self.space.options(trial.params)
            finals.append(Final(trial.number, options, list(values), list(reached), own=trial.number == 0))
        pruned = len(self.study.get_trials(states=(state.PRUNED,)))
        return Found(
            self.plan, self.measure, self.base.run.target_return, len(done) + pruned, pruned, finals, str(self.place)
        )

    def _train(self, name: str, options: Mapping[str, Any], seed: int, trial: Any) -> tuple[float, _Looks]:
        """One training: what it cost, or how good it was with the sign turned; and how its curve went."""
        shutil.rmtree(self.place / name, ignore_errors=True)  # of a search that was stopped in the middle of it
        look = _Looks(trial, self.base, self.measure)
        config = self.base.replace(
            **options, seed=seed, name=name, runs_dir=str(self.place), torch_threads=1, keep=1, save_interval=10**6
        )
        result = train(config=config, callbacks=[look], stream=StringIO())
        if result.status != "finished":
            raise KeyboardInterrupt
        if self.measure == "return":
            return WORST if look.last is None else -look.last, look
        cost = float(result.steps if self.measure == "steps" else result.cpu_s)
        return cost * (1.0 + look.short_of), look


class _Looks(Callback):
    """Tells the study how the curve goes, and ends what is not worth going on with."""

    def __init__(self, trial: Any, base: TrainConfig, measure: Measure) -> None:
        self.trial, self.budget = trial, base.run.steps or 1
        self._target = None if measure == "return" else base.run.target_return
        self.last: float | None = None
        self.pruned, self._looked = False, 0

    @property
    def reached(self) -> bool:
        """Whether it came to the target; always, where there is none."""
        return self.short_of == 0.0

    @property
    def short_of(self) -> float:
        """0 where the target was reached; else at least 1, and more the farther it was."""
        if self._target is None:
            return 0.0
        if self.last is None:
            return 2.0
        distance = (self._target - self.last) / max(abs(self._target), 1e-9)
        return 0.0 if distance <= 0 else 1.0 + min(1.0, distance)

    def on_epoch(self, training: Training) -> None:
        """At equal shares of the budget."""
        value = training.metrics.get(RETURN)
        if value is None:
            return
        self.last = float(value)
        at = LOOKS * training.steps // self.budget
        if self.trial is None or at <= self._looked:
            return
        self._looked = at
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a trial that is trained again has told some of it before
            self.trial.report(-self.last, at)
        if self.trial.should_prune():
            self.pruned = True
            training.stop("pruned: others were better by then")
