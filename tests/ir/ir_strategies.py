"""Random well-typed expressions, statements and modules for the property tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from selector.ir import nodes as ir
from selector.ir import remarks
from selector.ir.module import Module
from selector.ir.nodes import BinaryOp, CompareOp, Expr, ReduceOp, Stmt
from selector.ir.types import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT16,
    Kind,
    Type,
)

BUFFERS = {
    "I": FLOAT16,
    "A.b$1": BFLOAT16,
    "acc": FLOAT32,
    "table": INT32,
    "mask": UINT8,
    "x": INT8,
}
ELEMENTS = (
    INT32, INT32, FLOAT32, FLOAT16, BFLOAT16, FLOAT64, INT8, UINT8, UINT16, INT64, BOOL,
)  # fmt: skip
NAMES = ("x", "y", "I.stride.1", ".thread_id_x", "r$x", "select", "let", "a b", "x8", "`", "é", "")
FUNCTIONS = ("sqrt_f32", "wmma.mma.m32n8k16.f16.f32", "x8", "ramp", "float32", "mem_to_amx", "f")
LANES = (1, 1, 2, 3, 4, 6, 8)

Draw = Callable[[st.SearchStrategy[Any]], Any]


class Maker:
    """Draws nodes one by one, so that nothing is built that is not used."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(tuple(options)))

    def name(self) -> str:
        return self.pick(NAMES)

    def type(self, lanes: int | None = None) -> Type:
        return self.pick(ELEMENTS).with_lanes(self.pick(LANES) if lanes is None else lanes)

    def literal(self, t: Type) -> Expr:
        if t.is_float:
            return ir.FloatImm(self.draw(st.floats() | st.integers(-8, 8).map(float)), t)
        low = -(1 << (t.bits - 1)) if t.kind is Kind.INT else 0
        high = (1 << (t.bits - (t.kind is Kind.INT))) - 1
        return ir.IntImm(self.draw(st.integers(low, high) | st.integers(0, 1)), t)

    def leaf(self, t: Type) -> Expr:
        if self.draw(st.booleans()):
            return ir.Var(self.name(), t)
        value = self.literal(t.element)
        return value if t.lanes == 1 else ir.Broadcast(value, t.lanes)

    def expr(self, t: Type, depth: int = 3) -> Expr:
        if depth == 0:
            return self.leaf(t)
        rules = [self._plain, self._binary, self._memory, self._call, self._vector, self._other]
        if t.is_bool:
            rules.append(self._logic)
        return self.pick(rules)(t, depth - 1)

    def _plain(self, t: Type, d: int) -> Expr:
        return self.leaf(t)

    def _binary(self, t: Type, d: int) -> Expr:
        logic = (BinaryOp.AND, BinaryOp.OR)
        op = self.pick(op for op in BinaryOp if t.is_bool or op not in logic)
        return ir.Binary(op, self.expr(t, d), self.expr(t, d))

    def _memory(self, t: Type, d: int) -> Expr:
        buffer = self.pick([b for b, e in BUFFERS.items() if e == t.element] or ["other"])
        masked = self.draw(st.booleans())
        predicate = self.expr(BOOL.with_lanes(t.lanes), d) if masked else None
        return ir.Load(t, buffer, self.expr(INT32.with_lanes(t.lanes), d), predicate)

    def _call(self, t: Type, d: int) -> Expr:
        args = (self.expr(self.type(), d) for _ in range(self.pick((0, 1, 2, 3))))
        return ir.Call(t, self.pick(FUNCTIONS), tuple(args))

    def _vector(self, t: Type, d: int) -> Expr:
        n = self.pick(n for n in range(1, t.lanes + 1) if t.lanes % n == 0)
        inner = t.with_lanes(t.lanes // n)
        match self.pick(("ramp", "broadcast", "reduce", "shuffle")):
            case "ramp":
                return ir.Ramp(self.expr(inner, d), self.expr(inner, d), n)
            case "broadcast":
                return ir.Broadcast(self.expr(inner, d), n)
            case "reduce":
                wide = t.with_lanes(t.lanes * self.pick((1, 2, 3)))
                return ir.VectorReduce(self.pick(ReduceOp), self.expr(wide, d), t.lanes)
            case _:
                return self._shuffle(t, d)

    def _shuffle(self, t: Type, d: int) -> Expr:
        count = self.pick((1, 2, 3))
        vectors = tuple(self.expr(t.with_lanes(self.pick(LANES)), d) for _ in range(count))
        lanes = st.integers(0, sum(v.type.lanes for v in vectors) - 1)
        indices = self.draw(st.lists(lanes, min_size=t.lanes, max_size=t.lanes))
        return ir.Shuffle(vectors, tuple(indices))

    def _other(self, t: Type, d: int) -> Expr:
        match self.pick(("cast", "select", "let", "move", "variable")):
            case "cast":
                return ir.Cast(t, self.expr(self.type(t.lanes), d))
            case "select":
                condition = self.expr(BOOL.with_lanes(self.pick((1, t.lanes))), d)
                return ir.Select(condition, self.expr(t, d), self.expr(t, d))
            case "let":
                return ir.Let(self.name(), self.expr(self.type(), d), self.expr(t, d))
            case "move":
                a, b = self.pick(ir.Location), self.pick(ir.Location)
                return ir.LocToLoc(a, b, self.expr(t, d))
            case _:
                return ir.ExprVar(self.expr(t, d))

    def _logic(self, t: Type, d: int) -> Expr:
        if self.draw(st.booleans()):
            return ir.Not(self.expr(t, d))
        s = self.type(t.lanes)
        return ir.Compare(self.pick(CompareOp), self.expr(s, d), self.expr(s, d))

    def stmt(self, depth: int = 3, inside_block: bool = False) -> Stmt:
        """A statement; no block in a block and none of one statement, which have no text of their
        own."""
        kinds = ["store", "evaluate"]
        if depth > 0:
            kinds += ["for", "if", "let", "allocate", "atomic"]
            kinds += [] if inside_block else ["block"]
        match self.pick(kinds):
            case "store":
                return self._store(self.type())
            case "evaluate":
                return ir.Evaluate(self.expr(self.type(), 2))
            case "block":
                count = self.pick((0, 2, 3))
                return ir.Block(tuple(self.stmt(depth - 1, True) for _ in range(count)))
            case kind:
                return self._nested(kind, depth - 1)

    def _nested(self, kind: str, d: int) -> Stmt:
        match kind:
            case "for":
                low, extent = self.expr(INT32, 1), self.expr(INT32, 1)
                return ir.For(self.name(), low, extent, self.pick(ir.ForKind), self.stmt(d))
            case "if":
                otherwise = self.stmt(d) if self.draw(st.booleans()) else None
                return ir.IfThenElse(self.expr(BOOL, 2), self.stmt(d), otherwise)
            case "let":
                return ir.LetStmt(self.name(), self.expr(self.type(), 2), self.stmt(d))
            case "atomic":
                return ir.Atomic(self.name(), self.stmt(d))
            case _:
                extents = tuple(self.expr(INT32, 1) for _ in range(self.pick((0, 1, 2))))
                name, stages = self.pick(("acc", "t 1", "tmp")), self.pick((1, 1, 3))
                memory, element = self.pick(ir.Memory), self.pick(ELEMENTS)
                return ir.Allocate(name, element, extents, memory, self.stmt(d), stages)

    def _store(self, t: Type) -> Stmt:
        masked = self.draw(st.booleans())
        predicate = self.expr(BOOL.with_lanes(t.lanes), 1) if masked else None
        index = self.expr(INT32.with_lanes(t.lanes), 2)
        return ir.Store(self.pick(("acc", "out")), index, self.expr(t, 2), predicate)

    def module(self) -> Module:
        names = self.draw(st.lists(st.sampled_from(("I", "output", "a")), max_size=2, unique=True))
        text = st.text(max_size=6)
        return Module(
            self.draw(text),
            tuple(self._buffer(n) for n in names),
            tuple(ir.ScalarParam(self.name(), self.type(1)) for _ in range(self.pick((0, 1)))),
            self.stmt(2),
            tuple(self._requirement(n) for n in names),
            tuple(remarks.Origin(n, self.draw(text), self.draw(text)) for n in names),
            promises=tuple(
                remarks.Promise(self.expr(BOOL, 2), self.draw(text), self._everywhere())
                for _ in names
            ),
        )

    def _everywhere(self) -> remarks.Everywhere | None:
        count = self.pick((None, 0, 1, 2))
        if count is None:
            return None
        ends = ((self.expr(INT32, 1), self.expr(INT32, 1)) for _ in range(count))
        return remarks.Everywhere(tuple((self.name(), *x) for x in ends), self.expr(BOOL, 2))

    def _buffer(self, name: str) -> ir.BufferParam:
        count = self.pick((0, 1, 2))
        dims = (ir.Dim(*(self.expr(INT32, 1) for _ in range(3))) for _ in range(count))
        return ir.BufferParam(name, self.type(1), tuple(dims), self.pick(ir.Role))

    def _requirement(self, name: str) -> remarks.Requirement:
        return remarks.Requirement(
            name, self.pick((0, 1)), self.expr(INT32, 1), self.expr(INT32, 1)
        )


@st.composite
def exprs(draw: Draw, t: Type | None = None, depth: int = 3) -> Expr:
    """Expressions of type ``t``, or of any type."""
    maker = Maker(draw)
    return maker.expr(t or maker.type(), depth)


@st.composite
def stmts(draw: Draw, depth: int = 3) -> Stmt:
    return Maker(draw).stmt(depth)


@st.composite
def modules(draw: Draw) -> Module:
    return Maker(draw).module()
