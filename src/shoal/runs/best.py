"""Which checkpoint of a run is used: the newest, that of an epoch, or the best by the evaluations while it trained.

`best.json` names the best; the training keeps that checkpoint however few `--keep` leaves.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from shoal.runs import checkpoint
from shoal.runs.disk import from_json, replace_atomically, to_json
from shoal.runs.folder import Run
from shoal.runs.words import figure

BEST = "best.json"
WORDS = ("last", "best")


@dataclass(frozen=True)
class Best:
    """The best epoch so far, by which score."""

    epoch: int
    metric: str
    score: float


def write(run: Run, best: Best) -> None:
    """Name the best checkpoint, once it is there."""
    run.lock()
    replace_atomically(run.path / BEST, to_json(asdict(best)))


def forget(run: Run) -> None:
    """No checkpoint is the best any more: the run goes on from before it."""
    run.lock()
    (run.path / BEST).unlink(missing_ok=True)


def read(run: Run) -> Best | None:
    """The best checkpoint that is there; None of a run that was not evaluated while it trained."""
    try:
        data = from_json((run.path / BEST).read_bytes())
        found = Best(int(data["epoch"]), str(data["metric"]), float(data["score"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.epoch in checkpoint.epochs(run.checkpoints) else None


def parse(text: str | int | None) -> str | int | None:
    """`--checkpoint` as it was typed.

    >>> parse("best"), parse("40"), parse(None)
    ('best', 40, None)
    """
    if text is None or text in WORDS:
        return text
    if isinstance(text, int) or text.isdecimal():
        return int(text)
    raise ValueError(f"expected --checkpoint as last, best or the number of an epoch, got {text!r}")


def chosen(run: Run, wanted: str | int | None) -> tuple[int | None, str]:
    """The epoch to take, None for the newest that is whole, and what to tell about it."""
    wanted = parse(wanted)
    if isinstance(wanted, int):
        return wanted, ""
    if wanted == "last":
        return None, ""
    best = read(run)
    if best is not None:
        newest = max(checkpoint.epochs(run.checkpoints))
        if best.epoch == newest:
            return best.epoch, ""
        score = f"{best.metric} {figure(best.score)}"
        other = "" if wanted else f"; --checkpoint last takes the newest, of epoch {newest}"
        return best.epoch, f"epoch {best.epoch} is taken, the best while it trained ({score}){other}"
    if wanted == "best":
        raise ValueError(
            f"{run.shown} holds no best checkpoint: expected a run that was trained with --evaluate-every, which keeps "
            "one; --checkpoint last takes the newest"
        )
    return None, ""
