"""What the trained ride negotiator is worth against the policies to beat, on 900 held-out days; resumable.

python benchmarks/rides_learning.py [--own-only] [--work DIR]
    the parts still wanting; without the reference's prices if asked. DIR keeps runs, days and routes between sittings.
"""

import argparse
import tempfile
from pathlib import Path

from shoal.bench import rides_learning, stored


def keep(parts: list[dict[str, object]]) -> None:
    """Store what there is."""
    command = "python benchmarks/rides_learning.py"
    stored.write(rides_learning.NAME, command, rides_learning.summarise(parts), parts=parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--own-only", action="store_true")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "shoal-rides-learning")
    given = parser.parse_args()
    before = (stored.read(rides_learning.NAME) or {"parts": []})["parts"]
    rides_learning.study(before, given.work, stored.print_line, keep, reference=not given.own_only)
