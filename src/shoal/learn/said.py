"""Numbers that environments say of an episode when it ends (`info["success"]`), as means over episodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from shoal.core.arrays import Array
from shoal.vector.infos import Numbers

PREFIX = "info/"
_MOST_NAMES, _LONGEST = 32, 80  # taken by themselves: who wants more of them names them


def chosen_names(text: str, has_figures: bool = False) -> tuple[str, ...] | None:
    """The names in `--log-info`; None, which is all, of "auto". An environment that has figures of its own would say
    the same twice: of "auto" there are none then.

    >>> chosen_names("success, score"), chosen_names("none"), chosen_names("auto")
    (('success', 'score'), (), None)
    """
    if text == "auto":
        return () if has_figures else None
    return () if text == "none" else tuple(name.strip() for name in text.split(",") if name.strip())


class Said:
    """What the last episodes said, by name. `names` are those wanted; None takes every number but those within a dict.

    >>> said = Said(("won",), window=2)
    >>> for won in (1.0, 0.0, 1.0):
    ...     said.add({"won": won, "size": 3.0})
    >>> said.means()
    {'info/won': 0.5}
    """

    def __init__(self, names: tuple[str, ...] | None, window: int = 100) -> None:
        self._names, self._window, self._episodes = names, window, 0
        self._values: dict[str, deque[float]] = {name: deque(maxlen=window) for name in names or ()}
        self._known: dict[str, None] = {}  # numbers that there are, wanted or not, in their order
        self._no_numbers: dict[str, None] = {}

    def add(self, numbers: Mapping[str, float]) -> None:
        """Of one episode, NaN where it is none: those wanted are kept."""
        self._episodes += 1
        for name, value in numbers.items():
            finite = np.isfinite(value)
            if finite and len(self._known) < _MOST_NAMES:
                self._known[name] = None
            if self._names is None:
                if "." in name or len(name) > _LONGEST or (name not in self._values and not finite):
                    continue
                if name not in self._values:
                    if len(self._values) >= _MOST_NAMES:
                        continue
                    self._values[name] = deque(maxlen=self._window)
            elif name not in self._values:
                continue
            if finite:
                self._values[name].append(float(value))
            else:
                self._no_numbers[name] = None

    def means(self) -> dict[str, float]:
        """Of the last episodes that said it, by the name that is logged."""
        return {PREFIX + name: sum(kept) / len(kept) for name, kept in self._values.items() if kept}

    @property
    def remarks(self) -> dict[str, str]:
        """What a person should be told of it, by name."""
        found = {
            f"info {name}": "it is no finite number in some episodes, which its mean leaves out"
            for name in self._no_numbers
        }
        if self._names and self._episodes >= self._window:
            there = ", ".join(self._known) or "none"
            for name, kept in self._values.items():
                if not kept and name not in self._no_numbers:
                    found[f"info {name}"] = f"no episode has ended with a number of that name; the numbers are: {there}"
        return found

    def state(self) -> dict[str, list[float]]:
        """The values that the means are of."""
        return {name: list(kept) for name, kept in self._values.items() if kept}

    def set_state(self, state: Mapping[str, list[float]]) -> None:
        """The inverse; names that are not wanted any more are left out."""
        for name, kept in state.items():
            if self._names is None or name in self._names:
                self._values[name] = deque((float(value) for value in kept), maxlen=self._window)


class Sayings:
    """Of so many episodes, each by its number: what is left is a mean over those that said it."""

    def __init__(self, episodes: int) -> None:
        self._values: dict[str, Array] = {}  # float64[E], NaN where an episode did not say it
        self._episodes = episodes

    def add(self, episodes: Array, places: Array, numbers: Numbers) -> None:
        """The numbers of the `places` (int64[k]) are those of `episodes` (int64[k])."""
        for name, (there, values) in numbers.items():
            kept = self._values.setdefault(name, np.full(self._episodes, np.nan))
            kept[episodes] = np.where(there[places], values[places], np.nan)

    def means(self, wanted: tuple[str, ...] | None) -> dict[str, float]:
        """By name; `wanted` as `chosen_names` gives it."""
        found = {}
        for name, values in self._values.items():
            fine = values[np.isfinite(values)]
            if fine.size and ((wanted is None and "." not in name) or (wanted is not None and name in wanted)):
                found[name] = float(fine.mean())
        return found
