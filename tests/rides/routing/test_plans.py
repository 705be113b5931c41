"""The state of the days: plain arrays that can be cleared, copied and restored by rows."""

from __future__ import annotations

import numpy as np
import pytest
from days_of_chance import keys_of, random_city, random_days

from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans


def test_rows_are_the_whole_state() -> None:
    """A day copied into another row goes on exactly as the original does."""
    problem = random_city()
    days = random_days(problem, 3, 8)
    oracle, plans = RoutingOracle(problem), Plans(problem, 3, 8)
    for k in range(5):
        oracle.add(plans, days[:, k], keys_of(k, 3))
    saved = {name: array.copy() for name, array in plans.arrays().items()}
    oracle.add(plans, days[:, 5], keys_of(5, 3))
    restored = Plans(problem, 3, 8)
    for name, array in restored.arrays().items():
        array[:] = saved[name]
    other = Plans(problem, 5, 8)
    other.copy_rows(restored, [0, 2], [4, 1])
    oracle.add(restored, days[:, 5], keys_of(5, 3))
    for name, array in plans.arrays().items():
        assert array.tobytes() == getattr(restored, name).tobytes(), name
    assert other.routes(4) == [
        list(map(int, s[:n])) for s, n in zip(saved["stops"][0], saved["lengths"][0], strict=True)
    ]
    assert other.count.tolist() == [0, 5, 0, 0, 5]


def test_clear_starts_days_anew() -> None:
    """Cleared days are as new, the others are untouched; a mask and indices both work."""
    problem = random_city()
    days = random_days(problem, 3, 4)
    oracle, plans = RoutingOracle(problem), Plans(problem, 3, 4)
    oracle.add(plans, days[:, 0], keys_of(0, 3))
    kept, fresh = plans.copy(), Plans(problem, 3, 4)
    plans.clear(np.array([True, False, True]))
    for name, array in plans.arrays().items():
        assert array[[0, 2]].tobytes() == getattr(fresh, name)[[0, 2]].tobytes(), name
        assert array[1].tobytes() == getattr(kept, name)[1].tobytes(), name
    plans.clear([1])
    assert plans.total_s.tolist() == [0, 0, 0]
    assert plans.routes(1) == [[]] * 5


def test_copies_do_not_share_arrays() -> None:
    """Changing a copy leaves the original as it was."""
    problem = random_city()
    plans = Plans(problem, 2, 3)
    other = plans.copy()
    other.cost_s[:] = 7
    other.stops[:] = 1
    assert plans.total_s.tolist() == [0, 0]
    assert not plans.stops.any()


def test_shapes_that_do_not_fit_are_refused() -> None:
    """Rows of other sizes are not broadcast, and a day of no requests cannot be made."""
    problem = random_city()
    with pytest.raises(ValueError, match="same problem and max_requests"):
        Plans(problem, 2, 3).copy_rows(Plans(problem, 2, 4), [0], [0])
    with pytest.raises(ValueError, match="at least 1 day"):
        Plans(problem, 0, 3)
