"""The named forms of the text form: ``ramp(..)``, ``x8(..)``, ``float32(..)``, ``select(..)``,
calls.

Every rule that a node holds to is checked here first, so that a wrong text ends in an error with a
place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from selector.dataclass import dataclass
from selector.diagnostics import ParseError
from selector.ir.lexicon import BROADCAST, DROPPED_CALLS, MOVE, REDUCE, SHUFFLES, TYPE
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Expr,
    ExprVar,
    IntImm,
    Location,
    LocToLoc,
    Ramp,
    Select,
    Shuffle,
    VectorReduce,
)
from selector.ir.types import INT32, Type

MAX_LANES = 1 << 22


@dataclass(frozen=True, slots=True)
class Form:
    """A name with arguments. ``given`` is the type in parentheses before it, or between angle
    brackets; ``plain`` marks the arguments that are bare integer literals; ``fail`` makes an error
    at the name."""

    name: str
    given: Type | None
    args: tuple[Expr, ...]
    plain: tuple[bool, ...]
    fail: Callable[[str], ParseError]

    def one(self) -> Expr:
        return self.count(1)[0]

    def count(self, n: int) -> tuple[Expr, ...]:
        if len(self.args) != n:
            raise self.fail(f"`{self.name}` takes {n} argument(s), found {len(self.args)}")
        return self.args

    def literal(self, e: Expr, low: int = 1) -> int:
        if not isinstance(e, IntImm) or e.value < low:
            raise self.fail(f"`{self.name}` wants a literal count of at least {low}")
        return e.value

    def lanes(self, n: int) -> int:
        if not 0 < n <= MAX_LANES:
            raise self.fail(f"`{self.name}` makes an impossible number of lanes: {n}")
        return n


def build_form(f: Form) -> Expr:
    """The node that a form stands for; an unknown name is a call."""
    build = _FORMS.get(f.name)
    if build is not None:
        return build(f)
    if match := BROADCAST.fullmatch(f.name):
        value = f.one()
        n = int(match[1]) if len(match[1]) < 10 else 0
        f.lanes(n * value.type.lanes)
        return Broadcast(value, n)
    if TYPE.fullmatch(f.name):
        return _cast(f, _type(f))
    if match := MOVE.fullmatch(f.name):
        return LocToLoc(Location(match[1]), Location(match[2]), f.one())
    return call(f)


def call(f: Form) -> Expr:
    """A call of a function that the text form knows nothing about."""
    return Call(f.given or INT32, f.name, f.args)


def _type(f: Form) -> Type:
    lanes = f.name.partition("x")[2]
    if lanes and (len(lanes) > 9 or not 0 < int(lanes) <= MAX_LANES):
        raise f.fail(f"{f.name} has an impossible number of lanes")
    try:
        return Type.parse(f.name)
    except ValueError as e:
        raise f.fail(str(e)) from e


def _cast(f: Form, target: Type) -> Expr:
    value = f.one()
    if target.lanes != value.type.lanes:
        raise f.fail(f"a cast of {value.type} to {target} changes the lanes")
    return Cast(target, value)


def _explicit_cast(f: Form) -> Expr:
    if f.given is None:
        raise f.fail("`cast` wants a type: cast<float32>(..)")
    return _cast(f, f.given)


def _ramp(f: Form) -> Expr:
    base, stride, count = f.count(3)
    n = f.literal(count)
    if base.type != stride.type:
        raise f.fail(f"a ramp from {base.type} in steps of {stride.type}")
    f.lanes(n * base.type.lanes)
    return Ramp(base, stride, n)


def _select(f: Form) -> Expr:
    condition, then, otherwise = f.count(3)
    if then.type != otherwise.type:
        raise f.fail(f"`select` between {then.type} and {otherwise.type}")
    if not condition.type.is_bool or condition.type.lanes not in (1, then.type.lanes):
        raise f.fail(f"`select` of {then.type} by {condition.type}")
    return Select(condition, then, otherwise)


def _extremum(f: Form) -> Expr:
    if len(f.args) < 2:
        raise f.fail(f"`{f.name}` takes at least 2 arguments")
    if len({a.type for a in f.args}) > 1:
        raise f.fail(f"`{f.name}` of {' and '.join(str(a.type) for a in f.args[:4])}")
    op = BinaryOp(f.name)
    return reduce(lambda a, b: Binary(op, a, b), f.args)


def _reduction(f: Form) -> Expr:
    """``(float32x8)vector_reduce_add(e)``, or the paper's ``vector_reduce_add(e, factor)``."""
    if len(f.args) == 2:
        value, factor = f.args[0], f.literal(f.args[1])
        if value.type.lanes % factor:
            raise f.fail(f"{factor} adjacent lanes do not divide {value.type}")
        return VectorReduce(REDUCE[f.name], value, value.type.lanes // factor)
    value = f.one()
    if f.given is None:
        raise f.fail(f"`{f.name}` wants its type before it: (float32x8){f.name}(..)")
    if f.given.element != value.type.element or value.type.lanes % f.given.lanes:
        raise f.fail(f"`{f.name}` of {value.type} cannot give {f.given}")
    return VectorReduce(REDUCE[f.name], value, f.given.lanes)


def _shuffle(f: Form) -> Expr:
    """``shuffle(vectors.., indices..)``: the bare literals at the end are the indices."""
    cut = len(f.args)
    while cut and f.plain[cut - 1]:
        cut -= 1
    vectors, indices = f.args[:cut], f.args[cut:]
    return _shuffled(f, vectors, tuple(f.literal(i, 0) for i in indices))


def _shuffled(f: Form, vectors: tuple[Expr, ...], indices: tuple[int, ...]) -> Expr:
    total = sum(v.type.lanes for v in vectors)
    if not vectors or not indices or len({v.type.element for v in vectors}) > 1:
        raise f.fail(f"`{f.name}` wants vectors of one element type, and lanes")
    if not all(0 <= i < total for i in indices):
        raise f.fail(f"`{f.name}` picks a lane outside the {total} lanes that it has")
    f.lanes(len(indices))
    return Shuffle(vectors, indices)


def _concat(f: Form) -> Expr:
    return _shuffled(f, f.args, tuple(range(f.lanes(sum(a.type.lanes for a in f.args)))))


def _interleave(f: Form) -> Expr:
    if len({a.type for a in f.args}) != 1:
        raise f.fail("`interleave_vectors` wants vectors of one type")
    n, lanes = len(f.args), f.args[0].type.lanes
    return _shuffled(f, f.args, tuple(k * lanes + i for i in range(lanes) for k in range(n)))


def _slice(f: Form) -> Expr:
    value, begin, stride, size = f.count(4)
    low, step, n = f.literal(begin, 0), f.literal(stride, -MAX_LANES), f.literal(size)
    return _shuffled(f, (value,), tuple(low + step * i for i in range(f.lanes(n))))


def _extract(f: Form) -> Expr:
    value, index = f.count(2)
    return _shuffled(f, (value,), (f.literal(index, 0),))


def _dropped(f: Form) -> Expr:
    if not f.args:
        raise f.fail(f"`{f.name}` wants an argument")
    return f.args[0]


_FORMS: dict[str, Callable[[Form], Expr]] = {
    "cast": _explicit_cast,
    "ramp": _ramp,
    "select": _select,
    "min": _extremum,
    "max": _extremum,
    "shuffle": _shuffle,
    "concat_vectors": _concat,
    "interleave_vectors": _interleave,
    "slice_vectors": _slice,
    "extract_element": _extract,
    "ExprVar": lambda f: ExprVar(f.one()),
    **dict.fromkeys(REDUCE, _reduction),
    **dict.fromkeys(DROPPED_CALLS, _dropped),
}
assert _FORMS.keys() >= SHUFFLES
