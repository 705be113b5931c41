"""The networks that tasks bring. A checkpoint names one by its task: what is not registered is not even imported."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from shoal.learn.deploy import DeployedPolicy, read_policy
from shoal.learn.policy import OwnNetwork
from shoal.tasks.aliases import NETWORKS
from shoal.tasks.registry import find, load_all
from shoal.tasks.task import Task, plain


def own_network(name: str, kwargs: Mapping[str, Any]) -> OwnNetwork | None:
    """The network that a task brings for these arguments of its environment, if it brings one."""
    task = find(name)
    return None if task is None or not _brings_one(task) else _of(task, task.options(kwargs))


def resolve(name: str, options: dict[str, Any]) -> OwnNetwork:
    """The network that a checkpoint names."""
    name = NETWORKS.get(name, name)
    task = find(name)
    if task is None or not _brings_one(task):
        known = ", ".join(task.name for task in load_all()[0] if _brings_one(task)) or "there is none"
        raise ValueError(
            f"the network is that of {name!r}: expected a task that is installed and brings a network ({known}). "
            "Install the package that brings it, or give network="
        )
    return _of(task, task.options(options))


def _of(task: Task, options: Any) -> OwnNetwork:
    return OwnNetwork(task.name, plain(options), lambda spaces, config: task.network(options, spaces, config))


def _brings_one(task: Task) -> bool:
    return type(task).network is not Task.network


def load_policy(
    run: str | Path,
    *,
    epoch: int | None = None,
    checkpoint: str | int | None = None,
    network: nn.Module | None = None,
    runs_dir: str | Path = "runs",
) -> DeployedPolicy:
    """The policy of a run: the best by the evaluations while it trained (`--evaluate-every`), if there were any, else
    the newest. `checkpoint` may be "last", "best" or an epoch kept (`epoch=40` is the same). A network of your own is
    given as `network`.

    `policy.epoch` says which epoch it is, and `policy.chosen` why, where it is not the newest. Warns where a newer
    checkpoint is damaged and an older one is used.
    """
    policy = read_policy(run, resolve, epoch=epoch, checkpoint=checkpoint, network=network, runs_dir=runs_dir)
    for reason in policy.skipped:
        warnings.warn(f"the policy of epoch {policy.epoch} is used: damaged checkpoint {reason}", stacklevel=2)
    return policy
