"""Filters of an image: each output a sum over the taps of a window.

``tiling``: sizes, and a schedule as data. ``usual``: one for any number of outputs.
"""

from __future__ import annotations

from selector.families.windows.choice import candidates
from selector.families.windows.tiling import Axis, Shape, Tiling
from selector.families.windows.usual import groups, usual

__all__ = ["Axis", "Shape", "Tiling", "candidates", "groups", "usual"]
