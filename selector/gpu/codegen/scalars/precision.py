"""Functions that are computed otherwise, or less exactly, where that is as good.

    u8(255 * pow(x, 0.4545) + 0.5)    the power is rounded to 8 bits: ex2(0.4545 * lg2(x))
    pow(x, 1.5)                       x * sqrt(x)
    f16((tanh(u) + 1) * v)            2 / (exp(-2 u) + 1) * v, which loses nothing near -1

``near`` marks a call whose result may be as inexact as the rounding of it hides
(``PureFunction.rounded``), or a quotient.
"""

from __future__ import annotations

from selector.intrinsics.functions import POWER_OF_TWO, PureFunction, find_function
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Expr, FloatImm
from selector.ir.types import FLOAT32, Kind, Type

BYTE = 8  # bits
LARGEST = 1024.0  # of a number that such a power is multiplied by, or that is added
ROOTS = 4  # powers by a number and a half up to here are products with a root

_SUMS = (BinaryOp.ADD, BinaryOp.SUB)
_LINES = (*_SUMS, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX)


def called(e: Call) -> tuple[PureFunction | None, tuple[Expr, ...]]:
    """The function that a call is of, if it is a pure one, and its arguments."""
    match e:
        case Call(_, "pow_f32", (FloatImm(2.0), exponent)):
            return POWER_OF_TWO, (exponent,)
        case _:
            return find_function(e.name), e.args


def root_of(e: Call) -> int | None:
    """How often its argument is multiplied by the root of it, in a power; None in another call."""
    match e:
        case Call(t, "pow_f32", (_, FloatImm(value))) if t == FLOAT32:
            whole = value - 0.5
            return int(whole) if whole.is_integer() and 0 <= whole < ROOTS else None
        case _:
            return None


def is_rounded(e: Call) -> bool:
    """Whether a function may be less exact where its result is rounded next: not a power that may
    be one of a negative number.
    """
    match e:
        case Call(_, "pow_f32", (_, FloatImm(exponent))):
            return not exponent.is_integer()
        case _:
            return not e.name.startswith("pow_")


def is_byte(t: Type, e: Expr) -> bool:
    """Whether a float becomes an integer of no more than 8 bits."""
    return t.kind in (Kind.INT, Kind.UINT) and t.bits <= BYTE and e.type == FLOAT32


def as_byte(e: Expr) -> Expr:
    """What becomes such an integer next, by lines of slopes that are not steep."""
    match e:
        case Binary(op, a, FloatImm(value) as number) if op in _LINES and abs(value) <= LARGEST:
            return Binary(op, as_byte(a), number)
        case Binary(op, FloatImm(value) as number, b) if op in _LINES and abs(value) <= LARGEST:
            return Binary(op, number, as_byte(b))
        case Call(t, "pow_f32") if is_rounded(e):
            return Call(t, "near", (e,))
        case _:
            return e


def rounded_next(e: Expr) -> Expr:
    """What is rounded to 16 bits next."""
    match e:
        case Binary(BinaryOp.ADD, Call(_, "tanh_f32", (u,)), FloatImm(1.0)) | Binary(
            BinaryOp.ADD, FloatImm(1.0), Call(_, "tanh_f32", (u,))
        ) if e.type == FLOAT32:
            power = Call(FLOAT32, "exp_f32", (Binary(BinaryOp.MUL, u, FloatImm(-2.0, FLOAT32)),))
            below = Binary(BinaryOp.ADD, power, FloatImm(1.0, FLOAT32))
            return Call(FLOAT32, "near", (Binary(BinaryOp.DIV, FloatImm(2.0, FLOAT32), below),))
        case Binary(op, a, b) if op in (*_SUMS, BinaryOp.MUL) and e.type == FLOAT32:
            return Binary(op, rounded_next(a), rounded_next(b))
        case Cast(t, v) if t == v.type:
            return rounded_next(v)
        case _:
            return e
