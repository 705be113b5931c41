"""The environment of a run: its arguments, and whether a saved run may make it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from shoal.config import TrainConfig
from shoal.core.checks import shown
from shoal.runs.trackers import own_places
from shoal.vector.foreign import check_trusted


def check_environment(
    config: TrainConfig, env: Any, imports: Sequence[str], cure: str, purpose: str, *, training: bool = False
) -> None:
    """Of a saved run: is its environment to be had again, without importing anything that only its folder names? For
    `training` neither may its callbacks and trackers."""
    own = (*config.callbacks, *own_places(config.run.track)) if training else ()
    if env is not None:
        check_trusted("", (), own, imports, cure)
        return
    if config.given:
        raise ValueError(
            f"the run was trained on an environment that was given from Python, {config.given}, and no id can make it "
            f"again: {purpose} from Python with env=, as it was trained"
        )
    check_trusted(config.task, config.imports, (*config.wrappers, *own), imports, cure)


def parse_env_kwargs(text: str) -> dict[str, Any]:
    """`--env-kwargs` as a dict."""
    try:
        kwargs = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"expected --env-kwargs as a JSON object like '{{\"g\": 9.81}}', got {shown(text)}: {error}"
        ) from None
    if not isinstance(kwargs, dict):
        raise ValueError(f"expected --env-kwargs as a JSON object, got {shown(text)}")
    return kwargs
