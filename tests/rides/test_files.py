"""A user's own files: what is written is read back, and every fault is named by file, row, column and expectation."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shoal.rides.world import tables
from shoal.rides.world.answers import Kind
from shoal.rides.world.city import City, san_francisco
from shoal.rides.world.days import Day, Days, histories
from shoal.rides.world.files import (
    FileError,
    load_city,
    load_requests,
    load_riders,
    write_city,
    write_day,
    write_riders,
)
from shoal.rides.world.riders import Riders, draw_riders

MATRIX = "0,200,400\n250,0,300\n410,310,0\n"
ZONES = "name,x_km,y_km,depot\nNorth,0,1,0\nMiddle,0,0,1\nSouth,0,-1,0\n"
RIDERS = (
    "rider,age,occupation,income,home\n0,70+,retired,low,North\n1,18-34,student,low,2\n2,35-54,office,high,Middle\n"
)
REQUESTS = (
    "rider,pickup,dropoff,purpose,pickup_open,pickup_close,dropoff_open,dropoff_close\n"
    "1,South,North,school,7:30,8:00,7:40,8:10\n"
    "0,North,Middle,medical,9:00,9:30,9:05,9:35\n"
)
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


@pytest.fixture
def town(write: Write) -> City:
    return load_city(write("town.csv", MATRIX), write("zones.csv", ZONES))


@pytest.fixture
def people(write: Write, town: City) -> Riders:
    return load_riders(write("people.csv", RIDERS), town)


def changed(text: str, row: int, column: int, cell: str) -> str:
    """The text with one cell replaced; rows and columns from 1."""
    lines = [line.split(",") for line in text.strip().split("\n")]
    lines[row - 1][column - 1] = cell
    return "\n".join(",".join(line) for line in lines) + "\n"


def complaint(load: Callable[[], object]) -> str:
    with pytest.raises(FileError) as caught:
        load()
    return str(caught.value)


# -- cities ---------------------------------------------------------------------------------------


def test_reads_a_city(town: City) -> None:
    """Times, names, places and the depot are those of the files."""
    assert town.travel_s.tolist() == [[0, 200, 400], [250, 0, 300], [410, 310, 0]]
    assert town.travel_s.dtype == np.int32
    assert (town.name, town.zone_names, town.depot) == ("town", ("North", "Middle", "South"), 1)
    assert town.y_km.tolist() == [1, 0, -1]


def test_san_francisco_survives_the_disk(tmp_path: Path) -> None:
    """Every array is read back to the bit."""
    city = san_francisco()
    write_city(city, tmp_path / "sf.csv", tmp_path / "zones.csv")
    again = load_city(tmp_path / "sf.csv", tmp_path / "zones.csv")
    assert (again.travel_s == city.travel_s).all()
    assert (again.x_km == city.x_km).all()
    assert (again.y_km == city.y_km).all()
    assert again.attraction == pytest.approx(city.attraction, rel=1e-12)
    assert (again.zone_names, again.depot) == (city.zone_names, city.depot)


def test_a_matrix_alone_is_a_city(write: Write) -> None:
    """The depot is where round trips are shortest, and the map keeps who is near whom."""
    city = load_city(write("m.csv", MATRIX))
    assert city.depot == 1
    assert city.zone_names == ("zone 0", "zone 1", "zone 2")
    apart = np.hypot(city.x_km[:, None] - city.x_km, city.y_km[:, None] - city.y_km)
    assert apart[0, 2] > max(apart[0, 1], apart[1, 2]) > 0


def test_names_in_the_matrix(write: Write, tmp_path: Path) -> None:
    """A corner `zone` says that the first row and column are names; they must agree with each other and the zones."""
    named = "zone,a,b\na,0,100.2\nb,150,0\n"
    city = load_city(write("m.csv", named))
    assert city.zone_names == ("a", "b")
    assert city.travel_s[0, 1] == 101  # rounded up
    text = complaint(lambda: load_city(write("m.csv", changed(named, 3, 1, "c"))))
    assert text == f"{tmp_path / 'm.csv'}, row 3, column 1: expected 'b', as in the first row, got 'c'"
    zones = write("z.csv", "name,x_km,y_km\nb,0,0\na,1,1\n")
    assert "row 2, column name: expected 'a', as in" in complaint(lambda: load_city(write("m.csv", named), zones))


@pytest.mark.parametrize(
    ("row", "column", "cell", "expected"),
    [
        (2, 3, "fast", "a travel time in seconds, got 'fast'"),
        (2, 3, "", "a travel time in seconds, got ''"),
        (1, 1, "x", "a travel time in seconds, got 'x'"),
        (2, 3, "nan", "a travel time in seconds, finite, got 'nan'"),
        (3, 1, "inf", "a travel time in seconds, finite, got 'inf'"),
        (1, 2, "-5", "a travel time from 0 to 86400 seconds, got '-5'"),
        (1, 2, "86401", "a travel time from 0 to 86400 seconds, got '86401'"),
        (2, 2, "7", "0, since this is the way from a zone to itself, got '7'"),
    ],
)
def test_bad_cell_of_a_matrix(write: Write, row: int, column: int, cell: str, expected: str) -> None:
    """The complaint has the file, the row, the column, the expectation and the cell."""
    path = write("m.csv", changed(MATRIX, row, column, cell))
    assert complaint(lambda: load_city(path)) == f"{path}, row {row}, column {column}: expected {expected}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,1,2\n1,0\n2,2,0\n", ", row 2: expected 3 numbers, since the table has 3 rows and is to be square, got 2"),
        ("0,1,2\n1,0,1\n", ", row 1: expected 2 numbers, since the table has 2 rows and is to be square, got 3"),
        ("", ": expected a table, got an empty file"),
        ("0\n", ": expected a square table of at least 2 zones, got 1 row of numbers"),
        ('0,"1\n', ", row 1: expected comma-separated values, got: unexpected end of data"),
    ],
)
def test_bad_shape_of_a_matrix(write: Write, text: str, expected: str) -> None:
    """Tables that are not square, empty or not CSV."""
    path = write("m.csv", text)
    assert complaint(lambda: load_city(path)) == f"{path}{expected}"


def test_bad_files(tmp_path: Path) -> None:
    """Missing, a folder, not text."""
    assert complaint(lambda: load_city(tmp_path / "none.csv")).endswith("got: No such file or directory")
    assert complaint(lambda: load_city(tmp_path)).endswith("got: Is a directory")
    (tmp_path / "m.csv").write_bytes(b"0,\xff\n1,0\n")
    assert "expected text in UTF-8, got the byte 0xff at position 2" in complaint(lambda: load_city(tmp_path / "m.csv"))


def test_a_triangle_violation_is_a_warning_and_a_repair(write: Write) -> None:
    """900 s from 1 to 3 is worse than 200 + 300 by way of 2: said with row and column, and repaired."""
    path = write("m.csv", changed(MATRIX, 1, 3, "900"))
    expected = "1 of 9 travel times are longer than a detour; the worst, row 1, column 3: 900 s against 500 s"
    with pytest.warns(UserWarning, match=re.escape(f"{path}: {expected}")):
        city = load_city(path)
    assert city.travel_s[0, 2] == 500
    assert city.summary()["triangle_violations"] == 0


def test_minutes_for_seconds_are_noticed(write: Write) -> None:
    """A matrix whose longest time is half a minute is probably one of minutes."""
    with pytest.warns(UserWarning, match="multiply them by 60"):
        load_city(write("m.csv", "0,30\n30,0\n"))


@pytest.mark.parametrize(
    ("row", "column", "cell", "expected"),
    [
        (1, 2, "x", ", row 1: expected a column 'x_km', got only name, x, y_km, depot"),
        (1, 4, "depots", ", row 1, column 4: expected the column 'depot', or a name less like it, got 'depots'"),
        (1, 3, "x_km", ", row 1, column 3: expected every column once, got 'x_km' again"),
        (3, 2, "west", ", row 3, column x_km: expected a number, got 'west'"),
        (3, 1, "North", ", row 3, column name: expected every zone once, got 'North' again"),
        (3, 1, "5", ", row 3, column name: expected a zone's name that is not a number, got '5'"),
        (3, 4, "0", ", column depot: expected 1 in exactly one row, got 0 rows with 1"),
        (4, 4, "1", ", row 4, column depot: expected 1 in exactly one row, got 2 rows with 1"),
        (4, 4, "yes", ", row 4, column depot: expected a whole number from 0 to 1, got 'yes'"),
    ],
)
def test_bad_zones(write: Write, row: int, column: int, cell: str, expected: str) -> None:
    """Each fault by its place."""
    matrix, zones = write("m.csv", MATRIX), write("z.csv", changed(ZONES, row, column, cell))
    assert complaint(lambda: load_city(matrix, zones)).startswith(f"{zones}{expected}")


def test_zones_must_be_as_many_as_the_matrix(write: Write) -> None:
    """The message names both files."""
    matrix, zones = write("m.csv", MATRIX), write("z.csv", ZONES + "More,1,1,0\n")
    assert complaint(lambda: load_city(matrix, zones)) == f"{zones}: expected 3 zones, as in {matrix}, got 4"


def test_zones_by_longitude_and_latitude(write: Write) -> None:
    """A degree of latitude is 111 km, one of longitude at 60 degrees north about half as much."""
    text = "longitude,latitude,name,work\n10,60,a,1\n11,60,b,3\n10,61,c,0\n"
    city = load_city(write("m.csv", MATRIX), write("z.csv", text))
    assert city.y_km[2] - city.y_km[0] == pytest.approx(111)
    assert city.x_km[1] - city.x_km[0] == pytest.approx(55.1, abs=0.5)
    assert city.attraction is not None
    assert city.attraction[1].tolist() == [0.25, 0.75, 0.0]
    assert city.attraction[0] == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize(("weights", "expected"), [("0,0,1", "at least 2 zones with a"), ("1,-1,1", "at least 0")])
def test_bad_weights(write: Write, weights: str, expected: str) -> None:
    """Weights are not negative, and somebody must be able to go somewhere else."""
    rows = [f"z{i},{i},0,{w}" for i, w in enumerate(weights.split(","))]
    zones = write("z.csv", "name,x_km,y_km,home\n" + "\n".join(rows))
    assert expected in complaint(lambda: load_city(write("m.csv", MATRIX), zones))


# -- riders ---------------------------------------------------------------------------------------


def test_reads_riders(people: Riders, town: City) -> None:
    """Profiles and homes as written, by name or number; the rest is drawn and makes days."""
    assert people.count == 3
    assert people.home.tolist() == [0, 2, 1]
    assert people.age.tolist() == [3, 0, 1]
    assert people.occupation.tolist() == [4, 2, 0]
    assert people.income.tolist() == [0, 0, 2]
    assert not people.held_out.any()  # a fifth of three is none
    assert Days(town, people, customers=3).draw(0).customers == 3


def test_riders_survive_the_disk(tmp_path: Path) -> None:
    """Types, effects, split and diaries are read back to the bit, and so are the days."""
    city = san_francisco()
    riders = draw_riders(city, seed=3, count=40, held_out=8)
    write_riders(riders, city, tmp_path / "riders.csv", tmp_path / "trips.csv")
    again = load_riders(tmp_path / "riders.csv", city, trips=tmp_path / "trips.csv")
    for name, value in vars(riders).items():
        assert (getattr(again, name) == value).all(), name
        assert getattr(again, name).dtype == value.dtype, name
    day, same = (Days(city, who, 8, "held_out").draw(1) for who in (riders, again))
    assert (day.requests == same.requests).all()


def test_what_riders_do_not_say_is_drawn_from_the_seed(write: Write, town: City) -> None:
    """The same seed gives the same types and diaries, another seed others."""
    path = write("r.csv", RIDERS + "".join(f"{i},70+,retired,low,North\n" for i in range(3, 30)))
    one, same, other = (load_riders(path, town, seed=seed) for seed in (0, 0, 1))
    assert (one.kind == same.kind).all()
    assert (one.trip_slot == same.trip_slot).all()
    assert (one.kind != other.kind).any()
    assert one.held_out.sum() == 6


@pytest.mark.parametrize(
    ("row", "column", "cell", "expected"),
    [
        (3, 1, "0", "row 3, column rider: expected every rider once, got '0' again, as in row 2"),
        (3, 1, "", "row 3, column rider: expected a number or a name that tells the rider apart, got ''"),
        (2, 2, "old", "row 2, column age: expected one of 18-34, 35-54, 55-69, 70+, got 'old'"),
        (4, 3, "chef", "row 4, column occupation: expected one of office, shift, student,"),
        (4, 4, "", "row 4, column income: expected one of low, middle, high, got ''"),
        (4, 5, "Mars", "row 4, column home: expected a zone of town: a name such as 'North' or a number from 0"),
        (4, 5, "3", "row 4, column home: expected a zone of town: a name such as 'North' or a number from 0"),
        (1, 5, "house", "row 1: expected a column 'home', got only rider, age, occupation, income, house"),
    ],
)
def test_bad_riders(write: Write, town: City, row: int, column: int, cell: str, expected: str) -> None:
    """Each fault by its place."""
    path = write("r.csv", changed(RIDERS, row, column, cell))
    assert complaint(lambda: load_riders(path, town)).startswith(f"{path}, {expected}")


def test_riders_with_hidden_columns(write: Write, town: City) -> None:
    """Type, effect and split can be given, and are checked."""
    text = "rider,age,occupation,income,home,type,effect,held_out\n0,70+,retired,low,0,late,-0.5,1\n"
    riders = load_riders(write("r.csv", text), town)
    assert (riders.kind[0], riders.effect[0], riders.held_out[0]) == (Kind.LATE, -0.5, True)
    for column, cell, expected in ((6, "never", "one of early, late"), (7, "inf", "finite"), (8, "2", "from 0 to 1")):
        path = write("r.csv", changed(text, 2, column, cell))
        assert expected in complaint(lambda path=path: load_riders(path, town))


def test_missing_column_and_short_row(write: Write, town: City) -> None:
    """Both are named."""
    path = write("r.csv", "rider,age,occupation,income\n0,70+,retired,low\n")
    assert "row 1: expected a column 'home'" in complaint(lambda: load_riders(path, town))
    path = write("r.csv", RIDERS + "3,70+,retired\n")
    assert "row 5: expected 5 cells, as in the header, got 3" in complaint(lambda: load_riders(path, town))
    path = write("r.csv", "rider,age,occupation,income,home\n")
    assert "expected rows under the header, got none" in complaint(lambda: load_riders(path, town))


TRIPS = (
    "rider,pickup,dropoff,purpose,pickup_open\n0,North,South,medical,5:30\n0,South,North,medical,11:00\n"
    "1,South,North,school,8:00\n2,1,0,work,8:30\n"
)


def test_diaries_of_different_lengths(write: Write, town: City) -> None:
    """Each rider's own trips come equally often, and the demand counts every rider the same."""
    riders = load_riders(write("r.csv", RIDERS), town, trips=write("t.csv", TRIPS))
    assert riders.trip_count.tolist() == [2, 1, 1]
    days = Days(town, riders, customers=3, split="all")
    drawn = [days.draw(seed) for seed in range(400)]
    pickups = {rider: [] for rider in range(3)}
    for day in drawn:
        for request, rider in zip(day.requests, day.rider, strict=True):
            pickups[int(rider)].append(int(request["pickup"]))
    assert np.mean(np.array(pickups[0]) == 0) == pytest.approx(0.5, abs=0.08)
    assert set(pickups[1]) == {2}
    opened = np.concatenate([day.requests["pickup_open"] for day in drawn]) // 1800
    assert np.bincount(opened, minlength=48) / len(opened) == pytest.approx(days.demand, abs=0.04)
    assert opened.min() == 11  # nobody is moved before the first trip of all diaries
    assert set(histories(riders, 0, answers=50, split="all")["purpose"].tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("row", "column", "cell", "expected"),
    [
        (2, 1, "9", "row 2, column rider: expected a rider's number from 0 to 2, got '9'"),
        (2, 3, "North", "row 2, column dropoff: expected another zone than the pickup's, got 'North'"),
        (3, 4, "fun", "row 3, column purpose: expected one of work, medical, school, shopping, leisure, got 'fun'"),
        (3, 5, "11:10", "row 3, column pickup_open: expected a full or half hour before 24:00, got '11:10'"),
        (3, 5, "noon", "row 3, column pickup_open: expected a time of day such as 7:30 or 7:30:15, got 'noon'"),
    ],
)
def test_bad_trips(write: Write, town: City, row: int, column: int, cell: str, expected: str) -> None:
    """Each fault by its place; a rider without a trip is one as well."""
    path = write("t.csv", changed(TRIPS, row, column, cell))
    riders = write("r.csv", RIDERS)
    assert complaint(lambda: load_riders(riders, town, trips=path)) == f"{path}, {expected}"
    path = write("t.csv", "\n".join(TRIPS.split("\n")[:4]))
    expected = f"{path}: expected at least one trip of every rider, got none of rider 2"
    assert complaint(lambda: load_riders(riders, town, trips=path)) == expected


# -- days -----------------------------------------------------------------------------------------


def test_reads_a_day(write: Write, town: City, people: Riders) -> None:
    """In the order of the file, times in seconds."""
    day = load_requests(write("day.csv", REQUESTS), town, people)
    assert day.rider.tolist() == [1, 0]
    assert day.requests[0].tolist() == (2, 0, 1, 27000, 28800, 27600, 29400)
    assert day.purpose.tolist() == [2, 1]
    assert ((day.mood >= 0) & (day.mood < 1)).all()
    assert (day.mood == load_requests(write("day.csv", REQUESTS), town, people).mood).all()
    assert (day.mood != load_requests(write("day.csv", REQUESTS), town, people, seed=1).mood).any()


@pytest.mark.parametrize("named", [True, False])
def test_a_day_survives_the_disk(tmp_path: Path, named: bool) -> None:
    """Requests, riders, purposes, moods and the seed are read back to the bit, zones by name or by number."""
    city = san_francisco()
    riders = draw_riders(city)
    day = Days(city, riders, split="held_out").draw(2**63 + 5)
    write_day(day, tmp_path / "day.csv", city if named else None)
    again = load_requests(tmp_path / "day.csv", city, riders)
    assert again.seed == day.seed
    for name in ("requests", "rider", "purpose", "mood"):
        assert (getattr(again, name) == getattr(day, name)).all()
        assert getattr(again, name).dtype == getattr(day, name).dtype
    with open(tmp_path / "day.csv", newline="", encoding="utf-8") as file:
        first = next(csv.DictReader(file))
    assert first["pickup"] == (city.zone_names[day.requests["pickup"][0]] if named else str(day.requests["pickup"][0]))


@pytest.mark.parametrize(
    ("row", "column", "cell", "expected"),
    [
        (2, 1, "3", "row 2, column rider: expected a rider's number from 0 to 2, got '3'"),
        (2, 5, "7:60", "row 2, column pickup_open: expected a time of day such as 7:30 or 7:30:15, got '7:60'"),
        (2, 2, "Mars", "row 2, column pickup: expected a zone of town: a name such as 'North' or a number from 0"),
        (2, 3, "South", "row 2, column dropoff: expected another zone than the pickup's, got 'South'"),
        (3, 4, "party", "row 3, column purpose: expected one of work,"),
        (3, 5, "9:60", "row 3, column pickup_open: expected a time of day such as 7:30 or 7:30:15, got '9:60'"),
        (3, 5, "24:00", "row 3, column pickup_close: expected 24:00, when it opens, or later, got '9:30'"),
        (3, 6, "8:59", "row 3, column pickup_close: expected 9:00, when it opens, or later, got '8:59'"),
        (3, 8, "9:04", "row 3, column dropoff_close: expected 9:05, when it opens, or later, got '9:04'"),
    ],
)
def test_bad_requests(
    write: Write, town: City, people: Riders, row: int, column: int, cell: str, expected: str
) -> None:
    """Each fault by its place."""
    path = write("day.csv", changed(REQUESTS, row, column, cell))
    assert complaint(lambda: load_requests(path, town, people)).startswith(f"{path}, {expected}")


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        # North to Middle takes 200 s: from 9:00 one cannot be there by 9:03.
        ("9:00,9:30,8:30,9:03", "column dropoff_close: expected 9:03:20 or later, since the ride takes 4 minutes and"),
        # The depot is Middle, 250 s from North: nobody is there before 0:04:10.
        ("0:00,0:04,0:10,0:40", "column pickup_close: expected 0:04:10 or later: vehicles leave the depot at 0:00"),
        ("24:00,24:30,24:30,25:00", "column pickup_open: expected a time before 24:00, got '24:00'"),
        ("23:00,23:30,23:30,48:01", "column dropoff_close: expected a time after which the vehicle is back"),
    ],
)
def test_impossible_windows(write: Write, town: City, people: Riders, times: str, expected: str) -> None:
    """Windows that no vehicle could keep, worked by hand."""
    text = REQUESTS.split("\n")[0] + f"\n0,North,South,leisure,{times}\n".replace("South", "Middle")
    path = write("day.csv", text)
    assert complaint(lambda: load_requests(path, town, people)).startswith(f"{path}, row 2, {expected}")


def test_optional_columns_of_a_day(write: Write, town: City, people: Riders) -> None:
    """Party, mood and seed are checked."""
    header, first, second = REQUESTS.strip().split("\n")
    text = f"{header},size,mood,seed\n{first},6,0.25,9\n{second},1,0.5,9\n"
    day = load_requests(write("day.csv", text), town, people, capacity=6)
    assert (day.seed, day.requests["size"].tolist(), day.mood.tolist()) == (9, [6, 1], [0.25, 0.5])
    assert isinstance(day, Day)
    for column, cell, expected in (
        (9, "7", "column size: expected a party from 1 to 6, got '7'"),
        (9, "0", "column size: expected a party from 1 to 6, got '0'"),
        (10, "1.0", "column mood: expected a number of at least 0 and below 1, got '1.0'"),
        (11, "8", "column seed: expected 9, the one seed of the day, as in row 2, got '8'"),
    ):
        path = write("day.csv", changed(text, 3, column, cell))
        found = complaint(lambda path=path: load_requests(path, town, people, capacity=6))
        assert found == f"{path}, row 3, {expected}"


def test_out_and_back_on_one_day(write: Write, town: City, people: Riders) -> None:
    """A rider may book several rides that cannot meet, more than there are riders; an overlap is refused by its row."""
    header, out, other = REQUESTS.strip().split("\n")
    back = "1,North,South,school,8:10,8:40,8:20,8:50"  # the way out ends by 8:10
    shopping = [f"2,North,South,shopping,{hour}:00,{hour}:30,{hour}:10,{hour}:40" for hour in (10, 12)]
    path = write("day.csv", "\n".join([header, out, other, back, *shopping]))
    day = load_requests(path, town, people)
    assert day.rider.tolist() == [1, 0, 1, 2, 2]
    text = "\n".join([header, out, other, back.replace("8:10", "8:05")])
    assert complaint(lambda: load_requests(write("day.csv", text), town, people)) == (
        f"{path}, row 4, column pickup_open: expected a ride that begins at 8:10 or later, or ends by 7:30, since the "
        "same rider may be under way between (row 2; leave `rider` empty for somebody else), got one from 8:05 to 8:50"
    )


# -- as spreadsheets and offices write them -----------------------------------------------------------


def test_semicolons_and_decimal_commas(write: Write) -> None:
    """A spreadsheet of half of Europe: the same city, and a comma that is no decimal mark stays."""
    zones = "name;x_km;y_km\nNorth, upper;0,5;1\nMiddle;0;-0,25\nSouth;0;-1\n"
    city = load_city(write("m.csv", MATRIX.replace(",", ";").replace("200", "199,5")), write("z.csv", zones))
    assert city.travel_s.tolist() == [[0, 200, 400], [250, 0, 300], [410, 310, 0]]
    assert (city.zone_names[0], city.x_km[0], city.y_km[1]) == ("North, upper", 0.5, -0.25)


def test_columns_of_ones_own_change_nothing(write: Write, town: City, people: Riders) -> None:
    """A telephone number and a note are no reason to refuse; a slip in the name of a known column is."""
    rows = REQUESTS.strip().split("\n")
    cells = ["phone,wheelchair", "555-1,yes", "555-2,no"]
    path = write("day.csv", "\n".join(f"{row},{own}" for row, own in zip(rows, cells, strict=True)))
    plain = load_requests(write("plain.csv", REQUESTS), town, people)
    assert (load_requests(path, town, people).requests == plain.requests).all()
    path = write("day.csv", "\n".join(f"{row},{own}" for row, own in zip(rows, ("sizes", "2", "2"), strict=True)))
    assert complaint(lambda: load_requests(path, town, people)).endswith(
        "row 1, column 9: expected the column 'size', or a name less like it, got 'sizes'"
    )


def test_riders_by_name(write: Write, town: City, tmp_path: Path) -> None:
    """Any text tells riders apart, in trips and bookings too, and is written again; numbers need no order."""
    for names in (["R-7", "Ann", "R-3"], ["3", "1", "2"]):
        lines = [f"{name},70+,retired,low,North" for name in names]
        trips = [f"{name},North,South,medical,9:00" for name in names]
        riders = load_riders(
            write("r.csv", "\n".join(["rider,age,occupation,income,home", *lines])),
            town,
            write("t.csv", "\n".join(["rider,pickup,dropoff,purpose,pickup_open", *trips])),
        )
        assert riders.name.tolist() == names
        text = REQUESTS.replace("\n1,", f"\n{names[2]},").replace("\n0,", f"\n{names[0]},")
        day = load_requests(write("day.csv", text), town, riders)
        assert day.rider.tolist() == [2, 0]
        write_day(day, tmp_path / "again.csv", town, riders)
        assert load_requests(tmp_path / "again.csv", town, riders).rider.tolist() == [2, 0]
        write_riders(riders, town, tmp_path / "r2.csv", tmp_path / "t2.csv")
        assert load_riders(tmp_path / "r2.csv", town, tmp_path / "t2.csv").name.tolist() == names
        path = write("day.csv", text.replace(f"\n{names[0]},", "\nAnnie,"))
        found = complaint(lambda path=path, riders=riders: load_requests(path, town, riders))
        assert "row 3, column rider: expected a rider of the riders' file, got 'Annie'" in found


def test_ages_in_years(write: Write, town: City) -> None:
    """A number of years is its age group; what is neither is refused as before."""
    header = "rider,age,occupation,income,home"
    ages = {"12": 0, "34": 0, "35": 1, "54": 1, "55": 2, "69": 2, "70": 3, "101": 3, "70+": 3}
    rows = [f"{at},{age},retired,low,North" for at, age in enumerate(ages)]
    assert load_riders(write("r.csv", "\n".join([header, *rows])), town).age.tolist() == list(ages.values())
    for age in ("121", "-5", "old"):
        path = write("r.csv", f"{header}\n0,{age},retired,low,North\n")
        assert "column age: expected one of 18-34" in complaint(lambda path=path: load_riders(path, town))


def test_an_unknown_zone_says_what_to_do(write: Write, town: City, people: Riders) -> None:
    """A slip gets the name that was meant; a zone of one's own town, in San Francisco, gets the command."""
    path = write("day.csv", REQUESTS.replace("South", "Souht"))
    assert complaint(lambda: load_requests(path, town, people)).endswith("got 'Souht'; did you mean 'South'?")
    path = write("day.csv", REQUESTS.replace("South", "Marktplatz"))
    assert complaint(lambda: load_requests(path, san_francisco(), draw_riders(san_francisco()))).endswith(
        "got 'Marktplatz'. In a town of your own, train there first: "
        "shoal train rides --city MATRIX.csv --zones ZONES.csv"
    )


# -- writing --------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk says no midway, the old content stays, nothing else appears, and the file is named."""
    path = tmp_path / "day.csv"
    tables.write_table(path, [["old"]])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables.os, "fsync", full)
    with pytest.raises(FileError, match=r"day\.csv: expected to be able to write here, got: No space left"):
        tables.write_table(path, [["new"]])
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_writing_into_no_folder(tmp_path: Path) -> None:
    """The message names the path."""
    with pytest.raises(FileError, match="No such file or directory"):
        tables.write_table(tmp_path / "none" / "day.csv", [["x"]])


def test_names_with_commas_and_quotes(write: Write, tmp_path: Path) -> None:
    """Zone names are free text."""
    city = load_city(write("m.csv", 'zone,"a, b","c ""d"""\n"a, b",0,200\n"c ""d""",300,0\n'))
    write_city(city, tmp_path / "again.csv", tmp_path / "zones.csv")
    assert load_city(tmp_path / "again.csv", tmp_path / "zones.csv").zone_names == ("a, b", 'c "d"')


def test_a_byte_order_mark_and_windows_lines(write: Write) -> None:
    """What a spreadsheet writes is read."""
    city = load_city(write("m.csv", "\ufeff" + MATRIX.replace("\n", "\r\n") + "\r\n"))
    assert city.zones == 3
