"""The console: plain lines for files, a live display for terminals, and a terminal that stays sane."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

import shoal.runs
from clock import slowness
from shoal.runs.console import Console

SOURCE = str(Path(shoal.runs.__file__).parents[2])
LABELS = (
    "epoch", "episodes in all", "mean return (last 100)", "mean length (last 100)", "policy loss", "value loss",
    "entropy", "KL", "explained variance", "episodes of this epoch", "steps/s",
)  # fmt: skip


def row(epoch: int, **more: Any) -> dict[str, Any]:
    return {
        "epoch": epoch, "steps": 1000 * epoch, "episodes": 7 * epoch, "episodes/epoch": 7,
        "return/mean_100": 21.5, "length/mean_100": 21.5, "loss/policy": -0.0123, "loss/value": 1234.5,
        "policy/entropy": 0.69, "policy/kl": 0.0042, "value/explained_variance": 0.25,
        "time/steps_per_s": 41234.4, "time/elapsed_s": 3.0, "time/eta_s": 75.0, **more,
    }  # fmt: skip


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Away from a terminal there is one line per interval, and the last row and the block at the end."""
    stream = io.StringIO()
    console = Console(10_000, 2, stream)
    console.header(["shoal trains CartPole-v1", "on 2 cores"])
    for epoch in range(1, 6):
        console.log(row(epoch))
    console.close()
    console.close()
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["shoal trains CartPole-v1", "on 2 cores"]
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["epoch 2", "epoch 4", "epoch 5"]
    assert lines[2] == (
        "epoch 2 | steps 2,000 | episodes 14 | return 21.50 | length 21.5 | loss -0.012 | value 1.23e+03 "
        "| kl 0.0042 | steps/s 41,234 | left 1:15"
    )
    assert [line[2:].split("  ")[0] for line in lines[5:]] == [*LABELS, "return so far"]
    assert "\x1b" not in stream.getvalue()


def test_missing_values_and_extra_rows() -> None:
    """What a row lacks is a dash, a task's own rows follow the usual ones, odd values are shown as is."""
    stream = io.StringIO()
    extra = [("riders [bold]asked[/bold]", "rides/asked", ".1f"), ("odd", "odd", ".1f")]
    console = Console(10, 1, stream)
    console.add_rows(extra)
    console.log({"epoch": 1, "rides/asked": 3.14159, "odd": "text", "loss/policy": None, "policy/kl": float("nan")})
    console.close()
    first, *block = stream.getvalue().splitlines()
    assert "loss - |" in first
    assert "kl nan" in first
    assert "riders [bold]asked[/bold] 3.1 | odd text" in first
    assert "left -" in first
    assert block[-2].split() == ["riders", "[bold]asked[/bold]", "3.1"]


def test_nothing_logged_prints_nothing() -> None:
    """A run that fails before its first row leaves no empty block."""
    for terminal in (True, False):
        stream = io.StringIO()
        Console(10, 1, stream, terminal=terminal).close()
        assert stream.getvalue() == ""


def test_terminal_display() -> None:
    """On a terminal the bar, the remaining time and the block are drawn, and the final row stays."""
    stream = io.StringIO()
    console = Console(10_000, 1, stream, terminal=True)
    console.add_rows([("riders", "rides/asked", ".1f")])
    console.header(["header"])
    console.log(row(1))
    console.log(row(10, **{"rides/asked": 2.0}))
    console.message("a worker was restarted")
    console.close()
    text = stream.getvalue()
    assert text.startswith("header\n")
    assert "━" in text
    assert "1,000 of 10,000 steps" in text
    assert "1:15 left" in text
    assert all(label in text for label in LABELS)
    assert "a worker was restarted" in text
    final = text[text.rindex("10,000 of 10,000 steps") :]
    assert "100 %" in text
    assert "riders" in final
    assert final.endswith("\n")


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "plain"])
def test_names_are_shown_not_interpreted(terminal: bool) -> None:
    """Brackets are no markup, :smile: is no emoji, and an escape sequence in a name is spelled out."""
    stream = io.StringIO()
    console = Console(10, 1, stream, terminal=terminal)
    console.add_rows([("[red]x[/red]", "x", "s")])
    console.message("[bold]env[/bold] [/] :smile: \x1b[2J\x1b]0;title\x07 \x9b31m %d {x}")
    console.log({"epoch": 1, "steps": 1, "x": "[link=http://a]b\x1b[31m"})
    console.close()
    text = stream.getvalue()
    assert "[bold]env[/bold] [/] :smile: \\x1b[2J\\x1b]0;title\\x07 \\x9b31m %d {x}" in text
    assert "[red]x[/red]" in text
    assert "[link=http://a]b\\x1b[31m" in text
    assert "\x1b[2J" not in text
    assert "\x1b]0" not in text


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "plain"])
def test_stream_that_cannot_encode(terminal: bool) -> None:
    """On an ASCII stream other characters are escaped instead of ending the training."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    console = Console(10, 1, stream, terminal=terminal)
    console.message("Zürich 🚲")
    console.log(row(1))
    console.close()
    stream.flush()
    assert b"Z\\xfcrich \\U0001f6b2" in raw.getvalue()


class Gone(io.StringIO):
    """A pipe whose reader has left after the header."""

    def write(self, text: str) -> int:
        if "header" in text:
            return super().write(text)
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "plain"])
@pytest.mark.parametrize("how", ["broken", "closed"])
def test_training_outlives_its_display(terminal: bool, how: str) -> None:
    """When the reader of our output leaves (`| head`), logging goes on and stdout is given back."""
    before = sys.stdout, sys.stderr
    stream = Gone() if how == "broken" else io.StringIO()
    console = Console(10, 1, stream, terminal=terminal)
    console.header(["header"])
    if how == "closed":
        stream.close()
    for epoch in range(3):
        console.log(row(epoch))
        console.message("x")
    console.close()
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "plain"])
def test_cost_of_logging(terminal: bool) -> None:
    """A thousand rows take less than a millisecond each, drawing included."""
    console = Console(10_000, 1, io.StringIO(), terminal=terminal)
    started = time.perf_counter()
    for epoch in range(1000):
        console.log(row(epoch))
    assert time.perf_counter() - started < 1.0 * slowness()
    console.close()


CHILD = """
import sys, time
from shoal.runs.console import Console
console = Console(1000, 1, sys.stdout)
console.header(["header"])
epoch = 0
while True:
    epoch += 1
    console.log({"epoch": epoch, "steps": epoch})
    time.sleep(0.01)
"""


@pytest.mark.parametrize("with_signal", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_real_terminal_stays_sane(with_signal: signal.Signals) -> None:
    """After Ctrl-C, and even kill -9, the cursor is visible and the terminal's settings are as before."""
    ours, theirs = pty.openpty()
    settings = termios.tcgetattr(theirs)
    environment = {**os.environ, "PYTHONPATH": SOURCE, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD], env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    text = b""
    deadline = time.monotonic() + 200
    sent = False
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            text += os.read(ours, 65536)
        elif process.poll() is not None:
            break
        if not sent and text.count(b"explained variance") >= 2:
            process.send_signal(with_signal)
            sent = True
    process.wait(timeout=60)
    assert sent
    assert termios.tcgetattr(theirs) == settings
    os.close(ours)
    os.close(theirs)
    assert b"\x1b[?25l" not in text, "the cursor was hidden"
    assert b"\x1b[?1049h" not in text, "the alternate screen was entered"
    if with_signal == signal.SIGINT:
        assert b"KeyboardInterrupt" in text
        assert process.returncode in (1, 130, -signal.SIGINT)


def final(stream: io.StringIO) -> str:
    """What stays on the screen: after the last time the cursor went up."""
    import re

    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", stream.getvalue().rpartition("\x1b[1A")[2].rpartition("\x1b[2K")[2])


def test_a_budget_in_episodes_has_a_bar() -> None:
    """What is counted is what was asked for."""
    stream = io.StringIO()
    console = Console(None, 1, stream, total_episodes=140, terminal=True)
    console.log(row(10))
    console.close()
    text = stream.getvalue()
    assert "━" in text
    assert "70 of 140 episodes" in text
    assert " 50 %" in text


@pytest.mark.parametrize("total", [None, 10_000], ids=["episodes", "steps"])
def test_no_half_full_bar_after_an_early_stop(total: int | None) -> None:
    """Of a run that ended before its budget only the figures stay; one that spent it keeps its full bar."""
    stream = io.StringIO()
    console = Console(total, 1, stream, total_episodes=None if total else 70, terminal=True)
    console.log(row(4))
    console.close()
    assert "━" not in final(stream)
    assert "left" not in final(stream)
    assert "4,000 steps" in final(stream)
    stream = io.StringIO()
    console = Console(total, 1, stream, total_episodes=None if total else 70, terminal=True)
    console.log(row(10))
    console.close()
    assert "100 %" in stream.getvalue()


def test_no_word_is_broken_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines end between words; a path that is longer than a line stays in one piece."""
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    console = Console(10, 1, stream, terminal=True)
    text = "backend serial: measured serial 104,893 steps/s, process 84,163 steps/s, split 78,127 steps/s (2 workers)"
    path = "/".join(["folder"] * 15)
    console.message(text)
    console.message(f"run {path}")
    console.close()
    lines = stream.getvalue().splitlines()
    assert " ".join(line.strip() for line in lines[:2]) == text
    assert max(len(line) for line in lines[:2]) <= 80
    assert path in stream.getvalue()


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "plain"])
def test_the_return_is_a_curve_in_one_line(terminal: bool) -> None:
    """From the first row to the last, however many there were, and the best; small returns keep their digits."""
    stream = io.StringIO()
    console = Console(10_000, 10_000, stream, terminal=terminal)
    for epoch in range(3000):
        console.log(row(epoch, **{"return/mean_100": 0.0001 * epoch if epoch < 2500 else 0.25}))
    console.close()
    (line,) = [line for line in final(stream).splitlines() if "return so far" in line] if terminal else [
        line for line in stream.getvalue().splitlines() if "return so far" in line
    ]  # fmt: skip
    curve = line.split()[3]
    assert (curve[0], curve[-1]) == ("▁", "█")
    assert len(curve) == 30
    assert list(curve) == sorted(curve)
    assert line.rstrip().endswith("best 0.2500")
    assert "0.2500" in next(text for text in stream.getvalue().splitlines()[::-1] if "mean return" in text)


def test_no_curve_where_it_cannot_be_shown() -> None:
    """On an ASCII stream there is none, rather than a row of escapes."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    console = Console(10, 1, stream)
    for epoch in range(3):
        console.log(row(epoch))
    console.close()
    stream.flush()
    assert b"return so far" not in raw.getvalue()
