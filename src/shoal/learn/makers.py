"""The networks that tasks bring, by the names that checkpoints give them.

A checkpoint may come from anybody: what it names is looked up here and nowhere else, so that no file decides what is
imported and called.
"""

from __future__ import annotations

import importlib
from typing import Any

MAKERS = {"rides": "shoal.rides.policies.network:make_network"}  # name -> module:function, imported when it is needed
_ALIASES = {"shoal.tasks.rides.network:make_network": "rides"}  # what checkpoints said before networks had names


def network_maker(name: str) -> Any:
    """The function of a registered name: (observation space, action space, PPOConfig, **options) -> network."""
    place = MAKERS.get(_ALIASES.get(name, name))
    if place is None:
        raise ValueError(f"expected the name of a network that shoal knows, one of {', '.join(MAKERS)}, got {name!r}")
    module, _, function = place.partition(":")
    return getattr(importlib.import_module(module), function)
