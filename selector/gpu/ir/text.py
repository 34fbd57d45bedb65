"""The text form of kernels, printed and parsed by the same templates: ``parse_kernels`` of what
``print_kernels`` gives is what was printed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from selector.diagnostics import InternalError
from selector.gpu.ir.layouts import parse_layout
from selector.gpu.ir.nodes import Body, Kernel, Node
from selector.gpu.ir.parameters import parse_parameter
from selector.gpu.ir.products import parse_operand, parse_record, parse_register
from selector.gpu.ir.templates import BODIES, TEMPLATES, clauses, pattern
from selector.gpu.ir.views import View
from selector.ir.parser import parse_expr
from selector.ir.printer import print_expr
from selector.ir.types import Type

INDENT = " "
BETWEEN = "; "  # of a field's parts


def print_kernels(kernels: Iterable[Kernel]) -> str:
    """A line a node, bodies indented."""
    lines: list[str] = []
    for kernel in kernels:
        _print(kernel, "", lines)
    return "".join(f"{line}\n" for line in lines)


def parse_kernels(text: str) -> tuple[Kernel, ...]:
    """What ``print_kernels`` printed; ``InternalError`` for a line that is none of it."""
    reader = _Reader(text)
    found: list[Kernel] = []
    while reader.rest:
        kernel = reader.node()
        if not isinstance(kernel, Kernel):
            raise InternalError(f"line {reader.number}: a kernel is expected")
        found.append(kernel)
    return tuple(found)


def line(node: Node) -> str:
    """A node without its bodies."""
    return "".join(_clauses(node))


# ------------------------------------------------------------------ printing


def _print(node: Node | Kernel, indent: str, lines: list[str]) -> None:
    head = indent + "".join(_clauses(node))
    bodies = BODIES.get(type(node), ())
    for number, (word, field) in enumerate(bodies):
        body: Body = getattr(node, field)
        if number and not body:
            continue
        lines.append(f"{head} {{" if number == 0 else f"{indent}}} {word} {{")
        for inner in body:
            _print(inner, indent + INDENT, lines)
    lines.append(f"{indent}}}" if bodies else head)


def _clauses(node: Node | Kernel) -> Iterator[str]:
    kinds = _kinds(type(node))
    for clause in clauses(type(node)):
        values = {field: getattr(node, field) for field in clause.fields}
        if clause.optional and all(v in (None, 0, "", ()) for v in values.values()):
            continue
        for i, piece in enumerate(clause.parts):
            yield _spelled(kinds[piece], values[piece]) if i % 2 else piece


@cache
def _kinds(node: type) -> dict[str, str]:
    return {f.name: str(f.type).removesuffix(" | None") for f in dataclasses.fields(node)}


def _spelled(kind: str, value: Any) -> str:
    match kind:
        case "str" | "int" | "Layout" | "Record" | "Register" | "Operand" | "Type" | "Parameter":
            return str(value)
        case "Expr":
            return print_expr(value, {})
        case "View":
            places = (value.start, value.at, value.index)
            parts = (_spelled("Expr", x) if x is not None else "" for x in places)
            return BETWEEN.join((value.memory, *parts))
        case _ if kind.startswith("tuple["):
            part = kind.removeprefix("tuple[").removesuffix(", ...]")
            return BETWEEN.join(_spelled(part, v) for v in value)
        case _:
            raise InternalError(f"a field of kind {kind} has no text form")


# ------------------------------------------------------------------ parsing


class _Reader:
    """Lines, one after the other."""

    def __init__(self, text: str) -> None:
        self.rest = text.splitlines()[::-1]
        self.number = 0

    def _next(self) -> str:
        self.number += 1
        return self.rest.pop().lstrip()

    def node(self) -> Node | Kernel:
        """The next node, with all that is in it."""
        line = self._next()
        word = line.partition(" ")[0]
        kind = next((k for k in TEMPLATES if clauses(k)[0].parts[0].split(" ")[0] == word), None)
        found = None if kind is None else pattern(kind).fullmatch(line.removesuffix(" {"))
        if kind is None or found is None:
            raise InternalError(f"line {self.number} is no node: {line}")
        kinds = _kinds(kind)
        given = {field: _parsed(kinds[field], text) for field, text in found.groupdict().items()}
        if kind in BODIES:
            given |= self._bodies(kind)
        return kind(**given)

    def _bodies(self, kind: type) -> dict[str, Body]:
        found: dict[str, Body] = {field: () for _, field in BODIES[kind]}
        field = BODIES[kind][0][1]
        while True:
            body: list[Node] = []
            while not self.rest[-1].lstrip().startswith("}"):
                node = self.node()
                assert not isinstance(node, Kernel)
                body.append(node)
            found[field] = tuple(body)
            end = self._next().removeprefix("}").removesuffix("{").strip()
            if not end:
                return found
            field = next(name for word, name in BODIES[kind] if word == end)


def _parsed(kind: str, text: str | None) -> Any:
    match kind:
        case "str":
            return text or ""
        case "int":
            return int(text or "0")
        case "Expr":
            return None if text is None else parse_expr(text)
        case "Layout":
            return parse_layout(text or "")
        case "Record":
            return parse_record(text or "")
        case "Register":
            return parse_register(text or "")
        case "Operand":
            return parse_operand(text or "")
        case "Type":
            return Type.parse(text or "")
        case "View":
            memory, *parts = (text or "").split(BETWEEN)
            return View(memory, *(_parsed("Expr", part or None) for part in parts))
        case "Parameter":
            return parse_parameter(text or "")
        case _ if kind.startswith("tuple["):
            part = kind.removeprefix("tuple[").removesuffix(", ...]")
            return tuple(_parsed(part, p) for p in text.split(BETWEEN)) if text else ()
        case _:
            raise InternalError(f"a field of kind {kind} has no text form")
