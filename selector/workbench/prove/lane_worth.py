"""Values of lanes: what is known of them, and the digits that lanes are cut into."""

from __future__ import annotations

from fractions import Fraction

from selector.dataclass import dataclass
from selector.ir.nodes import BinaryOp
from selector.ir.types import Type, round_to
from selector.operands.exact import inside, whole_numbers
from selector.workbench.prove.terms import ZERO, Number, Poly, number

Exact = frozenset[Type | Number]
"""Types and numbers of which a float is one."""


@dataclass(frozen=True, slots=True)
class Digit:
    """A number with how many values it has; of a named one, how many lanes its part is of."""

    value: Poly
    extent: int
    name: str = ""
    before: int = 1


Digits = tuple[Digit, ...]
"""The lane's, innermost first."""


@dataclass(frozen=True)
class LaneCut(Exception):  # noqa: N818 (begin anew with two digits)
    """A named digit has to be cut where so many values are below."""

    digit: str
    end: int


class OneByOne(Exception):  # noqa: N818 (begin anew)
    """Lanes or summands have to be looked at one by one."""


@dataclass(frozen=True, slots=True)
class Worth:
    """A value of a scalar type. ``within``: its least and largest, if it is known to be a whole
    number; ``exact``: what a float is one of; ``open``: not rounded to its type yet."""

    poly: Poly
    type: Type
    within: tuple[int, int] | None = None
    exact: Exact = frozenset()
    open: bool = False


def cut(at: Digits, width: int) -> tuple[Digits, Digits]:
    """The digits of the lanes below a width, and those above."""
    inner: list[Digit] = []
    done = 1
    for i, d in enumerate(at):
        if done == width:
            return tuple(inner), at[i:]
        if width % (done * d.extent) == 0:
            inner.append(d)
            done *= d.extent
            continue
        part = width // done
        if width % done or d.extent % part:
            raise OneByOne
        if d.value.constant is None:
            raise LaneCut(d.name, d.before * part)
        high, low = divmod(int(d.value.constant), part)
        outer = Digit(number(high), d.extent // part)
        return (*inner, Digit(number(low), part)), (outer, *at[i + 1 :])
    if done != width:
        raise AssertionError(f"a vector of {done} lanes is read as one of {width}")
    return tuple(inner), ()


def lane_number(at: Digits) -> Poly:
    """The lane that digits make."""
    total, before = ZERO, 1
    for d in at:
        total, before = total + d.value.scaled(before), before * d.extent
    return total


def constant(value: float, t: Type) -> Worth:
    exact = Fraction(value)
    whole = exact.denominator == 1
    known = number(exact.numerator if whole else exact)
    return Worth(known, t, (int(value), int(value)) if whole else None, frozenset((exact,)))


def truth(t: Type, p: Poly) -> Worth:
    return Worth(p, t.element, (0, 1))


def combined(
    op: BinaryOp, a: tuple[int, int] | None, b: tuple[int, int] | None
) -> tuple[int, int] | None:
    """The range of a result; not by ``operands.exact``, whose ranges are what is in question."""
    if a is None or b is None:
        return None
    match op:
        case BinaryOp.ADD:
            return a[0] + b[0], a[1] + b[1]
        case BinaryOp.SUB:
            return a[0] - b[1], a[1] - b[0]
        case BinaryOp.MUL:
            ends = [x * y for x in a for y in b]
            return min(ends), max(ends)
        case BinaryOp.MIN:
            return min(a[0], b[0]), min(a[1], b[1])
        case BinaryOp.MAX:
            return max(a[0], b[0]), max(a[1], b[1])
        case _:
            return None


def is_sign(v: Worth) -> bool:
    return v.within is not None and v.within[0] >= -1 and v.within[1] <= 1


def is_half(v: Worth) -> bool:
    """Whether a float is one of 16 bits."""
    return bool(v.exact) and all(isinstance(x, Type) and x.bits <= 16 for x in v.exact)


def fits(v: Worth, t: Type) -> bool:
    """Whether a type has a value exactly."""
    if v.within is not None:
        return inside(v.within, whole_numbers(t))
    return t.is_float and bool(v.exact) and all(_has(t, x) for x in v.exact)


def _has(t: Type, exact: Type | Number) -> bool:
    if not isinstance(exact, Type):
        return Fraction(round_to(float(exact), t)) == exact
    if exact.stored != exact:
        return True
    return exact == t or (exact.is_float and exact.bits < t.bits)
