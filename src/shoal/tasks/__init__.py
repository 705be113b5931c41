"""What can be trained. A task is a Gymnasium (vector) environment that does not know it is being trained."""

from __future__ import annotations

ABOUT = {
    "CartPole-v1": "balance a pole; solved at a mean return of 475",
    "Acrobot-v1": "swing a two-link arm up; good at -100",
    "Pendulum-v1": "swing a pendulum up with limited torque; good at -300",
    "MountainCarContinuous-v0": "rock a weak car out of a valley; good at 90",
    "shoal/CartPole-v1": "CartPole's dynamics as a compiled environment, thousands at a time",
    "shoal/GridWorld-v0": "a small compiled grid world with an action mask",
}


def listing() -> list[dict[str, str]]:
    """The tasks that ship with settings of their own."""
    return [{"task": task, "about": about} for task, about in ABOUT.items()]
