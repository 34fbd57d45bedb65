"""Reading the text form: the inverse of ``selector.ir.printer``, and Halide's own debug print.

From Halide 21's print at `Lowering after vectorizing` the bookkeeping is dropped: ``assert``,
``produce`` and ``consume`` (their contents stay), ``free``, ``likely``, alignments, and every
``let`` or call that handles a ``struct``. A second ``allocate`` of a name in one pair of braces
ends the scope of the first.

Every mistake ends in ``ParseError`` with ``file:line:col``, the line and a caret, whatever the
text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TypeVar

from selector.dataclass import dataclass
from selector.diagnostics import ParseError
from selector.ir.kinds import GridKind
from selector.ir.lexer import Source
from selector.ir.module import Module
from selector.ir.nodes import BufferParam, Dim, Expr, Role, ScalarParam, Stmt
from selector.ir.remarks import Everywhere, GridDirective, Origin, Promise, Requirement
from selector.ir.statement_parser import StatementParser
from selector.ir.types import Type

_T = TypeVar("_T")


def parse_expr(
    text: str, types: Mapping[str, Type] | None = None, filename: str = "<text>"
) -> Expr:
    """One expression. ``types`` gives elements of buffers and types of variables by name."""
    parser = StatementParser(Source(text, filename), types or {})
    return _guarded(parser, parser.expr)


def parse_stmt(
    text: str, types: Mapping[str, Type] | None = None, filename: str = "<text>"
) -> Stmt:
    """Statements; several become a ``Block``. The arguments are those of ``parse_expr``."""
    parser = StatementParser(Source(text, filename), types or {})
    return _guarded(parser, parser.statements)


def parse_module(text: str, filename: str = "<text>") -> Module:
    """A header and a body, as ``str`` of a module has them."""
    parser = ModuleParser(Source(text, filename), {})
    return _guarded(parser, parser.module)


def _guarded(parser: StatementParser, parse: Callable[[], _T]) -> _T:
    """Everything up to the end of the text; a deep stack of the caller must not show as
    RecursionError."""
    try:
        result = parse()
    except RecursionError:
        raise parser.error(parser.token, "the text is nested too deeply") from None
    parser.skip(";")
    if parser.token.kind != "end":
        parser.expected("the end of the text")
    return result


@dataclass(slots=True)
class _Header:
    buffers: list[BufferParam] = field(default_factory=list[BufferParam])
    scalars: list[ScalarParam] = field(default_factory=list[ScalarParam])
    requirements: list[Requirement] = field(default_factory=list[Requirement])
    promises: list[Promise] = field(default_factory=list[Promise])
    origins: list[Origin] = field(default_factory=list[Origin])
    grids: list[GridDirective] = field(default_factory=list[GridDirective])


class ModuleParser(StatementParser):
    """A header on top of statements."""

    def module(self) -> Module:
        """Header lines in any order, then the body."""
        if self.token.text != "module":
            self.expected("`module NAME`, the header of a module,")
        self.at += 1
        name = self.name()
        header = _Header()
        while self.tokens[self.at].text != "body":
            self._header_line(header)
        token = self.take("body")
        body = self.braces(token)
        return Module(
            name,
            tuple(header.buffers),
            tuple(header.scalars),
            body,
            tuple(header.requirements),
            tuple(header.origins),
            tuple(header.grids),
            tuple(header.promises),
        )

    def _header_line(self, header: _Header) -> None:
        word = self.token.text
        match word:
            case "input" | "output":
                self.at += 1
                header.buffers.append(self._buffer(Role(word)))
            case "scalar":
                self.at += 1
                scalar = ScalarParam(*self._declaration())
                self.variables[scalar.name] = scalar.type
                header.scalars.append(scalar)
            case "require":
                header.requirements.append(self._requirement())
            case "promise":
                header.promises.append(self._promise())
            case "origin":
                header.origins.append(self._origin())
            case "resident" | "persistent" | "teams" | "cluster" | "self_fed" | "in_line":
                header.grids.append(self._grid(GridKind(word)))
            case _:
                self.expected(
                    "input, output, scalar, require, promise, origin, resident, persistent, teams, "
                    "cluster, self_fed, in_line or body"
                )

    def _declaration(self) -> tuple[str, Type]:
        name = self.name()
        self.take(":")
        token = self.token
        declared = self.type()
        if declared.lanes != 1:
            raise self.error(token, f"a parameter holds scalars, not {declared}")
        return name, declared

    def _buffer(self, role: Role) -> BufferParam:
        name, element = self._declaration()
        dims: list[Dim] = []
        self.take("[")
        while self.skip("("):
            low = self.expr()
            self.take(",")
            extent = self.expr()
            self.take(",")
            dims.append(Dim(low, extent, self.expr()))
            self.take(")")
            if not self.skip(","):
                break
        self.take("]")
        self.buffers[name] = element
        return BufferParam(name, element, tuple(dims), role)

    def _requirement(self) -> Requirement:
        self.take("require")
        buffer = self.name()
        self.take("dim")
        dim = self.integer("the number of a dimension")
        self.take("from")
        low = self.expr()
        self.take("to")
        return Requirement(buffer, dim, low, self.expr())

    def _promise(self) -> Promise:
        self.take("promise")
        message = self._string()
        self.take(":")
        condition = self.expr()
        return Promise(condition, message, self._everywhere() if self.skip("exactly") else None)

    def _everywhere(self) -> Everywhere:
        loops: list[tuple[str, Expr, Expr]] = []
        while self.skip("for"):
            self.take("(")
            name = self.name()
            self.take(",")
            low = self.expr()
            self.take(",")
            loops.append((name, low, self.expr()))
            self.take(")")
        self.take(":")
        return Everywhere(tuple(loops), self.expr())

    def _origin(self) -> Origin:
        self.take("origin")
        name = self.name()
        self.take(":")
        self.take("func")
        func = self._string()
        self.take("at")
        return Origin(name, func, self._string())

    def _grid(self, kind: GridKind) -> GridDirective:
        self.take(kind.value)
        func = self.name()
        self.take(":")
        return GridDirective(kind, func, self.integer("a number of blocks"))

    def _string(self) -> str:
        token = self.token
        if token.kind != "string":
            self.expected("a string")
        self.at += 1
        return self.unquoted(token)


__all__ = ["ParseError", "parse_expr", "parse_module", "parse_stmt"]
