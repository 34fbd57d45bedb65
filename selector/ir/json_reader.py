"""Reading the JSON form: nothing is believed, every mistake is a ``ParseError`` with a path into
the data."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, NoReturn, TypeVar, cast

from selector.diagnostics import ParseError, Where
from selector.ir.checks import type_error
from selector.ir.expression_parser import MAX_HEIGHT
from selector.ir.forms import MAX_LANES
from selector.ir.kinds import GridKind
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    BufferParam,
    Call,
    Cast,
    Compare,
    CompareOp,
    Dim,
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
    Location,
    LocToLoc,
    Memory,
    Not,
    Ramp,
    ReduceOp,
    Role,
    ScalarParam,
    Select,
    Shuffle,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.remarks import Everywhere, GridDirective, Origin, Promise, Requirement
from selector.ir.types import BOOL, INT32, IllTyped, Type

FORMAT, VERSION = "selector-ir", 1
MAX_NESTING = 400
MAX_NODES = 1 << 21  # of the module as a tree, without sharing

Row = list[Any]
_E = TypeVar("_E", bound=Enum)
_KEYS = (
    "format", "version", "name", "buffers", "scalars", "requirements", "origins", "body", "exprs",
)  # fmt: skip


def read_json(text: str) -> object:
    """Any JSON value; ParseError with the line and column otherwise."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as e:
        raise ParseError(f"not JSON: {e.msg}", where=f"line {e.lineno}, column {e.colno}") from None
    except (RecursionError, ValueError):
        raise ParseError(
            "not JSON that can be read: nested too deeply, or a number too long"
        ) from None


def read_module(data: object) -> Module:
    """The module that ``serialize.to_json`` wrote."""
    try:
        return _read_module(data)
    except RecursionError:
        raise ParseError("the module is nested too deeply") from None


def _read_module(data: object) -> Module:
    if not isinstance(data, dict):
        _fail("$", f"a module is an object, not {type(data).__name__}")
    fields = cast("dict[str, Any]", data)
    missing = [k for k in _KEYS if k not in fields]
    if missing:
        _fail("$", f"{missing[0]!r} is missing")
    if fields["format"] != FORMAT:
        _fail("$.format", f"{fields['format']!r} is not {FORMAT!r}")
    if type(fields["version"]) is not int or fields["version"] != VERSION:
        _fail("$.version", f"version {fields['version']!r}; this reader knows version {VERSION}")
    r = _Reader(*_exprs(fields["exprs"]))
    return Module(
        _string("$.name", fields["name"]),
        tuple(r.buffer(p, x) for p, x in _items("$.buffers", fields["buffers"])),
        tuple(r.scalar(p, x) for p, x in _items("$.scalars", fields["scalars"])),
        r.stmt("$.body", fields["body"], 0),
        tuple(r.requirement(p, x) for p, x in _items("$.requirements", fields["requirements"])),
        tuple(r.origin(p, x) for p, x in _items("$.origins", fields["origins"])),
        tuple(r.grid(p, x) for p, x in _items("$.grids", fields.get("grids", []))),
        tuple(r.promise(p, x) for p, x in _items("$.promises", fields.get("promises", []))),
    )


def _fail(path: str, why: str) -> NoReturn:
    raise ParseError(f"not a module: {why}"[:300], where=Where(location=path))


def _list(path: str, value: object, length: int | None = None) -> Row:
    if not isinstance(value, list):
        _fail(path, f"expected a list, found {type(value).__name__}")
    row = cast(Row, value)
    if length is not None and len(row) != length:
        _fail(path, f"expected {length} entries, found {len(row)}")
    return row


def _items(path: str, value: object) -> list[tuple[str, Any]]:
    return [(f"{path}[{i}]", x) for i, x in enumerate(_list(path, value))]


def _string(path: str, value: object) -> str:
    if not isinstance(value, str):
        _fail(path, f"expected a string, found {type(value).__name__}")
    return value


def _integer(path: str, value: object, low: int | None = None, high: int | None = None) -> int:
    if type(value) is not int:
        _fail(path, f"expected an integer, found {type(value).__name__}")
    if (low is not None and value < low) or (high is not None and value > high):
        _fail(path, f"{str(value)[:30]} is out of range")
    return value


def _enum(path: str, value: object, kind: type[_E]) -> _E:
    try:
        return kind(_string(path, value))
    except ValueError:
        _fail(path, f"{value!r} is no {kind.__name__}")


def _type(path: str, value: object) -> Type:
    text = _string(path, value)
    try:
        lanes = text.partition("x")[2]
        if len(lanes) < 9 and (not lanes or 0 < int(lanes) <= MAX_LANES):
            return Type.parse(text)
    except ValueError:
        pass
    _fail(path, f"{text!r} is not a type")


def _exprs(value: object) -> tuple[list[Expr], list[int]]:
    """The table of expressions and the nodes of each, checked against their rules and the
    limits."""
    table: list[Expr] = []
    heights: list[int] = []
    sizes: list[int] = []
    for path, x in _items("$.exprs", value):
        row = _list(path, x)
        form = ROWS.get(row[0]) if row and isinstance(row[0], str) else None
        if form is None:
            _fail(path, f"{row[:1]} starts no expression")
        reader = _RowReader(path, row, table, heights, sizes)
        try:
            e = form[0](**{name: reader.entry(kind) for name, kind in form[1].items()})
        except IllTyped as error:
            _fail(path, str(error) or "the operands do not fit")
        why = type_error(e)
        if why is not None:
            _fail(path, why)
        if e.type.lanes > MAX_LANES or reader.height >= MAX_HEIGHT or reader.size > MAX_NODES:
            _fail(path, "too many lanes, too many nodes, or nested too deeply")
        reader.end()
        table.append(e)
        heights.append(reader.height + 1)
        sizes.append(reader.size)
    return table, sizes


class _RowReader:
    """A cursor over one row of ``exprs``."""

    def __init__(
        self, path: str, row: Row, table: list[Expr], heights: list[int], sizes: list[int]
    ) -> None:
        self.path, self.row, self.table = path, row, table
        self.heights, self.sizes = heights, sizes
        self.at, self.height, self.size = 1, 0, 1

    def next(self) -> Any:
        if self.at >= len(self.row):
            _fail(self.path, f"the row {self.row[0]!r} is too short")
        self.at += 1
        return self.row[self.at - 1]

    def end(self) -> None:
        if self.at != len(self.row):
            _fail(self.path, f"the row {self.row[0]!r} is too long")

    def expr(self) -> Expr:
        return self.lookup(self.next())

    def lookup(self, number: object) -> Expr:
        i = _integer(self.path, number, 0, len(self.table) - 1)
        self.height = max(self.height, self.heights[i])
        self.size += self.sizes[i]
        return self.table[i]

    def optional(self) -> Expr | None:
        number = self.next()
        return None if number is None else self.lookup(number)

    def exprs(self) -> tuple[Expr, ...]:
        return tuple(self.lookup(n) for n in _list(self.path, self.next()))

    def type(self) -> Type:
        return _type(self.path, self.next())

    def string(self) -> str:
        return _string(self.path, self.next())

    def count(self) -> int:
        return _integer(self.path, self.next(), 1, MAX_LANES)

    def entry(self, kind: Entry) -> Any:
        """The next one, of a kind that ``ROWS`` names."""
        if isinstance(kind, str):
            return getattr(self, kind)()
        return _enum(self.path, self.next(), kind)

    def integer(self) -> int:
        return _integer(self.path, self.next(), -(1 << 64), 1 << 64)

    def float(self) -> float:
        text = self.string()
        try:
            return float(text)
        except ValueError:
            _fail(self.path, f"{text[:40]!r} is no literal of {self.row[1]}")

    def indices(self) -> tuple[int, ...]:
        return tuple(_integer(self.path, i, 0, MAX_LANES) for i in _list(self.path, self.next()))


Entry = str | type[BinaryOp] | type[CompareOp] | type[ReduceOp] | type[Location]
ROWS: dict[str, tuple[type[Expr], dict[str, Entry]]] = {
    "int": (IntImm, {"type": "type", "value": "integer"}),
    "float": (FloatImm, {"type": "type", "value": "float"}),
    "var": (Var, {"type": "type", "name": "string"}),
    "cast": (Cast, {"type": "type", "value": "expr"}),
    "binary": (Binary, {"op": BinaryOp, "a": "expr", "b": "expr"}),
    "compare": (Compare, {"op": CompareOp, "a": "expr", "b": "expr"}),
    "not": (Not, {"value": "expr"}),
    "select": (Select, {"condition": "expr", "then": "expr", "otherwise": "expr"}),
    "load": (Load, {"type": "type", "buffer": "string", "index": "expr", "predicate": "optional"}),
    "ramp": (Ramp, {"base": "expr", "stride": "expr", "count": "count"}),
    "broadcast": (Broadcast, {"value": "expr", "count": "count"}),
    "reduce": (VectorReduce, {"op": ReduceOp, "value": "expr", "lanes": "count"}),
    "call": (Call, {"type": "type", "name": "string", "args": "exprs"}),
    "shuffle": (Shuffle, {"vectors": "exprs", "indices": "indices"}),
    "let": (Let, {"name": "string", "value": "expr", "body": "expr"}),
    "move": (LocToLoc, {"source": Location, "destination": Location, "value": "expr"}),
    "exprvar": (ExprVar, {"value": "expr"}),
}
"""The expressions: by the first entry of a row the class, and what the others hold, in order: an
enumeration's value, or what ``_RowReader`` reads by that name.
"""


class _Reader:
    """Everything around the expressions."""

    def __init__(self, table: list[Expr], sizes: list[int]) -> None:
        self.table, self.sizes, self.budget = table, sizes, MAX_NODES

    def expr(self, path: str, number: object, wanted: Type | None = None) -> Expr:
        i = _integer(path, number, 0, len(self.table) - 1)
        e = self.table[i]
        self.budget -= self.sizes[i]
        if self.budget < 0:
            _fail(path, f"the module has more than {MAX_NODES} nodes")
        if wanted is not None and e.type != wanted:
            _fail(path, f"expected {wanted}, found an expression of {e.type}")
        return e

    def buffer(self, path: str, value: object) -> BufferParam:
        name, kind, role, dims = _list(path, value, 4)
        read: list[Dim] = []
        for p, d in _items(path, dims):
            low, extent, stride = (self.expr(p, x, INT32) for x in _list(p, d, 3))
            read.append(Dim(low, extent, stride))
        element = _type(path, kind)
        if element.lanes != 1:
            _fail(path, f"a parameter holds scalars, not {element}")
        return BufferParam(_string(path, name), element, tuple(read), _enum(path, role, Role))

    def scalar(self, path: str, value: object) -> ScalarParam:
        name, kind = _list(path, value, 2)
        return ScalarParam(_string(path, name), _type(path, kind))

    def requirement(self, path: str, value: object) -> Requirement:
        buffer, dim, low, high = _list(path, value, 4)
        at = _integer(path, dim, 0, 64)
        return Requirement(
            _string(path, buffer), at, self.expr(path, low, INT32), self.expr(path, high, INT32)
        )

    def promise(self, path: str, value: object) -> Promise:
        condition, message, exactly = [*_list(path, value), None][:3]
        _list(path, value, 2 if exactly is None else 3)
        known = None if exactly is None else self.everywhere(path, exactly)
        return Promise(self.expr(path, condition, BOOL), _string(path, message), known)

    def everywhere(self, path: str, value: object) -> Everywhere:
        loops, condition = _list(path, value, 2)
        found: list[tuple[str, Expr, Expr]] = []
        for p, loop in _items(path, loops):
            name, low, extent = _list(p, loop, 3)
            ends = self.expr(p, low, INT32), self.expr(p, extent, INT32)
            found.append((_string(p, name), *ends))
        return Everywhere(tuple(found), self.expr(path, condition, BOOL))

    def origin(self, path: str, value: object) -> Origin:
        return Origin(*(_string(path, x) for x in _list(path, value, 3)))

    def grid(self, path: str, value: object) -> GridDirective:
        kind, func, blocks = _list(path, value, 3)
        if type(blocks) is not int or blocks < 1:
            _fail(path, f"{blocks!r} is not a number of blocks")
        return GridDirective(_enum(path, kind, GridKind), _string(path, func), blocks)

    def stmt(self, path: str, value: object, depth: int) -> Stmt:
        row = _list(path, value)
        if depth > MAX_NESTING:
            _fail("$.body", f"statements are nested more than {MAX_NESTING} deep")
        match row:
            case ["store", b, index, v, p]:
                return self._store(path, b, index, v, p)
            case ["evaluate", v]:
                return Evaluate(self.expr(path, v))
            case ["for", kind, name, low, extent, body]:
                return For(
                    _string(path, name),
                    self.expr(path, low, INT32),
                    self.expr(path, extent, INT32),
                    _enum(path, kind, ForKind),
                    self.stmt(path + "[5]", body, depth + 1),
                )
            case ["allocate", *rest] if len(rest) == 6:
                return self._allocate(path, rest, depth)
            case ["if", c, then, otherwise]:
                return IfThenElse(
                    self.expr(path, c, BOOL),
                    self.stmt(path + "[2]", then, depth + 1),
                    None if otherwise is None else self.stmt(path + "[3]", otherwise, depth + 1),
                )
            case ["let", name, v, body]:
                inner = self.stmt(path + "[3]", body, depth + 1)
                return LetStmt(_string(path, name), self.expr(path, v), inner)
            case ["block", stmts]:
                return Block(tuple(self.stmt(p, s, depth + 1) for p, s in _items(path, stmts)))
            case ["atomic", producer, body]:
                inner = self.stmt(path + "[2]", body, depth + 1)
                return Atomic(_string(path, producer), inner)
            case _:
                _fail(path, f"{str(row[:1])[:40]} with {len(row)} entries is no statement")

    def _store(self, path: str, b: object, index: object, v: object, p: object) -> Stmt:
        value = self.expr(path, v)
        lanes = value.type.lanes
        predicate = None if p is None else self.expr(path, p, BOOL.with_lanes(lanes))
        at = self.expr(path, index, INT32.with_lanes(lanes))
        return Store(_string(path, b), at, value, predicate)

    def _allocate(self, path: str, row: Row, depth: int) -> Stmt:
        name, kind, extents, memory, stages, body = row
        return Allocate(
            _string(path, name),
            _type(path, kind),
            tuple(self.expr(path, x, INT32) for x in _list(path, extents)),
            _enum(path, memory, Memory),
            self.stmt(path + "[6]", body, depth + 1),
            _integer(path, stages, 1, 64),
        )
