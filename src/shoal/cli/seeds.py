"""`shoal train TASK --seeds 5`, and `shoal train --resume` of the folder that it makes."""

from __future__ import annotations

import json
from pathlib import Path

from shoal.cli.parsing import own_command, say, take, whole


def several(args: list[str], imports: list[str], resume: str | None, as_json: bool) -> int | None:
    """The exit code, or None where one training is asked for."""
    if {"-h", "--help"} & set(args):
        return None
    many, args = _number(args, "--seeds")
    if many is None and (resume is None or not _is_of_seeds(resume, take(args, "--runs-dir")[0])):
        return None
    parallel, args = _number(args, "--parallel")
    held_out, args = _number(args, "--held-out")
    from shoal.cli.training import config_from

    if resume is None:
        config = config_from(args, imports)
    from shoal.comparison.seeds import go_on_with, shown, train_seeds

    try:
        if resume is not None:
            runs_dir, args = take(args, "--runs-dir")
            given = [*args, *([] if many is None else ["--seeds"]), *([] if held_out is None else ["--held-out"])]
            if given:
                raise ValueError(
                    f"expected only --parallel and --import beside --resume of a folder of seeds, got {given[0]}: "
                    "its settings are those that it was begun with"
                )
            found = go_on_with(resume, runs_dir=runs_dir or "runs", parallel=parallel, imports=imports, say=say)
        else:
            assert many is not None
            more = {} if held_out is None else {"held_out": held_out}
            found = train_seeds(
                config, many, parallel=parallel, imports=imports, command=own_command(), say=say, **more
            )
    except KeyboardInterrupt:
        say("stopped; what is trained is kept: go on with shoal train --resume and the folder named above")
        return 130
    print(json.dumps(found.to_json(), allow_nan=False) if as_json else "\n".join(shown(found)))
    return 0


def _is_of_seeds(name: str, runs_dir: str | None) -> bool:
    from shoal.comparison.folder import is_of_seeds
    from shoal.runs.folder import Run

    try:
        return is_of_seeds(Run.open(name, Path(runs_dir or "runs")))
    except (OSError, ValueError):
        return False  # whoever opens it next says what is wrong


def _number(args: list[str], flag: str) -> tuple[int | None, list[str]]:
    text, args = take(args, flag)
    if text is None:
        return None, args
    value = whole(text)
    if value is None:
        raise ValueError(f"expected {flag} as a whole number, got {text!r}")
    return value, args
