"""What Gymnasium asks of a batch (tests/vector/test_gymnasium.py), asked of `--backend ray`: a part, for the time that
actors take to start."""

from __future__ import annotations

import pytest
import test_gymnasium as asked

pytestmark = pytest.mark.usefixtures("ray")


@pytest.mark.parametrize(
    "name",
    [
        "test_next_step",
        "test_same_step",
        "test_np_random_seed",
        "test_different_spaces_are_refused",
        "test_call_and_attributes",
    ],
)
def test_a_batch_of_actors(name: str) -> None:
    """Autoreset in both modes, seeds, attributes, actions, spaces."""
    getattr(asked, name)("ray")


def test_backends_are_equal() -> None:
    """Spaces, observations, rewards, flags and infos are those of serial."""
    asked.test_backends_are_equal("ray", "next_step")


def test_wrappers() -> None:
    """One that looks at what every step gives."""
    asked.test_wrappers_give_what_they_give_around_gymnasium("RecordEpisodeStatistics", "ray")
