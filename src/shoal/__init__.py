"""shoal: PPO on hundreds to thousands of environments at once, measured honestly.

>>> import shoal
>>> envs = shoal.make_vec("CartPole-v1", 4, backend="serial")
>>> envs.num_envs
4
>>> envs.close()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.callbacks import Callback, Training
    from shoal.comparison.api import compare
    from shoal.evaluation import evaluate
    from shoal.playing import play
    from shoal.runs.trackers import Tracker
    from shoal.search.api import WorkflowSearch
    from shoal.tasks.networks import load_policy
    from shoal.training import train
    from shoal.vector.make import make_vec

from shoal.tasks.registration import register

__version__ = "0.2.0"
__all__ = [
    "Callback", "Tracker", "Training", "WorkflowSearch", "__version__", "compare", "evaluate", "load_policy",
    "make_vec", "play", "train",
]  # fmt: skip

_HOMES = {
    "Callback": "shoal.callbacks",
    "Tracker": "shoal.runs.trackers",
    "Training": "shoal.callbacks",
    "WorkflowSearch": "shoal.search.api",
    "compare": "shoal.comparison.api",
    "evaluate": "shoal.evaluation",
    "load_policy": "shoal.tasks.networks",
    "make_vec": "shoal.vector.make",
    "play": "shoal.playing",
    "train": "shoal.training",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `import shoal` alone does not touch torch or numba."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}; it has {', '.join(__all__)}")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)


register()  # what Gymnasium expects of a package of environments: after `import shoal`, gym.make knows them
