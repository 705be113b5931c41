"""Reading Li and Lim's benchmark format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.rides.li_lim import load_li_lim
from shoal.rides.routing.checker import check_routes, cost_s
from shoal.rides.routing.problem import Status
from shoal.rides.routing.reference import Reference

# A depot at the origin; request 0 from task 1 (3, 4) to task 3 (3, 0), request 1 from task 4 (0, 8) to task 2 (6, 8).
SMALL = """\
2	10	1
0	0	0	0	0	100	0	0	0
1	3	4	5	10	20	2	0	3
2	6	8	-7	0	60	1	4	0
3	3	0	-5	0	16	3	1	0
4	0	8	7	30	40	0.5	0	2
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "small.txt"
    path.write_text(text)
    return path


def test_a_small_instance_by_hand(tmp_path: Path) -> None:
    """Depot -> 1 (5), wait to 10, serve 2, -> 3 (4) at 16, its last moment, serve 3, home (3) at 22: distance 12."""
    small = load_li_lim(write(tmp_path, SMALL), scale=1000)
    assert (small.problem.vehicles, small.problem.capacity, small.problem.depot) == (2, 10, 0)
    assert small.requests.tolist() == [(1, 3, 5, 10_000, 20_000, 0, 16_000), (4, 2, 7, 30_000, 40_000, 0, 60_000)]
    travel_s = small.problem.travel_s
    assert [int(travel_s[leg]) for leg in ((0, 1), (1, 3), (3, 0), (1, 0))] == [5000, 6000, 6000, 7000]
    routes = [[0, 1], [2, 3]]
    assert check_routes(small.problem, small.requests, routes) == []
    # The second vehicle drives 8 + 6 + 10 = 24.
    assert small.service == 6500
    assert small.distance(cost_s(small.problem, routes, small.requests)) == pytest.approx(12 + 24)


def test_service_times_count(tmp_path: Path) -> None:
    """One tenth more of service at task 1 and task 3 is reached too late."""
    slow = load_li_lim(
        write(tmp_path, SMALL.replace("10	20	2	0	3", "10	20	2.1	0	3")), scale=1000
    )
    assert check_routes(slow.problem, slow.requests, [[0, 1], [2, 3]]) == [
        "vehicle 0: reaches the dropoff of request 0 at 16100 s, after its window closed at 16000 s"
    ]


def test_the_depot_closes_after_the_last_service(tmp_path: Path) -> None:
    """The second vehicle serves task 2 at 36.5, leaves it at 37.5 and is home at 47.5."""
    on_time = load_li_lim(write(tmp_path, SMALL.replace("	0	100	", "	0	47.5	")), scale=1000)
    assert check_routes(on_time.problem, on_time.requests, [[0, 1], [2, 3]]) == []
    late = load_li_lim(write(tmp_path, SMALL.replace("	0	100	", "	0	47.4	")), scale=1000)
    assert check_routes(late.problem, late.requests, [[0, 1], [2, 3]]) == [
        "vehicle 1: is back at 47500 s, the depot closes at 47400 s"
    ]


def test_the_reference_solves_it(tmp_path: Path) -> None:
    """One vehicle can do both: 5 + 4, then to task 4 (0, 8) and 2 (6, 8) and home: 9 + sqrt(73) + 6 + 10."""
    small = load_li_lim(write(tmp_path, SMALL)).with_vehicles(1)
    assert small.problem.vehicles == 1
    priced = Reference(small.problem, 50, 1, serve_all=True).price([small.requests], workers=1)[0]
    assert (priced.status, priced.routes) == (Status.OK, [[0, 1, 2, 3]])
    assert small.distance(priced.cost_s) == pytest.approx(25 + 73**0.5, abs=1e-3)


def test_rounding_is_small_and_the_triangle_inequality_holds(tmp_path: Path) -> None:
    """On random coordinates every leg is within a unit of the exact one, and no way by another place is shorter."""
    rng = np.random.default_rng(5)
    x, y = rng.uniform(0, 100, 21), rng.uniform(0, 100, 21)
    x[1:4], y[1:4] = (10, 10 + 1 / 3, 10 + 2 / 3), 10  # to the nearest at scale 10: 3 and 3, but 7 for both together
    lines = ["5 50 1", f"0 {x[0]} {y[0]} 0 0 1000 0 0 0"]
    for task in range(1, 21):
        pickup = task <= 10
        partner = task + 10 if pickup else task - 10
        lines.append(
            f"{task} {x[task]} {y[task]} {3 if pickup else -3} 0 900 0 {0 if pickup else partner} {partner * pickup}"
        )
    some = load_li_lim(write(tmp_path, "\n".join(lines)), scale=10)
    exact = np.hypot(x[:, None] - x, y[:, None] - y) * 10
    assert (np.abs(some.problem.travel_s - exact - 0.5) <= 0.5 + 1e-5).all()
    travel = some.problem.travel_s.astype(np.int64)
    assert (travel[:, :, None] + travel[None] >= travel[:, None, :]).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2	10	1\n", "2	ten	1\n", "small.txt, line 1, column 2: expected a number, got 'ten'"),
        ("2	10	1\n", "0	10	1\n", "line 1: expected vehicles, capacity and speed"),
        ("2	10	1\n", "2	10	3\n", "line 1: expected speed 1"),
        ("3	4	5	10", "nan	4	5	10", "line 3, column 2: expected a finite number, got 'nan'"),
        (
            "3	4	5	10	20	2	0	3",
            "3	4	5	10	20	2	0",
            r"line 3: expected 9 numbers \(number, x.*got 8",
        ),
        ("1	3	4	5", "7	3	4	5", "line 3: expected task 1, got 7"),
        ("5	10	20	2", "5	21	20	2", "line 3: expected 0 <= earliest <= latest"),
        ("2	0	3\n", "2	1	3\n", "line 3: expected either a pickup or a delivery"),
        ("2	0	3\n", "2	0	9\n", "line 3: expected its delivery as a task of 1 to 4, got 9"),
        ("2	0	3\n", "2	0	2\n", r"line 3: task 2 \(line 4\) is not its delivery"),
        ("4	5	10", "4	6	10", r"line 3: task 3 \(line 5\) is not its delivery with the opposite demand"),
        ("2	10	1\n", "2	6	1\n", "line 4: a demand of -7 fits in no vehicle of capacity 6"),
        ("0	0	0	0	0	100", "0	0	0	1	0	100", "line 2: expected the depot"),
        ("	100	", "	1e9	", "line 2: .* does not fit in 32 bits at scale 10000"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    """What was expected, what came, and where."""
    assert SMALL.count(old) == 1
    with pytest.raises(ValueError, match=message):
        load_li_lim(write(tmp_path, SMALL.replace(old, new)))


def test_files_without_tasks_are_refused(tmp_path: Path) -> None:
    """An empty file, and one with a depot alone."""
    with pytest.raises(ValueError, match="got an empty file"):
        load_li_lim(write(tmp_path, "\n\n"))
    with pytest.raises(ValueError, match="got 1 tasks"):
        load_li_lim(write(tmp_path, "".join(SMALL.splitlines(keepends=True)[:2])))
