"""`shoal cage2 ...`: the commands of one task. What they compute is in shoal.tasks.cage2.commands."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shoal.cli.parsing import named, parse

USAGE = """shoal cage2 replay FILE...          compare recordings of the real CybORG with the simulator, field by field
shoal cage2 play RUN|DEFENDER       one episode in words, and as a picture
shoal cage2 score DEFENDER          a scripted defender by the challenge's protocol"""


def cage2(args: list[str], as_json: bool) -> int:
    """Replay recordings, watch an episode, score a scripted defender."""
    commands = {"replay": replay, "play": play, "score": score}
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if args else 2
    if args[0] not in commands:
        raise ValueError(f"expected shoal cage2 {' | '.join(commands)}, got {args[0]!r}\n\n{USAGE}")
    return commands[args[0]](args[1:], as_json)


def replay(args: list[str], as_json: bool) -> int:
    """Exit code 0 when nothing differs, 1 otherwise."""
    if not args or args[0].startswith("-"):
        print(USAGE.splitlines()[0], file=sys.stdout if "--help" in args else sys.stderr)
        return 0 if "--help" in args else 2
    from shoal.tasks.cage2 import commands

    report = commands.replay(args)
    print(json.dumps(report) if as_json else "\n".join(commands.replay_lines(report)))
    return 0 if report["mismatches"] == 0 else 1


@dataclass(frozen=True)
class PlayArgs:
    """One episode, step by step in words, and as a picture."""

    defender: str
    """A run folder of cage2, or a scripted defender (sleep, random, react-restore, d1, d2, noisy, decoy-first)."""
    red: Literal["bline", "meander", "sleep"] = "bline"
    """The attacker."""
    horizon: int = 100
    """Steps."""
    seed: int = 0
    """Which held-out episode."""
    picture: str | None = None
    """File for the picture (.png or .svg)."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def play(args: list[str], as_json: bool) -> int:
    """Print an episode; with --picture draw it too."""
    given = parse(PlayArgs, named(args, "--defender"), "shoal cage2 play DEFENDER")
    from shoal.tasks.cage2 import commands

    act, options = _defender(given.defender, given.runs_dir)
    episode = commands.play(act, red=given.red, horizon=given.horizon, seed=given.seed, **options)
    if given.picture is not None:
        from shoal.figures.episode import episode_figure

        episode_figure(episode["picture"]).savefig(Path(given.picture), dpi=150)
    if as_json:
        print(json.dumps({name: episode[name] for name in ("red", "total", "lines")}))
        return 0
    print("\n".join(episode["lines"]))
    print(f"total {episode['total']:.1f} over {given.horizon} steps against {episode['red']}")
    if given.picture is not None:
        print(f"picture  {given.picture}")
    return 0


@dataclass(frozen=True)
class ScoreArgs:
    """A scripted defender by the challenge's protocol."""

    defender: str = "decoy-first"
    """sleep, random, react-restore, d1, d2, noisy or decoy-first."""
    episodes: int = 4000
    """Episodes per red agent."""
    seed: int = 0
    """Seed of the evaluation stream."""


def score(args: list[str], as_json: bool) -> int:
    """Print the nine cells and the sum."""
    given = parse(ScoreArgs, named(args, "--defender"), "shoal cage2 score DEFENDER")
    from shoal.tasks.cage2 import commands

    result = commands.score(given.defender, given.episodes, given.seed)
    print(json.dumps(result) if as_json else "\n".join(leaderboard_lines(given.defender, result)))
    return 0


def leaderboard_lines(name: str, result: dict[str, Any]) -> list[str]:
    """The challenge's table for people."""
    lines = [
        f"rules: {result['rules']}",
        f"{'red':<9}{'steps':>6}{'mean':>9}  {'95 % interval':^20}{'median':>8}{'5 %':>9}{'worst':>9}",
    ]
    for cell in result["cells"]:
        bounds = f"[{cell['low']:.2f}, {cell['high']:.2f}]"
        lines.append(
            f"{cell['red']:<9}{cell['horizon']:>6}{cell['mean']:>9.2f}  {bounds:^20}"
            f"{cell['median']:>8.1f}{cell['q05']:>9.1f}{cell['worst']:>9.1f}"
        )
    total = result["sum"]
    lines += [
        "",
        f"sum of the nine means {total['mean']:.2f}, 95 % interval [{total['low']:.2f}, {total['high']:.2f}]",
        "",
    ]
    rows = [{"name": name, "sum": total["mean"], "rules": result["rules"]}, *result["published"]]
    for row in sorted(rows, key=lambda row: -row["sum"]):
        lines.append(f"{row['sum']:>8.2f}  {'-> ' if row['name'] == name else ''}{row['name']} ({row['rules']})")
    return lines


def _defender(name: str, runs_dir: str) -> tuple[Any, dict[str, str]]:
    from shoal.tasks.cage2.contest import DEFENDERS

    if name in DEFENDERS:
        return name, {}
    from shoal.defender import cage2_policy

    return cage2_policy(name, runs_dir)
