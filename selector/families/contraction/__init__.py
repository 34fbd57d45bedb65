"""Sums of products of two operands: ``C[m, n] = f(sum_k A[m, k] * B[k, n])``.

``tiling``: sizes, and a schedule as data. ``limits``: which of them a target takes. ``space``:
those worth a thought at a size. ``cost``: microseconds of one on a GPU. ``usual``: the
tilings that are measured best. ``choice``: the one to have.
"""

from __future__ import annotations

from selector.families.contraction.choice import pick, ranked
from selector.families.contraction.cost import Estimate, estimate
from selector.families.contraction.limits import why_not
from selector.families.contraction.space import space, worth_copying
from selector.families.contraction.tiling import Shape, Tiling
from selector.families.contraction.usual import usual

__all__ = [
    "Estimate",
    "Shape",
    "Tiling",
    "estimate",
    "pick",
    "ranked",
    "space",
    "usual",
    "why_not",
    "worth_copying",
]
