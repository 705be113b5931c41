"""What `shoal train ID` learns with no flags: Acrobot, Pendulum, MountainCarContinuous, three seeds each.

    python benchmarks/classic_control.py

Stores after every seed and goes on where it was stopped; what was learnt with other settings is learnt again.
"""

from shoal.bench import learning, stored


def keep(runs: list[dict[str, object]]) -> None:
    """Store what there is."""
    stored.write(learning.NAME, "python benchmarks/classic_control.py", learning.summarise(runs), runs=runs)


if __name__ == "__main__":
    before = stored.read(learning.NAME) or {"runs": []}
    learning.missing(before["runs"], stored.print_line, keep)
