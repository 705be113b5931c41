"""The best, the median and the worst of the episodes scored, as clips for the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.extras import install, missing
from shoal.held_out import Say, play
from shoal.playing import Stage, modes_of
from shoal.runs.disk import replace_atomically, to_json
from shoal.runs.film import Clip, Lines
from shoal.runs.folder import Run
from shoal.saved_run import Saved
from shoal.vector.adapt import Stepper
from shoal.vector.make import name_of


def check_recordable(saved: Saved) -> str:
    """The render mode that clips are made with; refused before anything is played where there is none."""
    modes, _ = modes_of(saved)
    mode = next((mode for mode in ("rgb_array", "ansi") if mode in modes), None)
    if mode is None:
        has = f"it has {', '.join(modes)}" if modes else "it shows nothing"
        raise ValueError(
            f"--record: expected an environment with render mode rgb_array or ansi, {name_of(saved.made)}: {has}"
        )
    if mode == "rgb_array" and "PIL" in missing("video"):
        raise ModuleNotFoundError(f"--record needs Pillow, which is not installed: {install('video')}", name="PIL")
    return mode


def picked(returns: Sequence[float]) -> dict[str, int]:
    """Which episodes are the best, the median and the worst; of one or two there are fewer.

    >>> picked([3.0, 1.0, 2.0]), picked([5.0, 5.0, 5.0]), picked([1.0])
    ({'best': 0, 'median': 2, 'worst': 1}, {'best': 2, 'median': 1, 'worst': 0}, {'best': 0})
    """
    order = np.argsort(np.asarray(returns), kind="stable").tolist()
    places = {"best": order[-1], "median": order[(len(order) - 1) // 2], "worst": order[0]}
    found: dict[str, int] = {}
    for name in ("best", "worst", "median"):
        if places[name] not in found.values():
            found[name] = places[name]
    return {name: found[name] for name in places if name in found}


def record(
    run: Run, saved: Saved, mode: str, seeds: Sequence[int], score: dict[str, Any], limit: int, say: Say
) -> list[dict[str, Any]]:
    """Play those episodes once more, greedily as they were scored, and write their clips into the run's figures."""
    stage = Stage(saved, mode)
    found = []
    for name, episode in picked(score["returns"]).items():
        clip = Clip(stage.frames_per_s) if mode == "rgb_array" else Lines()
        envs = stage.environment(clip)
        try:
            again = play(saved.policy, Stepper(envs), [seeds[episode]], saved.seed, max_steps=limit)
        finally:
            envs.close()
        value = float(again.returns[0])
        if value != score["returns"][episode]:
            say(f"WARNING: the {name} episode went otherwise when it was recorded: the environment ignores its seed")
        run.figures.mkdir(exist_ok=True)
        if isinstance(clip, Clip):
            replace_atomically(run.figures / f"{name}.gif", clip.gif())
            replace_atomically(run.figures / f"{name}.png", clip.still())
        else:
            replace_atomically(run.figures / f"{name}.json", to_json({"frames": clip.frames}))
        kind = "pictures" if isinstance(clip, Clip) else "text"
        length = int(again.lengths[0])
        found.append({"which": name, "episode": episode + 1, "return": value, "length": length, "kind": kind})
    return found
