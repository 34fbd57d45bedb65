"""Tensor statements of a selected program, taken apart for the emitter.

A selected program holds three kinds of statements on accumulators (see ``selector.intrinsics``):
fill, accumulate and read-out. This module turns the operands of an accumulate statement into affine
accesses: element (row, depth) of operand A is ``A[m, k]``, of operand B it is ``B[k, n]`` seen as
row n, depth k, so both sides look alike.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.gpu.ir.layouts import Dealt
from selector.intrinsics import records
from selector.ir.affine import Affine, to_affine
from selector.ir.contents import loaded
from selector.ir.lanes import lane
from selector.ir.nodes import Broadcast, Call, Expr, ExprVar, IntImm, Load, Ramp, Store, Var
from selector.ir.types import Type

ROW, DEPTH, PHASE = Var("$row"), Var("$depth"), Var("$phase")
CHUNK, WORD = 16, 4  # bytes that ldmatrix takes of a row, and that a register holds


@dataclass(frozen=True, slots=True)
class Access:
    """An operand in memory: element (row, depth) is ``buffer[base + row * row_stride + depth *
    depth_stride]``.

    ``predicate`` is a scalar condition over ``ROW`` and ``DEPTH``; elements where it is false are
    0, and so are elements with depth >= ``depth``. ``meets_band``: the other operand is banded, so
    what lies past the depth meets zeros only.
    """

    buffer: str
    type: Type
    rows: int
    depth: int
    base: Affine
    row_stride: Affine
    depth_stride: Affine
    predicate: Expr | None
    meets_band: bool = False
    strips: Dealt | None = None  # how the buffer's rows lie in memory
    value: Expr | None = None  # over ROW and DEPTH, of an operand without a buffer (named "")

    @property
    def sources(self) -> frozenset[str]:
        """The buffers that it is read from."""
        return frozenset({self.buffer}) if self.value is None else loaded(self.value)


@dataclass(frozen=True, slots=True)
class Banded:
    """A Toeplitz operand: element (row (q, p), depth t) is tap ``(t - lead - stride * q) /
    dilation`` of phase p where that is a tap; rows are outputs q in ``phases`` phases p each, the
    phase fastest.

    Tap i of phase p is ``buffer[base + tap_stride * i + phase_stride * p]``.
    """

    buffer: str
    type: Type
    rows: int
    depth: int
    stride: int
    dilation: int
    phases: int
    taps: int  # of one phase
    base: Affine
    tap_stride: Affine
    phase_stride: Affine
    predicate: Expr | None  # over DEPTH as the number of the tap, and PHASE
    lead: int = 0  # depth before the first tap
    value: Expr | None = None  # over DEPTH and PHASE, of taps that are computed

    @property
    def sources(self) -> frozenset[str]:
        """The buffers that the taps come from."""
        return frozenset({self.buffer}) if self.value is None else loaded(self.value)


Operand = Access | Banded


@dataclass(frozen=True, slots=True)
class Accumulate:
    """``accumulator[offset ...] += A x B`` on a block of m x n, reduction extent k."""

    accumulator: str
    offset: Affine
    m: int
    n: int
    k: int
    instruction: records.TensorInstruction
    a: Operand
    b: Operand


def _operand(e: Expr, rows: int, depth: int, *, depth_fastest: bool) -> Operand:
    row_digit, depth_digit = (ROW, rows), (DEPTH, depth)
    digits = (depth_digit, row_digit) if depth_fastest else (row_digit, depth_digit)
    inner = e.value if isinstance(e, ExprVar) else e
    match inner:
        case Load(t, buffer, index, predicate) if (
            walk := to_affine(lane(index, digits)).parts(ROW, DEPTH)
        ) is not None:
            base, row, deep = walk
            condition = None if predicate is None else lane(predicate, digits)
            return Access(buffer, t.element, rows, depth, base, row, deep, condition)
        case Call(_, "toeplitz" | "toeplitz.t", args):
            return _banded(args, rows, depth)
        case _:
            value = lane(inner, digits)
            none = Affine()
            return Access("", e.type.element, rows, depth, none, none, none, None, value=value)


@lru_cache(maxsize=256)
def _banded(args: tuple[Expr, ...], rows: int, depth: int) -> Banded:
    sizes = [a.value for a in args[:5] if isinstance(a, IntImm)]
    taps = args[5].value if isinstance(args[5], ExprVar) else args[5]
    if len(sizes) != 5:
        raise InternalError("a Toeplitz operand has five sizes")
    _, _, step, dilation, phases = sizes
    count = taps.type.lanes // phases
    digits = ((DEPTH, count), (PHASE, phases))
    walk = None
    if isinstance(taps, Load):
        walk = to_affine(lane(taps.index, digits)).parts(DEPTH, PHASE)
    if not isinstance(taps, Load) or walk is None:
        value = lane(taps, digits)
        name, none = min(loaded(value), default="taps"), Affine()
        return Banded(
            name, taps.type.element, rows, depth, step, dilation, phases, count, none, none, none,
            None, value=value,
        )  # fmt: skip
    base, stride, turn = walk
    condition = None if taps.predicate is None else lane(taps.predicate, digits)
    element = taps.type.element
    return Banded(
        taps.buffer, element, rows, depth, step, dilation, phases, count, base, stride, turn,
        condition,
    )  # fmt: skip


_UNKNOWN: Any = object()


def as_accumulate(s: Store) -> Accumulate | None:
    """The parts of an accumulate statement; None for any other store."""
    found: Accumulate | None = getattr(s, "known_parts", _UNKNOWN)
    if found is _UNKNOWN:
        found = s.known_parts = _parts(s)
    return found


def _parts(s: Store) -> Accumulate | None:
    match s.value:
        case Call(_, name, (IntImm(m), IntImm(n), IntImm(k), _, a, b)):
            instruction = records.find(name)
            if instruction is None:
                return None
            left = _operand(a, m, k, depth_fastest=True)
            right = _operand(b, n, k, depth_fastest=False)
            if isinstance(left, Access) and isinstance(right, Banded):
                left = replace(left, meets_band=True)
            if isinstance(right, Access) and isinstance(left, Banded):
                right = replace(right, meets_band=True)
            return Accumulate(s.buffer, first_lane(s.index), m, n, k, instruction, left, right)
        case _:
            return None


def align_windows(s: Accumulate, chunks: int = 1, pitch: int = 0) -> Accumulate:
    """The same sum with windows that start at multiples of ``chunks`` times 16 bytes: those of a
    band may start earlier, where they meet zeros, if the band's taps start as much later. With a
    ``pitch``, multiples of it are not counted: where rows start does not matter. Bytes whose rows
    differ so start at whole words, if that takes no further instruction.
    """
    match s.a, s.b:
        case Access() as window, Banded() as band:
            lead = _lead(window, s, chunks, pitch)
            if lead:
                a, b = _moved(window, band, lead)
                return replace(s, k=s.k + lead, a=a, b=b)
        case Banded() as band, Access() as window:
            lead = _lead(window, s, chunks, pitch)
            if lead:
                b, a = _moved(window, band, lead)
                return replace(s, k=s.k + lead, a=a, b=b)
        case _:
            pass
    return s


def _lead(window: Access, s: Accumulate, chunks: int, pitch: int) -> int:
    """Elements by which the rows of windows are to start earlier."""
    lead = _misalignment(window, CHUNK // window.type.bytes * chunks, pitch)
    if lead is None and window.type.bytes == 1:
        lead, step = _misalignment(window, WORD, pitch) or 0, s.instruction.k
        return lead if -(-(s.k + lead) // step) == -(-s.k // step) else 0
    return lead or 0


def _misalignment(window: Access, per: int, pitch: int) -> int | None:
    """Elements by which all rows of an operand start behind a multiple of so many; None if they
    differ.
    """
    if window.predicate is not None or window.depth_stride.constant != 1 or window.value:
        return 0
    base = window.base
    if pitch:
        base = Affine.build({m: c % pitch for m, c in base})
    starts = (base - base.offset, window.row_stride)
    return None if any(c % per for start in starts for _, c in start) else base.offset % per


def _moved(window: Access, band: Banded, lead: int) -> tuple[Access, Banded]:
    depth = window.depth + lead
    return (
        replace(window, depth=depth, base=window.base - lead),
        replace(band, depth=depth, lead=band.lead + lead),
    )


def first_lane(index: Expr) -> Affine:
    """Lane 0 of a vector index."""
    while isinstance(index, Ramp | Broadcast):
        index = index.base if isinstance(index, Ramp) else index.value
    lanes = index.type.lanes
    return to_affine(lane(index, ((IntImm(0), lanes),)) if lanes > 1 else index)
