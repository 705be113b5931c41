"""The task's section of a run's page."""

from __future__ import annotations

from shoal.runs import scores
from shoal.runs.folder import Run
from shoal.runs.page import Section, number, text


class Comfort(Section):
    """How many degrees off, once `shoal evaluate` has said it."""

    title = "Comfort"

    def __init__(self, run: Run) -> None:
        self._run = run

    def html(self) -> str:
        found = scores.part(scores.kept(self._run), "comfort")
        if not found:
            return f"<p>Not known yet: <code>shoal evaluate {text(self._run.name)}</code>.</p>"
        return f"<p>{text(number(found['error_c'], '.2f'))} degrees off on average.</p>"
