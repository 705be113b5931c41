"""What the person at the terminal sees: a live display there, short plain lines everywhere else."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoal.runs.pace import clock_text
from shoal.runs.words import figure, sparkline, wrapped

REFRESH_S = 0.25

RETURN = "return"  # the format of a row whose value is a return: as many decimals as tell two of them apart
_MOST_HISTORY = 512

# label, key, format
_BLOCK: tuple[tuple[str, str, str], ...] = (
    ("epoch", "epoch", ","),
    ("episodes in all", "episodes", ","),
    ("mean return (last 100)", "return/mean_100", RETURN),
    ("mean length (last 100)", "length/mean_100", ",.1f"),
    ("policy loss", "loss/policy", ".4f"),
    ("value loss", "loss/value", ".4g"),
    ("entropy", "policy/entropy", ".4f"),
    ("KL", "policy/kl", ".5f"),
    ("explained variance", "value/explained_variance", ".3f"),
    ("episodes of this epoch", "episodes/epoch", ","),
    ("steps/s", "time/steps_per_s", ",.0f"),
)
_LINE: tuple[tuple[str, str, str], ...] = (
    ("epoch", "epoch", ","),
    ("steps", "steps", ","),
    ("episodes", "episodes", ","),
    ("return", "return/mean_100", RETURN),
    ("length", "length/mean_100", ",.1f"),
    ("loss", "loss/policy", ".3f"),
    ("value", "loss/value", ".3g"),
    ("kl", "policy/kl", ".4f"),
    ("steps/s", "time/steps_per_s", ",.0f"),
)


class _Terminal(RichConsole):
    """rich's console, less two habits that do not suit a long training."""

    def show_cursor(self, show: bool = True) -> bool:
        return False  # a live display hides the cursor, and a killed process could not bring it back

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would end the process


class Console:
    """A tracker for people.

    On a terminal: a bar, steps, speed and remaining time over the usual block, redrawn at most four
    times a second by whoever calls `log` (no thread). Elsewhere: one line every `log_interval` epochs,
    and the block once at the end. `add_rows` adds rows that a task cares about.
    Text is shown as it is: [brackets] are no markup, control characters are spelled out.

    >>> import sys
    >>> console = Console(1000, 1, sys.stdout, terminal=False)
    >>> console.log({"epoch": 1, "steps": 250, "return/mean_100": 21.5})  # doctest: +ELLIPSIS
    epoch 1 | steps 250 | episodes - | return 21.50 | ...
    """

    def __init__(
        self,
        total_steps: int | None,
        log_interval: int,
        stream: TextIO,
        *,
        total_episodes: int | None = None,
        terminal: bool | None = None,
    ) -> None:
        self._log_interval, self._stream = max(1, log_interval), stream
        self._budget = ("steps", total_steps) if total_episodes is None else ("episodes", total_episodes)
        self._block, self._line = _BLOCK, _LINE
        self._history: list[float] = []  # of the mean return, thinned out when it grows long
        self._stride = 1  # rows between two entries of the history
        self._rows = 0
        self._row: dict[str, Any] = {}
        self._shown = True  # whether the newest row has been printed or drawn
        self._refreshed_at = float("-inf")
        self._closed = False
        if terminal is None:
            terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._rich: RichConsole | None = None
        self._live: Live | None = None
        if terminal:
            self._rich = _Terminal(file=stream, force_terminal=True, markup=False, emoji=False, highlight=False)

    def add_rows(self, extra: Sequence[tuple[str, str, str]], *, lines: bool = True) -> None:
        """More rows (label, key, format) before the first one is shown: in the block, and in the `lines` too."""
        self._block = (*self._block, *extra)
        self._line = (*self._line, *extra) if lines else self._line

    def header(self, lines: Iterable[str]) -> None:
        """What is about to run, before the first row."""
        for line in lines:
            self.message(line)

    def message(self, text: str) -> None:
        """One line that stays; above the live display if it is up."""
        with self._quiet_if_gone():
            if self._rich is not None:
                self._rich.print(Text(wrapped(self._safe(text), self._rich.width)), soft_wrap=True)
            else:
                self._write(text)

    def log(self, row: dict[str, Any]) -> None:
        """Show a row: keys as in docs/metrics.md; what is missing is shown as "-"."""
        if self._closed:
            return
        self._row, self._shown = row, False
        self._remember(row.get("return/mean_100"))
        with self._quiet_if_gone():
            if self._rich is not None:
                self._refresh()
            elif (row.get("epoch") or 0) % self._log_interval == 0:
                self._write(self._as_line())

    def at_once(self, text: str) -> None:
        """A line from within a signal's handler: past every buffer, since the process may end with it."""
        with contextlib.suppress(OSError, ValueError):
            os.write(self._stream.fileno(), f"\n{self._safe(text)}\n".encode())

    def close(self) -> None:
        """Draw the last state and hand the terminal back. May be called twice, and is called at exit."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        with self._quiet_if_gone():
            if self._live is not None:
                self._refresh(now=True)
                self._live.stop()
            elif self._rich is None and self._row:
                if not self._shown:
                    self._write(self._as_line())
                width = max(len(label) for label, _, _ in self._block)
                for label, key, pattern in self._block:
                    self._write(f"  {label:<{width}}  {_value(self._row, key, pattern):>14}")
                if curve := self._curve():
                    self._write(f"  {'return so far':<{width}}  {curve}")

    def _remember(self, value: float | None) -> None:
        self._rows += 1
        if value is None or not math.isfinite(value) or self._rows % self._stride:
            return
        self._history.append(value)
        if len(self._history) > _MOST_HISTORY:
            self._history, self._stride = self._history[1::2], 2 * self._stride

    def _curve(self) -> str:
        """The mean return from the first row to the last in one line, where the stream can show it."""
        if len(self._history) < 2:
            return ""
        line = sparkline(self._history)
        return f"{line}  best {figure(max(self._history))}" if self._safe(line) == line else ""

    def _refresh(self, *, now: bool = False) -> None:
        time_s = time.monotonic()
        if not now and time_s - self._refreshed_at < REFRESH_S:
            return
        self._refreshed_at, self._shown = time_s, True
        if self._live is None:
            # Prints of others go above the display, unless they go elsewhere (`--json > file`).
            self._live = Live(
                console=self._rich,
                auto_refresh=False,
                redirect_stdout=sys.stdout.isatty(),
                redirect_stderr=sys.stderr.isatty(),
            )
            atexit.register(self.close)
            self._live.start()
        self._live.update(self._as_display(), refresh=True)

    def _as_display(self) -> Group:
        unit, total = self._budget
        done, steps = self._row.get(unit) or 0, self._row.get("steps") or 0
        bar = Table.grid(padding=(0, 2))
        for _ in range(4):
            bar.add_column(no_wrap=True)
        over = self._closed and (total is None or done < total)  # ended early: there is nothing left to fill the bar
        if over:
            bar.add_row(Text(f"{steps:,} steps"))
        elif total is None:
            bar.add_row(Text(f"{steps:,} steps"), Text(f"{clock_text(self._row.get('time/eta_s'))} left"))
        else:
            bar.add_row(
                ProgressBar(total=max(1, total), completed=done, width=20),
                Text(f"{min(100 * done / max(1, total), 100):3.0f} %"),
                Text(f"{done:,} of {total:,} {unit}"),
                Text(f"{clock_text(self._row.get('time/eta_s'))} left"),
            )
        block = Table.grid(padding=(0, 2))
        block.add_column()
        block.add_column(justify="right", min_width=12)
        for label, key, pattern in self._block:
            value = self._safe(_value(self._row, key, pattern))
            block.add_row(Text("  " + self._safe(label)), Text(value, style="bold"))
        curve = self._curve()
        return Group(bar, block, *([Text(f"  return so far  {curve}", no_wrap=True)] if curve else []))

    def _as_line(self) -> str:
        self._shown = True
        parts = [f"{label} {_value(self._row, key, pattern)}" for label, key, pattern in self._line]
        return " | ".join((*parts, f"left {clock_text(self._row.get('time/eta_s'))}"))

    def _write(self, text: str) -> None:
        self._stream.write(self._safe(text) + "\n")
        self._stream.flush()

    def _safe(self, text: str) -> str:
        """Escape control characters (a name could command the terminal) and what the stream cannot encode."""
        visible = "".join(c if c.isprintable() or c in "\t\n" else repr(c)[1:-1] for c in text)
        encoding = self._stream.encoding or "utf-8"
        return visible.encode(encoding, "backslashreplace").decode(encoding)

    @contextlib.contextmanager
    def _quiet_if_gone(self) -> Iterator[None]:
        """`shoal train | head` closes our stream, a lost terminal breaks it: the training goes on unseen."""
        try:
            yield
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) and not self._stream.closed:
                raise
            live, self._live, self._rich = self._live, None, None
            self._stream = open(os.devnull, "w")  # noqa: SIM115
            if live is not None:
                with contextlib.suppress(OSError, ValueError):
                    live.stop()  # gives stdout and stderr back, if they were taken


def _value(row: dict[str, Any], key: str, pattern: str) -> str:
    value = row.get(key)
    if value is None:
        return "-"
    try:
        if pattern == RETURN:
            return figure(value)
        return format(value, pattern)
    except (TypeError, ValueError):
        return str(value)
