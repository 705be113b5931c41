"""The search for scripts: `shoal.WorkflowSearch(domain="gridworld").run()`, a thin layer over the same code."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from shoal.search.domain import Say, default_config
from shoal.search.loop import SearchResult, search
from shoal.search.options import SearchConfig

# Names that scripts use beside those of the flags.
_NAMES = {"n_envs": "num_envs", "n_workflows": "workflows", "train_episodes_per_env": "episodes_per_env"}


class WorkflowSearch:
    """In which order? `options` are those of `shoal search`, with n_workflows, n_envs and train_episodes_per_env for
    workflows, num_envs and episodes_per_env, and the domain's own.

    >>> found = WorkflowSearch(domain="gridworld", n_workflows=4, seed=1)
    >>> found.config.workflows, found.config.num_envs, found.config.compliance_threshold
    (4, 25, 0.95)
    """

    def __init__(self, *, domain: str, **options: Any) -> None:
        named = {_NAMES.get(name, name): value for name, value in options.items()}
        common = {one.name for one in dataclasses.fields(SearchConfig)} & set(named)
        changes = {name: named.pop(name) for name in common}
        if changes.get("episodes_per_env", 0) is None:  # the domain's own
            del changes["episodes_per_env"]
        self.config = dataclasses.replace(default_config(domain), **changes)
        self.options = named

    def run(self, *, resume: str | Path | None = None, say: Say = lambda text: None) -> SearchResult:
        """Search, or go on with a search of the same settings; `say` hears of each pull."""
        return search(self.config, self.options, resume=resume, say=say)
