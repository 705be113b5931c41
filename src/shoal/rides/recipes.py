"""Settings of a training that suit its options: where the advantages come from, and what it starts from."""

from __future__ import annotations

from typing import Any

from shoal.rides.options import RidesOptions

# No critic is needed with credit: one pass keeps the value network sane. Every recipe has every name, so that one
# never shows through another.
_ALIKE: dict[str, Any] = {
    "hidden": (64,),
    "policy_epochs": 4,
    "value_epochs": 1,
    "minibatch_size": 256,
    "gae_lambda": 0.95,
    "entropy_coef": 0.0,
    "entropy_schedule": "linear",
}
_BY_CREDIT: dict[str, dict[str, Any]] = {
    "scratch": {
        "num_envs": 256,
        "episodes": 12_800,
        "clip": 0.4,
        "learning_rate": 2e-3,
        "entropy_coef": 0.03,
    },
    "start": {  # a start that is good already: smaller steps, and no bonus for entropy
        "num_envs": 64,
        "episodes": 2_560,
        "clip": 0.1,
        "learning_rate": 3e-4,
    },
    "rewards": {  # one day's reward says little of one offer: short horizons only, and large batches
        "num_envs": 256,
        "episodes": 12_800,
        "value_epochs": 8,
        "minibatch_size": 1024,
        "gae_lambda": 0.0,
        "clip": 0.2,
        "learning_rate": 1e-3,
    },
}


def recipe(options: RidesOptions) -> dict[str, Any]:
    """Options of `shoal train` by name; flags by hand win.

    >>> recipe(RidesOptions(start="none"))["num_envs"], recipe(RidesOptions(credit="rewards"))["gae_lambda"]
    (256, 0.0)
    """
    if options.credit == "rewards":
        return {**_ALIKE, **_BY_CREDIT["rewards"]}
    return {**_ALIKE, **_BY_CREDIT["scratch" if options.start in ("none", "myopic") else "start"]}
