"""The command line: the only place that prints for people and decides exit codes."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `shoal`."""
    from shoal.cli.commands import main as run

    run(arguments)
