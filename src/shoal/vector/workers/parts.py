"""Who owns what: the options of a batch over workers, and which environments each of them gets."""

from __future__ import annotations

from shoal.vector.parts import cut

SLICES = ("lockstep", "double", "ready")


def check_options(
    num_envs: int, workers: int | None, slices: str, step_timeout_s: float, start_timeout_s: float
) -> None:
    if num_envs < 1:
        raise ValueError("expected at least one environment, got none")
    if workers is not None and workers < 1:
        raise ValueError(f"expected at least one worker, got {workers}")
    if slices not in SLICES:
        raise ValueError(f"expected slices as one of {', '.join(SLICES)}, got {slices!r}")
    if not step_timeout_s > 0 or not start_timeout_s > 0:
        raise ValueError(f"expected timeouts above 0 s, got {step_timeout_s} and {start_timeout_s}")


def indices(rows: slice) -> range:
    return range(rows.start, rows.stop)


def owned_rows(number: int, count: int, parts: list[slice], by_readiness: bool, here: int) -> list[tuple[int, slice]]:
    """The rows of each slice that worker `number` of `count` owns; the first `here` of all are nobody's."""
    if by_readiness:
        return [(number, parts[number])]
    owned = []
    for part, whole in enumerate(parts):
        first = max(whole.start, here)
        rows = cut(whole.stop - first, count)[number]
        if rows.stop > rows.start:
            owned.append((part, slice(rows.start + first, rows.stop + first)))
    return owned
