"""The day on the page of a rides run, with a slider through its requests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import opened
from hostile import HOSTILE, check_harmless, spoiled
from shoal.config import TrainConfig, to_dict
from shoal.report import write_report
from shoal.rides.contest.play import contest
from shoal.rides.contest.record import Contest
from shoal.rides.contest.report import write_pictures
from shoal.rides.contest.unfold import SCENE, plans_of, scene
from shoal.rides.figures.scene import scene as drawn
from shoal.rides.options import RidesOptions
from shoal.rides.policies.simple import max_change
from shoal.runs.folder import Run
from shoal.runs.page import Part, page

REQUESTS = 6


@pytest.fixture(scope="module")
def played() -> Contest:
    options = RidesOptions(start="none", customers=REQUESTS, vehicles=2)
    return contest({"p": max_change()}, options, days=3, iterations=10)


@pytest.fixture(scope="module")
def data(played: Contest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(scene(played, "p", 1)))
    return found


def test_a_day_unfolds_to_what_was_played(played: Contest) -> None:
    """Every day of every policy, batch or no batch; each plan holds the requests so far that were not turned away."""
    for name in ("none", "p"):
        for day in range(3):
            plans = plans_of(played, name, day)
            assert plans[-1] == played.played[name].routes(day)
            for step, routes in enumerate(plans, start=1):
                stops = sorted(stop for route in routes for stop in route)
                assert set(stops) <= set(range(2 * step))
    changed = played.played["p"].stops.copy()
    try:
        played.played["p"].stops[0] = np.roll(played.played["p"].stops[0], 1, axis=1)
        with pytest.raises(ValueError, match="went otherwise"):
            plans_of(played, "p", 0)
    finally:
        played.played["p"].stops[:] = changed


def test_the_map_shows_every_request_once_it_is_booked(data: dict[str, Any]) -> None:
    """Words, routes, stops with what their riders asked, agreed and got, and the sheets of the vehicles."""
    markup = drawn(data)
    assert markup.count("data-tip=") == 2 * 2 * REQUESTS
    agreed = sum(row["answer"] == "yes" for row in data["requests"])
    assert agreed > 0
    assert markup.count("class='ring'") == agreed + 1  # and that of the legend
    assert markup.count(": agreed</li>") == agreed
    tips = re.findall(r"data-tip='([^']*)'", markup)
    assert all("asked" in tip and ("served" in tip or "turned away" in tip) for tip in tips)
    assert sum("agreed" in tip for tip in tips) == 2 * agreed
    stops = sum(len(route) for route in data["after"]["plans"][-1])
    assert markup.count("<tr>") == stops + sum(bool(route) for route in data["after"]["plans"][-1])


def test_a_day_from_somebody_else_is_harmless(played: Contest, tmp_path: Path) -> None:
    """Any value or name in the file: text, or refused in one line of the page."""
    run = Run.create(tmp_path, "r", to_dict(TrainConfig(task="rides")), "shoal train rides", "rides")
    with run:
        write_pictures(played, "p", run.figures)
        for stem in run.figures.glob("*.svg"):
            stem.unlink()
        (run.path / "evaluation.json").write_text("{}")
        assert "A day, request by request" in write_report(run).read_text()
        good = json.loads((run.figures / SCENE).read_text())
        small = {**good, "cells": good["cells"][:1], "roads": [], "coast": []}
        small["requests"] = [{**row, "pickup_zone": HOSTILE} for row in good["requests"]]
        for number, bad in enumerate(spoiled(small)):
            if number % 23 == 0:
                (run.figures / SCENE).write_text(json.dumps(bad))
                check_harmless(write_report(run).read_text())


def test_the_slider_moves_the_map(data: dict[str, Any], tmp_path: Path) -> None:
    """Step by step there are more stops; the words are of the request; a stop speaks to the keyboard."""
    path = tmp_path / "day.html"
    path.write_text(page("d", "d", "", "", [], [Part("Day", drawn(data))]))
    shown = "[...document.querySelectorAll('.stage [data-tip]')].filter(e => e.getClientRects().length).length"
    with opened() as browser:
        for width in (1280, 390):
            browser.open(path, width, dark=width < 600)
            assert browser.faults == []
            assert browser.requests == [path.resolve().as_uri()]
            assert not browser.wider_than_the_screen()
            assert browser.run(shown) == 4 * REQUESTS
        browser.run("document.querySelector('input[type=range]').focus()")
        browser.key("Home")
        assert browser.run(shown) == 0
        for step in range(1, 4):
            browser.key("ArrowRight")
            assert browser.run(shown) == 4 * step
            assert browser.run("document.querySelector('.said').textContent").startswith(f"request {step},")
        browser.key("Tab")
        browser.key("Tab")
        assert browser.run("document.activeElement.dataset.tip").startswith("request 1")
        assert browser.run("document.querySelector('.tip').hidden") is False
