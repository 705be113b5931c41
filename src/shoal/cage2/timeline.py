"""An episode as a picture with a slider, for a page: hosts over steps, who holds what, who did what, what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.runs.page import number, stage, text

COLUMN, ROW, LEFT, TOP, STRIP = 7, 17, 84, 4, 40  # of the picture, in its own units
HELD = ("no access", "user shell", "privileged")
# A mark around (0, 0); Blue's sit in the upper half of a cell, red's in the lower.
BLUE = {
    "Analyse": "M-2.6 0a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0-5.2 0Z",
    "Remove": "M-3-2.4H3L0 2.8Z",
    "Restore": "M-2.5-2.5H2.5V2.5H-2.5Z",
    "Decoy": "M-1-3H1V-1H3V1H1V3H-1V1H-3V-1H-1Z",
}
RED = {
    "Scan": "M-1.2 0a1.2 1.2 0 1 0 2.4 0a1.2 1.2 0 1 0-2.4 0Z",
    "Exploit": "M-2.4-2.4L2.4 2.4M2.4-2.4L-2.4 2.4",
    "Escalate": "M-3 2.6H3L0-2.8Z",
    "Impact": "M0-3.4L.9-1.1L3.3-1.1L1.4.5L2.1 2.9L0 1.5L-2.1 2.9L-1.4.5L-3.3-1.1L-.9-1.1Z",
}


def timeline(data: Mapping[str, Any], words: Sequence[str], name: str) -> str:
    """Markup of the data of `narrate.picture` with a line of words for each step."""
    hosts, steps = data["hosts"], len(data["reward"])
    words = [line.strip().partition("  ")[2] or line for line in words]  # the slider says which step it is
    bottom, right = TOP + ROW * len(hosts), LEFT + COLUMN * steps
    out = [f"<rect class='h0' x='{LEFT}' y='{TOP}' width='{right - LEFT}' height='{bottom - TOP}'/>"]
    for row, (host, levels) in enumerate(zip(hosts, data["access"], strict=True)):
        y = TOP + ROW * row
        out.append(f"<text x='{LEFT - 6}' y='{y + 12}' text-anchor='end'>{text(host)}</text>")
        for first, end, level in _stretches([int(level) for level in levels]):
            if level in (1, 2):
                out.append(
                    f"<rect class='h{level}' x='{LEFT + COLUMN * first}' y='{y}' "
                    f"width='{COLUMN * (end - first)}' height='{ROW}'/>"
                )
        out.append(f"<line class='grid' x1='{LEFT}' x2='{right}' y1='{y + ROW}' y2='{y + ROW}'/>")
    for marks, shapes, kind, shift in ((data["blue"], BLUE, "mb", 4.8), (data["red"], RED, "mr", 12.4)):
        for step, host, word, worked in marks:
            if word in shapes:
                at = f"{LEFT + COLUMN * (int(step) - 0.5):g} {TOP + ROW * int(host) + shift:g}"
                failed = "" if worked else " failed"
                out.append(f"<path class='{kind}{failed}' transform='translate({at})' d='{shapes[word]}'/>")
    out += _costs([float(value) for value in data["reward"]], bottom + 6)
    tall = bottom + 6 + STRIP
    for step in range(1, steps + 1):
        x = LEFT + COLUMN * (step - 1)
        place = f"x='{x}' y='0' width='{COLUMN}' height='{tall}'"
        out.append(f"<rect class='veil' data-from='0' data-to='{step}' {place}/>")
        if step % 10 == 0:
            out.append(f"<text x='{x + COLUMN}' y='{tall + 13}' text-anchor='middle'>{step}</text>")
        out.append(f"<rect fill='transparent' data-tip='{text(f'{step}: {words[step - 1]}')}' {place}/>")
    out.append(f"<text x='{LEFT - 6}' y='{tall + 13}' text-anchor='end'>step</text>")
    out.append(
        f"<rect class='guide' fill='none' data-slide='{COLUMN}' x='{LEFT - COLUMN}' y='0' width='{COLUMN}' "
        f"height='{tall}'/>"
    )
    svg = (
        f"<svg class='chart map' role='img' aria-label='{text(name)}' viewBox='0 0 {right + 12} {tall + 18}'>"
        f"{''.join(out)}</svg>"
    )
    lines = ["before the first step: User0 is red's from the start", *words]
    return stage(name, lines, f"<div class='large'>{svg}</div>{_keys()}", ms=200)


def _stretches(levels: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first, end, level) of what stays alike.

    >>> _stretches([0, 1, 1, 2])
    [(0, 1, 0), (1, 3, 1), (3, 4, 2)]
    """
    found: list[tuple[int, int, int]] = []
    for place, level in enumerate(levels):
        if found and found[-1][2] == level:
            found[-1] = (found[-1][0], place + 1, level)
        else:
            found.append((place, place + 1, level))
    return found


def _costs(rewards: Sequence[float], top: float) -> list[str]:
    """What each step cost, as bars."""
    most = max(1e-9, *(-value for value in rewards))
    bars = [f"<text x='{LEFT - 6}' y='{top + 12}' text-anchor='end'>cost, to {text(number(round(most, 1)))}</text>"]
    for place, value in enumerate(rewards):
        height = STRIP * max(0.0, -value) / most
        if height > 0:
            x, y = LEFT + COLUMN * place, top + STRIP - height
            bars.append(f"<rect class='cost' x='{x + 0.5}' y='{y:.1f}' width='{COLUMN - 1}' height='{height:.1f}'/>")
    return bars


def _keys() -> str:
    """What colours and marks mean."""

    def key(inside: str, name: str) -> str:
        return (
            f"<span class='key'><svg viewBox='-9 -3.5 18 7' aria-hidden='true'>{inside}</svg>"
            f"<span class='quiet'>{text(name)}</span></span>"
        )

    keys = [key(f"<rect class='h{level}' x='-8' y='-5' width='16' height='10'/>", HELD[level]) for level in range(1, 3)]
    keys += [key(f"<path class='mb' d='{shape}'/>", f"Blue: {word.lower()}") for word, shape in BLUE.items()]
    keys += [key(f"<path class='mr' d='{shape}'/>", f"red: {word.lower()}") for word, shape in RED.items()]
    keys.append(key(f"<path class='mb failed' d='{BLUE['Restore']}'/>", "hollow: failed"))
    return f"<p>{''.join(keys)}</p>"
