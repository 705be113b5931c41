"""The search for scripts: `shoal.WorkflowSearch(domain="gridworld").run()`, a thin layer over the same code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from shoal.search.domain import Say, default_config
from shoal.search.loop import SearchResult, search
from shoal.search.options import SearchConfig


class WorkflowSearch:
    """In which order? The options of `shoal search` under the names that scripts use; `options` are the domain's own.

    >>> found = WorkflowSearch(domain="gridworld", n_workflows=4, seed=1)
    >>> found.config.workflows, found.config.num_envs, found.config.compliance_threshold
    (4, 25, 0.95)
    """

    def __init__(
        self,
        *,
        domain: str,
        n_envs: int = 25,
        n_workflows: int = 20,
        train_episodes_per_env: int | None = None,
        compliance_threshold: float = 0.95,
        min_episodes: int = 10,
        update_every_steps: int = 100,
        strategy: str = "ucb",
        parallel: int = 1,
        start: str = "nearest",
        universal: bool = False,
        seed: int = 0,
        name: str | None = None,
        runs_dir: str = "runs",
        **options: Any,
    ) -> None:
        default = default_config(domain)
        self.config = SearchConfig(
            domain=domain,
            workflows=n_workflows,
            strategy=cast(Any, strategy),  # checked there
            parallel=parallel,
            start=cast(Any, start),
            universal=universal,
            num_envs=n_envs,
            episodes_per_env=default.episodes_per_env if train_episodes_per_env is None else train_episodes_per_env,
            min_episodes=min_episodes,
            update_every_steps=update_every_steps,
            compliance_threshold=compliance_threshold,
            seed=seed,
            name=name,
            runs_dir=runs_dir,
        )
        self.options = options

    def run(self, *, resume: str | Path | None = None, say: Say = lambda text: None) -> SearchResult:
        """Search, or go on with a search of the same settings; `say` hears of each pull."""
        return search(self.config, self.options, resume=resume, say=say)
