"""Operands of wgmma and tcgen05 in shared memory, as their descriptors name them.

A descriptor has the address of an operand's first element and two steps (PTX ISA, "Matrix
Descriptor Format", "Strides"): rows of 8 lie ``stride`` bytes apart, and what is no neighbour in a
row of a swizzle, or in a core matrix, ``leading`` bytes. Of swizzled rows both families' steps mean
the same; other bits say which family it is, and which swizzle. Rows are an operand's rows, with its
depth along them, or, ``across``, numbers of its depth, with its rows (m or n) along them.
"""

from __future__ import annotations

from typing import Any

from selector.gpu.ir.layouts import BYTE, CHUNK, GROUP_ROWS, Composed, Strided, Swizzle
from selector.gpu.ir.products import Record

Steps = tuple[int, int, int]  # leading and stride bytes, bytes of a row (0: no swizzle)


def steps_of(layout: Composed, *, across: bool) -> Steps:
    """Of an operand in swizzled rows, which ``layout`` gives a byte by row and column."""
    swizzle, inner = layout.outer, layout.inner
    assert isinstance(swizzle, Swizzle)
    assert isinstance(inner, Strided)
    width = swizzle.row // inner(0, 1)[BYTE]
    leading = inner(0, width)[BYTE] if across else CHUNK  # of no meaning along swizzled rows
    return leading, inner(GROUP_ROWS, 0)[BYTE], swizzle.row


def span(steps: Steps, rows: int, depth: int, at: int, *, across: bool) -> tuple[int, int]:
    """The bytes of ``rows`` of ``depth`` bytes that are read from byte ``at`` on, and which lie
    between: the first one, and the one behind the last.
    """
    count, length = (depth, rows) if across else (rows, depth)
    last = at + byte_read(steps, count - 1, length - 1)
    whole = steps[2] or 1  # a row of a swizzle stays together
    return at // whole * whole, (last // whole + 1) * whole


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


SWIZZLE_CODES = ({128: 1, 64: 2, 32: 3}, {128: 2, 64: 4, 32: 6})
"""Of a descriptor, by its version and the bytes of a row (PTX ISA, "Matrix Descriptor Format" of
wgmma, "Shared Memory Descriptor" of tcgen05)."""

_TYPES = {"f16": 0, "bf16": 1, "u8": 0, "s8": 1}  # of operands
_SUMS = {"f16": 0, "f32": 1, "s32": 2}


def instruction_descriptor(record: Record, *, a_across: bool, b_across: bool) -> int:
    """Of an instruction of tcgen05: types, which operands lie across, shape (PTX ISA, "Instruction
    Descriptor", table for kinds f16 and i8).
    """
    types = _SUMS[record.c] << 4 | _TYPES[record.a] << 7 | _TYPES[record.b] << 10
    return types | a_across << 15 | b_across << 16 | record.n // 8 << 17 | record.m // 16 << 24
