"""In a clean environment with the wheel and no extra: CartPole is trained and scored (`make wheel-install`)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

EXTRAS = ("matplotlib", "scipy", "sklearn", "pyvrp", "tensorboard", "wandb")


def main() -> int:
    present = [name for name in EXTRAS if importlib.util.find_spec(name)]
    if present:
        print(f"expected an environment without extras, found {', '.join(present)}")
        return 1
    import shoal

    home = Path(shoal.__file__).parent
    if not home.is_relative_to(sys.prefix):
        print(f"expected the installed shoal, found {home}")
        return 1
    command = Path(sys.executable).with_name("shoal")
    with tempfile.TemporaryDirectory() as folder:
        for words in ("--version", "train CartPole-v1 --seed 1 --name one", "evaluate runs/one"):
            subprocess.run([command, *words.split()], cwd=folder, check=True)
        mean = shoal.evaluate(Path(folder) / "runs" / "one", keep=False)["mean"]
        page = (Path(folder) / "runs" / "one" / "report.html").read_text()
    print(f"mean return of held-out episodes {mean:.1f}, expected at least 475; page of {len(page):,} characters")
    return 0 if mean >= 475 else 1


if __name__ == "__main__":
    sys.exit(main())
