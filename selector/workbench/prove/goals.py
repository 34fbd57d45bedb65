"""What meanings say of a rule's actions, as goals: the other reader of ``relations`` and
``meaning`` beside ``Context``.

A goal puts itself as formulas of one attempt, begun anew where a digit has to be cut. Types are
told from the premises alone, without formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field

import z3

from selector.dataclass import dataclass
from selector.workbench.prove.context import At, Cls, Context
from selector.workbench.prove.formulas import Either, Value
from selector.workbench.prove.lemmas import equality
from selector.workbench.prove.sizes import ZERO, Poly, Unproved
from selector.workbench.prove.values import Attempt


@dataclass(frozen=True, slots=True)
class Goal:
    """What has to hold, and how to put it as formulas of one attempt; no formula for what is plain;
    ``Unproved`` says why it is not."""

    text: str
    formulas: Callable[[Attempt], Iterator[Value | Either]]


@dataclass
class Goals:
    """What meanings say of a rule's actions, each a goal."""

    context: Context
    found: list[Goal] = field(default_factory=list[Goal])

    def _add(self, text: str, formulas: Callable[[Attempt], Iterator[Value | Either]]) -> None:
        self.found.append(Goal(text, formulas))

    def size(self, *counts: Poly) -> None:
        for p in counts:
            if not self.context.sizes.is_positive(p):
                self.holds(">", p, ZERO)

    def lanes(self, e: Cls, count: Poly) -> None:
        def equal(at: Attempt) -> Iterator[Value | Either]:
            own = at.sizes.expanded(self.context.lane_count(e))
            other = at.sizes.expanded(count)
            if own != other:
                yield at.z(own) == at.z(other)

        self._add("as many lanes", equal)

    def same_type(self, *of: Cls | str) -> None:
        strings = self.context.strings
        for other in of[1:]:
            a, b = map(self.context.string, (of[0], other))
            a, b = (b, a) if b in strings.free else (a, b)
            if a in strings.free and a != b and (b in strings.free or strings.is_integer(b)):
                strings.free.discard(a)
                strings.unite(a, b)
            self._types(*map(self.context.string, (of[0], other)))

    def _types(self, a: str, b: str) -> None:
        def equal(at: Attempt) -> Iterator[Value | Either]:
            if {a, b} & self.context.strings.free and a != b:
                raise Unproved("a number beside what need not be of a type of integers")
            if a != b:
                raise Unproved(f"the types {_type(a)} and {_type(b)} need not be one")
            yield from ()

        self._add("one type", equal)

    def integer(self, e: Cls) -> None:
        def is_integer(at: Attempt) -> Iterator[Value | Either]:
            if not self.context.is_integer(e):
                raise Unproved("a ramp or an index of a type that need not be one of integers")
            yield from ()

        self._add("an integer", is_integer)

    def strided(self, e: Cls, *strides: Cls) -> None:
        for s in strides:
            if not self.context.is_zero(s):
                self.same_type(e, s)
                self.integer(e)

    def combined(self, op: str, e: Cls, a: Cls, b: Cls) -> None:
        context = self.context
        zeros = [x for x in (a, b) if context.string(op) in ("+", "*") and context.is_zero(x)]
        if zeros and context.string(op) == "*":
            context.number(e)
            return
        if not zeros:
            self.same_type(a, b)
        context.same_type(e, b if a in zeros else a)

    def holds(self, relation: str, a: Poly, b: Poly) -> None:
        def holds(at: Attempt) -> Iterator[Value | Either]:
            if relation != "|":
                yield at.relation(relation, a, b)
            elif at.sizes.expanded(b).over(at.sizes.resolved(a)) is None:
                q = z3.Int("times")
                yield z3.Exists([q], at.z(b) == at.z(a) * q)

        shown = f"{a} divides {b}" if relation == "|" else f"{a} {relation} {b}"
        self._add(shown, holds)

    def greatest(self, a: Poly, b: Poly, divisor: Poly) -> None:
        self.demand(self.context.is_greatest(a, b, divisor), "the greatest common divisor")

    def either(self, a: Poly, *values: int) -> None:
        def one_of(at: Attempt) -> Iterator[Value | Either]:
            yield z3.Or(*(at.z(a) == v for v in values))

        self._add(f"{a} in {values}", one_of)

    def value(self, e: Cls, at: At) -> None:
        def equal(attempt: Attempt) -> Iterator[Value | Either]:
            lane = attempt.fresh("#", self.context.lane_count(e))
            yield from equality(attempt, attempt.value(e, lane), at(attempt, lane))

        self._add("the value of a lane", equal)

    def lanewise(self, e: Cls, at: At) -> None:
        def holds(attempt: Attempt) -> Iterator[Value | Either]:
            yield at(attempt, attempt.fresh("#", self.context.lane_count(e)))

        self._add("what holds of a lane", holds)

    def demand(self, is_so: bool, what: str) -> None:
        def so(at: Attempt) -> Iterator[Value | Either]:
            if not is_so:
                raise Unproved(f"it needs {what}")
            yield from ()

        self._add(what, so)


def _type(name: str) -> str:
    return name.lstrip("?") if not name.startswith("of:") else "of an operand"
