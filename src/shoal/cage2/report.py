"""cage2's part of a run's page: its order, the leaderboard, an episode. Everything from data is escaped."""

from __future__ import annotations

from typing import Any

from shoal.runs import scores
from shoal.runs.folder import Run
from shoal.runs.page import Section, between, number, table, text
from shoal.runs.words import share_text

LEADERBOARD = "leaderboard"  # a kind of score


def conduct_line(conduct: dict[str, Any]) -> str:
    """How a defender kept to its order, in one line.

    >>> share = {"mean": 0.9, "low": 0.8, "high": 1.02, "episodes": 7}
    >>> line = conduct_line({"compliance": share, "coverage": share, "wasted": share, "compliant": 63, "violations": 7})
    >>> line.split(", ")[0], line.split("; ")[1]
    ('means over episodes: compliance 90.0 % [80.0', '63 of all 70 judged fixes kept to the order')
    """
    names = {"compliance": "compliance", "coverage": "coverage", "wasted": "wasted fixes"}
    parts = [f"{word} {share_text(conduct[name])}" for name, word in names.items()]
    judged = conduct["compliant"] + conduct["violations"]
    whole = f"{conduct['compliant']:,} of all {judged:,} judged fixes kept to the order"
    return f"means over episodes: {', '.join(parts)}; {whole}"


def headline(run: Run, general: str) -> str:
    """The score of held-out episodes, how the order was kept to, and the challenge's sum."""
    kept = scores.kept(run)
    found, board = scores.part(kept, scores.HELD_OUT), scores.part(kept, LEADERBOARD)
    parts = [general] if found or not board else []
    conduct = scores.part(scores.part(found, "deterministic"), "conduct")
    if conduct:
        parts.append(_conduct_text(conduct))
    if board:
        total = scores.part(board, "sum")
        parts.append(
            f"By the challenge's protocol its sum is <b>{text(number(total.get('mean'), ',.2f'))}</b>"
            f"{between(total, ',.2f')}."
        )
    return " ".join(parts)


def _conduct_text(conduct: dict[str, Any]) -> str:
    try:
        line = conduct_line(conduct)
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""
    return text(f"Under its order, {line}.")


class Conducts(Section):
    """How the held-out episodes kept to the order, by the most probable and by sampled actions."""

    title = "Compliance with the order"

    def __init__(self, run: Run) -> None:
        self._found = scores.part(scores.kept(run), scores.HELD_OUT)

    def html(self) -> str:
        found = {mode: scores.part(scores.part(self._found, mode), "conduct") for mode in ("deterministic", "sampled")}
        lines = [f"<li>{text(mode)}: {_conduct_text(conduct)}</li>" for mode, conduct in found.items() if conduct]
        return f"<ul>{''.join(lines)}</ul>" if lines else ""


class Leaderboard(Section):
    """The nine means of the challenge and what others have published."""

    title = "Leaderboard"

    def __init__(self, run: Run) -> None:
        self._board = scores.part(scores.kept(run), LEADERBOARD)

    def html(self) -> str:
        return _leaderboard(self._board) if self._board else ""


def _leaderboard(board: dict[str, Any]) -> str:
    """Sums beside those of others, then the nine means."""
    cells = [cell for cell in board.get("cells") or [] if isinstance(cell, dict)]
    rows = [
        [
            cell.get("red"), number(cell.get("horizon")), number(cell.get("mean"), ",.2f"),
            f"{number(cell.get('low'), ',.2f')} to {number(cell.get('high'), ',.2f')}",
            number(cell.get("median"), ",.2f"), number(cell.get("worst"), ",.2f"), number(cell.get("episodes")),
        ]
        for cell in cells
    ]  # fmt: skip
    head = ["attacker", "steps", "mean return", "95 % interval", "median", "worst", "episodes"]
    sums = [["this run", number(scores.part(board, "sum").get("mean"), ",.2f"), board.get("rules")]]
    sums += [
        [row.get("name"), number(row.get("sum"), ",.2f"), row.get("rules")]
        for row in board.get("published") or []
        if isinstance(row, dict)
    ]
    return (
        f"<p class='facts'>Played {text(board.get('at', ''))} in the simulator "
        f"{text(board.get('simulator'))}; sums under different rules are not comparable.</p>"
        + table(["defender", "sum of the nine means", "rules"], sums, ["strong"], wide=[2])
        + table(head, rows)
    )


class Episode(Section):
    """A held-out episode against each attacker, to go through step by step."""

    title = "Episodes"

    def __init__(self, run: Run) -> None:
        self._run = run

    def html(self) -> str:
        run = self._run
        from shoal.cage2.commands import play
        from shoal.cage2.defender import cage2_policy
        from shoal.cage2.timeline import timeline

        try:
            defend, options = cage2_policy(run.path)
        except ValueError as error:  # a network of the user's own: there is nothing here to rebuild it from
            return f"<p>No episode drawn: {text(error)}</p>"
        parts = [
            "<p>A held-out episode against each attacker. The slider, or the arrow keys on it, goes through it.</p>"
        ]
        for red in ("bline", "meander"):
            played = play(defend, red=red, **options)
            title = f"{run.name} against {played['picture']['title']}"
            parts.append(f"<h3>{text(title)}</h3>{timeline(played['picture'], played['lines'], title)}")
        return "".join(parts)
