"""The parts of a self-contained HTML page. Everything from data is escaped; nothing remote is loaded, and no script
runs but the page's own (page.js): values under the pointer, and sliders. Without it a page is whole, but still.

Pages are light or dark as the reader's system is, and read on a phone and on paper.
"""

from __future__ import annotations

import base64
import colorsys
import hashlib
import html
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIGHT, DARK = "#ffffff", "#14181d"  # backgrounds
READABLE = 4.5  # contrast of text and lines with the background (WCAG 2.2, 1.4.3)

_HERE = Path(__file__)
STYLE = _HERE.with_name("page.css").read_text()
SCRIPT = _HERE.with_name("page.js").read_text()
# A browser that keeps to it fetches nothing and runs nothing but the script of this package.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    f"script-src 'sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"
)


class Section:
    """A section of a page: a title, and its markup."""

    title: str
    folded: bool = False

    def html(self) -> str:
        """Markup, with all that comes from data escaped (`text`, `table`); nothing: the section is left out."""
        raise NotImplementedError(f"{type(self).__name__} has no content")


@dataclass(frozen=True)
class Part(Section):
    """A section whose markup is there already."""

    title: str
    body: str
    folded: bool = False

    def html(self) -> str:
        return self.body


@dataclass(frozen=True)
class Card:
    """A headline figure: what it is, its value, and its interval or what else belongs to it."""

    label: str
    value: str
    note: str = ""


def stage(name: str, words: Sequence[str], body: str, ms: int = 250) -> str:
    """A picture with a slider. `words` has a line for each of its steps, `body` is markup: a part with data-from, and
    perhaps data-to, is there from that step on and until the other; data-slide moves a part by so much a step."""
    last = len(words) - 1
    lines = "".join(f"<li>{text(line)}</li>" for line in words)
    return (
        f"<figure class='stage' data-ms='{ms}'><div class='controls' hidden><button type='button' aria-label='play'>"
        f"&#9654;</button><input type='range' min='0' max='{last}' value='{last}' aria-label='{text(name)}'>"
        f"<output></output></div><p class='said' aria-live='polite'></p>{body}"
        f"<details><summary>All of it in words</summary><ol class='words' start='0'>{lines}</ol></details></figure>"
    )


def page(
    title: str,
    heading: str,
    about: str,
    answer: str,
    facts: Sequence[str],
    sections: Sequence[Section],
    wide: bool = False,
    cards: Sequence[Card] = (),
) -> str:
    """A whole page. `about` and `answer` are markup, all else is text; sections without content are left out."""
    parts = [(section, markup) for section in sections if (markup := section.html())]
    links = "".join(f"<li><a href='#{_anchor(part.title)}'>{text(part.title)}</a></li>" for part, _ in parts)
    body = "".join(
        f"<details id='{_anchor(part.title)}'><summary>{text(part.title)}</summary>{markup}</details>"
        if part.folded
        else f"<section id='{_anchor(part.title)}'><h2>{text(part.title)}</h2>{markup}</section>"
        for part, markup in parts
    )
    shown = "".join(
        f"<div><dt>{text(card.label)}</dt><dd>{text(card.value)}</dd>"
        + (f"<dd class='note'>{text(card.note)}</dd></div>" if card.note else "</div>")
        for card in cards
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title><style>{STYLE}</style></head><body{" class=wide" if wide else ""}>
<h1>{text(heading)}</h1>
<p class="facts">{about}</p>
<p class="answer">{answer}</p>
{f"<dl class='cards'>{shown}</dl>" if shown else ""}
<ul>{"".join(f"<li>{text(fact)}</li>" for fact in facts)}</ul>
<nav aria-label="Contents"><ul>{links}</ul></nav>
{body}
<script>{SCRIPT}</script></body></html>
"""


def text(value: Any) -> str:
    """Anything as text that a browser shows as it is.

    >>> text("<b>")
    '&lt;b&gt;'
    """
    return html.escape(str(value), quote=True)


def number(value: Any, pattern: str = ",.5g") -> str:
    """A number for people; whatever else is there as it is, nothing as "-".

    >>> number(92160), number(36071.4), number(None), number("<b>"), number([1, 2])
    ('92,160', '36,071', '-', '<b>', '[1, 2]')
    """
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:{pattern}}"


def between(score: Mapping[str, Any], pattern: str = ",.5g") -> str:
    """The 95 % interval of a score, as the end of a sentence; nothing where there is none.

    >>> between({"low": 1, "high": 2.5})
    ', 95 % interval 1 to 2.5'
    """
    if score.get("low") is None or score.get("high") is None:
        return ""
    low, high = (text(number(score[end], pattern)) for end in ("low", "high"))
    return f", 95 % interval {low} to {high}"


def table(
    head: Sequence[str], rows: Sequence[Sequence[Any]], marks: Sequence[str] = (), wide: Sequence[int] = ()
) -> str:
    """A table of figures. `marks`: "", "strong" or "bad" for each row; `wide`: columns of words, which may wrap."""
    top = "".join(f"<th{' class=wide' if i in wide else ''}>{text(title)}</th>" for i, title in enumerate(head))
    body = ""
    for place, cells in enumerate(rows):
        kind = f" class='{marks[place]}'" if place < len(marks) and marks[place] in ("strong", "bad") else ""
        shown = (f"<td{' class=wide' if i in wide else ''}>{text(cell)}</td>" for i, cell in enumerate(cells))
        body += f"<tr{kind}>{''.join(shown)}</tr>"
    inside = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f"<div class='scroll'><table class='figures'>{inside}</table></div>"


def pairs(values: Mapping[str, Any], meanings: Mapping[str, str] | None = None) -> str:
    """Names and values, with what the names mean where that is known."""
    rows = ""
    for name, value in values.items():
        meaning = "" if meanings is None else f"<td>{text(meanings.get(name, ''))}</td>"
        rows += f"<tr><th>{text(name)}</th><td>{text(number(value))}</td>{meaning}</tr>"
    return f"<div class='scroll'><table>{rows}</table></div>"


# -- pictures ------------------------------------------------------------------------------------------


def svg_of(figure: Any) -> str:
    """A matplotlib figure as SVG, the same bytes for the same data: without a date, random names, or the XML prologue,
    which names a remote document type."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.hashsalt": "shoal"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "shoal"})
    svg = out.getvalue()
    return svg[svg.index("<svg") :]


def as_image(svg: str, alt: str) -> str:
    """A picture from a file, as an image: so it cannot run anything, nor meet the names of another's parts."""
    data = base64.b64encode(themed(svg).encode()).decode()
    return f"<img alt='{text(alt)}' src='data:image/svg+xml;base64,{data}'>"


def moving(gif: bytes, still: bytes, alt: str) -> str:
    """A clip; whoever has asked the system for no motion sees its last picture."""
    clip, last = (base64.b64encode(data).decode() for data in (gif, still))
    return (
        f"<picture><source media='(prefers-reduced-motion: reduce)' srcset='data:image/png;base64,{last}'>"
        f"<img alt='{text(alt)}' src='data:image/gif;base64,{clip}'></picture>"
    )


_COLOUR = re.compile(r"(fill|stroke): (#[0-9a-f]{6})")


def themed(svg: str) -> str:
    """The same SVG with colours that turn when the reader's system is dark."""
    colours = sorted({colour for _, colour in _COLOUR.findall(svg)} | {"#000000"})
    dark = "".join(f"--c{colour[1:]}:{in_the_dark(colour)};" for colour in colours)
    style = f"<style>@media screen and (prefers-color-scheme:dark){{svg{{{dark}fill:var(--c000000)}}}}</style>"
    head, close, rest = svg.partition(">")
    return head + close + style + _COLOUR.sub(r"\1: var(--c\2, \2)", rest).replace("var(--c#", "var(--c")


def in_the_dark(colour: str) -> str:
    """What a colour of a light picture is on a dark page: greys and tints turn round, strong colours stay readable.

    >>> in_the_dark("#ffffff"), in_the_dark("#000000")
    ('#14181d', '#ededed')
    """
    if colour == LIGHT:
        return DARK
    hue, light, saturation = colorsys.rgb_to_hls(*_rgb(colour))
    if max(_rgb(colour)) - min(_rgb(colour)) < 0.12:  # a grey
        return _hex(colorsys.hls_to_rgb(hue, 0.93 - 0.82 * light, 0.35 * saturation))
    if light < 0.2:  # ink with a hue, which is drawn upon strong colours too
        return _hex(colorsys.hls_to_rgb(hue, 1.0 - light, saturation))
    if light > 0.82:  # a tint, which others are drawn upon
        return _hex(colorsys.hls_to_rgb(hue, 1.12 - light, 0.6 * saturation))
    while contrast(_hex(colorsys.hls_to_rgb(hue, light, saturation)), DARK) < READABLE:
        light += 0.01
    return _hex(colorsys.hls_to_rgb(hue, light, saturation))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours (WCAG 2.2).

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in _rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def _hex(parts: Sequence[float]) -> str:
    return "#" + "".join(f"{round(255 * min(1.0, max(0.0, part))):02x}" for part in parts)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "part"
