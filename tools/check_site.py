"""Does the built site fetch anything from elsewhere? `python tools/check_site.py site`; `make docs` runs it."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

_FETCHED = {("link", "href"), ("use", "href"), ("object", "data")} | {
    (tag, attribute)
    for tag in ("script", "img", "iframe", "source", "video", "audio", "embed", "input", "track")
    for attribute in ("src", "srcset", "poster")
}
_REMOTE = re.compile(r"^\s*(?:https?:)?//", re.IGNORECASE)
_IN_CSS = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])\s*((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)


class _Fetches(HTMLParser):
    """Addresses that a browser fetches by itself when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if (tag, name) in _FETCHED and value and _REMOTE.match(value):
                self.found.append(value)
            elif name == "style" and value:
                self.found += _IN_CSS.findall(value)

    def handle_data(self, data: str) -> None:
        self.found += _IN_CSS.findall(data) if self.get_starttag_text() == "<style>" else []


def fetched(text: str, css: bool = False) -> list[str]:
    """What a page or a style sheet loads from elsewhere; links that a reader may click are not among it.

    >>> fetched("<a href='https://example.org'>read</a><img src='here.png'><script src='//cdn.example.org/x.js'></script>")
    ['//cdn.example.org/x.js']
    >>> fetched("@import 'https://example.org/font.css'; p { background: url(data:image/png;base64,) }", css=True)
    ['https://example.org/font.css']
    """
    if css:
        return _IN_CSS.findall(text)
    page = _Fetches()
    page.feed(text)
    return page.found


def main(site: Path) -> int:
    pages = sorted(site.rglob("*.html"))
    faults = [f"{path}: fetches {address}" for path in pages for address in fetched(path.read_text())]
    faults += [f"{p}: fetches {a}" for p in sorted(site.rglob("*.css")) for a in fetched(p.read_text(), css=True)]
    if not pages:
        faults.append(f"{site}: expected pages, found none")
    print("\n".join(faults) if faults else f"{site}: {len(pages)} pages, nothing is fetched from elsewhere")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
