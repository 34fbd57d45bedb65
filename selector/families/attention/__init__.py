"""Attention, ``softmax(Q K') V`` with a function of the scores, in one loop over the keys.

``tiling``: sizes, and a schedule as data. ``space``: those that a target takes. ``cost``:
microseconds of one on a GPU. ``choice``: the best of them.
"""

from __future__ import annotations

from selector.families.attention.choice import pick, ranked, together
from selector.families.attention.cost import Estimate, estimate
from selector.families.attention.space import FEWEST_KEYS, for_warps, space, usual
from selector.families.attention.tiling import Shape, Tiling

__all__ = [
    "FEWEST_KEYS", "Estimate", "Shape", "Tiling", "estimate", "for_warps", "pick", "ranked",
    "space", "together", "usual",
]  # fmt: skip
