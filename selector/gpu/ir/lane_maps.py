"""Which lane has which element in which register, of the operands of tensor instructions.

One map serves the m16n8 of a warp and the m64nN of the four warps of a group, which have 16 rows
each: lane 4 g + q of a warp has elements (g, 2q), (g, 2q+1), (g+8, 2q), (g+8, 2q+1) of 8 columns.
Depth is counted in bytes; registers have 32 bits, so that two elements of 16 bits, which lie in
registers of their own here, share one. Source: PTX ISA, "Matrix Fragments for mma.m16n8k16",
"Register Fragments for wgmma.mma_async.m64nNk16".
"""

from __future__ import annotations

from itertools import product

from selector.gpu.ir.layouts import strided

# Of (row, column), (row, depth), (column, depth).
ACCUMULATOR = strided(
    "digits(8, 4 * lane, 2, 2 * register, warp), digits(2, register, 4, lane, 4 * register)"
)
LEFT = strided("digits(8, 4 * lane, 2, register, warp), digits(4, 1, 4, lane, 2 * register)")
RIGHT = strided("4 * lane, digits(4, 1, 4, lane, register)")
BLOCK = strided("4 * lane, digits(4, 1, 4, lane)")  # 8 rows x 16 bytes: of any operand a register

# One number for each row, the same for the four lanes that have it: of a warp's rows, a group's.
ROWS = {
    16: strided("digits(8, 4 * lane, register)"),
    64: strided("digits(8, 4 * lane, 2, register, 4, warp, 2 * register)"),
}

_FIRST = {"lane": 0, "warp": 0}  # whose first element is the first of all

ELEMENTS = tuple(
    at for at in product(range(16), range(8)) if _FIRST.items() <= ACCUMULATOR(*at).items()
)
"""Rows and columns from a lane's first element of an accumulator to the one in each register."""
PAIRS = tuple(e for e, (_, column) in enumerate(ELEMENTS) if not column)
"""The registers with which two neighbours of a row begin."""
BLOCKS = tuple(
    (row, depth) for depth, row in product((0, 16), range(16))
    if _FIRST.items() <= LEFT(row, depth).items()
)  # fmt: skip
"""Rows and bytes of depth from a lane's first word of a left operand to that in each register."""
