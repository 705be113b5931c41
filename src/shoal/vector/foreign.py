"""Environments and wrappers of other packages, by name: `module:Env-v0`, `--import module`, `--wrapper module:Class`.

Gymnasium knows an environment only after the module that registers it was imported, here and in every worker. To
import is to run that module's code: what the user names is imported, what a run folder names is not (`check_trusted`).
"""

from __future__ import annotations

import copy
import difflib
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from shoal.extras import extra_of, install, installed

T = TypeVar("T")
Wrap = str | Callable[[Any], Any]  # `module:Class`, or what takes an environment and gives one
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# Who registers what, by the beginning of the id: (package to install, module to import). These modules are imported for
# an id of theirs without being named.
_PACKAGES = {
    "ALE/": ("ale-py", "ale_py"),
    "MiniGrid-": ("minigrid", "minigrid"),
    "BabyAI-": ("minigrid", "minigrid"),
    "MinAtar/": ("minatar", "minatar"),
    "highway-": ("highway-env", "highway_env"),
    "parking-": ("highway-env", "highway_env"),
    "Fetch": ("gymnasium-robotics", "gymnasium_robotics"),
    "AntMaze_": ("gymnasium-robotics", "gymnasium_robotics"),
    "PointMaze_": ("gymnasium-robotics", "gymnasium_robotics"),
    "Adroit": ("gymnasium-robotics", "gymnasium_robotics"),
    "FrankaKitchen": ("gymnasium-robotics", "gymnasium_robotics"),
}
KNOWN = frozenset(module for _, module in _PACKAGES.values())  # a run folder may name these: shoal itself does


def module_of(env_id: str) -> str | None:
    """The module that an id names, if it names one.

    >>> module_of("minigrid:MiniGrid-Empty-5x5-v0"), module_of("CartPole-v1")
    ('minigrid', None)
    """
    module, colon, _ = env_id.partition(":")
    return module if colon else None


def modules_of(env_id: str, imports: Sequence[str], wrappers: Sequence[str]) -> list[str]:
    """All modules that these name, each once."""
    named = [module_of(env_id), *imports, *(module_of(place) or place for place in wrappers)]
    return list(dict.fromkeys(name for name in named if name is not None))


def import_flags(modules: Sequence[str]) -> str:
    """What to type for these modules; a package stands for those inside it, and what is always there goes unsaid.

    >>> import_flags(["strolls", "strolls.wrappers", "gymnasium.wrappers", "minigrid"])
    '--import strolls'
    """
    outer = [name for name in modules if not any(name.startswith(f"{other}.") for other in modules)]
    known = ("gymnasium", "shoal", *KNOWN)
    return " ".join(f"--import {name}" for name in outer if name.partition(".")[0] not in known)


def import_all(modules: Sequence[str]) -> None:
    """Import modules for what they register."""
    for name in modules:
        if not _MODULE.fullmatch(name):
            raise ValueError(f"expected --import as the name of a module, like minigrid or my.package, got {name!r}")
        if name in sys.modules:
            continue
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a module does when it is imported
            missing = isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}.")
            extra = extra_of(name)
            cure = install(extra) if extra else "install its package, or put its folder on PYTHONPATH"
            why = (
                f"there is no such module here: {cure}"
                if missing
                else f"its import failed with {type(error).__name__}: {error}"
            )
            raise ImportError(f"cannot import {name}: {why}") from error


def load_class(place: str, flag: str, like: str, base: type[T]) -> type[T]:
    """The class at `module:Class`, which `flag` names, derived from `base`."""
    module, colon, name = place.partition(":")
    if not colon or not name.isidentifier():
        raise ValueError(f"expected {flag} as module:Class, like {like}, got {place!r}")
    import_all([module])
    found = vars(sys.modules[module]).get(name)
    if not (isinstance(found, type) and issubclass(found, base)):
        got = f"{module} has no {name}" if found is None else f"got {found!r}"
        derived = f"{base.__module__.partition('.')[0]}.{base.__name__}"
        raise ValueError(f"expected {flag} {place} to be a class derived from {derived}; {got}")
    return found


def load_wrapper(place: str) -> type[gym.Wrapper[Any, Any, Any, Any]]:
    """The wrapper at `module:Class`."""
    found = load_class(place, "--wrapper", "gymnasium.wrappers:FlattenObservation", gym.Wrapper)
    try:
        inspect.signature(found).bind(None)
    except TypeError as error:
        raise ValueError(
            f"expected --wrapper {place} to need the environment alone, got {error}: derive a class that fills in "
            "the rest"
        ) from None
    return found


def check_trusted(
    env_id: str, imports: Sequence[str], wrappers: Sequence[str], named: Sequence[str], cure: str
) -> None:
    """Refuse to import what only a run folder names: whoever wrote its config.json would choose the code that runs.

    `named` is what the user says now (a package covers its modules); what is imported already does no harm. `cure` is
    the command to type, without its `--import`s.
    """
    unknown = [
        name
        for name in modules_of(env_id, imports, wrappers)
        if name not in sys.modules and not any(f"{name}.".startswith(f"{trusted}.") for trusted in (*named, *KNOWN))
    ]
    if unknown:
        raise ValueError(
            f"the run's config.json names modules to import: {', '.join(unknown)}. To import a module is to run its "
            f"code, and a run folder may come from anybody, so shoal imports only what you name yourself. If you trust "
            f"it, type\n  {cure} {import_flags(unknown)}\nor import it first, from Python"
        )


def find_spec(env_id: str) -> EnvSpec:
    """The registered environment of that id, after importing the module that stands before a colon. An unknown one
    names the nearest."""
    module, name = module_of(env_id), env_id.rpartition(":")[2]
    if module is not None:
        try:
            import_all([module])
        except ImportError as error:
            raise ValueError(f"no environment {env_id!r}: {error}") from error
    elif name not in gym.registry:
        import_all([one for start, (_, one) in _PACKAGES.items() if name.startswith(start) and installed(one)])
    try:
        return gym.spec(name)
    except (gym.error.Error, ImportError) as error:
        # Gymnasium's own guess knows fewer names, and where it names the cure there is nothing to guess.
        what = str(error).split(" Did you mean")[0].rstrip(".?")
        raise ValueError(f"no environment {env_id!r}: {_cure(name, what, error)}") from None


def _cure(name: str, what: str, error: Exception) -> str:
    if isinstance(error, gym.error.DeprecatedEnv | gym.error.VersionNotFound):
        return f"{what}."
    for beginning, (package, module) in _PACKAGES.items():
        if name.startswith(beginning) and not installed(module):
            extra = extra_of(module)
            cure = install(extra) if extra else f"pip install {package}"
            return f"it comes with the package {package}, which is not installed: {cure}"
    near = difflib.get_close_matches(name, list(gym.registry), 3, 0.6)
    near = [one for one in near if one.partition("/")[0] == name.partition("/")[0] or "/" not in name]
    if near:
        return f"{what}. Did you mean {', '.join(near)}?"
    return (
        f"{what.partition('. ')[0]}. `shoal tasks` lists what there is; an environment of another package needs the "
        "module that registers it: --import MODULE, or MODULE:ID"
    )


class Maker:
    """Makes one environment by its specification, which travels: a worker need not know the id."""

    def __init__(
        self, spec: EnvSpec, kwargs: dict[str, Any], imports: Sequence[str] = (), wrappers: Sequence[Wrap] = ()
    ) -> None:
        self.spec, self.kwargs, self.imports, self.wrappers = copy.copy(spec), kwargs, tuple(imports), tuple(wrappers)
        if isinstance(spec.entry_point, str) and spec.entry_point.startswith("__main__:"):
            creator: Any = load_env_creator(spec.entry_point)
            self.spec.entry_point = creator  # a worker has another `__main__`

    def __call__(self) -> gym.Env[Any, Any]:
        import_all(self.imports)
        env = gym.make(self.spec, disable_env_checker=True, **self.kwargs)
        return wrapped(env, self.wrappers)


def around(make: Callable[[], gym.Env[Any, Any]], wrappers: Sequence[Wrap]) -> Callable[[], gym.Env[Any, Any]]:
    """A function that makes an environment with these wrappers around it."""
    return functools.partial(_made_and_wrapped, make, wrappers) if wrappers else make


def _made_and_wrapped(make: Callable[[], gym.Env[Any, Any]], wrappers: Sequence[Wrap]) -> gym.Env[Any, Any]:
    return wrapped(make(), wrappers)


def wrapped(env: gym.Env[Any, Any], wrappers: Sequence[Wrap]) -> gym.Env[Any, Any]:
    """The environment with these around it, innermost first."""
    for one in wrappers:
        env = (load_wrapper(one) if isinstance(one, str) else one)(env)
    return env


def is_compiled(env: Any) -> bool:
    """Is this a CompiledEnv, by object, by class or by id? Looks only; numba is imported when one is made."""
    if isinstance(env, str):
        spec = find_spec(env)
        return spec.namespace == "shoal" and spec.vector_entry_point is not None
    module = sys.modules.get("shoal.compiled.env")  # not imported yet: then nobody can have made one
    if module is None:
        return False
    return isinstance(env, module.CompiledEnv) or (isinstance(env, type) and issubclass(env, module.CompiledEnv))
