"""The nodes of the vectorized loop IR: expressions and statements; and a pipeline's parameters.

Frozen, slotted dataclasses; tuples, never lists. Every expression has a ``type`` whose lanes say
how long a vector it is; a node whose parts do not fit is ``IllTyped``, under ``python -O``, too.
The types of the commonest nodes are worked out as they are made: every pass asks for them again and
again.

Meaning of the vector nodes (``hardboiled`` section III):

* ``Ramp(b, s, n)`` is the concatenation of ``b, b + s, ..., b + (n - 1) s``; b and s may be
  vectors.
* ``Broadcast(e, n)`` is the concatenation of n copies of e.
* ``VectorReduce(op, e, lanes)`` reduces each run of ``e.lanes / lanes`` adjacent lanes to one lane.

Integer division and modulo round towards minus infinity for a positive divisor (Halide's rule); a
division by zero gives zero. A ``Load`` whose predicate lane is false gives zero in that lane; a
``Store`` leaves it alone.
"""

from __future__ import annotations

from dataclasses import field

from selector.dataclass import dataclass, unguarded
from selector.ir.kinds import BinaryOp, CompareOp, ForKind, Location, Memory, ReduceOp, Role
from selector.ir.known import Known, keep, node
from selector.ir.types import BOOL, INT32, IllTyped, Type, round_to


@unguarded
class IntImm(Known):
    value: int
    type: Type = INT32

    def __post_init__(self) -> None:
        if not self.type.is_integer or self.type.lanes != 1:
            raise IllTyped(f"no integer literal is of type {self.type}")

    def __hash__(self) -> int:  # a program has few equal numbers of several types
        return hash(self.value)


@node
class FloatImm(Known):
    """``value`` is rounded to the type, so that equal literals compare equal."""

    value: float
    type: Type

    def __post_init__(self) -> None:
        if not self.type.is_float or self.type.lanes != 1:
            raise IllTyped(f"no float literal is of type {self.type}")
        object.__setattr__(self, "value", round_to(float(self.value), self.type))


@unguarded
class Var(Known):
    name: str
    type: Type = INT32

    def __hash__(self) -> int:  # the names of a program tell its variables apart
        return hash(self.name)


@node
class Cast(Known):
    type: Type
    value: Expr

    def __post_init__(self) -> None:
        if self.type.lanes != self.value.type.lanes:
            raise IllTyped("a cast keeps the lanes")


@node
class Binary(Known):
    op: BinaryOp
    a: Expr
    b: Expr
    type: Type = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        t = self.a.type
        if t != self.b.type:
            raise IllTyped(f"{self.op.name}: {t} and {self.b.type}")
        keep(self, "type", t)


@node
class Compare(Known):
    op: CompareOp
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.a.type != self.b.type:
            raise IllTyped(f"{self.op.name}: {self.a.type} and {self.b.type}")

    @property
    def type(self) -> Type:
        return BOOL.with_lanes(self.a.type.lanes)


@node
class Not(Known):
    value: Expr

    def __post_init__(self) -> None:
        if not self.value.type.is_bool:
            raise IllTyped(f"not: {self.value.type}")

    @property
    def type(self) -> Type:
        return self.value.type


@node
class Select(Known):
    condition: Expr
    then: Expr
    otherwise: Expr
    type: Type = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        t = self.then.type
        if t != self.otherwise.type:
            raise IllTyped(f"select: {t} and {self.otherwise.type}")
        if not self.condition.type.is_bool or self.condition.type.lanes not in (1, t.lanes):
            raise IllTyped(f"select: {self.condition.type} chooses among {t}")
        keep(self, "type", t)


def _check_access(lanes: int, index: Expr, predicate: Expr | None) -> None:
    if index.type.lanes != lanes:
        raise IllTyped(f"{index.type.lanes} indices for {lanes} lanes")
    if predicate is not None and predicate.type != BOOL.with_lanes(lanes):
        raise IllTyped(f"a predicate of type {predicate.type} for {lanes} lanes")


@node
class Load(Known):
    """``buffer[index]``; index in elements, int32 with one lane per lane of the result."""

    type: Type
    buffer: str
    index: Expr
    predicate: Expr | None = None

    def __post_init__(self) -> None:
        _check_access(self.type.lanes, self.index, self.predicate)


@node
class Ramp(Known):
    base: Expr
    stride: Expr
    count: int
    type: Type = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        t = self.base.type
        if t != self.stride.type:
            raise IllTyped("base and stride of a ramp have one type")
        if self.count < 1:
            raise IllTyped(f"a ramp of {self.count} parts")
        keep(self, "type", t.with_lanes(t.lanes * self.count))


@node
class Broadcast(Known):
    value: Expr
    count: int
    type: Type = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise IllTyped(f"a broadcast of {self.count} parts")
        t = self.value.type
        keep(self, "type", t.with_lanes(t.lanes * self.count))


@node
class VectorReduce(Known):
    op: ReduceOp
    value: Expr
    lanes: int

    def __post_init__(self) -> None:
        if self.value.type.lanes % self.lanes:
            raise IllTyped("a reduction divides the lanes")

    @property
    def type(self) -> Type:
        return self.value.type.with_lanes(self.lanes)


@node
class Call(Known):
    """A function or an instruction: its record in ``selector.intrinsics`` gives the meaning."""

    type: Type
    name: str
    args: tuple[Expr, ...]


@node
class Shuffle(Known):
    """Lanes ``indices`` of the concatenation of ``vectors``."""

    vectors: tuple[Expr, ...]
    indices: tuple[int, ...]

    def __post_init__(self) -> None:
        total = sum(v.type.lanes for v in self.vectors)
        if not self.indices or not all(0 <= i < total for i in self.indices):
            raise IllTyped(f"a shuffle of {total} lanes takes the lanes {self.indices}")

    @property
    def type(self) -> Type:
        return self.vectors[0].type.with_lanes(len(self.indices))


@node
class Let(Known):
    name: str
    value: Expr
    body: Expr

    @property
    def type(self) -> Type:
        return self.body.type


@node
class LocToLoc(Known):
    """A value moved between memory and a tensor unit's registers; the value itself is unchanged."""

    source: Location
    destination: Location
    value: Expr

    @property
    def type(self) -> Type:
        return self.value.type


@node
class ExprVar(Known):
    """The value of an expression, kept in a temporary buffer (the paper's appendix A)."""

    value: Expr

    @property
    def type(self) -> Type:
        return self.value.type


Expr = (
    IntImm | FloatImm | Var | Cast | Binary | Compare | Not | Select | Load | Ramp | Broadcast
    | VectorReduce | Call | Shuffle | Let | LocToLoc | ExprVar
)  # fmt: skip


@unguarded
class Store(Known):
    buffer: str
    index: Expr
    value: Expr
    predicate: Expr | None = None

    def __post_init__(self) -> None:
        _check_access(self.value.type.lanes, self.index, self.predicate)


@unguarded
class Evaluate(Known):
    value: Expr


@unguarded
class For(Known):
    name: str
    min: Expr
    extent: Expr
    kind: ForKind
    body: Stmt


@unguarded
class Allocate(Known):
    """Storage for ``extents`` (innermost first, constants or expressions) elements during ``body``.

    ``stages`` > 1 asks for a ring of that many copies, filled ahead by the loop around the
    producer.
    """

    name: str
    type: Type
    extents: tuple[Expr, ...]
    memory: Memory
    body: Stmt
    stages: int = 1


@unguarded
class IfThenElse(Known):
    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None


@unguarded
class LetStmt(Known):
    name: str
    value: Expr
    body: Stmt


@unguarded
class Block(Known):
    stmts: tuple[Stmt, ...]


@unguarded
class Atomic(Known):
    producer: str
    body: Stmt


Stmt = Store | Evaluate | For | Allocate | IfThenElse | LetStmt | Block | Atomic


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of a buffer, innermost first. Units are elements.

    ``extent`` and ``stride`` are ``IntImm`` where fixed at compile time, else ``Var("I.extent.0")``
    and the like.
    """

    min: Expr
    extent: Expr
    stride: Expr


@dataclass(frozen=True, slots=True)
class BufferParam:
    name: str
    type: Type
    dims: tuple[Dim, ...]
    role: Role


@dataclass(frozen=True, slots=True)
class ScalarParam:
    name: str
    type: Type
