"""What `shoal train ID --steps 1000000` learns with no other flag, beside SB3 with the Zoo's settings; three seeds.

    python benchmarks/default_learning.py [shoal] [sb3]

Stores after every seed and goes on where it was stopped; what was learnt with other settings is learnt again.
"""

import sys
from typing import Any

from shoal.bench import defaults, stored


def keep(run: dict[str, Any]) -> None:
    """Into what is stored now, so that two of these scripts may run beside each other."""
    runs = [*(stored.read(defaults.NAME) or {"runs": []})["runs"], run]
    stored.write(
        defaults.NAME, "python benchmarks/default_learning.py", defaults.summarise(defaults.current(runs)), runs=runs
    )


if __name__ == "__main__":
    before = (stored.read(defaults.NAME) or {"runs": []})["runs"]
    defaults.missing(before, sys.argv[1:] or ("shoal", "sb3"), stored.print_line, keep)
