"""A program's scalar expressions as legal ones: what C has, of the types that it has there.

``gpu.cuda.expressions`` says what is legal, and prints it. Here is decided: names become the
kernel's variables, a load becomes an element of memory at its place, 0 outside (``Select``), what
is computed of halves goes through float32, Halide's division becomes its functions, the precision
of a function follows from how its result is rounded, numbers that are worked out elsewhere
(``known``) become variables, indices take their normal form.

The interface: ``legal(e)`` of any scalar expression; ``number(e)`` of an integer, in normal form;
``access(storage, index)`` of what lies in a buffer; ``bounds(storage, index)`` and
``within(coordinate, extent)``, when it is inside.

Vector code never comes here: the caller takes a vector expression apart with ``ir.affine.lane`` and
emits one lane at a time. A load of a parameter outside its extents is 0 (tiles are rounded up; the
lanes concerned are never stored), so every load whose coordinates are not known to be inside
carries a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import assert_never

from selector.dataclass import dataclass
from selector.diagnostics import EmitError
from selector.gpu.codegen.scalars.builtins import (
    RAW_ARGUMENTS,
    converted,
    is_half,
    legal_builtin,
    widened,
)
from selector.gpu.codegen.scalars.names import Names
from selector.gpu.codegen.scalars.precision import (
    as_byte,
    called,
    is_byte,
    is_rounded,
    root_of,
    rounded_next,
)
from selector.gpu.codegen.scalars.storage import Space, Storage
from selector.gpu.ir.expressions import all_of, below, chosen, element, equal, minus, pointer, times
from selector.intrinsics.functions import POWER_OF_TWO, PureFunction, find_function
from selector.ir.affine import Affine, carry, split_by_strides, to_affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
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
from selector.ir.simplify import literal
from selector.ir.traverse import free_vars
from selector.ir.types import FLOAT16, FLOAT32, UINT16, UINT32, Kind, Type


@dataclass(frozen=True, slots=True)
class Around:
    """What is known where expressions stand: loads ``inside`` their arrays, which need no test, and
    the variables that number ``threads`` whose sums take vectors of terms.
    """

    inside: Set[Load] = frozenset()
    threads: Set[str] = frozenset()


class ScalarEmitter:
    """Makes scalar expressions legal, given where buffers live and what variables are called.

    What C lacks of CUDA C++ are methods of their own: ``c.scalar`` has others.
    """

    language = "CUDA"

    def __init__(
        self,
        names: Names,
        storages: dict[str, Storage],
        known: Callable[[Binary], str | None] | None = None,
        around: Around = Around(),  # noqa: B008 - frozen
    ) -> None:
        self.names = names
        self.storages = storages
        self.known = known  # the name of a number that is worked out elsewhere
        self.around = around

    # ------------------------------------------------------------------ expressions

    def number(self, e: Expr) -> Expr:
        """An integer expression, put into a readable normal form first."""
        return self.legal(to_affine(e).to_expr())

    def legal(self, e: Expr) -> Expr:  # noqa: C901 - one case for each node
        """A scalar expression as C has it; EmitError where it does not."""
        match e:
            case IntImm():
                return e
            case FloatImm(value, t):
                return converted(FloatImm(value, FLOAT32), t) if is_half(t) else e
            case Var():
                return self.names.legal(e)
            case Cast(t, Call() as v) if is_half(t.element) and v.type.bits == 32:
                return converted(self._call(v, rounded=True), t)
            case Cast(t, Binary(op) as v) if self._is_rounded(t, v):
                v = rounded_next(v)
                apart = op in (BinaryOp.MUL, BinaryOp.DIV)
                return converted(self._near(v) if apart else self.legal(v), t)
            case Cast(t, Binary() as v) if self.language == "CUDA" and is_byte(t, v):
                return converted(self.legal(as_byte(v)), t)
            case Cast(t, Cast(h, Call() as v)) if (name := self._as_rounded(t, h, v)) is not None:
                return Call(t, name, (self.legal(v.args[0]),))
            case Cast(t, v):
                return converted(self.legal(v), t)
            case Binary() if self.known and (name := self.known(e)):
                return Var(name, e.type)
            case Binary(op, a, b):
                return self._binary(op, a, b)
            case Compare(op, a, b):
                return Compare(op, self._operand(a), self._operand(b))
            case Not(v):
                return Not(self.legal(v))
            case Select(c, t, f):
                return Select(self.legal(c), self.legal(t), self.legal(f))
            case Load():
                return self.load(e)
            case Call(_, "near", (Call() as v,)):
                return self._call(v, rounded=True)
            case Call(_, "near", (v,)):
                return self._near(v)
            case Call():
                return self._call(e)
            case Broadcast(v, 1) | ExprVar(v) | LocToLoc(_, _, v) | Ramp(v, _, 1):
                return self.legal(v)
            case Let() | VectorReduce() | Shuffle() | Ramp() | Broadcast():
                raise EmitError(f"a {type(e).__name__} of {e.type} reached the scalar emitter")
            case _:
                assert_never(e)

    def _is_rounded(self, t: Type, e: Expr) -> bool:
        """Whether what is computed of floats is rounded to 16 bits next, and may be less exact."""
        return self.language == "CUDA" and is_half(t.element) and e.type == FLOAT32

    def _near(self, e: Expr) -> Expr:
        """Of such a quotient or product: its factors, too, and an exponential is as good as one
        that is rounded, alone or with a number added that is above 0.
        """
        match e:
            case Binary(BinaryOp.DIV, a, b):
                return Call(FLOAT32, "divided_rounded", (self._near(a), self._near(b)))
            case Binary(BinaryOp.MUL, a, b):
                return computed(BinaryOp.MUL, self._near(a), self._near(b), e.type)
            case Call(t, "exp_f32", _) if t == FLOAT32:
                return self._call(e, rounded=True)
            case Binary(
                BinaryOp.ADD, Call(t, "exp_f32", _) as power, FloatImm(value) as number
            ) if value > 0 and t == FLOAT32:
                return Binary(BinaryOp.ADD, self._call(power, rounded=True), number)
            case _:
                return self._operand(e)

    def _operand(self, e: Expr) -> Expr:
        """Operands of comparisons and arithmetic: halves as float."""
        found = self.legal(e)
        return Cast(FLOAT32, found) if is_half(found.type) else found

    def _binary(self, op: BinaryOp, a: Expr, b: Expr) -> Expr:
        return computed(op, self._operand(a), self._operand(b), a.type)

    def quotient(self, e: Binary) -> Expr:
        """A quotient or remainder that may be ``known``."""
        return self._binary(e.op, e.a, e.b)

    # ------------------------------------------------------------------ functions

    def function(self, function: PureFunction, t: Type, *, rounded: bool) -> str:
        """The name of a pure function of arguments of type ``t``; ``rounded``: its result is
        rounded to 16 bits next.
        """
        return function.rounded if rounded else function.cuda

    def as_rounded(self, function: PureFunction) -> str | None:
        """The name of a function that is as inexact as rounding to float16; None if there is
        none.
        """
        return function.as_rounded

    def _as_rounded(self, outer: Type, inner: Type, call: Call) -> str | None:
        """The name of a function whose result is rounded to float16 and widened again."""
        function = find_function(call.name)
        floats = (outer, inner, call.type) == (FLOAT32, FLOAT16, FLOAT32)
        return self.as_rounded(function) if function is not None and floats else None

    def builtin(self, call: Call, values: list[Expr]) -> Expr | None:
        """The form of an intrinsic, or None."""
        return legal_builtin(call, values)

    def _call(self, e: Call, *, rounded: bool = False) -> Expr:
        if e.name in ("tile.fill", "tile.read"):
            return self.legal(e.args[0])
        function, args = called(e)
        if function is None:
            raw = e.name in RAW_ARGUMENTS
            found = self.builtin(e, [self.legal(a) if raw else self._operand(a) for a in e.args])
            if found is not None:
                return converted(found, e.type)
            raise EmitError(
                f"the function {e.name!r} has no form in {self.language}",
                hint="compute it in a Func of its own that runs outside the kernel",
            )
        if self.language == "CUDA" and (root := root_of(e)) is not None:
            return Call(e.type, "root_times", (self.legal(args[0]), IntImm(root)))
        rounded = (rounded or is_half(e.type)) and (function is POWER_OF_TWO or is_rounded(e))
        name = self.function(function, args[0].type, rounded=rounded)
        t = FLOAT32 if is_half(e.type) else e.type
        return converted(Call(t, name, tuple(self._operand(a) for a in args)), e.type)

    # ------------------------------------------------------------------ memory

    def access(self, storage: Storage, index: Expr) -> Expr:
        """What lies at the program's ``index`` of a buffer. In a stage of a pipeline what a thread
        begins with moves the pointer: what is left of the index is a constant where loops are
        written out, and part of the instruction that loads.
        """
        first = None
        if storage.start is not None and storage.panels is None and storage.strips is None:
            at = to_affine(index)
            own = Affine(
                tuple(t for t in at if any(free_vars(a) & self.around.threads for a in t[0]))
            )
            if own.terms:
                first, index = self.number(own.to_expr()), (at - own).to_expr()
        place = storage.place(self.number(index))
        return element(storage.type, pointer(storage.base), place, storage.start, first)

    def bounds(self, storage: Storage, index: Expr) -> Expr | None:
        """When ``index`` is inside a buffer in global memory; None if always, as in the program's
        own, of which Halide has found how much is read.
        """
        if storage.space is not Space.GLOBAL or storage.own:
            return None
        coordinates = split_by_strides(index, storage.param.dims) if storage.param else None
        if coordinates is None or storage.param is None:
            if storage.elements is None:
                return None
            return below(self.number(index), self.number(storage.elements))
        return all_of(self.all_within(coordinates, storage.param.dims))

    def all_within(self, coordinates: tuple[Expr, ...], dims: tuple[Dim, ...]) -> Iterator[Expr]:
        """What says that an element is inside a buffer; nothing if it always is."""
        carried = carry(coordinates, dims)
        tests = (self.within(c, d.extent) for c, d in zip(carried, dims, strict=True))
        return (t for t in tests if t is not None)

    def within(self, coordinate: Expr, extent: Expr) -> Expr | None:
        """0 <= coordinate < extent as one unsigned comparison; None where both are constants and it
        holds.
        """
        c = to_affine(coordinate)
        if c.constant is not None and isinstance(extent, IntImm) and 0 <= c.constant < extent.value:
            return None
        return below(self.number(coordinate), self.number(extent))

    def load(self, e: Load) -> Expr:
        """A load of one element: 0 outside the buffer and where the predicate is false."""
        storage = self.storages[e.buffer]
        found = self.access(storage, e.index)
        guard = None if e in self.around.inside else self.bounds(storage, e.index)
        return guarded(found, guard, None if e.predicate is None else self.legal(e.predicate))


def computed(op: BinaryOp, x: Expr, y: Expr, t: Type) -> Expr:
    """Legal operands of a program's type ``t`` (halves as float) together, as that type."""
    if t.is_integer and op in (BinaryOp.DIV, BinaryOp.MOD):
        return converted(_divided(op, x, y), t)
    if not t.is_bool:
        x, y = widened(x), widened(y)
    match op:
        case BinaryOp.MOD:
            floor = "floor" if t.bits == 64 else "floorf"
            whole = Call(x.type, floor, (Binary(BinaryOp.DIV, x, y),))
            found = minus(x, times(y, whole))
        case BinaryOp.MUL if t == UINT16:  # int would overflow
            found = times(Cast(UINT32, x), Cast(UINT32, y))
        case _:
            found = Binary(op, x, y)
    return converted(found, t)


def guarded(value: Expr, *conditions: Expr | None) -> Expr:
    """A value, or 0 where one of the conditions does not hold."""
    condition, t = all_of(conditions), value.type
    if condition is None:
        return value
    narrow = t.is_integer and t.bits in (8, 16)  # a constant of C would make an int of both
    return Select(condition, value, Cast(t, IntImm(0)) if narrow else literal(0, t))


def _divided(op: BinaryOp, x: Expr, y: Expr) -> Expr:
    """Halide's division of integers, which rounds down and of which by zero comes zero."""
    wide, by = widened(x), widened(y)
    if x.type.kind is Kind.UINT:
        return chosen(equal(by, literal(0, by.type)), literal(0, by.type), Binary(op, wide, by))
    divide = op is BinaryOp.DIV
    if isinstance(by, IntImm) and by.value > 0 and by.value & (by.value - 1) == 0:
        bits = by.value.bit_length() - 1 if divide else by.value - 1
        name = "shift_right" if divide else "bitwise_and"
        return Call(wide.type, name, (wide, IntImm(bits, by.type)))
    return Call(wide.type, "floor_div" if divide else "floor_mod", (x, y))  # of any types
