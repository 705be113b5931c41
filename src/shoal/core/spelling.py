"""How options are spelled: aliases, other libraries' names, and flags as Python's arguments."""

from __future__ import annotations

import re
from typing import Any

# Other familiar names of options, in the shell (--lr) and from Python (lr=) alike.
ALIASES = {
    "lr": "learning_rate",
    "n_envs": "num_envs",
    "num_episodes": "episodes",
    "checkpoint_dir": "runs_dir",
    "save_dir": "runs_dir",
    "gray": "grey",
}
# What other libraries call an option: not taken, since a few differ in meaning, but pointed at.
ELSEWHERE = {
    "total_timesteps": "steps",
    "max_timesteps": "steps",
    "n_steps": "rollout_steps",
    "num_steps": "rollout_steps",
    "batch_size": "minibatch_size",
    "n_epochs": "update_epochs",
    "clip_range": "clip",
    "clip_coef": "clip",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_coef",
    "clip_range_vf": "value_clip",
    "normalize_advantage": "normalise_advantages",
    "norm_adv": "normalise_advantages",
    "anneal_lr": "lr_schedule",
    "policy_kwargs": "hidden",
    "net_arch": "hidden",
    "activation_fn": "activation",
    "tensorboard_log": "track",
    "callback": "callbacks",
}
_ARGUMENTS = {
    "import": "imports",
    "wrapper": "wrappers",
    "callback": "callbacks",
}  # of flags whose argument is not called alike


def unaliased(options: dict[str, Any]) -> dict[str, Any]:
    """Options by their own names.

    >>> unaliased({"lr": 1e-3, "seed": 1})
    {'learning_rate': 0.001, 'seed': 1}
    """
    named: dict[str, Any] = {}
    for name, value in options.items():
        own = ALIASES.get(name, name)
        if own in named:
            names = " and ".join(other for other in options if ALIASES.get(other, other) == own)
            raise ValueError(f"expected one value of {own}, got {names}: they are names of one option")
        named[own] = value
    return named


def in_python_words(text: str) -> str:
    """A message for somebody who wrote options as arguments.

    >>> in_python_words("expected --num-envs as a whole number, got 0: add --reshard")
    'expected num_envs= as a whole number, got 0: add reshard='
    """

    def spelled(found: re.Match[str]) -> str:
        return f"{_ARGUMENTS.get(found[1], found[1].replace('-', '_'))}="

    lines = text.split("\n")
    commands = [line.lstrip().startswith("shoal ") for line in lines]  # to be typed as they are
    flag = re.compile(r"--([a-z][a-z-]*[a-z])(?![a-z-])")
    return "\n".join(
        line if command else flag.sub(spelled, line) for line, command in zip(lines, commands, strict=True)
    )
