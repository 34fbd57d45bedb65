"""CUDA wrappers of the m16n8 tensor instructions, made from the types of an instruction record.

Every warp-level record (wmma and mma alike) is issued as ``mma.sync`` m16n8 pieces: their register
layout is part of the PTX ISA (section "Matrix Fragments for mma.m16n8k16"), so that operands come
by ``ldmatrix`` from raw memory and results are finished in registers, where the layout of ``wmma``
fragments is unspecified. The hardware executes the same HMMA or IMMA either way. A block of depth
is 16 bytes; the full form takes two, the short form one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from selector.intrinsics.records import TensorInstruction
from selector.ir.types import Kind, Type

# Of a 16 x 8 accumulator, by its type: C type, constraint of PTX, registers of a lane.
_PIECES = {"f16": ("u32", "r", 2), "f32": ("float", "f", 4), "s32": ("int", "r", 4)}

HELD_TOGETHER = 32  # pieces of accumulators in one statement: as many as an instruction has


def _ptx_type(t: Type) -> str:
    prefix = {Kind.FLOAT: "f", Kind.BFLOAT: "bf", Kind.INT: "s", Kind.UINT: "u"}[t.kind]
    return f"{prefix}{t.bits}"


@dataclass(frozen=True, slots=True)
class MatrixForm:
    """One m16n8 form: the name of its wrapper and the source."""

    name: str
    source: str


def accumulator_declaration(t: Type, name: str, fragments: int) -> str:
    """Registers of ``fragments`` 16 x 8 accumulators; two halves share one register."""
    match t.kind, t.bits:
        case Kind.FLOAT, 16:
            return f"u32 {name}[{fragments}][2];"
        case Kind.FLOAT, 32:
            return f"float {name}[{fragments}][4];"
        case _:
            return f"int {name}[{fragments}][4];"


@lru_cache(maxsize=256)
def matrix_form(instruction: TensorInstruction, depth_blocks: int) -> MatrixForm:
    """The m16n8 form over one or two 16-byte blocks of depth; its operands change places where the
    instruction's m is too short for it (``lowering.fragments.is_swapped``)."""
    a, b, c = (_ptx_type(t) for t in (instruction.a_type, instruction.b_type, instruction.c_type))
    if instruction.m % 16:
        a, b = b, a
    k = depth_blocks * 16 // instruction.a_type.bytes
    name = f"mma_m16n8k{k}_{a}_{b}_{c}" if a != b else f"mma_m16n8k{k}_{a}_{c}"
    return MatrixForm(name, _wrapper(name, f"m16n8k{k}.row.col.{c}.{a}.{b}.{c}", c, depth_blocks))


def _wrapper(name: str, form: str, c: str, depth_blocks: int) -> str:
    ctype, constraint, count = _PIECES[c]
    a = [f"a{i}" for i in range(2 * depth_blocks)]
    b = [f"b{i}" for i in range(depth_blocks)]
    d = ", ".join(f"%{i}" for i in range(count))
    left = ", ".join(f"%{count + i}" for i in range(len(a)))
    right = ", ".join(f"%{count + len(a) + i}" for i in range(len(b)))
    outputs = ", ".join(f'"+{constraint}"(d[{i}])' for i in range(count))
    inputs = ", ".join(f'"r"({v})' for v in (*a, *b))
    arguments = ", ".join(f"u32 {v}" for v in (*a, *b))
    return (
        f"__device__ __forceinline__ void {name}({ctype} (&d)[{count}], {arguments}) {{\n"
        f'  asm volatile("mma.sync.aligned.{form} {{{d}}}, {{{left}}}, {{{right}}}, {{{d}}};"\n'
        f"    : {outputs} : {inputs}); }}\n"
    )


def warpgroup_form(
    instruction: TensorInstruction, n: int, across_a: bool | None, across_b: bool, *, fresh: bool
) -> MatrixForm:
    """wgmma m64n``n`` with both operands in shared memory, named by descriptors; ``across_a`` None:
    with the first one in four registers. ``fresh``: the accumulators need no value before.

    ``across_a``, ``across_b``: the operand's rows m or n, not its depth, run along memory; operands
    of bytes have no such form. The accumulators are ``n / 8`` pieces in a row (PTX ISA,
    "wgmma.mma_async").
    """
    a, b, c = (_ptx_type(t) for t in (instruction.a_type, instruction.b_type, instruction.c_type))
    ctype, constraint, count = _PIECES[c]
    shape = f"m64n{n}k{instruction.k}"
    left = "r" if across_a is None else "nt"[across_a]
    types = f"{a}_{b}_{c}" if a != b else f"{a}_{c}"
    name = f"wgmma_{shape}_{types}_{left}{'t' if across_b else 'n'}{'_fresh' * fresh}"
    total = n // 8 * count
    places = [(i // count, i % count) for i in range(total)]
    d = ", ".join(f"%{i}" for i in range(total))
    way = "=" if fresh else "+"
    outputs = ", ".join(f'"{way}{constraint}"(d[{i}][{e}])' for i, e in places)
    # Whether to add to the accumulators; for floats also signs, and which operands lie across.
    sides = [across_b] if across_a is None else [across_a, across_b]
    modes = ", ".join([str(int(not fresh)), "1", "1", *(str(int(x)) for x in sides)])
    if not instruction.a_type.is_float:
        modes = str(int(not fresh))
    operands, inputs, arguments = _group_operands(total, across_a is None)
    source = (
        f"__device__ __forceinline__ void {name}({ctype} (*d)[{count}], {arguments}) {{\n"
        f'  asm volatile("wgmma.mma_async.sync.aligned.{shape}.{c}.{a}.{b} {{{d}}}, "\n'
        f'    "{operands}, {modes};"\n'
        f"    : {outputs}\n"
        f"    : {inputs}); }}\n"
    )
    return MatrixForm(name, source)


def hold_form(pieces: int, *, half: bool, integer: bool) -> MatrixForm:
    """Accumulators of a group are read after this, not before: volatile statements stay in order.

    It does not claim memory, through which the compiler would look once for each of them.
    """
    kind = "f16" if half else "s32" if integer else "f32"
    ctype, constraint, count = _PIECES[kind]
    name = f"group_hold_{pieces}_{kind}"
    lines = [f"__device__ __forceinline__ void {name}({ctype} (&d)[{pieces}][{count}]) {{"]
    for first in range(0, pieces, HELD_TOGETHER):
        part = range(first, min(first + HELD_TOGETHER, pieces))
        places = ", ".join(f'"+{constraint}"(d[{i}][{e}])' for i in part for e in range(count))
        lines.append(f'  asm volatile("" : {places});')
    return MatrixForm(name, "\n".join([*lines, "}\n"]))


def _group_operands(first: int, held: bool) -> tuple[str, str, str]:
    """Operands of wgmma from PTX's number ``first`` on: their places, constraints, parameters."""
    if not held:
        return f"%{first}, %{first + 1}", '"l"(a), "l"(b)', "u64 a, u64 b"
    left = [f"a{i}" for i in range(4)]
    places = ", ".join(f"%{first + i}" for i in range(4))
    return (
        f"{{{places}}}, %{first + 4}",
        ", ".join([*(f'"r"({x})' for x in left), '"l"(b)']),
        ", ".join([*(f"u32 {x}" for x in left), "u64 b"]),
    )
