"""Sums over channels and the taps of a window of pixels: layers of a network.

``tiling``: sizes, and a schedule as data. ``choice``: those that a machine takes, best first.
"""

from __future__ import annotations

from selector.families.layers.choice import (
    VECTOR,
    candidates,
    copying,
    copying_weights,
    microseconds,
    worth_turning,
)
from selector.families.layers.tiling import Shape, Tiling

__all__ = [
    "VECTOR", "Shape", "Tiling", "candidates", "copying", "copying_weights", "microseconds",
    "worth_turning",
]  # fmt: skip
