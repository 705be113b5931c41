"""shoal: PPO on hundreds to thousands of environments at once, measured honestly.

>>> import shoal
>>> envs = shoal.make_vec("CartPole-v1", 4, backend="serial")
>>> envs.num_envs
4
>>> envs.close()
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.evaluate import evaluate
    from shoal.learn.deploy import load_policy
    from shoal.search.api import WorkflowSearch
    from shoal.train import train
    from shoal.vector.make import make_vec

from shoal.tasks.registration import register

__version__ = "0.1.0"
__all__ = ["WorkflowSearch", "__version__", "evaluate", "load_policy", "make_vec", "train"]

_HOMES = {
    "WorkflowSearch": "shoal.search.api",
    "evaluate": "shoal.evaluate",
    "load_policy": "shoal.learn.deploy",
    "make_vec": "shoal.vector.make",
    "train": "shoal.train",
}


class _VerbModule(types.ModuleType):
    """A module named after its one verb: `shoal.train` is the file train.py, and calling it trains."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


def __getattr__(name: str) -> Any:
    """Import on first use: `import shoal` alone does not touch torch or numba."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}; it has {', '.join(__all__)}")
    import importlib

    module = importlib.import_module(_HOMES[name])
    return module if name in ("train", "evaluate") else getattr(module, name)


def _make_callable(module: str) -> None:
    """Called by verb modules on themselves, since importing one binds its name in this package."""
    sys.modules[module].__class__ = _VerbModule


register()  # what Gymnasium expects of a package of environments: after `import shoal`, gym.make knows them
