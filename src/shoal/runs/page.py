"""The parts of a self-contained HTML page. Everything from data is escaped; nothing remote is loaded, no script runs.

Pages are light or dark as the reader's system is, and read on a phone and on paper.
"""

from __future__ import annotations

import base64
import colorsys
import html
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.extras import install

LIGHT, DARK = "#ffffff", "#14181d"  # backgrounds
READABLE = 4.5  # contrast of text and lines with the background (WCAG 2.2, 1.4.3)

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #5b6670; --box: #eef2f6; --line: #d5dbe1; --bad: #a3301a;
--link: #1f4e79; --page: #ffffff; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6eaee; --soft: #a3aeb8; --box: #222930;
--line: #3a434c; --bad: #ff9a80; --link: #8fbfea; --page: #14181d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 62rem;
margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: break-word; }
body.wide { max-width: 80rem; } h1 { font-size: 1.5rem; margin-bottom: 0; }
h2 { font-size: 1.15rem; margin-top: 2rem; } h3 { font-size: 1rem; }
a { color: var(--link); } .facts, figcaption { color: var(--soft); margin-top: .2rem; }
code { background: var(--box); padding: .1rem .3rem; border-radius: 3px; overflow-wrap: anywhere; }
.answer { font-size: 1.15rem; background: var(--box); padding: .7rem 1rem; border-radius: 6px; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; }
.scroll, .large { overflow-x: auto; background: /* a shadow at the side where there is more */
linear-gradient(to right, var(--page) 1rem, transparent 2rem) local,
linear-gradient(to left, var(--page) 1rem, transparent 2rem) local right / 2rem 100% no-repeat,
linear-gradient(to right, var(--line), transparent 1rem), linear-gradient(to left, var(--line), transparent 1rem); }
table { border-collapse: collapse; font-size: .88rem; margin: .5rem 0; }
td, th { padding: .2rem 1rem .2rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } .figures td { white-space: nowrap; }
.figures td, .figures th { text-align: right; } .figures td:first-child, .figures th:first-child { text-align: left; }
tr.strong td { font-weight: 600; } tr.bad td { color: var(--bad); }
td.wide { white-space: normal; min-width: 12rem; text-align: left; }
svg, img { width: 100%; height: auto; } figure { margin: 1rem 0; }
.charts { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
.large > svg, .large > img { min-width: 50rem; } .wide .large > svg { min-width: 70rem; }
.frames { display: flex; flex-wrap: wrap; gap: .8rem; } .frames pre { font-size: .7rem; line-height: 1.2; margin: 0; }
 .small { max-width: 26rem; } .middle { max-width: 40rem; } details { margin: .5rem 0; }
.event { color: var(--bad); white-space: pre-wrap; }
@media print { nav { display: none; } body { max-width: none; font-size: 11px; } h2, h3 { break-after: avoid; }
figure, .charts > *, tr { break-inside: avoid; } .large > * { min-width: 0 !important; }
 .scroll, .large { overflow: visible; } }
"""


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


def page(
    title: str,
    heading: str,
    about: str,
    answer: str,
    facts: Sequence[str],
    sections: Sequence[Section],
    wide: bool = False,
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
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title><style>{STYLE}</style></head><body{" class=wide" if wide else ""}>
<h1>{text(heading)}</h1>
<p class="facts">{about}</p>
<p class="answer">{answer}</p>
<ul>{"".join(f"<li>{text(fact)}</li>" for fact in facts)}</ul>
<nav aria-label="Contents"><ul>{links}</ul></nav>
{body}
</body></html>
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


def undrawn(name: str, extra: str, what: str) -> str:
    """What to install for a picture, and how it then gets onto the page of the run of that name."""
    return (
        f"<p>No {what} drawn, since matplotlib is not installed: <code>{text(install(extra))}</code>, then "
        f"<code>shoal report {text(name)}</code>.</p>"
    )


def table(
    head: Sequence[str], rows: Sequence[Sequence[Any]], marks: Sequence[str] = (), wide: Sequence[int] = ()
) -> str:
    """A table of figures. `marks`: "", "strong" or "bad" for each row; `wide`: columns of words, which may wrap."""
    top = "".join(f"<th>{text(title)}</th>" for title in head)
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
