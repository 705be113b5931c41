"""Pictures of played days: every request, ring, window and policy of the data is on them."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import same_color, to_rgba
from matplotlib.figure import Figure

from shoal.rides.contest.play import contest
from shoal.rides.contest.record import Contest
from shoal.rides.desk import day_view
from shoal.rides.figures import day as rides_day
from shoal.rides.figures import scores as rides_scores
from shoal.rides.options import RidesOptions
from shoal.rides.policies.simple import max_change, random
from shoal.rides.routing.problem import NO_CHANGE


@pytest.fixture(scope="module")
def played() -> Contest:
    options = RidesOptions(start="none", customers=12)
    return contest({"max-change": max_change(), "random": random()}, options, days=5, iterations=5)


def svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg")
    return out.getvalue()


def test_the_typical_day_has_the_median_net_gain(played: Contest) -> None:
    """Of five days, two are better and two are worse."""
    net = played.net_min("random")
    assert net[day_view.typical_day(played, "random")] == np.median(net)


def test_every_stop_is_on_the_map_and_every_change_is_ringed(played: Contest) -> None:
    """One dot per pickup, one square per dropoff, one ring per accepted change; the title has the minutes driven."""
    before, after = day_view.before_and_after(played, "max-change", 0)
    play = played.played["max-change"]
    changed = int((play.accepted[0] & (play.offer[0] != NO_CHANGE)).sum())
    assert 0 < changed == len(after["moved"])
    assert before["moved"] == []
    assert after["travel_min"] == pytest.approx(play.cost_s[0] / 60)
    ax = Figure().subplots()
    rides_day.draw_routes(ax, played.world.city, after)
    marks = [line for line in ax.lines if line.get_marker() in ("o", "s")]
    rings = [line for line in marks if same_color(to_rgba(line.get_markeredgecolor()), rides_day.RING)]
    assert len(rings) == changed
    assert len(marks) - len(rings) == 2 * 12
    assert f"{after['travel_min']:,.0f} minutes" in ax.get_title(loc="left")


def test_a_vehicle_has_one_number_and_colour_before_and_after(played: Contest) -> None:
    """Had the search numbered the negotiated day's vehicles the other way round, the picture would be the same."""
    play = played.played["max-change"]
    turned = replace(play, stops=play.stops[:, ::-1], lengths=play.lengths[:, ::-1])
    other = replace(played, played={**played.played, "max-change": turned})
    shown = day_view.before_and_after(played, "max-change", 1)
    assert [one["routes"] for one in shown] == [
        one["routes"] for one in day_view.before_and_after(other, "max-change", 1)
    ]
    same = [len(set(a["stops"]) & set(b["stops"])) for a, b in zip(*(one["routes"] for one in shown), strict=True)]
    assert sum(same) >= 12  # half of all stops stay with their vehicle


def test_the_ring_says_what_it_stands_for(played: Contest) -> None:
    """At the booking desk a ring is the call, whether its windows change or not."""
    pictures = day_view.before_and_after(played, "max-change", 0)[:1]
    for ring in ("windows changed", "this call"):
        figure = rides_day.routes_figure(played.world.city, pictures, ring=ring)
        assert ring in [text.get_text() for text in figure.legends[0].get_texts()]


def test_windows_as_asked_agreed_and_served(played: Contest) -> None:
    """Agreed windows hold the asked ones, service lies in the agreed ones, rows run from morning to night."""
    rows = day_view.windows(played, "max-change", 0)
    assert sorted(row["request"] for row in rows) == list(range(1, 13))
    opens = [row["pickup"]["asked"][0] for row in rows]
    assert opens == sorted(opens)
    for row in rows:
        for side in ("pickup", "dropoff"):
            (asked, until), (agreed, at_last) = row[side]["asked"], row[side]["agreed"]
            assert agreed <= asked < until <= at_last
            assert agreed <= row[side]["served"] <= at_last
            assert (agreed < asked or at_last > until) == (row["answer"] == "yes")
    figure = rides_day.windows_figure(rows, "a day")
    words = [text.get_text() for text in figure.axes[0].texts]
    for answer, word in (("yes", "agreed: "), ("no", "refused: ")):
        assert sum(word in text for text in words) == sum(row["answer"] == answer for row in rows)
    assert "<svg" in svg(figure)


def test_a_window_of_a_rider_turned_away_is_drawn_without_a_time() -> None:
    """Nobody came: no tick, and it says so."""
    window = {"asked": [8.0, 8.5], "agreed": [8.0, 8.5], "served": None}
    row: dict[str, Any] = {"request": 1, "answer": "none", "earlier_min": 0, "later_min": 0}
    ax = Figure().subplots()
    rides_day.draw_windows(ax, [{**row, "pickup": window, "dropoff": window}])
    assert [text.get_text() for text in ax.texts] == ["turned away "]
    assert len(ax.lines) == 0


def test_every_policy_is_on_the_pareto_picture(played: Contest) -> None:
    """Names and minutes a rider, none included; a point lies at its burden and its saving."""
    rows = day_view.saving_and_burden(played, "own")
    ax = Figure().subplots()
    rides_scores.draw_pareto(ax, rows, ["max-change"])
    names = [text.get_text().split("  ")[0] for text in ax.texts if not text.get_text().startswith("net")]
    assert sorted(names) == ["max-change", "none", "random"]
    assert any(text.get_text() == "net 0" for text in ax.texts)
    mine = next(row for row in rows if row["name"] == "max-change")
    points = [line for line in ax.lines if line.get_marker() == "D"]
    assert [(float(point.get_xdata()[0]), float(point.get_ydata()[0])) for point in points] == [
        (mine["burden_min"], mine["saved_min"])
    ]


def test_calibration_counts_all_answers(played: Contest) -> None:
    """The menu has 15 offers for each of 60 requests; the curve of the offers made has as many as were made."""
    menu, made = day_view.reliability(played, "max-change")
    assert sum(menu["count"]) == 15 * 60
    assert sum(made["count"]) == int((played.played["max-change"].offer != NO_CHANGE).sum())
    figure = rides_scores.calibration_figure([menu, made])
    assert "<svg" in svg(figure)


def test_a_policy_without_offers_has_an_empty_curve(played: Contest) -> None:
    """Nothing predicted, nothing drawn, nothing divided by nothing."""
    curves = day_view.reliability(played, "none")
    assert [curve["count"] for curve in curves] == [[], []]
    svg(rides_scores.calibration_figure(curves))


def test_names_on_the_pareto_picture_lie_on_nothing() -> None:
    """No name covers another name or the error bar of another policy, however close they are."""
    rows: list[dict[str, Any]] = [
        {"name": name, "burden_min": x, "saved_min": y, "low": y - 8, "high": y + 8, "agreed_min_per_rider": 4.0}
        for name, x, y in (
            ("none", 0.0, 0.0), ("myopic", 7.9, 29.0), ("myopic:pooled", 7.4, 37.0), ("lookahead:pooled", 10.8, 41.0),
            ("lookahead", 15.6, 42.0), ("trained", 14.0, 47.0), ("max-change", 30.8, 45.0),
        )
    ]  # fmt: skip
    figure = rides_scores.pareto_figure(rows, ["trained"], "own")
    figure.canvas.draw()
    axis = figure.axes[0]
    names = [text for text in axis.texts if not text.get_text().startswith("net")]
    boxes = [text.get_window_extent() for text in names]
    assert len(boxes) == len(rows)
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        for row in rows:
            x, low = axis.transData.transform((row["burden_min"], row["low"]))
            high = axis.transData.transform((row["burden_min"], row["high"]))[1]
            assert not (box.x0 < x < box.x1 and box.y0 < high and low < box.y1), (names[i].get_text(), row["name"])
