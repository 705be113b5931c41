"""`shoal play`: watch a saved run."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any, Literal

from shoal.cli.parsing import find_here, named, parse, take_all
from shoal.runs.words import decimals, figure

_ABOUT = """Play held-out episodes of a saved run, the first of those that `shoal evaluate` scores, and show them.

  shoal play runs/NAME                       text where the environment has some, and the returns
  shoal play runs/NAME --video out.gif       a file (.mp4 too), of an environment with pictures
  shoal play runs/NAME --render human        a window"""


@dataclass(frozen=True)
class PlayArgs:
    """Play held-out episodes of a saved run, and show them."""

    run: str
    """Folder of a run, or its name under --runs-dir."""
    episodes: int = 3
    """Episodes to play."""
    video: str | None = None
    """File to write, .gif or .mp4."""
    render: Literal["human", "ansi"] | None = None
    """human: the environment's own window. ansi: text; the default, without --video, where the environment has it."""
    checkpoint: str | None = None
    """last, best or the number of an epoch; default: the best by --evaluate-every, if the run has one, otherwise the
    last."""
    sampled: bool = False
    """Sample the actions; default: the most probable ones."""
    seed: int | None = None
    """Seed of the evaluation stream; default: the run's."""
    max_episode_steps: int | None = None
    """Steps after which an endless episode is cut; default: the environment's own limit, otherwise 20,000."""
    imports: tuple[str, ...] = ()
    """Modules that register environments, imported first: --import MODULE, once for each."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def play(args: list[str], as_json: bool) -> int:
    """Show episodes, and say how they went."""
    imports, args = take_all(args, "--import")
    find_here(imports)
    given = parse(PlayArgs, named(args, "--run"), "shoal play RUN", about=_ABOUT)
    from shoal.playing import play as show

    def say(text: str) -> None:
        print(text, file=sys.stderr if as_json else sys.stdout, flush=True)

    result = show(
        given.run,
        episodes=given.episodes,
        video=given.video,
        render="none" if as_json and given.render is None else given.render or "auto",
        checkpoint=given.checkpoint,
        deterministic=not given.sampled,
        seed=given.seed,
        imports=imports,
        max_episode_steps=given.max_episode_steps,
        runs_dir=given.runs_dir,
        say=say,
    )
    if as_json:
        print(json.dumps(result, allow_nan=False))
    else:
        print("\n".join(lines(result)))
    return 0


def lines(result: dict[str, Any]) -> list[str]:
    """How the episodes went, for people."""
    rows = result["episodes"]
    places = decimals(*(row["return"] for row in rows))
    found = [f"{result['task']}, epoch {result['epoch']}, {result['actions']} actions, held-out episodes:"]
    for number, row in enumerate(rows, 1):
        cut = ", cut: it had not ended" if row["unfinished"] else ""
        found.append(f"episode {number:<3} return {figure(row['return'], places):>10}  {row['length']:,} steps{cut}")
    if result["video"]:
        found.append(f"video    {result['video']} ({result['frames']:,} frames)")
    return found
