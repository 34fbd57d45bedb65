"""A vector as the loops that compute it: ``ramp`` and ``broadcast`` are loops around their bases, a
reduction is a sum over its inner lanes.

    for i < 16, j < 16:
        [i, j] = sum(k < 2: float32(A[a + 2*i + k])*float32(B[b + j + 16*k]))
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from itertools import islice, pairwise
from math import prod

from selector.dataclass import dataclass
from selector.ir.kinds import BinaryOp, ReduceOp
from selector.ir.nodes import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Expr,
    ExprVar,
    FloatImm,
    IntImm,
    Load,
    LocToLoc,
    Not,
    Ramp,
    Select,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.printer import print_expr
from selector.ir.types import BOOL

_OUTER, _INNER = "ijhgfe", "klpqst"  # names of loops: of lanes, of what is reduced
_REDUCED = {ReduceOp.ADD: "sum", ReduceOp.MAX: "max", ReduceOp.MIN: "min"}
_WORDS = (BinaryOp.MIN, BinaryOp.MAX)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The loops of a vector's lanes, outermost first, by their extents; ``at``: a lane in the text
    of one index a loop.
    """

    extents: tuple[int, ...]
    at: Callable[[Sequence[str]], str]

    @property
    def count(self) -> int:
        return prod(self.extents)


@dataclass(slots=True)
class Nests:
    """Draws vectors; what calls are given is drawn below them."""

    operands: list[tuple[str, Expr]] = field(default_factory=list[tuple[str, Expr]])
    _used: set[str] = field(default_factory=set[str])

    def draw(self, e: Expr | Store) -> list[str]:
        """Lines: the loops, and what each lane is or stores."""
        lanes = self._stored(e) if isinstance(e, Store) else self.lanes(e)
        with self._loops(_OUTER, lanes.extents) as (digits, names, loops):
            lane = lanes.at(digits)
        if not names:
            return [lane]
        head = "" if isinstance(e, Store) else f"[{', '.join(names)}] = "
        return [f"for {loops}:", f"    {head}{lane}"]

    def _stored(self, s: Store) -> Lanes:
        if s.predicate is None:
            return self._of(f"{s.buffer}[%s] = %s", s.index, s.value)
        return self._of(f"{s.buffer}[%s] = %s if %s", s.index, s.value, s.predicate)

    def lanes(self, e: Expr) -> Lanes:
        """The loops of an expression."""
        match e:
            case IntImm(value) | FloatImm(value):
                return Lanes((), lambda _: str(value))
            case Var(name):
                return _named(name, e)
            case Ramp(base, stride, count):
                start, step = _together(self.lanes(base), self.lanes(stride))
                return Lanes(
                    (count, *start.extents),
                    lambda d: _plus(start.at(d[1:]), _times(step.at(d[1:]), d[0])),
                )
            case Broadcast(value, count):
                inner = self.lanes(value)
                return Lanes((count, *inner.extents), lambda d: inner.at(d[1:]))
            case VectorReduce(op, value):
                return self._reduced(op, self.lanes(value), e.type.lanes)
            case Call(name=name, args=args):
                return self._call(name, args, e)
            case _:
                return self._each(e)

    def _each(self, e: Expr) -> Lanes:
        """What is computed lane by lane."""
        match e:
            case Load(buffer=buffer, index=index, predicate=predicate):
                if predicate is None or _holds(predicate):
                    return self._of(f"{buffer}[%s]", index)
                return self._of(f"({buffer}[%s] if %s else 0)", index, predicate)
            case Cast(value=value):
                return self._of(f"{e.type.element}(%s)", value)
            case Binary(op, a, b) if op in _WORDS:
                return self._of(f"{op.value}(%s, %s)", a, b)
            case Binary(BinaryOp.MUL, a, b):
                return self._of("%s*%s", a, b, inside=True)
            case Binary(op, a, b) | Compare(op, a, b):
                return self._of(f"(%s {op.value.replace('%', '%%')} %s)", a, b, inside=True)
            case Not(value):
                return self._of("!%s", value, inside=True)
            case Select(c, a, b):
                return self._of("(%s if %s else %s)", a, c, b)
            case ExprVar(value) | LocToLoc(value=value):
                return self.lanes(value)
            case _:
                return _named(print_expr(e), e)

    def _of(self, form: str, *parts: Expr, inside: bool = False) -> Lanes:
        """One lane of each part in a form; ``inside``: in brackets."""
        same = _together(*map(self.lanes, parts))

        def at(digits: Sequence[str]) -> str:
            lanes = [p.at(digits) for p in same]
            return form % tuple(map(_inside, lanes) if inside else lanes)

        return Lanes(same[0].extents, at)

    def _reduced(self, op: ReduceOp, inner: Lanes, count: int) -> Lanes:
        """``count`` results, each of so many neighbouring lanes."""
        fine = _refined(inner, {inner.count // count})
        if fine is None:
            fine = Lanes((count, inner.count // count), _flat(inner))
        split = next(i for i in range(len(fine.extents) + 1) if prod(fine.extents[:i]) == count)
        word = _REDUCED.get(op, op.value)
        over = fine.extents[split:]

        def at(digits: Sequence[str]) -> str:
            with self._loops(_INNER, over) as (inner_digits, names, loops):
                lane = fine.at([*digits, *inner_digits])
            return f"{word}({loops}: {lane})" if names else lane

        return Lanes(fine.extents[:split], at)

    def _call(self, name: str, args: Sequence[Expr], e: Expr) -> Lanes:
        """A call over what it is given, which is drawn apart: its lanes are the call's own."""
        said: list[str] = []
        for a in args:
            if a.type.lanes > 1:
                said.append(f"v{len(self.operands)}")
                self.operands.append((said[-1], a))
            else:
                said.append(print_expr(a))
        return _named(f"{name}({', '.join(said)})", e)

    @contextmanager
    def _loops(
        self, letters: str, extents: Sequence[int]
    ) -> Generator[tuple[list[str], list[str], str]]:
        """An index for each of some loops, zero where there is one iteration; the names of the
        others, which no loop around them has; and what is said of these.
        """
        wide = [n for n in extents if n > 1]
        free = (x + "'" * n for n in range(9) for x in letters)
        names = list(islice((x for x in free if x not in self._used), len(wide)))
        left = iter(names)
        digits = [next(left) if n > 1 else "0" for n in extents]
        self._used.update(names)
        said = (f"{name} < {n}" for name, n in zip(names, wide, strict=True))
        yield digits, names, ", ".join(said)
        self._used.difference_update(names)


def drawn(e: Expr | Store) -> Iterator[str]:
    """Lines: an expression's loops, then those of what its calls are given, by their names."""
    nests = Nests()
    yield from nests.draw(e)
    at = 0
    while at < len(nests.operands):
        name, operand = nests.operands[at]
        first, *rest = nests.draw(operand)
        yield f"{name} = {first}"
        yield from (f"     {line}" for line in rest)
        at += 1


def _named(name: str, e: Expr) -> Lanes:
    count = e.type.lanes
    if count == 1:
        return Lanes((), lambda _: name)
    return Lanes((count,), lambda d: f"{name}[{d[0]}]")


def _holds(predicate: Expr) -> bool:
    """Whether it is written as one that holds in all lanes."""
    match predicate:
        case Broadcast(value, _):
            return _holds(value)
        case Binary(BinaryOp.AND, a, b):
            return _holds(a) and _holds(b)
        case _:
            return predicate == IntImm(1, BOOL)


def _together(*parts: Lanes) -> tuple[Lanes, ...]:
    """Vectors of as many lanes over the same loops: the coarsest that divide all of theirs, else
    one.
    """
    bounds = set[int]().union(*(_bounds(p.extents) for p in parts))
    fine = [_refined(p, bounds) for p in parts]
    if all(f is not None for f in fine):
        return tuple(f for f in fine if f is not None)
    return tuple(Lanes((p.count,), _flat(p)) for p in parts)


def _bounds(extents: Sequence[int]) -> set[int]:
    """Lanes of each inner part of a nest."""
    return {prod(extents[i:]) for i in range(len(extents) + 1)}


def _refined(lanes: Lanes, bounds: set[int]) -> Lanes | None:
    """The same lanes in loops whose inner parts have these numbers of lanes, too; None if they do
    not divide each other.
    """
    known = sorted(bounds | _bounds(lanes.extents))
    if any(b % a for a, b in pairwise(known)):
        return None
    extents = tuple(b // a for a, b in pairwise(known))[::-1]

    def at(digits: Sequence[str]) -> str:
        found, inner = list[str](), lanes.count
        for n in lanes.extents:
            inner //= n
            own = [k for k in known[:-1] if inner <= k < inner * n][::-1]
            terms = (_times(str(k // inner), digits[-1 - known.index(k)]) for k in own)
            found.append(_sum(terms))
        return lanes.at(found)

    return Lanes(extents, at)


def _flat(lanes: Lanes) -> Callable[[Sequence[str]], str]:
    """A lane by its number, or by that of its part and its number there."""

    def at(digits: Sequence[str]) -> str:
        lane, found, inner = digits[-1], list[str](), lanes.count
        if len(digits) > 1:
            lane = _plus(_times(str(lanes.count), digits[0]), lane)
        for n in lanes.extents:
            inner //= n
            quotient = _inside(lane) if inner == 1 else f"{_inside(lane)}/{inner}"
            found.append(f"({quotient}%{n})")
        return lanes.at(found)

    return at


def _sum(terms: Iterable[str]) -> str:
    found = "0"
    for t in terms:
        found = _plus(found, t)
    return found


def _inside(text: str) -> str:
    """In brackets, where it is not whole without."""
    depth = 0
    for c in text:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(c, 0)
        if c == " " and not depth:
            return f"({text})"
    return text


def _plus(a: str, b: str) -> str:
    if a == "0" or b == "0":
        return b if a == "0" else a
    return f"{a} - {b[1:]}" if b.startswith("-") and " " not in b else f"{a} + {b}"


def _times(a: str, b: str) -> str:
    if "0" in (a, b):
        return "0"
    if "1" in (a, b):
        return b if a == "1" else a
    if a == "-1":
        return f"-{_inside(b)}"
    return f"{_inside(a)}*{_inside(b)}"
