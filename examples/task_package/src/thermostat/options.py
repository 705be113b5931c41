"""The options of the task: flags of `shoal train thermostat`, kept with the run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RoomOptions:
    """The room, and the temperature to keep."""

    target_c: float = 21.0
    """Temperature to keep, in degrees Celsius."""
    leak: float = 0.1
    """Share of the difference to outside that is lost in a step."""
    horizon: int = 48
    """Steps of an episode."""

    def __post_init__(self) -> None:
        if not 0 < self.leak < 1:
            raise ValueError(f"expected --leak between 0 and 1, got {self.leak}")
        if self.horizon < 1:
            raise ValueError(f"expected --horizon of at least 1, got {self.horizon}")
