"""Maps draw what they are given, for the city that comes with rides and for a user's own."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from shoal.figures.rides_map import cell_corners_km, draw_city, draw_day
from shoal.tasks.rides.city import City, san_francisco
from shoal.tasks.rides.days import Days
from shoal.tasks.rides.riders import draw_riders


def own_city() -> City:
    travel = np.array([[0, 300, 600], [300, 0, 300], [600, 300, 0]], np.int32)
    return City("mine", travel, np.array([0.0, 1.0, 2.0]), np.zeros(3), 1, ("a", "b", "c"))


@pytest.mark.parametrize("city", [san_francisco(), own_city()], ids=["san_francisco", "own"])
def test_city_has_a_cell_per_zone_coloured_by_minutes(city: City) -> None:
    """As many cells as zones, whose values are the minutes from the depot; the figure can be rendered."""
    figure = Figure()
    ax = figure.subplots()
    draw_city(ax, city)
    cells = next(c for c in ax.collections if isinstance(c, PolyCollection))
    assert np.asarray(cells.get_array()) == pytest.approx(city.travel_s[city.depot] / 60)
    assert f"{city.name}: {city.zones} zones" in ax.get_title(loc="left")
    figure.canvas.draw()


@pytest.mark.parametrize("city", [san_francisco(), own_city()], ids=["san_francisco", "own"])
def test_day_has_an_arrow_and_a_number_per_request(city: City) -> None:
    """Numbered from 1 in booking order, also where several requests share a zone."""
    day = Days(city, draw_riders(city, count=12, held_out=0), customers=12).draw(1)
    figure = Figure()
    ax = figure.subplots()
    draw_day(ax, city, day)
    figure.canvas.draw()
    assert sum(isinstance(patch, FancyArrowPatch) for patch in ax.patches) == 12
    written = [text for text in ax.texts if text.get_text().isdigit()]
    assert [text.get_text() for text in written] == [str(number) for number in range(1, 13)]
    assert len({text.xy for text in written}) == 12


def test_hexagons_tile_without_overlap() -> None:
    """Corners of neighbouring cells coincide: San Francisco's 207 hexagons share most of their 1242 corners."""
    city = san_francisco()
    corners = cell_corners_km(city.x_km, city.y_km).reshape(-1, 2)
    assert len(np.unique(corners.round(6), axis=0)) < 600
