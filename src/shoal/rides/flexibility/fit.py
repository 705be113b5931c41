"""Fitting the flexibility model: maximum posterior of all shared parameters, riders integrated out.

The riders' types and willingness are summed over, not fitted, so the profile part is trained as what it has to be: the
guess before the first answer. (A free embedding per rider would explain its rider alone and leave the profile nothing
to learn.) A Gaussian prior on every parameter stands in for weight decay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.seeds import generator

Array = np.ndarray[Any, Any]

# Steps that L-BFGS remembers. It solves systems of twice as many unknowns; from 33 on LAPACK rounds differently from
# one process to the next, and the same seed would train another agent.
REMEMBERED = 10
BLOCKS = 16  # of riders; partial sums are added in block order, so that threads cannot change a bit

# Where learning starts, by the meaning of the types' names alone: early-only, late-only, inflexible, both.
# This also is what keeps the names on the types.
FIRST_COEFFICIENTS = ((2.0, 2.0, -1.0, 2.0), (0.5, 2.0, 1.0, 0.5), (2.0, 0.5, 1.0, 0.5))
FIRST_SPREAD = 0.5


@dataclass(frozen=True)
class Fit:
    """What training returns."""

    theta: Array  # float64[P]
    log_likelihood: float  # of the answers, riders integrated out
    evaluations: int


def rows_by_rider(answers: Array, num_riders: int) -> tuple[Array, ...]:
    """Answers as the likelihood kernel wants them: starts, purpose, inputs, offer, accepted, sorted by rider."""
    order = np.argsort(answers["rider"], kind="stable")
    rows = answers[order]
    starts = np.searchsorted(rows["rider"], np.arange(num_riders + 1)).astype(np.int64)
    return starts, *columns(rows)


def columns(answers: Array) -> tuple[Array, Array, Array, Array]:
    """purpose, trip inputs [N, 3], offer, accepted of answers, as plain arrays."""
    inputs = trip_inputs(answers["pickup_open_s"], answers["direct_s"])
    return (
        np.ascontiguousarray(answers["purpose"], np.int64),
        inputs,
        np.ascontiguousarray(answers["offer"], np.int64),
        np.ascontiguousarray(answers["accepted"], np.bool_),
    )


def trip_inputs(pickup_open_s: Any, direct_s: Any) -> Array:
    """Time of day on the circle, and direct time around 20 minutes: float64[N, 3]."""
    angle = np.asarray(pickup_open_s, np.float64) * (2 * np.pi / 86_400)
    return np.stack([np.sin(angle), np.cos(angle), np.asarray(direct_s, np.float64) / 1200.0 - 1.0], axis=-1)


def log_shares(prior: Any | None) -> Array:
    """Logits of the four types' shares, float64[4]; nothing known: all alike."""
    shares = np.ones(4) if prior is None else np.asarray(prior, np.float64)
    if shares.shape != (4,) or not (shares > 0).all() or not np.isfinite(shares).all():
        raise ValueError(f"expected a prior of 4 shares above 0, one a type, got {shares.tolist()}")
    return np.asarray(np.log(shares) - np.log(shares).mean())


def first_theta(num_features: int, seed: int, shares: Array) -> Array:
    """Parameters before the first answer: float64[P]; `shares`: see `log_shares`."""
    from shoal.rides.flexibility import kernels

    theta = np.zeros(num_parameters(num_features))
    theta[: kernels.LOG_SPREAD] = np.ravel(FIRST_COEFFICIENTS)
    theta[kernels.LOG_SPREAD] = np.log(FIRST_SPREAD)
    # The network must start off its saddle (all zero), with outputs that do nothing yet.
    rng = generator(seed, 2)
    theta[kernels.HIDDEN_BIAS : kernels.OUTPUT] = rng.normal(0.0, 0.5, kernels.OUTPUT - kernels.HIDDEN_BIAS)
    types = kernels.NUM_TRIP_PARAMETERS
    theta[types : types + kernels.NUM_TYPES] = shares
    return theta


def num_parameters(num_features: int) -> int:
    """Of the trip part plus type logits: an intercept and a weight per profile feature, for each type."""
    from shoal.rides.flexibility import kernels

    return kernels.NUM_TRIP_PARAMETERS + (1 + num_features) * kernels.NUM_TYPES


def log_type_prior(theta: Array, profile: Array) -> Array:
    """log P(type | profile): float64[R, 4]."""
    from shoal.rides.flexibility import kernels

    weights = theta[kernels.NUM_TRIP_PARAMETERS :].reshape(-1, kernels.NUM_TYPES)
    # A plain sum in a fixed order: a matrix product may round differently on another number of rows.
    logits = weights[0] + (profile[:, :, None] * weights[1:]).sum(axis=1)
    logits = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))


def parameter_prior(num_features: int, shares: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of the Gaussian prior on every parameter."""
    from shoal.rides.flexibility import kernels

    mean, spread = np.zeros(num_parameters(num_features)), np.ones(num_parameters(num_features))
    mean[: kernels.LOG_SPREAD] = np.ravel(FIRST_COEFFICIENTS)
    spread[: kernels.LOG_SPREAD] = 3.0
    mean[kernels.LOG_SPREAD], spread[kernels.LOG_SPREAD] = np.log(FIRST_SPREAD), 0.5
    spread[kernels.PURPOSE : kernels.HIDDEN_BIAS] = 0.5
    spread[kernels.HIDDEN_BIAS : kernels.OUTPUT] = 0.5
    spread[kernels.OUTPUT : kernels.NUM_TRIP_PARAMETERS] = 0.1
    types = kernels.NUM_TRIP_PARAMETERS
    mean[types : types + kernels.NUM_TYPES], spread[types : types + kernels.NUM_TYPES] = shares, 2.0
    spread[types + kernels.NUM_TYPES :] = 0.6
    return mean, spread


def fit(answers: Array, profile: Array, theta: Array, *, shares: Array, epochs: int, threads: int = 1) -> Fit:
    """Best parameters for these answers, starting from theta: L-BFGS with `epochs` passes at most over all of them."""
    from scipy.optimize import minimize

    from shoal.compiled.threads import Pool
    from shoal.rides.flexibility import kernels

    rows = rows_by_rider(answers, len(profile))
    edges = np.linspace(0, len(profile), BLOCKS + 1).astype(np.int64)
    mean, spread = parameter_prior(profile.shape[1], shares)
    value, gradient = np.empty(BLOCKS), np.empty((BLOCKS, kernels.NUM_TRIP_PARAMETERS))
    posterior = np.empty((len(profile), kernels.NUM_TYPES))
    size = max(len(answers), 1)
    pool = Pool(threads)

    def loss(point: Array) -> tuple[float, Array]:
        trip = np.ascontiguousarray(point[: kernels.NUM_TRIP_PARAMETERS])
        log_prior = log_type_prior(point, profile)
        arguments = (trip, kernels.node_odds(trip), log_prior, *rows, edges, value, gradient, posterior)
        pool.run(kernels.likelihood, arguments, BLOCKS)
        away = (point - mean) / spread
        slope = -away / spread
        slope[: kernels.NUM_TRIP_PARAMETERS] += gradient.sum(axis=0)
        surprise = posterior - np.exp(log_prior)
        slope[kernels.NUM_TRIP_PARAMETERS :] += np.vstack(
            [surprise.sum(axis=0), (profile[:, :, None] * surprise[:, None, :]).sum(axis=0)]
        ).ravel()
        return -(value.sum() - 0.5 * (away**2).sum()) / size, -slope / size

    try:
        found = minimize(
            loss,
            theta,
            jac=True,
            method="L-BFGS-B",
            options={"maxfun": epochs, "maxcor": REMEMBERED, "ftol": 1e-9, "gtol": 1e-6},
        )
        loss(found.x)  # leaves the likelihood at the solution in `value`
    finally:
        pool.close()
    return Fit(np.asarray(found.x), float(value.sum()), int(found.nfev))
