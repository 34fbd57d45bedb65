"""Scalar expressions as CUDA C++ text.

Vector code never reaches this file: the caller takes a vector expression apart with
``selector.ir.affine.lane`` and emits one lane at a time. A load of a parameter outside its extents
is 0 (tiles are rounded up; the lanes concerned are never stored), so every load whose coordinates
are not known to be inside carries a guard.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from selector.diagnostics import EmitError
from selector.emit.builtins import RAW_ARGUMENTS, spell
from selector.emit.names import Names
from selector.emit.warpgroups.panels import Panels
from selector.gpu.cuda import expressions as control
from selector.gpu.ir.layouts import Dealt
from selector.gpu.ir.views import View
from selector.intrinsics.functions import POWER_OF_TWO, PureFunction, find_function
from selector.ir.affine import carry, split_by_strides, to_affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    BufferParam,
    Call,
    Cast,
    Compare,
    Dim,
    Expr,
    ExprVar,
    FloatImm,
    IntImm,
    Let,
    Load,
    LocToLoc,
    Not,
    Ramp,
    Select,
    Shuffle,
    Var,
    VectorReduce,
)
from selector.ir.types import FLOAT16, FLOAT32, UINT16, UINT32, Kind, Type


class Space(Enum):
    """The memory that a pointer points into."""

    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"
    REGISTERS = "registers"  # blocks of operands, see ``register_tiles``


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a buffer of the IR lives in the kernel: C pointer, space, and what bounds it."""

    base: str
    type: Type
    space: Space
    param: BufferParam | None = None
    elements: Expr | None = None
    pitches: tuple[Expr, ...] = ()
    rounded_rows: bool = False  # filled by copies that reach to the next multiple of 16 bytes
    panels: Panels | None = None
    strips: Dealt | None = None
    start: Expr | None = None  # elements from the base: the slot of a ring

    @property
    def pointer(self) -> str:
        """The element that the program calls 0."""
        return (
            self.base if self.start is None else f"({self.base} + {control.spell(self.start, {})})"
        )

    @property
    def view(self) -> View:
        """The same of shared memory."""
        return View(self.base, self.start)

    def place(self, index: str) -> str:
        """Where the element that the program calls ``index`` lies."""
        if self.panels is not None:
            return self.panels.index(index)
        if self.strips is None:
            return index
        pitch = self.strips.pitch
        column = strip_column(self.strips, f"({index}) % {pitch}")
        return f"(({index}) / {pitch} * {pitch} + {column})"


def strip_column(strips: Dealt, column: str) -> str:
    """Where an element of a row lies whose chunks are dealt out."""
    return f"strip_column<{strips.pitch}, {strips.step}, {strips.per}>({column})"


def c_type(t: Type) -> str:
    """The C++ name of a scalar type."""
    match t.kind:
        case Kind.FLOAT:
            return {16: "f16", 32: "float", 64: "double"}[t.bits]
        case Kind.BFLOAT:
            return "bf16"
        case Kind.INT:
            return {8: "s8", 16: "s16", 32: "int", 64: "s64"}[t.bits]
        case Kind.UINT:
            return {1: "bool", 8: "u8", 16: "u16", 32: "u32", 64: "u64"}[t.bits]
        case Kind.HANDLE:
            raise EmitError(f"a value of type {t} has no form in a kernel")
        case _:
            assert_never(t.kind)


def _is_half(t: Type) -> bool:
    return t.is_float and t.bits == 16


def convert(text: str, source: Type, target: Type) -> str:
    """``text`` of type ``source`` as ``target``: one rounding, C's rules for integers."""
    if source.element == target.element:
        return text
    if _is_half(source):
        return convert(f"to_f32({text})", FLOAT32, target)
    if _is_half(target):
        single = text if source.is_float and source.bits == 32 else f"(float)({text})"
        return f"to_{'bf16' if target.kind is Kind.BFLOAT else 'f16'}({single})"
    if target.is_bool:
        return f"({text} != 0)"
    return f"({c_type(target)})({text})"


def literal(value: float, t: Type) -> str:
    """A floating-point constant, exact."""
    if _is_half(t):
        return convert(literal(value, FLOAT32), FLOAT32, t)
    if math.isnan(value):
        text = "__int_as_float(0x7fffffff)"
    elif math.isinf(value):
        text = f"{'-' if value < 0 else ''}__int_as_float(0x7f800000)"
    else:
        text = repr(float(value))
        return f"{text}f" if t.bits == 32 else text
    return text if t.bits == 32 else f"(double)({text})"


def _called(e: Call) -> tuple[PureFunction | None, tuple[Expr, ...]]:
    """The function that a call is of, if it is a pure one, and its arguments."""
    match e:
        case Call(_, "pow_f32", (FloatImm(2.0), exponent)):
            return POWER_OF_TWO, (exponent,)
        case _:
            return find_function(e.name), e.args


class ScalarEmitter:
    """Turns scalar expressions into text, given where buffers live and how names are spelled.

    The words of CUDA C++ that C lacks are methods of their own: ``c_scalar`` has others.
    """

    language = "CUDA"

    def __init__(
        self,
        names: Names,
        storages: dict[str, Storage],
        known: Callable[[Expr], str | None] | None = None,
    ) -> None:
        self.names = names
        self.storages = storages
        self.known = known  # the name of a number that is worked out elsewhere

    def literal(self, value: float, t: Type) -> str:
        """A floating-point constant."""
        return literal(value, t)

    def extremum(self, t: Type) -> str:
        """The minimum function of a type, spelled with ``min``."""
        return {32: "fminf", 64: "fmin", 16: "fminf"}[t.bits] if t.is_float else "min"

    def function(self, function: PureFunction, t: Type, *, rounded: bool) -> str:
        """The name of a pure function of arguments of type ``t``; ``rounded``: its result is
        rounded to float16 next.
        """
        return function.rounded if rounded else function.cuda

    def spell(self, call: Call, values: list[str]) -> str | None:
        """The text of an intrinsic, or None."""
        return spell(call, values)

    def zero(self, t: Type) -> str:
        """Zero of a scalar type."""
        return f"{c_type(t)}{{}}" if _is_half(t) else f"({c_type(t)})0"

    def index(self, e: Expr) -> str:
        """An integer expression, put into a readable normal form first."""
        return self.expr(to_affine(e).to_expr())

    def expr(self, e: Expr) -> str:  # noqa: C901 - one case for each node
        """The text of a scalar expression; EmitError where it has none."""
        match e:
            case IntImm(value, t):
                return self._integer(value, t)
            case FloatImm(value, t):
                return self.literal(value, t)
            case Var(name, _):
                return self.names.get(name)
            case Cast(t, Call() as v) if t.element == FLOAT16 and v.type.bits == 32:
                return convert(self._call(v, rounded=True), v.type, t)
            case Cast(t, Cast(h, Call() as v)) if (name := self._as_rounded(t, h, v)) is not None:
                return f"{name}({self.expr(v.args[0])})"
            case Cast(t, v):
                return convert(self.expr(v), v.type, t)
            case Binary() if self.known and (name := self.known(e)):
                return name
            case Binary(op, a, b):
                return self._binary(op, a, b)
            case Compare(op, a, b):
                return f"({self._operand(a)} {op.value} {self._operand(b)})"
            case Not(v):
                return f"!{self.expr(v)}"
            case Select(c, t, f):
                return f"({self.expr(c)} ? {self.expr(t)} : {self.expr(f)})"
            case Load():
                return self.load(e)
            case Call():
                return self._call(e)
            case Broadcast(v, 1) | ExprVar(v) | LocToLoc(_, _, v) | Ramp(v, _, 1):
                return self.expr(v)
            case Let() | VectorReduce() | Shuffle() | Ramp() | Broadcast():
                raise EmitError(f"a {type(e).__name__} of {e.type} reached the scalar emitter")
            case _:
                assert_never(e)

    def _as_rounded(self, outer: Type, inner: Type, call: Call) -> str | None:
        """The spelling of a function whose result is rounded to float16 and widened again."""
        function = find_function(call.name)
        floats = (outer, inner, call.type) == (FLOAT32, FLOAT16, FLOAT32)
        return self.as_rounded(function) if function is not None and floats else None

    def as_rounded(self, function: PureFunction) -> str | None:
        """The name of a function that is as inexact as rounding to float16; None if there is
        none.
        """
        return function.as_rounded

    def _integer(self, value: int, t: Type) -> str:
        if t.is_bool:
            return "true" if value else "false"
        if t.bits >= 32 and value == -(1 << (t.bits - 1)):  # C has no such literal
            suffix = "ll" if t.bits == 64 else ""
            return f"({value + 1}{suffix} - 1)"
        if t.bits == 64:
            return f"{value}{'ll' if t.kind is Kind.INT else 'ull'}"
        return f"{value}u" if t == UINT32 else str(value)

    def _operand(self, e: Expr) -> str:
        """Operands of comparisons and arithmetic: halves as float."""
        text = self.expr(e)
        return f"to_f32({text})" if _is_half(e.type) else text

    def _binary(self, op: BinaryOp, a: Expr, b: Expr) -> str:
        t = a.type
        x, y = self._operand(a), self._operand(b)
        match op:
            case BinaryOp.MIN | BinaryOp.MAX:
                text = f"{self.extremum(t).replace('min', op.value)}({x}, {y})"
            case BinaryOp.DIV | BinaryOp.MOD if t.is_integer:
                text = self._divide(op, x, y, b, t)
            case BinaryOp.MOD:
                text = f"({x} - {y} * floor{'f' if t.bits <= 32 else ''}({x} / {y}))"
            case BinaryOp.MUL if t == UINT16:  # int would overflow
                text = f"((u32){x} * {y})"
            case _:
                text = f"({x} {op.value} {y})"
        if _is_half(t):
            return convert(text, FLOAT32, t)
        narrow = t.is_integer and t.bits in (8, 16)
        return f"({c_type(t)})({text})" if narrow else text

    def quotient(self, e: Binary) -> str:
        """The text of a quotient or remainder that may be ``known``."""
        return self._binary(e.op, e.a, e.b)

    def _divide(self, op: BinaryOp, x: str, y: str, b: Expr, t: Type) -> str:
        divide = op is BinaryOp.DIV
        if t.kind is Kind.UINT:
            return f"({y} == 0 ? 0 : {x} {'/' if divide else '%'} {y})"
        if isinstance(b, IntImm) and b.value > 0 and b.value & (b.value - 1) == 0:
            return f"({x} >> {b.value.bit_length() - 1})" if divide else f"({x} & {b.value - 1})"
        return f"floor_{'div' if divide else 'mod'}({x}, {y})"

    def _call(self, e: Call, *, rounded: bool = False) -> str:
        if e.name in ("tile.fill", "tile.read"):
            return self.expr(e.args[0])
        function, args = _called(e)
        if function is None:
            raw = e.name in RAW_ARGUMENTS
            text = self.spell(e, [self.expr(a) if raw else self._operand(a) for a in e.args])
            if text is not None:
                return self._intrinsic(e, text)
            raise EmitError(
                f"the function {e.name!r} has no form in {self.language}",
                hint="compute it in a Func of its own that runs outside the kernel",
            )
        half = _is_half(e.type)
        text = self._applied(function, args, rounded=rounded or e.type == FLOAT16)
        return convert(text, FLOAT32, e.type) if half else text

    def _applied(self, function: PureFunction, args: tuple[Expr, ...], *, rounded: bool) -> str:
        name = self.function(function, args[0].type, rounded=rounded)
        return f"{name}({', '.join(self._operand(a) for a in args)})"

    def unrounded(self, e: Expr) -> str | None:
        """The float32 that is rounded to float16 as the last step of ``e``, of a function that
        this rounding lets be less precise; None for anything else.
        """
        match e:
            case Cast(t, Call() as call) if (t, call.type) == (FLOAT16, FLOAT32):
                pass
            case Call() as call if call.type == FLOAT16:
                pass
            case _:
                return None
        function, args = _called(call)
        if function is None or function.rounded == function.cuda:
            return None
        return self._applied(function, args, rounded=True)

    def _intrinsic(self, e: Call, text: str) -> str:
        """The text of an intrinsic, which C may have widened, as the type of the call."""
        if e.name in RAW_ARGUMENTS:
            return text
        if _is_half(e.type):
            return convert(text, FLOAT32, e.type)
        return text if e.type.is_bool else f"({c_type(e.type)})({text})"

    # ------------------------------------------------------------------ memory

    def address(self, storage: Storage, index: Expr) -> str:
        """``pointer[index]``."""
        return f"{storage.pointer}[{storage.place(self.index(index))}]"

    def guard(self, storage: Storage, index: Expr) -> str | None:
        """When ``index`` is inside a buffer in global memory; None if always."""
        if storage.space is not Space.GLOBAL:
            return None
        coordinates = split_by_strides(index, storage.param.dims) if storage.param else None
        if coordinates is None or storage.param is None:
            if storage.elements is None:
                return None
            return f"(u32)({self.index(index)}) < (u32)({self.index(storage.elements)})"
        return " && ".join(self.all_inside(coordinates, storage.param.dims)) or None

    def all_inside(self, coordinates: tuple[Expr, ...], dims: tuple[Dim, ...]) -> list[str]:
        """What says that an element is inside a buffer; nothing if it always is."""
        carried = carry(coordinates, dims)
        tests = [self.inside(c, d.extent) for c, d in zip(carried, dims, strict=True)]
        return [t for t in tests if t is not None]

    def inside(self, coordinate: Expr, extent: Expr) -> str | None:
        """0 <= coordinate < extent as one unsigned comparison; None where both are constants and it
        holds.
        """
        c = to_affine(coordinate)
        if c.constant is not None and isinstance(extent, IntImm) and 0 <= c.constant < extent.value:
            return None
        return f"(u32)({self.index(coordinate)}) < (u32)({self.index(extent)})"

    def load(self, e: Load) -> str:
        """A load of one element: 0 outside the buffer and where the predicate is false."""
        storage = self.storages[e.buffer]
        text = self.address(storage, e.index)
        tests = [self.guard(storage, e.index), self.expr(e.predicate) if e.predicate else None]
        condition = " && ".join(t for t in tests if t)
        if not condition:
            return text
        return f"({condition} ? {text} : {self.zero(e.type)})"
