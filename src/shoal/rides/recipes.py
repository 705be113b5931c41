"""Settings of a training that suit its options: where the advantages come from, and what it starts from."""

from __future__ import annotations

from typing import Any

from shoal.rides.options import RidesOptions

_ALIKE: dict[str, Any] = {"hidden": (64,), "minibatch_size": 256, "policy_epochs": 4, "value_epochs": 1}
# No critic is needed with credit: one pass keeps the value network sane.
_SCRATCH = _ALIKE | {"num_envs": 256, "episodes": 12_800, "clip": 0.4, "learning_rate": 2e-3}
_SCRATCH |= {"entropy_coef": 0.03, "entropy_schedule": "linear"}
# A start that is good already: smaller steps, and no bonus for entropy.
_START = _ALIKE | {"num_envs": 64, "episodes": 2_560, "clip": 0.1, "learning_rate": 3e-4}
# One day's reward says little of one offer: one pass over it, since more fit the noise ...
_TAUGHT = _START | {"policy_epochs": 1, "value_epochs": 20}
# ... and where there is more to learn a horizon of one request, and larger steps. From nothing it gets as far as the
# myopic policy.
_REWARDS = _ALIKE | {"num_envs": 256, "episodes": 12_800, "clip": 0.2, "learning_rate": 1e-3}
_REWARDS |= {"minibatch_size": 1024, "value_epochs": 8, "gae_lambda": 0.0}


def recipe(options: RidesOptions) -> dict[str, Any]:
    """Options of `shoal train` by name; flags by hand win.

    >>> recipe(RidesOptions(start="none"))["num_envs"], recipe(RidesOptions())["policy_epochs"]
    (256, 1)
    >>> recipe(RidesOptions(start="lookahead", credit="rewards"))["gae_lambda"]
    0.0
    """
    if options.credited:
        found = _SCRATCH if options.start in ("none", "myopic") else _START
    else:
        found = _TAUGHT if options.start == "taught" else _REWARDS
    return {"gae_lambda": 0.95, "entropy_coef": 0.0, "entropy_schedule": "constant", **found}
