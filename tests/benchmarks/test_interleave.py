"""Contestants run in processes of their own, take turns, and fail by name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import pytest

from benchmarks.harness import interleave as turns
from benchmarks.harness.interleave import Contestant, PeerMissing, in_fresh_process, interleave, ratios
from benchmarks.vector import process_speed
from shoal.runs.usage import tree_cpu_s

_ENV = {"cost_us": 100.0}


def burn(seconds: float) -> float:
    """CPU seconds in a child, as this process's tree counts them."""
    before = tree_cpu_s()
    code = f"import time\nwhile time.process_time() < {seconds}: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    return tree_cpu_s() - before


def _sum(blocks: list[dict[str, float]], what: str) -> float:
    return sum(block[what] for block in blocks)


def _blocks(rounds: list[dict[str, Any]]) -> dict[str, list[dict[str, float]]]:
    return {name: [turn[name] for turn in rounds] for name in rounds[0]}


def test_blocks_are_counted_and_timed() -> None:
    """One process burning 100 us a step does nearly 10,000 steps per CPU-second; two bare ones share the work."""
    with Contestant("ideal", "benchmarks.harness.contestants:Ideal", env=_ENV, num_envs=4, processes=2) as one:
        found = [one.block(0.3)]
        while _sum(found, "cpu_s") < 0.3:
            found.append(one.block(0.3))
    for block in found:
        assert block["wall_s"] >= 0.3
        assert 0 < block["steps"] <= 2 * 10_000 * block["wall_s"]
    assert _sum(found, "steps") / _sum(found, "cpu_s") == pytest.approx(10_000, rel=0.3)


def test_turns_give_a_ratio_per_round() -> None:
    """The process backend reaches most of the ideal's work per CPU-second even here."""
    options: dict[str, Any] = {"env": _ENV, "num_envs": 4}
    with (
        Contestant("ideal", "benchmarks.harness.contestants:Ideal", processes=2, **options) as ideal,
        Contestant("shoal", "benchmarks.harness.contestants:shoal_vector", backend="process", **options) as shoal,
        Contestant("ready", "benchmarks.harness.contestants:FirstReady", **options) as ready,
    ):
        found = interleave([ideal, shoal, ready], 3, 0.2)
        assert 3 <= len(found) <= 5  # a busy machine gets up to half as many rounds again
        assert len(ratios(found, "shoal", "ideal")) == len(found)
        while min(_sum(those, "cpu_s") for those in _blocks(found).values()) < 0.4:  # counted in steps of 0.01 s
            found += interleave([ideal, shoal, ready], 1, 0.2)
    blocks = _blocks(found)
    speeds = {name: _sum(those, "steps") / _sum(those, "cpu_s") for name, those in blocks.items()}
    for name in ("shoal", "ready"):
        assert 0.2 < speeds[name] / speeds["ideal"] < 1.3


def test_cpu_time_of_children_that_have_ended_is_counted() -> None:
    """Half a second burnt in a child is half a second, with interpreter start on top."""
    assert 0.45 <= in_fresh_process("tests.benchmarks.test_interleave:burn", 60.0, seconds=0.5) <= 1.5


def test_a_missing_peer_gives_a_note_and_no_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A null value with the pip command; the rows that need no peer are still measured."""
    (tmp_path / "stable_baselines3").mkdir()
    blocked = "raise ModuleNotFoundError('no', name='stable_baselines3')"
    (tmp_path / "stable_baselines3" / "__init__.py").write_text(blocked)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(PeerMissing, match="pip install"):
        Contestant("sb3", "benchmarks.harness.contestants:sb3_subproc", env=_ENV, num_envs=2)
    monkeypatch.setattr(process_speed, "NUM_ENVS", 4)
    said: list[str] = []
    rows = [row.to_json() for row in process_speed.synthetic("100 us", _ENV, 1, 0.1, 93.0, 1.5, said.append)]
    assert [row["value"] is None for row in rows] == [False, False, True]
    assert 'pip install "shoal[peers]"' in rows[-1]["note"]
    assert said


def test_a_failing_contestant_names_itself_and_its_error() -> None:
    """The traceback of the other process is in the message."""
    with pytest.raises(RuntimeError, match=r"(?s)broken failed.*cost_us"):
        Contestant(
            "broken", "benchmarks.harness.contestants:Ideal", env={"cost_us": -1}, num_envs=1, processes=0, cost_us=1
        )


def test_closing_leaves_no_process_behind() -> None:
    """Forked environments end with their contestant."""
    one = Contestant("ideal", "benchmarks.harness.contestants:Ideal", env=_ENV, num_envs=2, processes=2)
    group = one._process.pid
    one.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _group_lives(group):
        time.sleep(0.05)
    assert not _group_lives(group)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_threads_are_capped_in_the_other_process() -> None:
    """Every library that reads a variable finds 1."""
    found = in_fresh_process("tests.benchmarks.test_interleave:threads", 60.0)
    assert found == dict.fromkeys(turns.THREADS, "1")


def threads() -> dict[str, str | None]:
    """What a contestant's process has."""
    return {name: os.environ.get(name) for name in turns.THREADS}


def test_only_calm_rounds_count_where_there_are_three() -> None:
    """What other programs took decides; with fewer calm rounds all are kept, and the note says so."""

    class Fake:
        """Every third block is disturbed."""

        name, count = "fake", 0

        def block(self, seconds: float) -> dict[str, float]:
            self.count += 1
            return {"steps": self.count, "wall_s": 1.0, "cpu_s": 1.0, "others": 0.3 if self.count % 3 == 0 else 0.0}

    found = interleave([Fake()], 4, 0.1)  # type: ignore[list-item]
    assert [turn["fake"]["steps"] for turn in found] == [2, 4, 5, 7]
    assert turns.busy_note(found) == ""
    disturbed = [{"fake": {"others": 0.3}}, {"fake": {"others": 0.2}}, {"fake": {"others": 0.5}}]
    assert "30%" in turns.busy_note(disturbed)
