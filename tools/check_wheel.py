"""Does the wheel hold what it must, and nothing else? `python tools/check_wheel.py dist/*.whl`; `make wheel` runs it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

MOST_BYTES = 1_000_000
ROOT = Path(__file__).resolve().parents[1]


def faults(names: Sequence[str], tracked: Sequence[str], size: int) -> list[str]:
    """What is wrong with a wheel of these files, where git tracks those under src/.

    >>> faults(["shoal/a.py", "shoal-1.dist-info/RECORD"], ["shoal/a.py"], 10)
    []
    >>> faults(["benchmarks/a.py"], ["shoal/a.npz"], 10)
    ['benchmarks/a.py does not belong in it', 'shoal/a.npz is missing']
    """
    known = set(tracked)
    foreign = [n for n in names if n not in known and not n.partition("/")[0].endswith(".dist-info")]
    found = [f"{name} does not belong in it" for name in foreign]
    found += [f"{name} is missing" for name in tracked if name not in set(names)]
    if size >= MOST_BYTES:
        found.append(f"it has {size:,} bytes, expected fewer than {MOST_BYTES:,}")
    return found


def main(paths: Sequence[str]) -> int:
    if len(paths) != 1:
        print(f"expected one wheel, got {len(paths)}")
        return 2
    wheel = Path(paths[0])
    names = zipfile.ZipFile(wheel).namelist()
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = [line.removeprefix("src/") for line in listed.splitlines() if (ROOT / line).exists()]
    found = faults(names, tracked, wheel.stat().st_size)
    data = sum(name.endswith(".npz") for name in names)
    about = f"{len(names)} files, {data} of them data, {wheel.stat().st_size:,} bytes"
    print("\n".join(f"{wheel.name}: {fault}" for fault in found) if found else f"{wheel.name}: {about}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
