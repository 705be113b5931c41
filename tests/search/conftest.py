"""Tests of the search find the toy domain by its module's name, as a user's own domain would be found."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
