"""The study of what is left to gain: its arithmetic on made-up predictions, and a few days."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.rides import rides_ceiling as ceiling


def test_what_infinitely_many_futures_would_explain() -> None:
    """The truth is half known; futures overstate it by a quarter and err by 3 min each, the network by 0.5."""
    rng = np.random.default_rng(0)
    known = rng.normal(size=200_000)
    truth = known + rng.normal(size=known.size)
    few, others = (1.25 * known + rng.normal(size=known.size) * 3 / futures**0.5 for futures in (8, 24))
    network = known + 0.5 * rng.normal(size=known.size)
    noise = np.full_like(known, 9.0)
    columns = np.stack([np.ones_like(known), truth, network, network, network, few, others, noise])
    found = ceiling.figures(columns @ columns.T)
    assert found["explained by infinitely many futures"] == pytest.approx(50, abs=1)
    assert found["minutes saved for a minute that futures promise"] == pytest.approx(0.8, abs=0.01)
    assert found["explained by the network with 8 futures"] == pytest.approx(40, abs=1)  # 1 / 1.25 of it
    assert found["variance of the error of the network with 8 futures"] == pytest.approx(0.2, abs=0.02)
    assert found["futures that the judgement with 8 futures is worth"] == pytest.approx(9 * 0.64 / 0.2, rel=0.1)


def test_days_are_played_and_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four days in two batches: the same as in one, and a row for each figure."""
    monkeypatch.setattr(ceiling, "FUTURES", 3)
    monkeypatch.setattr(ceiling, "FEW", 2)
    monkeypatch.setattr(ceiling, "RESAMPLES", 3)
    whole = ceiling.measure(4, lambda text: None, iterations=2, customers=6)
    monkeypatch.setattr(ceiling, "BATCH", 2)
    parts = ceiling.measure(4, lambda text: None, iterations=2, customers=6)
    assert all(np.allclose(whole[name], parts[name]) for name in whole)
    assert whole["products"][:, ceiling.ONE, ceiling.ONE].min() > 0
    assert whole["by none"].shape == (4,)
    assert len(ceiling.summarise(whole)) == 14
