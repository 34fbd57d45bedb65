"""The JSON form of a module: versioned, compact, checked on the way in.

An expression that occurs several times is written once: ``exprs`` is a list of rows ``[tag, ...]``
in which an operand is the number of an earlier row. Statements are nested rows.

    {"format": "selector-ir", "version": 1, "name": "conv", "buffers": [..], "scalars": [..],
     "exprs": [["var", "int32", "x"], ["load", "float16", "I", 0, null], ..],
     "body": ["store", "out", 0, 1, null], "requirements": [..], "origins": [..]}
"""

from __future__ import annotations

import json
from typing import Any, assert_never

from selector.ir.json_reader import FORMAT, ROWS, VERSION, Entry, Row, read_json, read_module
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Block,
    BufferParam,
    Evaluate,
    Expr,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    Store,
)
from selector.ir.remarks import Promise


def _promise(p: Promise, table: _Table) -> Row:
    found: Row = [table.number(p.condition), p.message]
    if p.exactly is not None:
        loops = [[n, table.number(low), table.number(e)] for n, low, e in p.exactly.loops]
        found.append([loops, table.number(p.exactly.condition)])
    return found


def to_json(module: Module) -> dict[str, Any]:
    """The module as lists, dicts, strings, numbers and None."""
    table = _Table()
    buffers = [_buffer(b, table) for b in module.buffers]
    requirements = [
        [r.buffer, r.dim, table.number(r.minimum), table.number(r.maximum)]
        for r in module.requirements
    ]
    promises = [_promise(p, table) for p in module.promises]
    body = _stmt(module.body, table)
    grids = [[g.kind.value, g.func, g.blocks] for g in module.grids]
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": module.name,
        "buffers": buffers,
        "scalars": [[s.name, str(s.type)] for s in module.scalars],
        "requirements": requirements,
        "origins": [[o.name, o.func, o.location] for o in module.origins],
        "body": body,
        "exprs": table.rows,
        **({"grids": grids} if grids else {}),
        **({"promises": promises} if promises else {}),
    }


def from_json(data: object) -> Module:
    """The inverse of ``to_json``; ParseError, with a path into the data, for anything else."""
    return read_module(data)


def dumps(module: Module) -> str:
    """One line of JSON."""
    return json.dumps(to_json(module), separators=(",", ":"), ensure_ascii=True)


def loads(text: str) -> Module:
    """The module in a JSON text; ParseError for anything else."""
    return read_module(read_json(text))


class _Table:
    """Rows of expressions, each once."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.numbers: dict[str, int] = {}

    def number(self, e: Expr) -> int:
        row = _expr(e, self)
        key = json.dumps(row)
        if key not in self.numbers:
            self.numbers[key] = len(self.rows)
            self.rows.append(row)
        return self.numbers[key]

    def optional(self, e: Expr | None) -> int | None:
        return None if e is None else self.number(e)

    def entry(self, value: Any, kind: Entry) -> Any:
        match kind:
            case "expr" | "optional":
                return self.optional(value)
            case "exprs":
                return self.all(value)
            case "type":
                return str(value)
            case "float":
                return repr(value)
            case "indices":
                return list(value)
            case "string" | "integer" | "count":
                return value
            case _:
                return value.value

    def all(self, exprs: tuple[Expr, ...]) -> list[int]:
        return [self.number(e) for e in exprs]


def _buffer(b: BufferParam, table: _Table) -> Row:
    dims = [table.all((d.min, d.extent, d.stride)) for d in b.dims]
    return [b.name, str(b.type), b.role.value, dims]


_TAGS = {kind: tag for tag, (kind, _) in ROWS.items()}


def _expr(e: Expr, t: _Table) -> Row:
    tag = _TAGS[type(e)]
    return [tag, *(t.entry(getattr(e, name), kind) for name, kind in ROWS[tag][1].items())]


def _stmt(s: Stmt, t: _Table) -> Row:
    match s:
        case Store(b, index, value, p):
            return ["store", b, t.number(index), t.number(value), t.optional(p)]
        case Evaluate(value):
            return ["evaluate", t.number(value)]
        case For(name, low, extent, kind, body):
            return ["for", kind.value, name, t.number(low), t.number(extent), _stmt(body, t)]
        case Allocate(name, kind, extents, memory, body, stages):
            sizes = t.all(extents)
            return ["allocate", name, str(kind), sizes, memory.value, stages, _stmt(body, t)]
        case IfThenElse(c, then, otherwise):
            rest = None if otherwise is None else _stmt(otherwise, t)
            return ["if", t.number(c), _stmt(then, t), rest]
        case LetStmt(name, value, body):
            return ["let", name, t.number(value), _stmt(body, t)]
        case Block(stmts):
            return ["block", [_stmt(x, t) for x in stmts]]
        case Atomic(producer, body):
            return ["atomic", producer, _stmt(body, t)]
        case _:
            assert_never(s)
