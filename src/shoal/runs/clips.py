"""The recorded episodes of an evaluation, on the page of their run."""

from __future__ import annotations

from typing import Any

from shoal.runs.disk import from_json
from shoal.runs.film import CLIP_BYTES, MOST_TEXT, TEXT_FRAMES
from shoal.runs.folder import Run
from shoal.runs.page import moving, number, text

_NAMES = ("best", "median", "worst")
_SIGNS = {"gif": b"GIF8", "png": b"\x89PNG"}


def clips(run: Run, found: dict[str, Any]) -> str:
    """Markup; nothing where nothing was recorded. Files are looked for under three names alone, whatever the folder's
    own text says, and must be what they claim to be."""
    recorded = found.get("recorded")
    rows = {row.get("which"): row for row in recorded if isinstance(row, dict)} if isinstance(recorded, list) else {}
    many = f"{number(found.get('episodes'))} held-out episodes"
    figures = "".join(_figure(run, name, rows[name], many) for name in _NAMES if name in rows)
    if not figures:
        return ""
    about = "The most probable actions; a long episode is shown faster than it was, or in a few of its frames."
    return f"<p class='facts'>{about}</p><div class='charts'>{figures}</div>"


def _figure(run: Run, name: str, row: dict[str, Any], many: str) -> str:
    what = (
        f"The {name} of {many}: episode {number(row.get('episode'))}, return "
        f"{number(row.get('return'))}, {number(row.get('length'))} steps"
    )
    try:
        shown = _text(run, name, what) if row.get("kind") == "text" else _moving(run, name, what)
    except (OSError, ValueError, KeyError, TypeError) as error:
        shown = f"<p class='event'>This clip could not be read: {text(error)}</p>"
    return f"<figure class='small'>{shown}<figcaption>{text(what)}</figcaption></figure>"


def _moving(run: Run, name: str, alt: str) -> str:
    return moving(_picture(run, f"{name}.gif"), _picture(run, f"{name}.png"), alt)


def _picture(run: Run, name: str) -> bytes:
    data = (run.figures / name).read_bytes()
    if len(data) > 2 * CLIP_BYTES or not data.startswith(_SIGNS[name[-3:]]):
        raise ValueError(f"expected {name} as a picture of at most {2 * CLIP_BYTES:,} bytes, got {len(data):,} bytes")
    return data


def _text(run: Run, name: str, alt: str) -> str:
    frames = from_json((run.figures / f"{name}.json").read_bytes())["frames"]
    shown = "".join(f"<pre>{text(str(frame)[:MOST_TEXT])}</pre>" for frame in frames[:TEXT_FRAMES])
    return f"<div role='img' aria-label='{text(alt)}' class='frames'>{shown}</div>"
