"""What kernels of whole vectors of rows (``whole_rows``) say to ``threads.row_vectors``: calls of
these names are numbers and conditions of a row of a thread.
"""

from __future__ import annotations

from selector.ir.nodes import Call
from selector.ir.types import BOOL

FIRST, ALIGNED, TOGETHER = "row.first", "row.aligned", "row.together"
MEET = "row.meet"  # all blocks of the row have begun
ALL, ANYWHERE = (Call(BOOL, name, ()) for name in ("row.whole", "row.anywhere"))
"""The predicates of stores all of whose lanes are elements of a row: of what stays from vectors
that begin at multiples, or anywhere, and of all others.
"""
