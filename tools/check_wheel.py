"""Does the wheel hold what it must, and nothing else? `python tools/check_wheel.py dist/*.whl`; `make wheel` runs it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

MOST_BYTES, MOST_WITH_WEIGHTS = 1_000_000, 8_000_000  # without and with the weights of neural networks
ROOT = Path(__file__).resolve().parents[1]


def faults(names: Sequence[str], tracked: Sequence[str], size: int, weights: int = 0) -> list[str]:
    """What is wrong with a wheel of these files, where git tracks those under src/; `weights` are bytes of `size`.

    >>> faults(["shoal/a.py", "shoal-1.dist-info/RECORD"], ["shoal/a.py"], 10)
    []
    >>> faults(["benchmarks/a.py"], ["shoal/a.npz"], 10)
    ['benchmarks/a.py does not belong in it', 'shoal/a.npz is missing']
    """
    known = set(tracked)
    foreign = [n for n in names if n not in known and not n.partition("/")[0].endswith(".dist-info")]
    found = [f"{name} does not belong in it" for name in foreign]
    found += [f"{name} is missing" for name in tracked if name not in set(names)]
    if size - weights >= MOST_BYTES:
        found.append(f"it has {size - weights:,} bytes without weights, expected fewer than {MOST_BYTES:,}")
    if size >= MOST_WITH_WEIGHTS:
        found.append(f"it has {size:,} bytes, expected fewer than {MOST_WITH_WEIGHTS:,}")
    return found


def is_weights(name: str) -> bool:
    """Whether a file holds a neural network's weights."""
    return name.endswith(".safetensors")


def main(paths: Sequence[str]) -> int:
    if len(paths) != 1:
        print(f"expected one wheel, got {len(paths)}")
        return 2
    wheel = Path(paths[0])
    held = zipfile.ZipFile(wheel).infolist()
    names, weights = [one.filename for one in held], sum(one.compress_size for one in held if is_weights(one.filename))
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = [line.removeprefix("src/") for line in listed.splitlines() if (ROOT / line).exists()]
    size = wheel.stat().st_size
    found = faults(names, tracked, size, weights)
    data = sum(name.endswith((".npz", ".safetensors")) for name in names)
    about = f"{len(names)} files, {data} of them data, {size:,} bytes, {size - weights:,} without weights"
    print("\n".join(f"{wheel.name}: {fault}" for fault in found) if found else f"{wheel.name}: {about}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
