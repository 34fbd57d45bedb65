"""Filters of an image: each output a sum over the taps of a window.

``tiling``: sizes, and a schedule as data. ``limits``: which of them a target has room for.
``space``: those worth a thought. ``cost``: microseconds of one on a GPU. ``choice``: the best of
them.
"""

from __future__ import annotations

from selector.families.windows.choice import candidates, pick, ranked, ranked_made
from selector.families.windows.cost import Estimate, estimate, worth_rounding
from selector.families.windows.limits import why_not
from selector.families.windows.space import space
from selector.families.windows.tiling import Axis, Shape, Tiling

__all__ = [
    "Axis",
    "Estimate",
    "Shape",
    "Tiling",
    "candidates",
    "estimate",
    "pick",
    "ranked",
    "ranked_made",
    "space",
    "why_not",
    "worth_rounding",
]
