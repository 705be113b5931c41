"""`shoal bench rides`: is the routing oracle good enough, how fast are environment and training, how fast an offer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shoal.bench import rides_learning, rides_oracle, rides_speed
from shoal.bench.rows import Row


def run(say: Callable[[str], None], full: bool = False, instances: str | Path | None = None) -> list[Row]:
    """All rows. `instances` is a folder with Li and Lim's files; they are not part of shoal."""
    if instances is not None and not Path(instances).is_dir():
        raise ValueError(f"expected --instances as a folder with lc101.txt and others, got {instances}")
    return [*rides_oracle.rows(say, full, instances), *rides_speed.rows(say), *rides_learning.rows(say, full)]
