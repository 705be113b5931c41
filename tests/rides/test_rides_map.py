"""Maps draw what they are given, for the city that comes with rides and for a user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path as Outline

from shoal.rides.figures.map import cell_corners_km, draw_city, draw_day
from shoal.rides.world.city import City, san_francisco
from shoal.rides.world.city_files import load_city
from shoal.rides.world.days import Days
from shoal.rides.world.riders import draw_riders


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


def uneven_town() -> City:
    """Twelve places as a town has them: close in the middle, far outside."""
    rng = np.random.default_rng(4)
    x_km, y_km = rng.normal(size=(2, 12)) * np.linspace(0.3, 4.0, 12)
    apart = np.hypot(x_km[:, None] - x_km, y_km[:, None] - y_km)
    names = tuple(f"Place {name}" for name in "abcdefghijkl")
    return City("town", (apart * 200).astype(np.int32), x_km, y_km, 0, names)


def test_hexagons_of_an_uneven_town_do_not_overlap() -> None:
    """No corner of a zone lies in another's hexagon: nobody hides a neighbour."""
    town = uneven_town()
    cells = cell_corners_km(town.x_km, town.y_km)
    for one in range(town.zones):
        inside = Outline(cells[one]).contains_points(np.delete(cells, one, axis=0).reshape(-1, 2), radius=-1e-9)
        assert not inside.any()


def test_names_are_on_the_map() -> None:
    """All of a small town's; of San Francisco the districts, each once, and the number of every zone."""
    ax = Figure().subplots()
    draw_city(ax, uneven_town())
    words = [text.get_text() for text in ax.texts]
    assert sum(word.startswith("Place ") for word in words) >= 9  # the rest would lie on another's name
    ax = Figure().subplots()
    city = san_francisco()
    draw_city(ax, city)
    words = [text.get_text() for text in ax.texts]
    districts = {name.rpartition(" ")[0] for name in city.zone_names}
    shown = [word for word in words if word in districts]
    assert len(shown) == len(set(shown)) > 0.8 * len(districts)
    assert sum(word.isdigit() for word in words) == city.zones


def test_a_map_laid_out_from_travel_times_says_so(tmp_path: Path) -> None:
    """Without coordinates there is no scale in kilometres, which nobody measured."""
    (tmp_path / "m.csv").write_text("0,600,900\n600,0,700\n900,700,0\n")
    (tmp_path / "z.csv").write_text("name,x_km,y_km\na,0,0\nb,1,0\nc,0,2\n")
    for zones, said in ((None, True), (tmp_path / "z.csv", False)):
        ax = Figure().subplots()
        draw_city(ax, load_city(tmp_path / "m.csv", zones))
        words = [text.get_text() for text in ax.texts]
        assert any("no coordinates were given" in word for word in words) == said
        assert any(word.endswith(" km") for word in words) != said
