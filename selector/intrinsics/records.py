"""Tensor instructions: one frozen, self-checking record each, read by rules, interpreter, emitter
and report.

A record is the whole definition: shape, types, what the target must have, where it is specified,
and what it computes. Adding an instruction is adding a record here; the rules learn of it through
``facts`` in ``selector.eqsat.facts`` and the interpreter through
``selector.intrinsics.register_all``.

A program may call an instruction on a *block*: any multiples M of m and N of n, and any positive
reduction extent K. The block is cut into instruction tiles by the emitter, K padded with zeros up
to a multiple of k. An instruction whose tiles are configured (AMX) takes any M and N.

An instruction that reads groups of ``packing`` consecutive k of a column as one unit (AMX: pairs of
bfloat16, fours of bytes) takes its B operand in VNNI order: lanes (k / packing, n, k % packing).

An instruction of single floats rounds its operands to tf32, 11 bits of their 24; it serves only
programs that name it or its family (``rounds``).

Of bytes that are floats (``e4m3``, ``e5m2``) Ada and Hopper keep fewer bits of a sum than its type
has (``loses``). Such an instruction serves only programs that name it, or ``fp8`` (``asked``).

Where rows of A are windows of one row in memory, the instruction may fix how far they lie apart.
wgmma without a swizzle: 16 bytes. Outputs that lie further apart than pixels then fill fewer than 8
columns of it, and what one instruction takes is several such blocks side by side, with a band each
(``apart``).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from selector.dataclass import dataclass
from selector.diagnostics import UserError
from selector.ir import float8
from selector.ir.tf32 import to_tf32
from selector.ir.types import BFLOAT16, FLOAT16, FLOAT32, INT8, INT32, UINT8, Type
from selector.targets import Target

Array = NDArray[np.generic]

_WMMA = "PTX ISA 8.5, section 9.7.14.3 (wmma.mma)"
_MMA = "PTX ISA 8.5, section 9.7.14.5 (mma)"
_WGMMA = "PTX ISA 8.5, section 9.7.15.5 (wgmma.mma_async)"
_TCGEN05 = "PTX ISA 8.7, section 9.7.16.10 (tcgen05.mma)"
_AMX = "Intel SDM volume 2, TDPBF16PS and TDPBSSD/TDPBSUD/TDPBUSD/TDPBUUD"


@dataclass(frozen=True, slots=True)
class TensorInstruction:
    """``D[m, n] = C[m, n] + sum_k A[m, k] * B[k, n]`` for one tile of m x n x k elements.

    ``needs`` is the entry of ``Target.features`` without which the instruction does not exist;
    ``source`` is the section of the manual that specifies it. ``packing`` is the number of
    consecutive k that lie side by side in B (1: B is in row-major order). ``configurable`` tiles
    may have fewer rows and columns than m and n. ``apart``: a part of an instruction, for one block
    of m x n whose A is m windows so many elements apart, whose B is a band (0: a whole one).
    """

    name: str
    family: str
    m: int
    n: int
    k: int
    a_type: Type
    b_type: Type
    c_type: Type
    needs: str
    source: str
    packing: int = 1
    configurable: bool = False
    apart: int = 0

    def __post_init__(self) -> None:
        assert min(self.m, self.n, self.k) > 0, f"{self.name}: a shape is positive"
        assert self.a_type.lanes == self.b_type.lanes == self.c_type.lanes == 1
        assert self.a_type.is_float == self.c_type.is_float, f"{self.name}: accumulates in kind"
        assert f"m{self.m}n{self.n}k{self.k}" in self.name, f"{self.name}: shape is in the name"
        assert self.k % self.packing == 0, f"{self.name}: groups of k divide k"
        grouped = self.packing > 1  # the rules give these blocks of any extent
        assert self.configurable or not grouped, f"{self.name}: whole tiles with groups of k"
        assert not (self.apart and grouped), f"{self.name}: a part with groups of k"

    @property
    def shape(self) -> str:
        """The shape as it is written in PTX: ``m16n16k16``."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def rounds(self) -> bool:
        """Whether operands are rounded before they are multiplied."""
        return self.a_type == FLOAT32

    @property
    def asked(self) -> str:
        """The name without which no program gets it, its own apart; empty if any may."""
        if self.rounds:
            return "tf32"
        return "fp8" if self.a_type in float8.FORMATS else ""

    @property
    def loses(self) -> str:
        """What is lost besides the rounding of sums to their type, in words; empty if nothing is.

        The bits of sums of bytes: SageAttention2 (2024), section 3.3; DeepSeek-V3 (2024), 3.3.2.
        """
        match self.asked:
            case "tf32":
                return "operands are rounded to 11 bits: a product is off by up to 2**-10 of itself"
            case "fp8":
                return (
                    f"{self.k} products and the sum so far are added with 13 bits behind the first "
                    f"of the largest: off by up to {self.k + 1} * 2**-13 of that"
                )
            case _:
                return ""

    @property
    def reads_memory(self) -> bool:
        """Whether operands are read from shared memory, as they lie there."""
        return self.family in ("wgmma", "tcgen05")

    @property
    def granule(self) -> int:
        """Depth to which a block's K is padded: 16 bytes, since each warp-level form has a short
        one of half its depth; the others cost their full depth."""
        whole = self.configurable or self.reads_memory
        return self.k if whole else min(self.k, 16 // self.a_type.bytes)

    def issued_macs(self, block_m: int, block_n: int, block_k: int) -> int:
        """Multiply-adds performed for a block, its K padded to the granule; a configured tile takes
        a step for each row, whatever its columns."""
        columns = _up(block_n, self.n) if self.configurable else block_n
        return block_m * columns * _up(block_k, self.granule)

    def fits(self, block_m: int, block_n: int) -> bool:
        """Whether a block of these extents is a whole number of tiles."""
        if self.apart:
            return (block_m, block_n) == (self.m, self.n)
        return self.configurable or (block_m % self.m == 0 and block_n % self.n == 0)

    def count(self, block_m: int, block_n: int, block_k: int) -> int:
        """Instructions issued for a block; K is padded up to a multiple of k."""
        assert self.fits(block_m, block_n), f"{self.name}: {block_m} x {block_n}"
        return -(-block_m // self.m) * -(-block_n // self.n) * -(-block_k // self.k)

    def packed_lanes(self, k: int, n: int) -> int:
        """Lanes of a B operand of k x n elements: k is padded with zeros to whole groups."""
        return _up(k, self.packing) * n

    def semantics(self, c: Array, a: Array, b: Array) -> Array:
        """The exact tile: c is (m, n), a is (m, k), b is (k, n)."""
        assert c.shape == (self.m, self.n)
        assert a.shape == (self.m, self.k)
        assert b.shape == (self.k, self.n)
        return self.block_semantics(c, a, b)

    def block_semantics(self, c: Array, a: Array, b: Array) -> Array:
        """The block: c is (..., M, N), a (..., M, K), b (..., K, N); zero padding of K changes
        nothing.

        Products and sums of floats are taken in float32 and rounded once to the accumulator's type;
        integer sums wrap around at 32 bits, as without ``.satfinite``.
        """
        if self.c_type.is_float:
            left, right = (
                operand(x, t, even=self.reads_memory)
                for x, t in ((a, self.a_type), (b, self.b_type))
            )
            wide = c.astype(np.float32) + left @ right
            return wide.astype(np.float16 if self.c_type.bits == 16 else np.float32)
        total = c.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64)
        return total.astype(np.int32)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def operand(values: Array, scalar: Type, *, even: bool = False) -> NDArray[np.float32]:
    """Float operands as float32; bfloat16 may come as its bit pattern in uint16, floats of 8 bits
    as theirs; float32 is rounded to tf32: by the instruction's wrapper, or to ``even`` by what
    brings it to where it is read."""
    if scalar == FLOAT32:
        return to_tf32(values, even=even)
    if scalar == BFLOAT16 and values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    if scalar in float8.FORMATS and values.dtype == np.uint8:
        return float8.from_bytes(values, scalar)
    return values.astype(np.float32)


def _family(
    family: str, shapes: tuple[tuple[int, int, int], ...], types: tuple[Type, Type], source: str
) -> tuple[TensorInstruction, ...]:
    operands, accumulator = types
    prefix = {"wmma": "wmma.mma"}.get(family, family)
    suffix = f"{_short(operands)}.{_short(accumulator)}"
    return tuple(
        TensorInstruction(
            f"{prefix}.m{m}n{n}k{k}.{suffix}",
            family, m, n, k, operands, operands, accumulator, family, source,
        )
        for m, n, k in shapes
    )  # fmt: skip


def _mixed(
    family: str, shapes: tuple[tuple[int, int, int], ...], source: str
) -> tuple[TensorInstruction, ...]:
    """Signed by unsigned bytes, and unsigned by signed."""
    return tuple(
        TensorInstruction(
            f"{family}.m{m}n{n}k{k}.{_short(a)}.{_short(b)}.s32",
            family, m, n, k, a, b, INT32, family, source,
        )
        for a, b in ((INT8, UINT8), (UINT8, INT8))
        for m, n, k in shapes
    )  # fmt: skip


def _float8(
    family: str, shapes: tuple[tuple[int, int, int], ...], needs: str, source: str
) -> tuple[TensorInstruction, ...]:
    """Bytes that are floats, of either format."""
    return tuple(
        TensorInstruction(
            f"{family}.m{m}n{n}k{k}.{a if a == b else f'{a}.{b}'}.f32",
            family, m, n, k, a, b, FLOAT32, needs, source,
        )
        for a in float8.FORMATS
        for b in float8.FORMATS
        for m, n, k in shapes
    )  # fmt: skip


def _short(scalar: Type) -> str:
    """PTX's name of a type: f16, bf16, s8, u8, s32."""
    match str(scalar):
        case "bfloat16":
            return "bf16"
        case name if name.startswith("float"):
            return name.replace("float", "f")
        case name if name.startswith("uint"):
            return name.replace("uint", "u")
        case name:
            return name.replace("int", "s")


def _tf32(family: str, m: int, n: int, source: str) -> TensorInstruction:
    """Single floats, whose family is that of the memory of the accumulators."""
    needs = "mma" if family == "tf32" else family
    name = f"{needs}.m{m}n{n}k8.tf32.f32"
    return TensorInstruction(name, family, m, n, 8, FLOAT32, FLOAT32, FLOAT32, needs, source)


def _amx(name: str, k: int, a: Type, b: Type, c: Type) -> TensorInstruction:
    """Tiles of up to 16 rows of 64 bytes."""
    packing = 4 // a.bytes
    return TensorInstruction(
        f"amx.{name}.m16n16k{k}", "amx", 16, 16, k, a, b, c, "amx", _AMX, packing, True
    )


def _part(n: int, operands: Type, accumulator: Type) -> TensorInstruction:
    """``n`` columns of a wgmma of 8, whose windows are 16 bytes apart."""
    types = (operands, operands, accumulator)
    name = f"wgmma.m64n{n}k16.{_short(operands)}.{_short(accumulator)}"
    return TensorInstruction(name, "wgmma", 64, n, 16, *types, "wgmma", _WGMMA, apart=8)


_WMMA_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
# Any multiple of 8 up to 256 is an instruction (of bytes: 8, 24 and multiples of 16); these divide
# the tiles that schedules ask for.
_WGMMA_COLUMNS = (256, 192, 128, 96, 64, 32, 16, 8)
_WGMMA_SHAPES = tuple((64, n, 16) for n in _WGMMA_COLUMNS)
_WGMMA_BYTES = tuple((64, n, 32) for n in _WGMMA_COLUMNS)
# M = 64 fills half of the lanes of tensor memory, and leaves half of the unit idle.
_TCGEN05_ROWS = ((128, _WGMMA_COLUMNS[:-1]), (64, _WGMMA_COLUMNS))
_TCGEN05_SHAPES = tuple((m, n, 16) for m, columns in _TCGEN05_ROWS for n in columns)
_TCGEN05_BYTES = tuple((m, n, 32) for m, columns in _TCGEN05_ROWS for n in columns)
_WGMMA_PARTS = ((FLOAT16, FLOAT32), (FLOAT16, FLOAT16), (BFLOAT16, FLOAT32))

INSTRUCTIONS: tuple[TensorInstruction, ...] = (
    *_family("wmma", _WMMA_SHAPES, (FLOAT16, FLOAT32), _WMMA),
    *_family("wmma", _WMMA_SHAPES, (FLOAT16, FLOAT16), _WMMA),
    *_family("wmma", _WMMA_SHAPES, (BFLOAT16, FLOAT32), _WMMA),
    *_family("wmma", _WMMA_SHAPES, (INT8, INT32), _WMMA),
    *_family("wmma", _WMMA_SHAPES, (UINT8, INT32), _WMMA),
    *_family("mma", ((16, 8, 16),), (FLOAT16, FLOAT32), _MMA),
    *_family("mma", ((16, 8, 16),), (FLOAT16, FLOAT16), _MMA),
    *_family("mma", ((16, 8, 16),), (BFLOAT16, FLOAT32), _MMA),
    *_family("mma", ((16, 8, 32),), (INT8, INT32), _MMA),
    *_family("mma", ((16, 8, 32),), (UINT8, INT32), _MMA),
    *_mixed("mma", ((16, 8, 32),), _MMA),
    _tf32("tf32", 16, 8, _MMA),
    *_float8("mma", ((16, 8, 32),), "mma.fp8", _MMA),
    *_family("wgmma", _WGMMA_SHAPES, (FLOAT16, FLOAT32), _WGMMA),
    *_family("wgmma", _WGMMA_SHAPES, (FLOAT16, FLOAT16), _WGMMA),
    *_family("wgmma", _WGMMA_SHAPES, (BFLOAT16, FLOAT32), _WGMMA),
    *_family("wgmma", _WGMMA_BYTES, (INT8, INT32), _WGMMA),
    *_family("wgmma", _WGMMA_BYTES, (UINT8, INT32), _WGMMA),
    *_mixed("wgmma", _WGMMA_BYTES, _WGMMA),
    *(_tf32("wgmma", 64, n, _WGMMA) for n in _WGMMA_COLUMNS),
    *_float8("wgmma", _WGMMA_BYTES, "wgmma", _WGMMA),
    *(_part(n, *types) for n in (4, 2) for types in _WGMMA_PARTS),
    *_family("tcgen05", _TCGEN05_SHAPES, (FLOAT16, FLOAT32), _TCGEN05),
    *_family("tcgen05", _TCGEN05_SHAPES, (BFLOAT16, FLOAT32), _TCGEN05),
    *_family("tcgen05", _TCGEN05_BYTES, (INT8, INT32), _TCGEN05),
    *_family("tcgen05", _TCGEN05_BYTES, (UINT8, INT32), _TCGEN05),
    *_mixed("tcgen05", _TCGEN05_BYTES, _TCGEN05),
    _amx("tdpbf16ps", 32, BFLOAT16, BFLOAT16, FLOAT32),
    _amx("tdpbssd", 64, INT8, INT8, INT32),
    _amx("tdpbsud", 64, INT8, UINT8, INT32),
    _amx("tdpbusd", 64, UINT8, INT8, INT32),
    _amx("tdpbuud", 64, UINT8, UINT8, INT32),
)

_BY_NAME = {i.name: i for i in INSTRUCTIONS}
assert len(_BY_NAME) == len(INSTRUCTIONS), "instruction names are unique"


def find(name: str) -> TensorInstruction | None:
    """The instruction of that name, or None for any other call."""
    return _BY_NAME.get(name)


def decodes(name: str) -> bool:
    """Whether that is an instruction that takes bytes for floats."""
    instruction = find(name)
    return instruction is not None and instruction.a_type != instruction.a_type.stored


def for_target(target: Target) -> tuple[TensorInstruction, ...]:
    """The instructions that a target has, in the order of the table."""
    return tuple(i for i in INSTRUCTIONS if target.has(i.needs))


def check_names(names: Iterable[str], error: type[UserError]) -> None:
    """An ``error`` for a name that no instruction and no family of them has."""
    families = {i.asked or i.family for i in INSTRUCTIONS} | {i.family for i in INSTRUCTIONS}
    for name in names:
        if name not in families and find(name) is None:
            hint = f"families: {', '.join(sorted(families))}"
            raise error(f"no instruction or family is called {name!r}", hint=hint)
