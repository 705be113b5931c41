"""Compiled arithmetic of the flexibility model: likelihood with its gradient, Bayes update, prediction.

The model is a latent-class logit (Heckman & Singer 1984; Train 2009, ch. 14). Rider r is of type k and has a
willingness u; minutes e earlier and l later are accepted with

    logit P = a_k - b_k e/10 - c_k l/10 + u + purpose + f_0(trip) - f_1(trip) e/10 - f_2(trip) l/10

where f is a small network. (k, u) is never a point estimate: it lives on a grid of NUM_NODES *nodes* (types x
willingness), and what a rider's answers say about it is the log likelihood of each node. That table is the
rider's embedding: it is zero for a rider without answers, so the profile alone speaks, by arithmetic and not by tuning.

Everything is per rider or per row in a fixed order: batch sizes and threads cannot change a bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS, OFFER_EARLIER_MIN, OFFER_LATER_MIN

NUM_TYPES = 4
NUM_LEVELS = 13  # grid points of the willingness
NUM_NODES = NUM_TYPES * NUM_LEVELS  # node = type * NUM_LEVELS + level
NUM_PURPOSES = 5
NUM_INPUTS = 3  # numbers of a trip beside its purpose: sine and cosine of the time of day, direct time
HIDDEN = 8

# A trip's parameters as one flat vector, so that an optimiser sees plain numbers.
COEFFICIENTS = 0  # [3, NUM_TYPES]: intercept, per 10 min earlier, per 10 min later
LOG_SPREAD = COEFFICIENTS + 3 * NUM_TYPES  # log of the willingness' standard deviation
PURPOSE = LOG_SPREAD + 1  # [NUM_PURPOSES]
HIDDEN_BIAS = PURPOSE + NUM_PURPOSES  # [HIDDEN]
HIDDEN_PURPOSE = HIDDEN_BIAS + HIDDEN  # [NUM_PURPOSES, HIDDEN]
HIDDEN_INPUT = HIDDEN_PURPOSE + NUM_PURPOSES * HIDDEN  # [NUM_INPUTS, HIDDEN]
OUTPUT = HIDDEN_INPUT + NUM_INPUTS * HIDDEN  # [3, HIDDEN]: onto intercept and both slopes
NUM_TRIP_PARAMETERS = OUTPUT + 3 * HIDDEN

LEVELS = np.linspace(-3.0, 3.0, NUM_LEVELS)  # float64[NUM_LEVELS], in standard deviations
LEVEL_LOG_WEIGHTS = -0.5 * LEVELS**2 - math.log(np.exp(-0.5 * LEVELS**2).sum())  # the normal density on the grid

_EARLIER = OFFER_EARLIER_MIN / 10.0  # float64[16]
_LATER = OFFER_LATER_MIN / 10.0
_NODE_LEVELS = np.tile(LEVELS, NUM_TYPES)
_CLIP_NODE, _CLIP_TRIP = 40.0, 20.0  # of logits: eight probabilities at the clip multiply to 1e-208, still a float
_PRODUCT = 8
_NEGLIGIBLE = 1e-9  # weight of a node that a prediction may leave out


def node_odds(theta: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """exp(-logit) of every offer at every node without the trip's share: float64[16, NUM_NODES]."""
    base, earlier, later = theta[COEFFICIENTS:LOG_SPREAD].reshape(3, NUM_TYPES)
    by_type = base - np.outer(_EARLIER, earlier) - np.outer(_LATER, later)  # [16, NUM_TYPES]
    logits = np.repeat(by_type, NUM_LEVELS, axis=1) + math.exp(theta[LOG_SPREAD]) * _NODE_LEVELS
    return np.ascontiguousarray(np.exp(-np.clip(logits, -_CLIP_NODE, _CLIP_NODE)))


@njit(cache=True, nogil=True)
def _hide(theta: Any, purpose: Any, inputs: Any, hidden: Any, shift: Any) -> None:
    """The network: hidden[HIDDEN] and what it adds to intercept and slopes, shift[3]."""
    shift[0], shift[1], shift[2] = theta[PURPOSE + purpose], 0.0, 0.0
    for j in range(HIDDEN):
        total = theta[HIDDEN_BIAS + j] + theta[HIDDEN_PURPOSE + purpose * HIDDEN + j]
        for i in range(NUM_INPUTS):
            total += theta[HIDDEN_INPUT + i * HIDDEN + j] * inputs[i]
        hidden[j] = math.tanh(total)
        for m in range(3):
            shift[m] += theta[OUTPUT + m * HIDDEN + j] * hidden[j]


@njit(cache=True, nogil=True)
def _trip_odds(shift: Any, earlier: Any, later: Any) -> Any:
    """exp(-logit) of the trip's share."""
    logit = shift[0] - shift[1] * earlier - shift[2] * later
    return math.exp(-min(max(logit, -_CLIP_TRIP), _CLIP_TRIP))


@njit(cache=True, nogil=True)
def predict_rows(
    theta: Any, odds: Any, weights: Any, rider: Any, purpose: Any, inputs: Any, out: Any, low: int, high: int
) -> None:
    """P(accept) of all 16 offers: odds is node_odds transposed [NUM_NODES, 16], weights [R, NUM_NODES], out [N, 16]."""
    hidden, shift = np.empty(HIDDEN), np.empty(3)
    trip, total = np.empty(NUM_OFFERS), np.empty(NUM_OFFERS)
    for n in range(low, high):
        _hide(theta, purpose[n], inputs[n], hidden, shift)
        for o in range(NUM_OFFERS):
            trip[o] = _trip_odds(shift, _EARLIER[o], _LATER[o])
            total[o] = 0.0
        for node in range(NUM_NODES):
            weight = weights[rider[n], node]
            if weight > _NEGLIGIBLE:
                for o in range(NUM_OFFERS):
                    total[o] += weight / (1.0 + odds[node, o] * trip[o])
        for o in range(NUM_OFFERS):
            out[n, o] = min(total[o], 1.0)
        out[n, NO_CHANGE] = 1.0


@njit(cache=True, nogil=True)
def add_evidence(
    theta: Any, odds: Any, rider: Any, purpose: Any, inputs: Any, offer: Any, accepted: Any, evidence: Any
) -> None:
    """Bayes: add every answer's log likelihood at every node to its rider's row of evidence [R, NUM_NODES]."""
    hidden, shift = np.empty(HIDDEN), np.empty(3)
    for n in range(len(rider)):
        _hide(theta, purpose[n], inputs[n], hidden, shift)
        trip = _trip_odds(shift, _EARLIER[offer[n]], _LATER[offer[n]])
        for node in range(NUM_NODES):
            against = odds[offer[n], node] * trip
            evidence[rider[n], node] -= math.log1p(against) if accepted[n] else math.log1p(1.0 / against)


@njit(cache=True, nogil=True)
def likelihood(
    theta: Any,
    odds: Any,
    log_prior: Any,
    starts: Any,
    purpose: Any,
    inputs: Any,
    offer: Any,
    accepted: Any,
    edges: Any,
    value: Any,
    gradient: Any,
    type_posterior: Any,
    low: int,
    high: int,
) -> int:
    """Log likelihood and its gradient, summed over each block of riders edges[b] to edges[b + 1].

    Rows are sorted by rider, starts[r] to starts[r + 1]. By Fisher's identity the gradient of a marginal likelihood
    is the gradient at every node, weighted with the node's posterior: one pass forward, one back.
    Writes value[b], gradient[b, NUM_TRIP_PARAMETERS] and type_posterior[r, NUM_TYPES].
    """
    spread = math.exp(theta[LOG_SPREAD])
    most = 1
    for r in range(edges[low], edges[high]):
        most = max(most, starts[r + 1] - starts[r])
    chance = np.empty((most, NUM_NODES))
    hiddens, shift, back = np.empty((most, HIDDEN)), np.empty(3), np.empty(3)
    product, posterior = np.empty(NUM_NODES), np.empty(NUM_NODES)
    by_type = np.empty(NUM_TYPES)
    for b in range(low, high):
        value[b] = 0.0
        gradient[b, :] = 0.0
        for r in range(edges[b], edges[b + 1]):
            for k in range(NUM_TYPES):
                for g in range(NUM_LEVELS):
                    posterior[k * NUM_LEVELS + g] = log_prior[r, k] + LEVEL_LOG_WEIGHTS[g]
            product[:] = 1.0
            for n in range(starts[r], starts[r + 1]):
                row = n - starts[r]
                _hide(theta, purpose[n], inputs[n], hiddens[row], shift)
                trip = _trip_odds(shift, _EARLIER[offer[n]], _LATER[offer[n]])
                node_chance, node_odd = chance[row], odds[offer[n]]
                if accepted[n]:
                    for node in range(NUM_NODES):
                        p = 1.0 / (1.0 + node_odd[node] * trip)
                        node_chance[node] = p
                        product[node] *= p
                else:
                    for node in range(NUM_NODES):
                        against = node_odd[node] * trip
                        p = 1.0 / (1.0 + against)
                        node_chance[node] = p
                        product[node] *= against * p
                if row % _PRODUCT == _PRODUCT - 1 or n == starts[r + 1] - 1:  # a logarithm costs ten products
                    for node in range(NUM_NODES):
                        posterior[node] += math.log(product[node])
                        product[node] = 1.0
            top = posterior.max()
            total = 0.0
            for node in range(NUM_NODES):
                posterior[node] = math.exp(posterior[node] - top)
                total += posterior[node]
            value[b] += top + math.log(total)
            for k in range(NUM_TYPES):
                type_posterior[r, k] = 0.0
                for g in range(NUM_LEVELS):
                    posterior[k * NUM_LEVELS + g] /= total
                    type_posterior[r, k] += posterior[k * NUM_LEVELS + g]
            for n in range(starts[r], starts[r + 1]):
                row = n - starts[r]
                earlier, later = _EARLIER[offer[n]], _LATER[offer[n]]
                truth = 1.0 if accepted[n] else 0.0
                along = 0.0
                error = 0.0
                for k in range(NUM_TYPES):
                    by_type[k] = 0.0
                    for g in range(NUM_LEVELS):
                        node = k * NUM_LEVELS + g
                        part = posterior[node] * (truth - chance[row, node])
                        by_type[k] += part
                        along += part * LEVELS[g]
                    gradient[b, COEFFICIENTS + k] += by_type[k]
                    gradient[b, COEFFICIENTS + NUM_TYPES + k] -= by_type[k] * earlier
                    gradient[b, COEFFICIENTS + 2 * NUM_TYPES + k] -= by_type[k] * later
                    error += by_type[k]
                gradient[b, LOG_SPREAD] += along * spread
                gradient[b, PURPOSE + purpose[n]] += error
                back[0], back[1], back[2] = error, -error * earlier, -error * later
                for j in range(HIDDEN):
                    slope = 0.0
                    for m in range(3):
                        gradient[b, OUTPUT + m * HIDDEN + j] += back[m] * hiddens[row, j]
                        slope += back[m] * theta[OUTPUT + m * HIDDEN + j]
                    slope *= 1.0 - hiddens[row, j] ** 2
                    gradient[b, HIDDEN_BIAS + j] += slope
                    gradient[b, HIDDEN_PURPOSE + purpose[n] * HIDDEN + j] += slope
                    for i in range(NUM_INPUTS):
                        gradient[b, HIDDEN_INPUT + i * HIDDEN + j] += slope * inputs[n, i]
    return 0
