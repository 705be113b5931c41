"""`shoal cage2 ...`: the verbs of the task. What they compute is in shoal.cage2.commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shoal.extras import require
from shoal.tasks import Command, Say, Shown

PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class ReplayArgs:
    """Compare recordings of CybORG with the simulator, field by field. Exit code 1 where anything differs."""

    files: tuple[str, ...]
    """Recordings (docs/cage2-recordings.md)."""
    rules: Literal["present", "final"] = "present"
    """The rules that they were recorded under: the present ones, or those of the published leaderboard."""


def replay(given: ReplayArgs, say: Say) -> Shown:
    """Exit code 0 when nothing differs, 1 otherwise."""
    if not given.files:
        raise ValueError("expected recordings to compare: shoal cage2 replay FILE...")
    from shoal.cage2 import commands

    report = commands.replay(given.files, given.rules)
    return Shown(report, commands.replay_lines(report), 0 if report["mismatches"] == 0 else 1)


@dataclass(frozen=True)
class RecordArgs:
    """Play episodes in an installed CybORG and write a recording of them (docs/cage2-recordings.md), then compare it
    with the simulator. Exit code 1 where anything differs."""

    file: str
    """The recording to write (.npz)."""
    defender: str = "random"
    """Blue: a run of cage2, or a scripted defender: sleep, random, react-restore, d1, d2, noisy, decoy-first."""
    red: Literal["bline", "meander", "sleep"] = "bline"
    """The red agent."""
    episodes: int = 100
    """Episodes to play; 100 of 100 steps take about a minute."""
    steps: int = 100
    """Steps of each episode."""
    seed: int = 0
    """Seed of the episodes: the same seed and defender play the same ones."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""

    def __post_init__(self) -> None:
        for name in ("episodes", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected --{name} of at least 1, got {getattr(self, name)}")
        if Path(self.file).suffix != ".npz":
            raise ValueError(f"expected a file name that ends in .npz, got {self.file!r}")
        if not Path(self.file).parent.is_dir():
            raise ValueError(f"{self.file}: expected a file in a folder that exists, got none of that name")
        if Path(self.file).exists():
            raise ValueError(f"{self.file}: expected the name of a new file, got one that is there")


def record(given: RecordArgs, say: Say) -> Shown:
    """Write a recording and replay it."""
    from shoal.cage2 import commands

    act, options = _defender(given.defender, given.runs_dir)
    options.pop("rules", None)  # CybORG has its own
    play: dict[str, Any] = {"red": given.red, "episodes": given.episodes, "steps": given.steps, "seed": given.seed}
    report = commands.record(given.file, act, say, **{**play, **options})
    return Shown(report, commands.replay_lines(report), 0 if report["mismatches"] == 0 else 1)


@dataclass(frozen=True)
class PlayArgs:
    """One episode, step by step in words, and as a picture."""

    defender: str
    """A run of cage2, or a scripted defender: sleep, random, react-restore (restores what just showed an exploit; it is
    not the challenge's BlueReactRestore), d1, d2, noisy, decoy-first."""
    red: Literal["bline", "meander", "sleep"] = "bline"
    """The red agent."""
    horizon: int = 100
    """Steps of the episode."""
    seed: int = 0
    """Which held-out episode."""
    simulator: Literal["shoal", "cyborg"] = "shoal"
    """The compiled simulator, or the real CybORG if it is installed."""
    rules: Literal["present", "final"] | None = None
    """The present rules, or those of the published leaderboard (docs/cage2-rules.md); default: those that a run was
    trained under, else the present ones. CybORG has its own."""
    picture: str | None = None
    """File for the picture: .png, .svg or .pdf."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ValueError(f"expected --horizon of at least 1, got {self.horizon}")


def play(given: PlayArgs, say: Say) -> Shown:
    """Print an episode; with --picture draw it too."""
    from shoal.cage2 import commands
    from shoal.cage2.defender import under

    if given.picture is not None:
        _check_picture(given)
    act, options = _defender(given.defender, given.runs_dir)
    chosen: dict[str, Any] = {"red": given.red, "horizon": given.horizon, "seed": given.seed}
    chosen |= {"simulator": given.simulator, **under(options, given.simulator, given.rules)}
    episode = commands.play(act, **chosen)
    if given.picture is not None:
        from shoal.cage2.figures import episode_figure

        episode_figure(episode["picture"]).savefig(Path(given.picture), dpi=150)
    lines = [
        *episode["lines"],
        f"total {episode['total']:.1f} over {given.horizon} steps against {episode['red']}",
        commands.where_line(episode["rules"], episode["simulator"]),
    ]
    if given.picture is not None:
        lines.append(f"picture  {given.picture}")
    return Shown({name: episode[name] for name in ("rules", "simulator", "red", "total", "lines")}, lines)


@dataclass(frozen=True)
class ScoreArgs:
    """A scripted defender by the challenge's protocol."""

    defender: str = "decoy-first"
    """sleep, random, react-restore (restores what just showed an exploit; it is not the challenge's BlueReactRestore),
    d1, d2, noisy or decoy-first."""
    episodes: int | None = None
    """Episodes per red agent; default: 4,000, in CybORG 100 (some minutes)."""
    seed: int = 0
    """Seed of the evaluation stream."""
    simulator: Literal["shoal", "cyborg"] = "shoal"
    """The compiled simulator, or the real CybORG if it is installed."""
    rules: Literal["present", "final"] | None = None
    """The present rules, or those of the published leaderboard (docs/cage2-rules.md); CybORG has its own."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""

    def __post_init__(self) -> None:
        if self.episodes is not None and self.episodes < 1:
            raise ValueError(f"expected --episodes of at least 1, got {self.episodes}")


def score(given: ScoreArgs, say: Say) -> Shown:
    """Print the nine cells and the sum."""
    from shoal.cage2 import commands
    from shoal.cage2.defenders.play import DEFENDERS

    if given.defender not in DEFENDERS:
        raise ValueError(_not_scripted(given.defender, given.runs_dir, DEFENDERS))
    episodes = given.episodes or (4000 if given.simulator == "shoal" else 100)
    result = commands.score(given.defender, episodes, given.seed, simulator=given.simulator, rules=given.rules, say=say)
    return Shown(result, commands.lines(given.defender, result))


@dataclass(frozen=True)
class ExportArgs:
    """A run as an agent for the challenge's own evaluation: one Python file that needs NumPy, and its weights."""

    places: tuple[str, ...]
    """A run of cage2, and where to: a folder that does not exist yet, or is empty."""
    order: str | None = None
    """The order to keep to, of a run that was trained to keep to any (--order drawn)."""
    checkpoint: str | None = None
    """An epoch, or best; default: the newest checkpoint."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def export(given: ExportArgs, say: Say) -> Shown:
    """Write the agent."""
    from shoal.cage2 import export as exporting

    if len(given.places) != 2:
        raise ValueError(f"expected a run and a folder, got {len(given.places)} words: shoal cage2 export RUN FOLDER")
    found = exporting.export(*given.places, order=given.order, checkpoint=given.checkpoint, runs_dir=given.runs_dir)
    return Shown(found, list(exporting.exported_lines(found)))


def _not_scripted(name: str, runs_dir: str, known: Sequence[str]) -> str:
    from shoal.runs.folder import Run

    try:
        run = Run.open(name, Path(runs_dir))
    except FileNotFoundError:
        return f"expected a scripted defender ({', '.join(known)}), got {name!r}"
    return f"{name} is a run, not a scripted defender: score it with shoal evaluate {run.path} --leaderboard"


def _check_picture(given: PlayArgs) -> None:
    """Before an episode is played: can this picture be drawn?"""
    if given.simulator == "cyborg":
        raise ValueError("--picture: expected --simulator shoal: a picture shows what red holds, CybORG is not asked")
    if Path(str(given.picture)).suffix.lower() not in PICTURES:
        raise ValueError(f"--picture: expected a file name that ends in {', '.join(PICTURES)}, got {given.picture!r}")
    require("cage2", "--picture")


def _defender(name: str, runs_dir: str) -> tuple[Any, dict[str, str]]:
    from shoal.cage2.defenders.play import DEFENDERS

    if name in DEFENDERS:
        return name, {}
    from shoal.cage2.defender import cage2_policy

    return cage2_policy(name, runs_dir)


COMMANDS = {
    "replay": Command(
        "compare recordings of CybORG with the simulator, field by field (--rules final: recordings under the rules of "
        "the published leaderboard)", ReplayArgs, replay, "FILE...", first="files",
    ),
    "record": Command(
        "write a recording of episodes played in an installed CybORG, and compare it", RecordArgs, record, "FILE",
        first="file",
    ),
    "play": Command("one episode in words, and as a picture", PlayArgs, play, "RUN|DEFENDER", first="defender"),
    "score": Command(
        "a scripted defender by the challenge's protocol (for a trained run: shoal evaluate RUN --leaderboard)",
        ScoreArgs, score, "DEFENDER", first="defender",
    ),
    "export": Command(
        "a run as an agent for the challenge's own evaluation (NumPy alone)", ExportArgs, export, "RUN FOLDER",
        first="places",
    ),
}  # fmt: skip
