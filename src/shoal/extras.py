"""Optional packages and the extra that brings them: `pip install "shoal[rides]"`. pyproject.toml lists them as well."""

from __future__ import annotations

import importlib.util
import sys
from importlib import metadata

EXTRAS = {  # the first that has a package is the one to name for it
    "report": (),  # of old commands: pages need nothing more
    "search": ("sklearn", "scipy", "matplotlib"),
    "rides": ("pyvrp", "scipy", "matplotlib"),
    "cage2": ("matplotlib",),
    "video": ("PIL", "imageio_ffmpeg"),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "ray": ("ray",),
    "atari": ("ale_py",),
    "minigrid": ("minigrid",),
    "tune": ("optuna",),
    "peers": ("stable_baselines3",),
}


def installed(package: str) -> bool:
    """Whether a package can be imported. Nothing is.

    >>> installed("numpy"), installed("no_such_package")
    (True, False)
    """
    if package in sys.modules:  # None stands there for one that must not be imported
        return sys.modules[package] is not None
    return importlib.util.find_spec(package) is not None


def missing(extra: str) -> list[str]:
    """Packages of an extra that are not installed. Nothing is imported.

    >>> missing("cage2")
    []
    """
    return [package for package in EXTRAS[extra] if not installed(package)]


def require(extra: str, purpose: str) -> None:
    """Refuse before any work is done, if a package is not there that it will need."""
    lacking = missing(extra)
    if lacking:
        are = "is" if len(lacking) == 1 else "are"
        raise ModuleNotFoundError(
            f"{purpose} needs {' and '.join(lacking)}, which {are} not installed: {install(extra)}", name=lacking[0]
        )


def install(extra: str) -> str:
    """What to type."""
    return f'pip install "shoal[{extra}]"'


def version(package: str) -> str | None:
    """The version of a package that can be imported, or None. Nothing is imported.

    >>> version("numpy") is None, version("no-such-package")
    (False, None)
    """
    try:
        return metadata.version(package) if installed(package) else None
    except metadata.PackageNotFoundError:
        return None


def extra_of(package: str) -> str | None:
    """The extra that brings a package, or None if none does.

    >>> extra_of("pyvrp"), extra_of("box2d")
    ('rides', None)
    """
    return next((extra for extra, packages in EXTRAS.items() if package in packages), None)
