"""A pipeline as a whole: its parameters, its body, and its text."""

from __future__ import annotations

from collections.abc import Iterator

from selector.dataclass import dataclass
from selector.ir.known import keep
from selector.ir.lexicon import quote, quote_string
from selector.ir.nodes import BufferParam, ScalarParam, Stmt
from selector.ir.printer import Printer
from selector.ir.remarks import Everywhere, GridDirective, Origin, Promise, Requirement


class _Printed:
    """A slot for the text, of which caches ask again and again."""

    __slots__ = ("known_text",)

    known_text: str


@dataclass(frozen=True, slots=True)
class Module(_Printed):
    """A pipeline: its parameters in calling order, its body, and what messages and checks need."""

    name: str
    buffers: tuple[BufferParam, ...]
    scalars: tuple[ScalarParam, ...]
    body: Stmt
    requirements: tuple[Requirement, ...] = ()
    origins: tuple[Origin, ...] = ()
    grids: tuple[GridDirective, ...] = ()
    promises: tuple[Promise, ...] = ()

    def buffer(self, name: str) -> BufferParam | None:
        return next((b for b in self.buffers if b.name == name), None)

    def __str__(self) -> str:
        """The text form, header and body, with a final newline; reads back without help."""
        if not hasattr(self, "known_text"):
            keep(self, "known_text", _text(self))
        return self.known_text


def _text(module: Module) -> str:
    printer = Printer(
        {b.name: b.type.element for b in module.buffers}, {s.name: s.type for s in module.scalars}
    )
    lines = [*_header(module, printer), "body {"]
    printer.stmt(module.body, " ", lines)
    lines.append("}")
    return "\n".join(lines) + "\n"


def _exactly(e: Everywhere | None, printer: Printer) -> str:
    if e is None:
        return ""
    loops = (
        f" for ({quote(name)}, {printer.expr(low)}, {printer.expr(extent)})"
        for name, low, extent in e.loops
    )
    return f" exactly{''.join(loops)}: {printer.expr(e.condition)}"


def _header(module: Module, printer: Printer) -> Iterator[str]:
    yield f"module {quote(module.name)}"
    for b in module.buffers:
        yield _buffer_line(b, Printer({}, {}))  # a reader has not seen the scalars yet
    for s in module.scalars:
        yield f"scalar {quote(s.name)}: {s.type}"
    for r in module.requirements:
        low, high = printer.expr(r.minimum), printer.expr(r.maximum)
        yield f"require {quote(r.buffer)} dim {r.dim} from {low} to {high}"
    for p in module.promises:
        exactly = _exactly(p.exactly, printer)
        yield f"promise {quote_string(p.message)}: {printer.expr(p.condition)}{exactly}"
    for o in module.origins:
        func, location = quote_string(o.func), quote_string(o.location)
        yield f"origin {quote(o.name)}: func {func} at {location}"
    for grid in module.grids:
        yield f"{grid.kind.value} {quote(grid.func)}: {grid.blocks}"


def _buffer_line(b: BufferParam, printer: Printer) -> str:
    dims = ", ".join(
        f"({', '.join(printer.expr(x) for x in (d.min, d.extent, d.stride))})" for d in b.dims
    )
    return f"{b.role.value} {quote(b.name)}: {b.type} [{dims}]"
