"""Names that run folders of earlier versions hold, and what they are called now. The only such table."""

from __future__ import annotations

NETWORKS = {"shoal.tasks.rides.network:make_network": "rides"}  # 0.1.0 wrote a place; now it is a task's name
