"""The states of the threads of a scan: where they lie in shared memory, and what one becomes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from selector.dataclass import dataclass
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    For,
    IntImm,
    Load,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, literal, mul
from selector.lowering.row_folds import neutral_of
from selector.lowering.scans.find import Spread
from selector.lowering.scans.memory import KnownWeights
from selector.lowering.scans.steps import Buffers


@dataclass(frozen=True, slots=True)
class States:
    """Those of ``threads`` along a recurrence, of which ``along`` is one, and of ``count`` beside
    each other, of which the one at hand is number ``beside``. Each state is of so many numbers as
    the recurrence's order, and there are two ``half``s, of before and after a round.
    """

    found: Spread
    buffers: Buffers
    along: Var
    threads: int
    known: KnownWeights | None
    beside: Expr
    count: int

    def combined(self, value: Expr, n: int, earlier: Sequence[Expr], power: int) -> Expr:
        """Number ``n`` of a state and what an earlier state becomes on the way."""
        p = self.found
        if p.plain:
            return Binary(BinaryOp.ADD if p.join is None else p.join, value, earlier[0])
        if self.known is not None:
            row = self.known.power(p.steps << power)[n]
            terms = (mul(FloatImm(w, p.type), x) for w, x in zip(row, earlier, strict=True))
            return reduce(add, terms, value)
        for m, other in enumerate(earlier):
            place = (power * p.order + n) * p.order + m
            term = mul(Load(p.type, self.buffers.powers, IntImm(place)), other)
            if p.type.is_float:  # a power may be infinite
                nothing = literal(0, p.type)
                term = Select(Compare(CompareOp.EQ, other, nothing), nothing, term)
            value = add(value, term)
        return value

    def slot(self, half: int, n: int, thread: Expr) -> Expr:
        """Where number ``n`` of a thread's state is."""
        row = add(IntImm((half * self.found.order + n) * self.threads), thread)
        return add(mul(row, IntImm(self.count)), self.beside)

    def stored(self, half: int, n: int, value: Expr) -> Stmt:
        return Store(self.buffers.state, self.slot(half, n, self.along), value)

    def at(self, half: int, n: int, thread: Expr) -> Expr:
        return Load(self.found.type, self.buffers.state, self.slot(half, n, thread))

    def before(self, n: int) -> Expr:
        return add(IntImm(n * self.count), self.beside)

    @property
    def zero(self) -> Expr:
        """A state that changes none after it."""
        return neutral_of(self.found.join or BinaryOp.ADD, self.found.type)


def flat(loops: Sequence[For]) -> tuple[Expr, int]:
    """The number of a thread beside others, and how many there are."""
    index: Expr = IntImm(0)
    count = 1
    for x in reversed(loops):
        assert isinstance(x.extent, IntImm)
        index = add(index, mul(Var(x.name), IntImm(count)))
        count *= x.extent.value
    return index, count
