"""The day so far and the call, as files and text: what is read, and what is refused with file, row and column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shoal.rides.desk.calls import find_call, load_booked, parse_call
from shoal.rides.options import RidesOptions
from shoal.rides.routing.problem import NO_CHANGE
from shoal.rides.world.files import write_day
from shoal.rides.world.world import World, make_world

HEADER = "rider,pickup,dropoff,purpose,pickup_open,pickup_close,dropoff_open,dropoff_close"
ROW = "5,Mission 2,Noe Valley 1,medical,9:00,9:30,9:15,9:45"


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(RidesOptions(start="none"))


def load(path: Path, world: World, text: str) -> object:
    path.write_text(text)
    return load_booked(path, world.city, world.riders, 6)


def test_a_written_day_is_a_day_so_far(tmp_path: Path, world: World) -> None:
    """What `shoal rides day --csv` writes can be booked on; nobody has agreed to anything."""
    day = world.days("held_out").draw(2)
    write_day(day, tmp_path / "day.csv", world.city)
    booked = load_booked(tmp_path / "day.csv", world.city, world.riders, 6)
    assert (booked.requests == day.requests).all()
    assert (booked.rider == day.rider).all()
    assert (booked.purpose == day.purpose).all()
    assert (booked.agreed == NO_CHANGE).all()


def test_agreed_changes_and_strangers(tmp_path: Path, world: World) -> None:
    """earlier_min and later_min become an offer's number; an empty rider is somebody unknown."""
    rows = [f"{ROW},20,0", f"{ROW[1:]},0,30", f"{ROW[1:]},0,0"]
    path = tmp_path / "day.csv"
    path.write_text("\n".join([f"{HEADER},earlier_min,later_min", *rows]))
    booked = load_booked(path, world.city, world.riders, 6)
    assert booked.agreed.tolist() == [4, 15, NO_CHANGE]
    assert booked.rider.tolist() == [5, -1, -1]


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        (HEADER, ROW.replace("Mission 2", "Missouri"), "day.csv, row 2, column pickup: expected a zone"),
        (HEADER, ROW.replace("medical", "fun"), "row 2, column purpose: expected one of work, medical"),
        (HEADER, ROW.replace("9:00", "9.00"), "row 2, column pickup_open: expected a time of day"),
        (HEADER, ROW.replace("5,", "300,", 1), "row 2, column rider: expected a rider's number from 0 to 299"),
        (
            HEADER,
            f"{ROW}\n{ROW}",
            "row 3, column pickup_open: expected a ride that begins at 9:45 or later",
        ),
        (HEADER, ROW.replace("9:45", "9:05"), "row 2, column dropoff_close: expected "),
        (f"{HEADER},earlier_min", f"{ROW},15", "row 2, column earlier_min: expected one of 30, 20, 10, 0, got '15'"),
        (f"{HEADER},size", f"{ROW},7", "row 2, column size: expected a party from 1 to 6, got '7'"),
        (f"{HEADER},earlier", f"{ROW},20", "row 1, column 9: expected the column 'earlier_min', or a name less like"),
    ],
)
def test_bad_files_are_refused_where_they_are_bad(
    tmp_path: Path, world: World, header: str, row: str, message: str
) -> None:
    """Every complaint names the place and what was expected there."""
    with pytest.raises(ValueError, match=r"day\.csv") as error:
        load(tmp_path / "day.csv", world, f"{header}\n{row}\n")
    assert message in str(error.value)


def test_a_call_in_one_line(world: World) -> None:
    """With the pickup's opening alone, windows are half an hour and the dropoff follows by the direct time."""
    request, rider, purpose = parse_call(
        "pickup=Mission 2, dropoff=Noe Valley 1, purpose=medical, pickup_open=9:00", world.city, world.riders, 6
    )
    direct_s = int(world.city.travel_s[request["pickup"], request["dropoff"]])
    assert (rider, purpose, int(request["size"])) == (-1, 1, 1)
    assert (request["pickup_open"], request["pickup_close"]) == (32400, 34200)
    assert request["dropoff_open"] == 32400 + -(-direct_s // 300) * 300
    whole, rider, _ = parse_call(
        "rider=7,pickup=0,dropoff=9,purpose=work,size=2,pickup_open=9:00,pickup_close=9:20,dropoff_open=9:30,"
        "dropoff_close=10:30",
        world.city,
        world.riders,
        6,
    )
    assert (rider, int(whole["size"]), int(whole["dropoff_close"])) == (7, 2, 37800)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pickup=1", "expected dropoff=..., got"),
        ("pickup=1, dropoff=1, purpose=work, pickup_open=9:00", "column dropoff: expected another zone"),
        ("pickup=1, dropoff=2, purpose=work, pickup_open=9:00, when=9", "expected name=value of rider, pickup"),
        ("pickup=1, pickup=2", "expected every name once"),
        ("pickup=1, dropoff=2, purpose=work, pickup_open=25:00", "column pickup_open: expected a time before 24:00"),
        ("pickup=1, dropoff=2, purpose=work, pickup_open=9:00, pickup_close=9:30", "expected pickup_open alone, or"),
        ("rider=x, pickup=1, dropoff=2, purpose=work, pickup_open=9:00", "column rider: expected a rider's number"),
    ],
)
def test_bad_calls_are_refused(world: World, text: str, message: str) -> None:
    """The same complaints as for a file, with --request in its place."""
    with pytest.raises(ValueError, match="--request") as error:
        parse_call(text, world.city, world.riders, 6)
    assert message in str(error.value)


def test_rows_count_as_a_spreadsheet_does(tmp_path: Path, world: World) -> None:
    """Row 2 is the first call, on an empty day; the row after the last does not exist."""
    day = world.days("held_out").draw(2)
    path = tmp_path / "day.csv"
    write_day(day, path, world.city)
    booked, (request, rider, _) = find_call(world, str(path), "", 2)
    assert (len(booked), rider) == (0, int(day.rider[0]))
    assert request == day.requests[0]
    booked, (request, _, _) = find_call(world, str(path), "", 31)
    assert len(booked) == 29
    assert request == day.requests[29]
    with pytest.raises(ValueError, match="a row of 2 to 31"):
        find_call(world, str(path), "", 32)
    with pytest.raises(ValueError, match="expected --day too"):
        find_call(world, "", "", 2)
    booked, _ = find_call(world, "", "pickup=1, dropoff=2, purpose=work, pickup_open=9:00", None)
    assert len(booked) == 0
    assert np.asarray(booked.requests).shape == (0,)


def test_out_and_back(tmp_path: Path, world: World) -> None:
    """A rider's second ride is booked and called for; what was agreed of the first counts, and so does the call."""
    back = "5,Noe Valley 1,Mission 2,medical,10:00,10:30,10:15,10:45"
    rows = [f"{HEADER},later_min,note", f"{ROW},10,wheelchair", f"{back},0,"]
    path = tmp_path / "day.csv"
    path.write_text("\n".join(rows))
    booked = load_booked(path, world.city, world.riders, 6)
    assert booked.rider.tolist() == [5, 5]
    assert booked.own == ({"note": "wheelchair"}, {"note": ""})
    path.write_text("\n".join(rows).replace(",10,", ",20,"))  # under way until 10:05 if the pickup is at the last
    with pytest.raises(ValueError, match="row 3, column pickup_open: expected a ride that begins at 10:05 or later"):
        load_booked(path, world.city, world.riders, 6)
    path.write_text("\n".join(rows[:2]))
    call = "rider=5, pickup=Noe Valley 1, dropoff=Mission 2, purpose=medical, pickup_open="
    booked, (_, rider, _) = find_call(world, str(path), f"{call}10:00", None)
    assert (len(booked), rider) == (1, 5)
    with pytest.raises(ValueError, match=r"--request, column pickup_open: expected a ride .* \(row 2;"):
        find_call(world, str(path), f"{call}9:30", None)
