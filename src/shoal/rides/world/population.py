"""What a population is made of: how common each profile is, and what it says about the hidden type and the trips.

The type follows from the profile by a logit, imperfectly: whoever knows the whole model and a rider's profile, and
nothing else, guesses right in `profile_ceiling()` = 55 % of cases (43 % by always naming the largest class).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from shoal.rides.world.answers import PRIOR, PURPOSE_MIX

Array = np.ndarray[Any, Any]

AGES = ("18-34", "35-54", "55-69", "70+")
OCCUPATIONS = ("office", "shift", "student", "carer", "retired", "self-employed")
INCOMES = ("low", "middle", "high")

AGE_SHARE = np.array([0.20, 0.30, 0.25, 0.25])
OCCUPATION_GIVEN_AGE = np.array(
    [
        [0.30, 0.20, 0.35, 0.08, 0.00, 0.07],
        [0.40, 0.22, 0.05, 0.15, 0.01, 0.17],
        [0.28, 0.16, 0.01, 0.15, 0.25, 0.15],
        [0.03, 0.02, 0.00, 0.07, 0.85, 0.03],
    ]
)
INCOME_GIVEN_OCCUPATION = np.array(
    [
        [0.10, 0.45, 0.45],
        [0.50, 0.42, 0.08],
        [0.70, 0.22, 0.08],
        [0.50, 0.35, 0.15],
        [0.45, 0.38, 0.17],
        [0.25, 0.40, 0.35],
    ]
)

# What a profile adds to the log-odds of each type (columns as Kind), before `type_given_profile` scales it.
AGE_SCORE = np.array([[-0.6, 0.9, 0.0, 0.1], [0.0, 0.0, 0.4, -0.2], [0.4, -0.2, 0.0, 0.0], [0.7, -0.7, -0.3, 0.4]])
OCCUPATION_SCORE = np.array(
    [
        [0.2, -0.2, 0.6, -0.5],
        [-0.4, -0.1, 1.1, -0.6],
        [-0.9, 1.3, -0.2, 0.2],
        [0.0, 0.1, 0.4, -0.3],
        [0.7, -0.5, -0.8, 0.8],
        [-0.2, 0.5, -0.2, 0.5],
    ]
)
INCOME_SCORE = np.array([[0.1, 0.0, -0.3, 0.4], [0.0, 0.0, 0.0, 0.0], [-0.1, 0.0, 0.5, -0.3]])
CEILING = 0.55

# What outings are for, by occupation; `purpose_given_occupation` adjusts it to the mix of all riders.
PURPOSE_HABIT = np.array(
    [
        [0.60, 0.10, 0.02, 0.13, 0.15],
        [0.60, 0.10, 0.03, 0.15, 0.12],
        [0.12, 0.05, 0.60, 0.08, 0.15],
        [0.10, 0.22, 0.25, 0.28, 0.15],
        [0.02, 0.40, 0.00, 0.28, 0.30],
        [0.48, 0.14, 0.03, 0.18, 0.17],
    ]
)


def profile_shares() -> Array:
    """How common each profile is, float64[ages, occupations, incomes], summing to 1."""
    with_occupation = AGE_SHARE[:, None] * OCCUPATION_GIVEN_AGE
    return np.asarray(with_occupation[:, :, None] * INCOME_GIVEN_OCCUPATION)


@functools.cache
def type_given_profile() -> Array:
    """P(type | profile), float64[ages, occupations, incomes, 4].

    A logit on the scores above. Its constants make the types come in the prior's shares, its scale makes the best guess
    right in CEILING of cases; both are solved for here (the ceiling grows with the scale).
    """
    shares = profile_shares()[..., None]
    score = AGE_SCORE[:, None, None] + OCCUPATION_SCORE[:, None] + INCOME_SCORE

    def logit(scale: float) -> Array:
        weights = np.exp(scale * score)
        constants = PRIOR.copy()
        for _ in range(200):
            chance = weights * constants
            chance /= chance.sum(axis=-1, keepdims=True)
            constants *= PRIOR / (shares * chance).sum(axis=(0, 1, 2))
        return np.asarray(chance)

    low, high = 0.0, 8.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        if (shares[..., 0] * logit(middle).max(axis=-1)).sum() < CEILING:
            low = middle
        else:
            high = middle
    out = logit(high)
    out.setflags(write=False)
    return out


def profile_ceiling() -> float:
    """How often the best possible guess of the type from the profile alone is right.

    >>> round(profile_ceiling(), 3)
    0.55
    """
    return float((profile_shares() * type_given_profile().max(axis=-1)).sum())


@functools.cache
def purpose_given_occupation() -> Array:
    """P(purpose | occupation), float64[occupations, 5]: the habits above, scaled until all come to PURPOSE_MIX."""
    occupations = AGE_SHARE @ OCCUPATION_GIVEN_AGE
    chance = PURPOSE_HABIT.copy()
    for _ in range(200):
        chance *= PURPOSE_MIX / (occupations @ chance)
        chance /= chance.sum(axis=1, keepdims=True)
    chance.setflags(write=False)
    return chance
