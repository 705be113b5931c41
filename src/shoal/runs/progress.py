"""Whether a run got anywhere, in words, from the rows it recorded."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

WINDOW = 100  # episodes behind a row's `return/mean_100`
_LEAST = 3  # windows that a quarter of a run needs to be judged
_TRY = (
    "What often helps: --normalise-observations --normalise-rewards, more gradient steps (a smaller --minibatch-size, "
    "more --update-epochs), another --learning-rate, more --entropy-coef, a longer budget"
)


def remark(rows: Sequence[dict[str, Any]], target_return: float | None = None) -> str | None:
    """What is to be said at the end of a run whose returns did not rise; None where there is nothing to say.

    Means of 100 episodes that share none are compared, those of the run's third quarter with those of its last. A
    difference of two standard errors counts as a rise. A run that is at its target is left alone, and so is one that is
    too short to tell.

    >>> rows = [{"steps": n * 1000, "episodes": n * 100, "return/mean_100": 20.0 + n % 3} for n in range(1, 41)]
    >>> remark(rows)[:60]
    'the mean return has not risen over the last half of the run:'
    >>> remark(rows, target_return=20.0) is None
    True
    """
    if not rows:
        return None
    last = rows[-1]
    if not last.get("episodes"):
        return (
            f"no episode ended in {last['steps']:,} steps, so there is no return to show: the environment neither "
            "terminates nor truncates within that time. Give it a limit (gymnasium.wrappers.TimeLimit, or "
            "max_episode_steps where it is registered), or train for more steps"
        )
    mean = last.get("return/mean_100")
    if target_return is not None and mean is not None and mean >= target_return:
        return None
    windows = _apart(rows)
    third = [value for steps, value in windows if last["steps"] / 2 < steps <= last["steps"] * 3 / 4]
    fourth = [value for steps, value in windows if last["steps"] * 3 / 4 < steps]
    if min(len(third), len(fourth)) < _LEAST:
        return None
    before, now = statistics.fmean(third), statistics.fmean(fourth)
    error = math.sqrt(statistics.variance(third) / len(third) + statistics.variance(fourth) / len(fourth))
    if now - before > 2 * error:
        return None
    text = f"the mean return has not risen over the last half of the run: {before:,.4g} in its third quarter, "
    text += f"{now:,.4g} in its last (+- {2 * error:,.2g})"
    steps, best = max(windows, key=lambda window: window[1])
    if best - now > 2 * (statistics.stdev(fourth) + error):
        text += f"; it was {best:,.4g} at step {steps:,}"
    return f"{text}. It is as good as it gets, or it is stuck. {_TRY}"


def _apart(rows: Sequence[dict[str, Any]]) -> list[tuple[int, float]]:
    """(steps, mean of the last 100 episodes) of rows so far apart that no episode is in two of the means."""
    found: list[tuple[int, float]] = []
    taken = 0
    for row in rows:
        if row["episodes"] - taken >= WINDOW and row.get("return/mean_100") is not None:
            found.append((row["steps"], float(row["return/mean_100"])))
            taken = row["episodes"]
    return found
