"""`shoal doctor`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from shoal.cli.parsing import parse, take_all

ABOUT = """Check this installation and this machine: one line per check, with a remedy for what is wrong.

  shoal doctor
  shoal doctor --for cuda,ray     also wrong where CUDA or Ray is missing

Exit code 1 if something is wrong, or if something named after --for is missing."""
_FOR = "What you want to use, by the name of its line, e.g. cuda,ray: missing it is wrong then, and it is tried out."


@dataclass(frozen=True)
class DoctorArgs:
    """Check this installation and this machine."""

    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def doctor(args: list[str], as_json: bool) -> int:
    """Check the installation."""
    wanted, args = take_all(args, "--for")
    given = parse(DoctorArgs, args, "shoal doctor", about=ABOUT, extra=(("--for NAME,...", _FOR),))
    from shoal.doctor import examine

    asked = {name for word in wanted for name in word.split(",") if name}
    found = examine(asked, Path(given.runs_dir))
    wrong = [one for one in found if one.wrong(one.name in asked)]
    if as_json:
        rows = [
            {"name": one.name, "fine": one.fine, "wrong": one in wrong, "said": one.said, "cure": one.cure}
            for one in found
        ]
        print(json.dumps({"fine": not wrong, "checks": rows}))
        return int(bool(wrong))
    width = max(len(one.name) for one in found)
    for one in found:
        print(f"{'OK' if one.fine else 'WRONG' if one in wrong else '-':<6} {one.name:<{width}}  {one.said}")
        if one.cure and not one.fine:
            print(f"{'':<7}{'':<{width}}  -> {one.cure}")
    print(
        f"\n{len(wrong)} of {len(found)} lines are wrong"
        if wrong
        else "\nall is well; what has a - is not there, and needed only by those who want it"
    )
    return int(bool(wrong))
