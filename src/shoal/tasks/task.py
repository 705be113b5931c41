"""What a task brings: options, settings, an environment, a network, an evaluation, sections of the report, verbs.

A package brings one class, and names it in its pyproject.toml (docs/architecture.md, examples/task_package):

    [project.entry-points."shoal.tasks"]
    thermostat = "thermostat.task:Thermostat"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from gymnasium import Space
    from torch import nn

    from shoal.config import PPOConfig
    from shoal.runs.folder import Run
    from shoal.runs.page import Section

Say = Callable[[str], None]
Spaces = tuple["Space[Any]", "Space[Any]"]  # of observations and of actions


@dataclass(frozen=True)
class Shown:
    """What a command found: data for `--json`, lines for people, and its exit code."""

    data: Mapping[str, Any]
    lines: Sequence[str]
    code: int = 0


@dataclass(frozen=True)
class Check:
    """A line of `shoal doctor`. What is merely not there (`fine` is None) is wrong only where it was asked for.

    >>> absent = Check("cuda", None, "torch sees no CUDA device")
    >>> absent.wrong(asked=False), absent.wrong(asked=True)
    (False, True)
    """

    name: str  # the word after --for
    fine: bool | None
    said: str  # what was found, or what is wrong
    cure: str = ""  # what to do where it is not fine

    def wrong(self, asked: bool) -> bool:
        """Whether the installation is found wanting by it."""
        return self.fine is False or (self.fine is None and asked)


@dataclass(frozen=True)
class Command:
    """A verb of a task, typed as `shoal TASK VERB`. Its options are the documented fields of a dataclass."""

    about: str
    Options: type[Any]
    run: Callable[[Any, Say], Shown]  # (options, says progress)
    usage: str = ""  # what follows the verb on the task's page: "RUN [--day FILE]"
    first: str = ""  # the option that words before the first flag are for


class Task:
    """Subclass it; every part has a default. Import what is heavy inside the methods: listing tasks must be quick.

    Options are a frozen dataclass. Its fields are flags of `shoal train`, and they are kept with the run as JSON.
    """

    name: str = ""  # the name of the entry point
    about: str = ""
    extra: ClassVar[str] = ""  # of shoal's, without which the environment cannot be made
    preset: ClassVar[Mapping[str, Any] | None] = None  # settings that differ from the defaults; None: those of any id
    curves: ClassVar[Sequence[tuple[str, str]]] = ()  # (metric, label) more on the page
    hidden_curves: ClassVar[Sequence[str]] = ()  # metrics that say the same as one of `curves`
    meanings: ClassVar[Mapping[str, str]] = {}  # of metrics, in a few words
    evaluations: ClassVar[Sequence[tuple[str, str]]] = (("", ""),)  # flags of `shoal evaluate RUN`, what they are for
    evaluate_aliases: ClassVar[Mapping[str, str]] = {}  # flags of `shoal evaluate` under another name

    @property
    def Options(self) -> type[Any] | None:
        """The dataclass of the task's own flags."""
        return None

    @property
    def commands(self) -> Mapping[str, Command]:
        """Verbs of its own: `shoal NAME VERB`."""
        return {}

    def options(self, kwargs: Mapping[str, Any]) -> Any:
        """The options that the arguments of a run mean; those of a task without a dataclass are the arguments."""
        kind = self.Options
        return dict(kwargs) if kind is None else kind(**kwargs)

    def settings(self, options: Any) -> dict[str, Any]:
        """Settings of a run that follow from its options; flags given by hand win."""
        return {}

    def console_rows(self, options: Any) -> Sequence[tuple[str, str, str]]:
        """More rows on the console: (label, metric, format)."""
        return ()

    def environment(self, options: Any) -> Any:
        """What `make_vec` takes: a Gymnasium id, a function that makes one environment, a CompiledEnv, or an object
        of a subclass of `shoal.core.protocols.Batched`."""
        raise NotImplementedError(f"{type(self).__name__} says nothing of its environment")

    def spaces(self, options: Any) -> Spaces | None:
        """The spaces of one environment, if they can be known without making one."""
        return None

    def network(self, options: Any, spaces: Spaces, config: PPOConfig) -> nn.Module | None:
        """A network that suits the task, or None for the built-in one. A checkpoint names the task, so that it can be
        made again without the environment."""
        return None

    def played(self, options: Any) -> str:
        """Where and against whom episodes are played, where a score says nothing without it."""
        return ""

    def scored(self, episodes: Any) -> dict[str, Any]:
        """More figures of the held-out episodes played (`shoal.held_out.Episodes`)."""
        return {}

    def evaluate_options(self, runs: Sequence[str]) -> type[Any] | None:
        """The dataclass of the flags of `shoal evaluate` for these runs, or for the task itself where there are none.
        None: the evaluation that every task has."""
        return None

    def evaluate(self, runs: Sequence[str], options: Any, say: Say) -> Shown:
        """The task's own evaluation, with an instance of `evaluate_options`."""
        raise NotImplementedError(f"{type(self).__name__} has no evaluation of its own")

    def headline(self, run: Run, general: str) -> str:
        """The first sentences of a run's page, as markup; `general` are those that every run has."""
        return general

    def sections(self, run: Run) -> Sequence[Section]:
        """More sections of a run's page."""
        return ()

    def checks(self) -> Sequence[Check]:
        """Lines of `shoal doctor` on what this task needs of the machine; quick, and raising nothing."""
        return ()

    def search_domain(self) -> type[Any] | None:
        """The class behind `shoal search NAME`."""
        return None


def plain(options: Any) -> dict[str, Any]:
    """Options as plain data for JSON. A field with metadata {"later": True} is left out at its default: what was stored
    or hashed before it came stays as it was."""
    if is_dataclass(options) and not isinstance(options, type):
        quiet = {f.name for f in fields(options) if f.metadata.get("later") and getattr(options, f.name) == f.default}
        return {name: value for name, value in asdict(options).items() if name not in quiet}
    return dict(options)
