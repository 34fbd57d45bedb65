"""Numbers and conditions of a kernel's control, made of the expressions of ``selector.ir``.

Variables are those that the kernel declares, and ``threadIdx.x``, ``blockIdx.x``, ``gridDim.x``,
``lane``, ``warp`` and ``group``, which place a thread. What CUDA has besides are calls:
``shared_address(offset)``, ``cluster_rank()``, ``first_lane(value)``, ``bitwise_and`` and
``shift_right``. A whole number may stand for whether it is not zero (``flag``).

The program's values come as legal expressions, too (``gpu.cuda.expressions`` says what is): an
``element`` of memory or of registers is loaded through a ``POINTER``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial

from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    IntImm,
    Not,
    Select,
    Var,
)
from selector.ir.traverse import conjuncts, map_expr
from selector.ir.types import BOOL, FLOAT16, INT32, UINT32, Kind, Type

Number = Expr | int | str  # an expression, a constant, the name of a variable

POINTER = Type(Kind.HANDLE, 64)
BARRIER_BYTES = 8
PLACES = ("panel_index", "strip_column")  # templates of C: the last argument is the index
GIVEN = "given"
PAIR_IN_PANELS = "pair_in_panels"  # the same: the first three arguments
FALSE = IntImm(0, BOOL)
THREAD, BLOCK, BLOCKS = Var("threadIdx.x", INT32), Var("blockIdx.x", INT32), Var("gridDim.x", INT32)


def number(x: Number) -> Expr:
    return _named(x) if isinstance(x, int | str) else x


@lru_cache(maxsize=1 << 12)
def _named(x: int | str) -> Expr:
    return IntImm(x) if isinstance(x, int) else Var(x, INT32)


def flag(name: str) -> Expr:
    """A condition; or of a number, that it is not zero."""
    return Var(name, BOOL)


def _binary(op: BinaryOp, a: Number, b: Number) -> Expr:
    return Binary(op, number(a), number(b))


def _compare(op: CompareOp, a: Number, b: Number) -> Expr:
    return Compare(op, number(a), number(b))


plus = partial(_binary, BinaryOp.ADD)
minus = partial(_binary, BinaryOp.SUB)
times = partial(_binary, BinaryOp.MUL)
quotient = partial(_binary, BinaryOp.DIV)
remainder = partial(_binary, BinaryOp.MOD)
least = partial(_binary, BinaryOp.MIN)
most = partial(_binary, BinaryOp.MAX)
less = partial(_compare, CompareOp.LT)
greater = partial(_compare, CompareOp.GT)
at_least = partial(_compare, CompareOp.GE)
at_most = partial(_compare, CompareOp.LE)
equal = partial(_compare, CompareOp.EQ)


def moved(a: Number, by: Number) -> Expr:
    """The sum; zeros are left out."""
    if number(a) == IntImm(0):
        return number(by)
    return number(a) if number(by) == IntImm(0) else plus(a, by)


def mixed_radix(index: Number, extents: Iterable[Number]) -> Iterator[Expr]:
    """An index in mixed radix, the fastest digit first: one for each of the extents, and all that
    is left.
    """
    rest = number(index)
    for extent in extents:
        yield remainder(rest, extent)
        rest = quotient(rest, extent)
    yield rest


def not_zero(a: Number) -> Expr:
    return _compare(CompareOp.NE, a, 0)


def both(*conditions: Expr | None) -> Expr:
    """All of the conditions that there are, at least one."""
    found = all_of(conditions)
    assert found is not None
    return found


def all_of(conditions: Iterable[Expr | None]) -> Expr | None:
    """All of the conditions that there are; None without any."""
    found: Expr | None = None
    for part in (part for c in conditions if c is not None for part in conjuncts(c)):
        found = part if found is None else Binary(BinaryOp.AND, found, part)
    return found


def either(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.OR, a, b)


def negated(condition: Expr) -> Expr:
    return Not(condition)


def as_number(condition: Expr) -> Expr:
    """1 where it holds, else 0."""
    return Cast(INT32, condition)


def chosen(condition: Expr, then: Number, otherwise: Number) -> Expr:
    return Select(condition, number(then), number(otherwise))


def masked(a: Number, mask: int) -> Expr:
    return Call(INT32, "bitwise_and", (number(a), IntImm(mask)))


def shifted(a: Number, by: int) -> Expr:
    return Call(INT32, "shift_right", (number(a), IntImm(by)))


def of_first_lane(e: Number) -> Expr:
    """What the first lane of a warp has; that it is alike in a warp, compilers can see."""
    return Call(INT32, "first_lane", (number(e),))


def exclusive_or(a: Number, b: Number) -> Expr:
    return Call(INT32, "bitwise_xor", (number(a), number(b)))


def shared_address(offset: int) -> Expr:
    """The address of a byte of the block's shared memory."""
    return Call(INT32, "shared_address", (IntImm(offset),))


def address(pointer: Number, *elements: Expr | None) -> Expr:
    """That of what lies so many elements behind a pointer to shared memory."""
    further = (e for e in elements if e is not None)
    return Call(INT32, "shared_address", (number(pointer), *further))


def pointer(name: str) -> Expr:
    """The variable that is a pointer or an array."""
    return Var(name, POINTER)


def element(t: Type, of: Expr, index: Number, *further: Expr | None) -> Expr:
    """What lies ``index`` elements behind a pointer that is moved ``further``; of an array of
    several dimensions, what is an array, too, is a ``POINTER``.
    """
    moves = [e for e in further if e is not None]
    return Call(t, "element", (of, *moves, number(index)))


@lru_cache(maxsize=1 << 12)
def register(name: str, index: int) -> Expr:
    """That of an array of registers, or the array of those of a tile."""
    return element(POINTER, pointer(name), index)


def behind(start: Expr, *further: Expr | None) -> Expr:
    """A pointer that is moved by so many elements, one number after the other."""
    moves = tuple(e for e in further if e is not None)
    return Call(POINTER, "behind", (start, *moves)) if moves else start


def given(value: Expr) -> Expr:
    """A legal value of the program's, for control: who follows how threads meet, and not their
    data, takes it for one number.
    """
    return value if isinstance(value, IntImm) else Call(value.type, GIVEN, (value,))


def bare(e: Expr) -> Expr:
    """An expression of what such values are made of."""
    match e:
        case Call(_, name, (value,)) if name == GIVEN:
            return bare(value)
        case _:
            return map_expr(e, bare)


def half_of(pair: Expr, which: int) -> Expr:
    """One of the two f16 of a register."""
    return Call(FLOAT16, "half_of", (pair, IntImm(which)))


def packed(*values: Expr) -> Expr:
    """Values of 8 or 16 bits, or one of 32, as one register."""
    if len(values) == 2 and not values[0].type.is_float:
        return Call(UINT32, "pack_shorts", values)
    return Call(UINT32, f"pack{32 // len(values)}", values)


def of_lane(value: Expr, apart: int) -> Expr:
    """What ``value`` is in the lane whose number differs in these bits."""
    return Call(value.type, "shuffle_xor", (value, IntImm(apart)))


def place(name: str, *sizes: int, index: Expr) -> Expr:
    """The element of a memory, or of a row of it, at which the program's ``index`` lies."""
    return Call(INT32, name, (*map(IntImm, sizes), index))


def unsigned(a: Number) -> Expr:
    return Cast(UINT32, number(a))


def below(a: Number, b: Number) -> Expr:
    """Whether 0 <= a < b, in one comparison."""
    return _compare(CompareOp.LT, unsigned(a), unsigned(b))


def barrier(first: Number, index: Number = 0) -> Expr:
    """The address of a barrier of an array of them."""
    return plus(first, times(BARRIER_BYTES, index))


def signed(e: Expr) -> Expr:
    """A number that C takes for one without a sign."""
    return Cast(INT32, _unsigned(e))


def _unsigned(e: Expr) -> Expr:
    match e:
        case Var(name):
            return Var(name, UINT32)
        case Call(_, name, (a, b)):
            return Call(UINT32, name, (_unsigned(a), b))
        case Binary(op, a, IntImm(n)):
            return Binary(op, _unsigned(a), IntImm(n, UINT32))
        case _:
            return e


THREAD_OF_GROUP = masked(THREAD, 127)
WARP_OF_GROUP = signed(masked(shifted(THREAD, 5), 3))
FIRST_LANE = equal("lane", 0)
FIRST_OF_GROUP = equal(THREAD_OF_GROUP, 0)
