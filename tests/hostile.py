"""What a run folder from somebody else may hold, and what a browser makes of the page written from it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from shoal.runs.page import SCRIPT

HOSTILE = "</style></title>'\"><script>alert(1)</script><img src=x onerror=alert(2)><a href='javascript:alert(3)'>"
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "ul", "li", "nav", "a", "b", "code"),
    *("section", "details", "summary", "table", "thead", "tbody", "tr", "td", "th", "div", "figure", "figcaption"),
    *("img", "br", "dl", "dt", "dd", "i", "ol", "span", "input", "button", "output", "script"),
}


class Elements(HTMLParser):
    """Collects what a browser would see as elements, outside of pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.inside_svg = 0
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside_svg += tag == "svg"
        if not self.inside_svg:
            self.tags.append(tag)
        if tag == "script":
            assert not attrs
            assert not self.inside_svg
            self.scripts.append("")
        assert tag not in ("iframe", "object", "embed", "link", "base", "form"), tag
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.inside_svg -= tag == "svg"


def check_harmless(page: str) -> None:
    """No script but the page's own, no handler, nothing remote, no element that pages are not made of."""
    found = Elements()
    found.feed(page)
    assert found.scripts == [SCRIPT]
    assert "script-src 'sha256-" in page
    assert set(found.tags) <= ALLOWED, set(found.tags) - ALLOWED
    for tag, name, value in found.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("#", "data:image/svg+xml;base64,")), (tag, name, value)
            assert tag != "img" or value.startswith("data:image/svg+xml;base64,")


def spoiled(value: Any) -> Iterator[Any]:
    """Copies of JSON data, each with one value, or the name of one, replaced by what nobody wants on a page."""
    for place in list(places(value)):
        if place:
            changed = copy.deepcopy(value)
            parent = changed
            for step in place[:-1]:
                parent = parent[step]
            parent[place[-1]] = HOSTILE
            yield changed
            if isinstance(parent, dict):
                renamed = copy.deepcopy(value)
                parent = renamed
                for step in place[:-1]:
                    parent = parent[step]
                parent[HOSTILE] = parent[place[-1]]
                yield renamed


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every leaf and every container."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*place, key))
