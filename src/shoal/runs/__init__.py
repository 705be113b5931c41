"""Run folders, checkpoints, trackers and the terminal. Knows nothing of torch, environments or tasks."""

from shoal.runs.checkpoint import Checkpoint, CheckpointError, NoCheckpoint, load_latest, save
from shoal.runs.folder import Run
from shoal.runs.lock import Locked

__all__ = ["Checkpoint", "CheckpointError", "Locked", "NoCheckpoint", "Run", "load_latest", "save"]
