"""The text form: Halide's own spelling of expressions and statements, and the header that
``selector.ir.module`` puts before them.

``selector.ir.parser`` reads it back. The type of a literal, a call or a reduction that is not
``int32`` stands before it in parentheses; so does the type of a load or a variable whose name is
not known from a header, an allocation or a ``let``. Blocks are flattened: a block inside a block
has no form of its own.

    module conv
    input I: float16 [(0, I.extent.0, 1)]
    output out: float32 [(0, out.extent.0, 1)]
    scalar gain: float32
    require I dim 0 from 0 to out.extent.0 + 62
    origin acc: func "conv" at "conv.py:12"
    body {
     gpu_block<CUDA> (out.x, 0, (out.extent.0 + 255)/256) {
      ...
     }
    }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from selector.ir.lexicon import float_text, quote, quote_call
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Call,
    Cast,
    Compare,
    Evaluate,
    Expr,
    ExprVar,
    FloatImm,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Let,
    LetStmt,
    Load,
    LocToLoc,
    Memory,
    Not,
    Ramp,
    Select,
    Shuffle,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.types import INT32, Type

_SPACED = frozenset((BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MOD, BinaryOp.AND, BinaryOp.OR))
_GPU = frozenset((ForKind.GPU_BLOCK, ForKind.GPU_THREAD, ForKind.GPU_LANE))


def print_expr(e: Expr, types: Mapping[str, Type] | None = None) -> str:
    """One line of text.

    ``types`` holds the types of names that the reader knows (elements of buffers, types of
    variables); with ``{}`` the text reads back on its own, with None it is the short form, for
    whose reader they have to be given.
    """
    return Printer(types, types).expr(e)


def print_stmt(s: Stmt, types: Mapping[str, Type] | None = None) -> str:
    """Lines of text without a final newline; ``types`` as for ``print_expr``."""
    lines: list[str] = []
    Printer(types, types).stmt(s, "", lines)
    return "\n".join(lines)


class Printer:
    """Prints under known names; None knows every name."""

    def __init__(
        self, buffers: Mapping[str, Type] | None, variables: Mapping[str, Type] | None
    ) -> None:
        self.buffers, self.variables = buffers, variables
        self._printed: dict[int, tuple[Expr, str]] = {}  # by identity: programs share nodes

    def with_variable(self, name: str, t: Type) -> Printer:
        known = self.variables
        if known is None or known.get(name, INT32) == t:
            return self
        return Printer(self.buffers, {**known, name: t})

    def with_buffer(self, name: str, t: Type) -> Printer:
        known = self.buffers
        return self if known is None else Printer({**known, name: t}, self.variables)

    def operand(self, e: Expr) -> str:
        """An expression beside an operator: infix operators get parentheses."""
        match e:
            case Binary(BinaryOp.MIN | BinaryOp.MAX, _, _):
                return self.expr(e)
            case Binary() | Compare():
                return f"({self.expr(e)})"
            case _:
                return self.expr(e)

    def args(self, *parts: Expr | int) -> str:
        return ", ".join(str(p) if isinstance(p, int) else self.expr(p) for p in parts)

    def expr(self, e: Expr) -> str:
        found = self._printed.get(id(e))
        if found is None:
            found = self._printed[id(e)] = e, self._node(e)
        return found[1]

    def _node(self, e: Expr) -> str:
        match e:
            case IntImm(v, t):
                return str(v) if t == INT32 else f"({t}){v}"
            case FloatImm(v, t):
                return float_text(v, t)
            case Var(name, t):
                return self._variable(name, t)
            case Cast(t, v):
                return f"{t}({self.expr(v)})"
            case Binary():
                return self._binary(e)
            case Compare(op, a, b):
                return f"{self.operand(a)} {op.value} {self.operand(b)}"
            case Not(v):
                return f"!{self.operand(v)}"
            case Load():
                return self._load(e)
            case Ramp(base, stride, n):
                return f"ramp({self.args(base, stride, n)})"
            case Broadcast(v, n):
                return f"x{n}({self.expr(v)})"
            case _:
                return self._function(e)

    def _function(
        self, e: Select | VectorReduce | Call | Shuffle | Let | LocToLoc | ExprVar
    ) -> str:
        match e:
            case Select(c, t, f):
                return f"select({self.args(c, t, f)})"
            case VectorReduce(op, v, _):
                return f"({e.type})vector_reduce_{op.value}({self.expr(v)})"
            case Call(t, name, args):
                prefix = "" if t == INT32 else f"({t})"
                return f"{prefix}{quote_call(name)}({self.args(*args)})"
            case Shuffle(vectors, indices):
                parts = [self._shuffled(v) for v in vectors]
                return f"shuffle({', '.join((*parts, *map(str, indices)))})"
            case Let(name, v, body):
                inner = self.with_variable(name, v.type).expr(body)
                return f"(let {quote(name)} = {self.expr(v)} in {inner})"
            case LocToLoc(source, destination, v):
                return f"{source.value}_to_{destination.value}({self.expr(v)})"
            case ExprVar(v):
                return f"ExprVar({self.expr(v)})"
            case _:
                assert_never(e)

    def _shuffled(self, v: Expr) -> str:
        """A vector beside lane numbers: a bare number would read as one of those."""
        return f"(int32){v.value}" if isinstance(v, IntImm) and v.type == INT32 else self.expr(v)

    def _variable(self, name: str, t: Type) -> str:
        known = self.variables
        expected = t if known is None else known.get(name, INT32)
        return quote(name) if expected == t else f"({t}){quote(name)}"

    def _load(self, e: Load) -> str:
        known = self.buffers
        expected = e.type.element if known is None else known.get(e.buffer)
        prefix = "" if expected == e.type.element else f"({e.type})"
        predicate = "" if e.predicate is None else f" if {self.expr(e.predicate)}"
        return f"{prefix}{quote(e.buffer)}[{self.expr(e.index)}{predicate}]"

    def _binary(self, e: Binary) -> str:
        match e.op:
            case BinaryOp.MIN | BinaryOp.MAX:
                return f"{e.op.value}({self.args(e.a, e.b)})"
            case _:
                space = " " if e.op in _SPACED else ""
                return f"{self.operand(e.a)}{space}{e.op.value}{space}{self.operand(e.b)}"

    def stmt(
        self, s: Stmt, indent: str, out: list[str], taken: frozenset[str] = frozenset()
    ) -> None:
        """Add the lines of a statement; ``taken``: the allocations since the last brace."""
        match s:
            case Block(stmts):
                self._block(stmts, indent, out, taken)
            case Store(b, index, value, p):
                predicate = "" if p is None else f" if {self.expr(p)}"
                out.append(
                    f"{indent}{quote(b)}[{self.expr(index)}] = {self.expr(value)}{predicate}"
                )
            case Evaluate(Call() as call):
                out.append(indent + self.expr(call))
            case Evaluate(value):
                out.append(f"{indent}({self.expr(value)})")
            case For():
                self._loop(s, indent, out)
            case Allocate():
                self._allocate(s, indent, out, taken)
            case IfThenElse():
                self._condition(s, indent, out)
            case LetStmt(name, value, body):
                out.append(f"{indent}let {quote(name)} = {self.expr(value)}")
                self.with_variable(name, value.type).stmt(body, indent, out, taken)
            case Atomic(producer, body):
                out.append(f"{indent}atomic ({quote(producer)}) {{")
                self.stmt(body, indent + " ", out)
                out.append(indent + "}")
            case _:
                assert_never(s)

    def _block(
        self, stmts: tuple[Stmt, ...], indent: str, out: list[str], taken: frozenset[str]
    ) -> None:
        for i, s in enumerate(flat := tuple(_flatten(stmts))):
            if isinstance(s, LetStmt | Allocate) and i + 1 < len(flat):
                out.append(indent + "{")
                self.stmt(s, indent + " ", out)
                out.append(indent + "}")
            else:
                self.stmt(s, indent, out, taken)

    def _loop(self, s: For, indent: str, out: list[str]) -> None:
        api = "<CUDA> " if s.kind in _GPU else " "
        out.append(f"{indent}{s.kind.value}{api}({quote(s.name)}, {self.args(s.min, s.extent)}) {{")
        self.with_variable(s.name, INT32).stmt(s.body, indent + " ", out)
        out.append(indent + "}")

    def _condition(self, s: IfThenElse, indent: str, out: list[str]) -> None:
        head = indent
        while True:
            out.append(f"{head}if ({self.expr(s.condition)}) {{")
            self.stmt(s.then, indent + " ", out)
            if not isinstance(s.otherwise, IfThenElse):
                break
            head, s = indent + "} else ", s.otherwise
        if s.otherwise is not None:
            out.append(indent + "} else {")
            self.stmt(s.otherwise, indent + " ", out)
        out.append(indent + "}")

    def _allocate(self, s: Allocate, indent: str, out: list[str], taken: frozenset[str]) -> None:
        if s.name in taken:  # a second one of that name would read as the end of the first
            out.append(indent + "{")
            self._allocate(s, indent + " ", out, frozenset())
            out.append(indent + "}")
            return
        extents = "".join(f" * {self.operand(x)}" for x in s.extents)
        memory = "" if s.memory is Memory.AUTO else f" in {s.memory.value}"
        stages = "" if s.stages == 1 else f" stages({s.stages})"
        out.append(f"{indent}allocate {quote(s.name)}[{s.type}{extents}]{memory}{stages}")
        inner = self.with_buffer(s.name, s.type.element)
        inner.stmt(s.body, indent, out, taken | {s.name})


def _flatten(stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for s in stmts:
        if isinstance(s, Block):
            yield from _flatten(s.stmts)
        else:
            yield s
