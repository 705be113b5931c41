"""Examples in docstrings, for the API pages: `>>>` lines, which Markdown takes for quotations, become code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)  # up to the next empty line


class Examples(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """The same with each example in a block of code.

    >>> print(fenced("Adds.").replace("`", "'"))
    Adds.
    """
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", docstring)
