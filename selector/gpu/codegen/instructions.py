"""The records of the program's tensor instructions as those of the kernel IR, and the fragments
that they add to.
"""

from __future__ import annotations

from functools import cache

from selector.gpu.ir.lane_maps import ACCUMULATOR
from selector.gpu.ir.products import Fragment, Record
from selector.intrinsics.records import TensorInstruction
from selector.ir.float8 import FORMATS
from selector.ir.types import Kind, Type
from selector.lowering.fragments import BLOCK_BYTES


def ptx_type(t: Type) -> str:
    """What PTX calls the type of an operand or of a sum."""
    if t in FORMATS:
        return str(t)
    prefix = {Kind.FLOAT: "f", Kind.BFLOAT: "bf", Kind.INT: "s", Kind.UINT: "u"}[t.kind]
    return f"{prefix}{t.bits}"


@cache
def warp_record(instruction: TensorInstruction, depth_blocks: int) -> Record:
    """m16n8 over one or two 16-byte blocks of depth; its operands change places where the
    instruction's m is too short for it (``lowering.fragments.is_swapped``).
    """
    a, b, c = _types(instruction)
    if instruction.m % 16:
        a, b = b, a
    return Record(16, 8, depth_blocks * BLOCK_BYTES // instruction.a_type.bytes, c, a, b)


def group_record(instruction: TensorInstruction, n: int) -> Record:
    """wgmma or tcgen05 of ``n`` columns."""
    a, b, c = _types(instruction)
    tensor = instruction.family == "tcgen05"
    return Record(instruction.m, n, instruction.k, c, a, b, tensor)


def _types(instruction: TensorInstruction) -> tuple[str, str, str]:
    a, b, c = (ptx_type(t) for t in (instruction.a_type, instruction.b_type, instruction.c_type))
    return ("tf32", "tf32", c) if instruction.rounds else (a, b, c)


def accumulators(t: Type, name: str, pieces: int) -> Fragment:
    """So many accumulators of 16 x 8 elements a warp; two halves share one register."""
    half = t.kind is Kind.FLOAT and t.bits == 16
    kind = "u32" if half else "float" if t.kind is Kind.FLOAT else "int"
    return Fragment(name, kind, (pieces, 2 if half else 4), ACCUMULATOR)
