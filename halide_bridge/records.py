"""From the native module's flat records to ``selector.ir`` nodes.

A record is a tuple: the name of Halide's node class, then its fields; a field that is a node is
the index of an earlier record. What only Halide's own printing and analyses need is left out on the
way: ``likely`` and ``promise_clamped`` wrappers, produce and consume marks, asserts, frees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from halide_bridge.clamps import is_clamp
from halide_bridge.normalise import can_inline, negate, normal_expr, whole_reduction
from halide_bridge.ramps import canonical_index
from selector.diagnostics import ScheduleError
from selector.ir import nodes as ir
from selector.ir.types import BOOL, IllTyped, Kind, Type

Record = tuple[Any, ...]

_BINARY = {
    "Add": ir.BinaryOp.ADD,
    "Sub": ir.BinaryOp.SUB,
    "Mul": ir.BinaryOp.MUL,
    "Div": ir.BinaryOp.DIV,
    "Mod": ir.BinaryOp.MOD,
    "Min": ir.BinaryOp.MIN,
    "Max": ir.BinaryOp.MAX,
    "And": ir.BinaryOp.AND,
    "Or": ir.BinaryOp.OR,
}
_COMPARE = {
    "EQ": ir.CompareOp.EQ,
    "NE": ir.CompareOp.NE,
    "LT": ir.CompareOp.LT,
    "LE": ir.CompareOp.LE,
    "GT": ir.CompareOp.GT,
    "GE": ir.CompareOp.GE,
}
_TRANSPARENT = frozenset(
    {"likely", "likely_if_innermost", "promise_clamped", "unsafe_promise_clamped"}
)
_WIDENING = {
    "widening_add": ir.BinaryOp.ADD,
    "widening_sub": ir.BinaryOp.SUB,
    "widening_mul": ir.BinaryOp.MUL,
}
_STRICT = {
    "strict_add": ir.BinaryOp.ADD,
    "strict_sub": ir.BinaryOp.SUB,
    "strict_mul": ir.BinaryOp.MUL,
    "strict_div": ir.BinaryOp.DIV,
    "strict_min": ir.BinaryOp.MIN,
    "strict_max": ir.BinaryOp.MAX,
}
_STRICT_COMPARE = {
    "strict_eq": ir.CompareOp.EQ,
    "strict_lt": ir.CompareOp.LT,
    "strict_le": ir.CompareOp.LE,
}
_MARKERS = frozenset({"add_image_checks_marker", "skip_stages_marker", "sliding_window_marker"})
_NO_STMT = ir.Block(())
ELEMENT = "@"  # between a Func's name and the number of its value; no function is called so


def read_type(record: Record) -> Type:
    """A type from ``(kind, bits, lanes)``; ScheduleError for one that the IR does not have."""
    kind, bits, lanes = record
    try:
        return Type(Kind(kind), bits, lanes)
    except IllTyped:
        raise ScheduleError(
            f"the pipeline uses the type {kind}{bits}, which has no form in the loop IR",
            hint="supported: bool, (u)int8 to (u)int64, float16, bfloat16, float32, float64",
        ) from None


class Reader:
    """Reads the records of one lowering; nodes get their normal form as they are made.

    ``booleans`` are the buffers of booleans, which Halide reads and writes as uint8.
    """

    def __init__(
        self,
        records: Sequence[Record],
        names: Callable[[str], str],
        marked: frozenset[str],
        booleans: frozenset[str] = frozenset(),
    ) -> None:
        self._booleans = booleans
        self._nodes: list[Any] = []
        self._names = names
        self._marked = marked
        self._types: dict[Record, Type] = {}
        self.has_vector_lets = False  # then ``normalise`` still has them to inline
        self.has_clamps = False  # of indices, or what looks like them
        for record in records:
            self._nodes.append(self._read(record))

    def expr(self, index: int) -> ir.Expr:
        return self._nodes[index]

    def name(self, text: str) -> str:
        return self._names(text)

    def stmt(self, index: int) -> ir.Stmt:
        return self._nodes[index]

    def _type(self, record: Record) -> Type:
        known = self._types.get(record)
        if known is None:
            known = self._types[record] = read_type(record)
        return known

    def _optional(self, index: int) -> Any:
        return None if index < 0 else self._nodes[index]

    def _read(self, record: Record) -> Any:
        kind = record[0]
        if kind in _BINARY:
            node = ir.Binary(_BINARY[kind], self._nodes[record[1]], self._nodes[record[2]])
            self.has_clamps = self.has_clamps or is_clamp(node)
            return node
        if kind in _COMPARE:
            return normal_expr(
                ir.Compare(_COMPARE[kind], self._nodes[record[1]], self._nodes[record[2]])
            )
        reader = _READERS.get(kind)
        if reader is None:
            raise ScheduleError(
                f"the schedule leaves a {kind} node in the loops, which the loop IR does not have",
                hint="async(), prefetch() and extern stages are not supported",
            )
        return reader(self, *record[1:])

    def read_int(self, type_: Record, value: int) -> ir.Expr:
        return ir.IntImm(value, self._type(type_))

    def read_float(self, type_: Record, value: float) -> ir.Expr:
        return ir.FloatImm(value, self._type(type_))

    def read_string(self, _value: str) -> ir.Expr:
        return ir.IntImm(0)

    def read_variable(self, type_: Record, name: str) -> ir.Expr:
        return ir.Var(self._names(name), self._type(type_))

    def read_cast(self, type_: Record, value: int) -> ir.Expr:
        return normal_expr(ir.Cast(self._type(type_), self._nodes[value]))

    def read_reinterpret(self, type_: Record, value: int) -> ir.Expr:
        return ir.Call(self._type(type_), "reinterpret", (self._nodes[value],))

    def read_not(self, value: int) -> ir.Expr:
        return ir.Not(self._nodes[value])

    def read_select(self, condition: int, then: int, otherwise: int) -> ir.Expr:
        return normal_expr(
            ir.Select(self._nodes[condition], self._nodes[then], self._nodes[otherwise])
        )

    def read_load(self, type_: Record, name: str, index: int, predicate: int) -> ir.Expr:
        mask, wanted = self._optional(predicate), self._type(type_)
        element = replace(BOOL, lanes=wanted.lanes) if name in self._booleans else wanted
        load = normal_expr(ir.Load(element, self._names(name), self._nodes[index], mask))
        return load if element == wanted else normal_expr(ir.Cast(wanted, load))

    def read_ramp(self, base: int, stride: int, lanes: int) -> ir.Expr:
        return ir.Ramp(self._nodes[base], self._nodes[stride], lanes)

    def read_broadcast(self, value: int, lanes: int) -> ir.Expr:
        return ir.Broadcast(self._nodes[value], lanes)

    def read_reduce(self, op: str, value: int, lanes: int) -> ir.Expr:
        if op == "saturating_add":
            raise ScheduleError("a saturating vector reduction has no form in the loop IR")
        return normal_expr(ir.VectorReduce(ir.ReduceOp(op), self._nodes[value], lanes))

    def read_call(self, type_: Record, name: str, args: tuple[int, ...]) -> ir.Expr:
        values = tuple(self._nodes[a] for a in args)
        if name in _TRANSPARENT:
            return values[0]
        if name == "require":  # its condition is one of the pipeline's promises
            return values[1]
        result = self._type(type_)
        if name == "if_then_else" and len(values) == 3:
            return ir.Select(values[0], values[1], values[2])
        if name == "mux":
            return _mux(values)
        if name == "bitwise_not" and result.is_bool:  # Python's ~
            return negate(values[0])
        if name in _STRICT:
            return ir.Binary(_STRICT[name], *values)
        if name in _STRICT_COMPARE:
            return ir.Compare(_STRICT_COMPARE[name], *values)
        if name in _WIDENING:
            return ir.Binary(_WIDENING[name], *(normal_expr(ir.Cast(result, v)) for v in values))
        return ir.Call(result, name, values)

    def read_access(self, type_: Record, name: str, value: int, args: tuple[int, ...]) -> ir.Expr:
        """An element of a Func or an argument, as definitions have them (``accessed``)."""
        indices = tuple(self._nodes[a] for a in args)
        return ir.Call(self._type(type_), f"{name}{ELEMENT}{value}", indices)

    def read_let(self, name: str, value: int, body: int) -> ir.Expr:
        self.has_vector_lets |= can_inline(self._nodes[value])
        return ir.Let(self._names(name), self._nodes[value], self._nodes[body])

    def read_shuffle(self, vectors: tuple[int, ...], indices: tuple[int, ...]) -> ir.Expr:
        return ir.Shuffle(tuple(self._nodes[v] for v in vectors), indices)

    def read_nothing(self, *_fields: Any) -> ir.Stmt:
        return _NO_STMT

    def read_let_stmt(self, name: str, value: int, body: int) -> ir.Stmt:
        self.has_vector_lets |= can_inline(self._nodes[value])
        return ir.LetStmt(self._names(name), self._nodes[value], self._nodes[body])

    def read_produce(self, _name: str, _is_producer: bool, body: int) -> ir.Stmt:
        return self._nodes[body]

    def read_for(self, name: str, low: int, extent: int, kind: str, body: int) -> ir.Stmt:
        return ir.For(
            self._names(name),
            self._nodes[low],
            self._nodes[extent],
            ir.ForKind(kind),
            self._nodes[body],
        )

    def read_store(self, name: str, index: int, value: int, predicate: int) -> ir.Stmt:
        where = canonical_index(self._nodes[index])
        mask, stored = self._optional(predicate), self._nodes[value]
        if name in self._booleans:
            stored = _as_boolean(stored)
        return whole_reduction(ir.Store(self._names(name), where, stored, mask))

    def read_allocate(
        self, name: str, type_: Record, extents: tuple[int, ...], memory: str, body: int
    ) -> ir.Stmt:
        return ir.Allocate(
            self._names(name),
            self._type(type_),
            tuple(self._nodes[x] for x in extents),
            ir.Memory(memory),
            self._nodes[body],
        )

    def read_block(self, first: int, rest: int) -> ir.Stmt:
        return join(self._nodes[first], self._nodes[rest])

    def read_if(self, condition: int, then: int, otherwise: int) -> ir.Stmt:
        return ir.IfThenElse(self._nodes[condition], self._nodes[then], self._optional(otherwise))

    def read_evaluate(self, value: int) -> ir.Stmt:
        e = self._nodes[value]
        if isinstance(e, ir.IntImm) or (isinstance(e, ir.Call) and e.name in _MARKERS):
            return _NO_STMT
        return ir.Evaluate(e)

    def read_atomic(self, producer: str, body: int) -> ir.Stmt:
        inner = self._nodes[body]
        if producer in self._marked or _is_vector_code(inner):
            return inner
        return ir.Atomic(self._names(producer), inner)


def _mux(values: tuple[ir.Expr, ...]) -> ir.Expr:
    """One of several by number, the last for all numbers beyond."""
    chosen, *choices = values
    result = choices[-1]
    for i in reversed(range(len(choices) - 1)):
        number: ir.Expr = ir.IntImm(i, chosen.type.with_lanes(1))
        if chosen.type.lanes > 1:
            number = ir.Broadcast(number, chosen.type.lanes)
        equal = normal_expr(ir.Compare(ir.CompareOp.EQ, chosen, number))
        result = normal_expr(ir.Select(equal, choices[i], result))
    return result


def _as_boolean(e: ir.Expr) -> ir.Expr:
    """A value that Halide stores as uint8, as the boolean that it is."""
    match e:
        case _ if e.type.is_bool:
            return e
        case ir.Cast(_, value) if value.type.is_bool:
            return value
        case ir.Broadcast(value, count):
            return ir.Broadcast(_as_boolean(value), count)
        case ir.Let(name, value, body):
            return ir.Let(name, value, _as_boolean(body))
        case _:
            return ir.Cast(replace(BOOL, lanes=e.type.lanes), e)


def join(first: ir.Stmt, rest: ir.Stmt) -> ir.Stmt:
    """Two statements as one flat block; empty blocks vanish."""
    stmts = (*_parts(first), *_parts(rest))
    return stmts[0] if len(stmts) == 1 else ir.Block(stmts)


def _parts(s: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return s.stmts if isinstance(s, ir.Block) else (s,)


def _is_vector_code(s: ir.Stmt) -> bool:
    match s:
        case ir.Store():
            return s.value.type.lanes > 1
        case ir.LetStmt():
            return _is_vector_code(s.body)
        case ir.Block():
            return all(_is_vector_code(x) for x in s.stmts)
        case _:
            return False


# The readers of the nodes that have fields of their own.
_READERS: dict[str, Callable[..., Any]] = {
    "IntImm": Reader.read_int,
    "FloatImm": Reader.read_float,
    "StringImm": Reader.read_string,
    "Variable": Reader.read_variable,
    "Cast": Reader.read_cast,
    "Reinterpret": Reader.read_reinterpret,
    "Not": Reader.read_not,
    "Select": Reader.read_select,
    "Load": Reader.read_load,
    "Ramp": Reader.read_ramp,
    "Broadcast": Reader.read_broadcast,
    "VectorReduce": Reader.read_reduce,
    "Call": Reader.read_call,
    "Access": Reader.read_access,
    "Let": Reader.read_let,
    "Shuffle": Reader.read_shuffle,
    "AssertStmt": Reader.read_nothing,
    "Free": Reader.read_nothing,
    "LetStmt": Reader.read_let_stmt,
    "ProducerConsumer": Reader.read_produce,
    "For": Reader.read_for,
    "Store": Reader.read_store,
    "Allocate": Reader.read_allocate,
    "Block": Reader.read_block,
    "IfThenElse": Reader.read_if,
    "Evaluate": Reader.read_evaluate,
    "Atomic": Reader.read_atomic,
}
