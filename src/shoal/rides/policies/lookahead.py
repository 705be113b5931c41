"""Lookahead: what an accepted offer is worth by the end of the day, predicted by a small network.

Insertion prices overstate what an offer saves now and say nothing of the room that it leaves for later requests.
The network is fitted (fit/lookahead.py) on branches of simulated days: the same day goes on twice, once with the
offer accepted and once without, and the difference of the two final costs is the target. Weights ship with the package.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.rides.observe import CONTEXT, OFFER_COLUMN, OFFERS
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS

Array = np.ndarray[Any, Any]
_DATA = Path(__file__).parents[1] / "data"
# An accepted offer's worth does not depend on how likely it was to be accepted.
_OFFER_INPUTS = [OFFER_COLUMN[name] for name in ("earlier", "later", "feasible", "saving")]
_CONTEXT_INPUTS = [index for index, name in enumerate(CONTEXT) if not name.startswith(("p_", "futures"))]


@dataclass(frozen=True)
class Lookahead:
    """A small ReLU network: weights[i] is float32[in, out], its last output the value in minutes."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def values(self, obs: dict[str, Array]) -> Array:
        """Minutes that each offer saves in the end if it is accepted, float64[N, 16]; 0 for no change."""
        return self.predict(inputs(obs))

    def predict(self, rows: Array) -> Array:
        """Values of inputs float32[N, 16, F]."""
        hidden = rows.reshape(-1, rows.shape[-1])
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = hidden @ weight + bias
            if layer < len(self.weights) - 1:
                np.maximum(hidden, 0, out=hidden)
        values = hidden.reshape(-1, NUM_OFFERS).astype(np.float64)
        values[:, NO_CHANGE] = 0.0
        return values

    def save(self, path: str | Path) -> None:
        """Write the weights as .npz."""
        named = {f"weight{i}": weight for i, weight in enumerate(self.weights)}
        named |= {f"bias{i}": bias for i, bias in enumerate(self.biases)}
        np.savez(path, allow_pickle=False, inputs=np.array(input_names()), **named)

    @staticmethod
    def load(path: str | Path) -> Lookahead:
        """Read weights; refused where they were fitted on other inputs."""
        with np.load(path, allow_pickle=False) as data:
            if data["inputs"].tolist() != list(input_names()):
                raise ValueError(
                    f"{path}: the weights were fitted on other inputs than this version has; fit them anew"
                )
            count = sum(name.startswith("weight") for name in data)
            return Lookahead(
                tuple(data[f"weight{i}"] for i in range(count)), tuple(data[f"bias{i}"] for i in range(count))
            )

    @staticmethod
    def shipped(prices: str) -> Lookahead:
        """The weights that come with shoal, for observations with insertion or pooled prices."""
        return _shipped(prices)


@functools.cache
def _shipped(prices: str) -> Lookahead:
    return Lookahead.load(_DATA / f"lookahead_{prices}.npz")


def input_names() -> Sequence[str]:
    """Names of the inputs, in order."""
    return [*(f"offer.{OFFERS[i]}" for i in _OFFER_INPUTS), *(f"now.{CONTEXT[i]}" for i in _CONTEXT_INPUTS)]


def inputs(obs: dict[str, Array]) -> Array:
    """float32[N, 16, F]: each offer's columns beside the context."""
    offers, context = obs["offers"][:, :, _OFFER_INPUTS], obs["context"][:, _CONTEXT_INPUTS]
    context = np.broadcast_to(context[:, None], (*offers.shape[:2], context.shape[1]))
    return np.concatenate([offers, context], 2, dtype=np.float32)
