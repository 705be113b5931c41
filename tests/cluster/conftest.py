"""One local instance of Ray for all these tests: starting one takes seconds."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "vector"))  # drill


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without Ray these tests are skipped, and say so."""
    if importlib.util.find_spec("ray") is None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason='Ray is not installed: pip install "shoal[ray]"'))


@pytest.fixture(scope="package")
def ray() -> Iterator[Any]:
    """Ray with six cores, which it believes in; the batches of these tests join it."""
    from shoal.vector.workers.ray_instance import INSTANCE

    joined = INSTANCE.join(None, 6)
    yield joined
    INSTANCE.leave()
