"""What the trained ride negotiator is worth against the policies to beat, on 900 held-out days; resumable.

python benchmarks/rides_learning.py [--own-only]     the parts still wanting; without the reference's prices if asked
"""

import sys

from shoal.bench import rides_learning, stored


def keep(parts: list[dict[str, object]]) -> None:
    """Store what there is."""
    command = "python benchmarks/rides_learning.py"
    stored.write(rides_learning.NAME, command, rides_learning.summarise(parts), parts=parts)


if __name__ == "__main__":
    before = (stored.read(rides_learning.NAME) or {"parts": []})["parts"]
    rides_learning.study(before, stored.print_line, keep, reference="--own-only" not in sys.argv)
