"""The corpus of tests/gpu serves here too, and how tests/cpu runs C."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("gpu", "cpu"):
    sys.path.append(str(Path(__file__).resolve().parent.parent / folder))
