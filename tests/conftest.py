"""Shared by all tests: threads are capped, since oversubscribing two cores has cost tenfold."""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("MPLBACKEND", "svg")
os.environ["WANDB_MODE"] = "offline"
