"""Operands of wgmma in shared memory, as its descriptors name them.

A descriptor has the address of an operand's first element and two steps (PTX ISA, "Matrix
Descriptor Format", "Strides"): rows of 8 lie ``stride`` bytes apart, and what is no neighbour in a
row of a swizzle, or in a core matrix, ``leading`` bytes. Rows are an operand's rows, with its depth
along them, or, ``across``, numbers of its depth, with its rows (m or n) along them.
"""

from __future__ import annotations

from typing import Any

from selector.gpu.ir.layouts import BYTE, CHUNK, GROUP_ROWS, Composed, Strided, Swizzle

Steps = tuple[int, int, int]  # leading and stride bytes, bytes of a row (0: no swizzle)


def steps_of(layout: Composed, *, across: bool) -> Steps:
    """Of an operand in swizzled rows, which ``layout`` gives a byte by row and column."""
    swizzle, inner = layout.outer, layout.inner
    assert isinstance(swizzle, Swizzle)
    assert isinstance(inner, Strided)
    width = swizzle.row // inner(0, 1)[BYTE]
    leading = inner(0, width)[BYTE] if across else CHUNK  # of no meaning along swizzled rows
    return leading, inner(GROUP_ROWS, 0)[BYTE], swizzle.row


def byte_read(steps: Steps, row: Any, byte: Any) -> Any:
    """Where wgmma finds a byte of a row, from the first one on, before it turns chunks by the
    address.
    """
    leading, stride, swizzle = steps
    width = swizzle or CHUNK
    return (
        row % GROUP_ROWS * width + row // GROUP_ROWS * stride
        + byte % width + byte // width * leading
    )  # fmt: skip
