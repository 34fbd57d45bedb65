"""C for CPUs with AMX: a selected module becomes one source text with one function, and its plan.

``function`` writes loops and memory, ``plain`` plain stores, ``tiles`` what runs on tile registers;
this file adds parameters and what the text stands on (``preamble``).
"""

from __future__ import annotations

from collections.abc import Iterator

from selector.cpu.context import CContext, Writer
from selector.cpu.function import FunctionBody
from selector.cpu.preamble import RESERVED, SNIPPET_NAMES, preamble
from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.scalars.names import Names, comment, identifier
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.gpu.cuda.preamble import words
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    BufferParam,
    Dim,
    Expr,
    IntImm,
    Memory,
    Role,
    ScalarParam,
    Var,
)
from selector.ir.simplify import add, mul, sub
from selector.ir.traverse import walk_stmt
from selector.ir.types import FLOAT16, INT32, INT64, UINT16, Type
from selector.lowering.normalize import normalize
from selector.lowering.races import refuse_races
from selector.lowering.ranges import Ranges
from selector.runtime.plan import Argument, BufferArgument, Launch, Plan, ValueArgument
from selector.targets import Target


def emit(module: Module, target: Target) -> Plan:
    """Source and plan of a selected module, all of whose temporaries are allocations."""
    refuse_races(module.body)
    _refuse_rings(module)
    entry = f"kernel_{identifier(module.name) or 'k'}"
    context = CContext(module.name, target, Names(RESERVED | SNIPPET_NAMES | {entry}))
    parameters = list(_parameters(module, context))
    FunctionBody(context).emit(normalize(module.body))
    body = context.writer.text()
    text, arguments = _function(entry, body, parameters, context)
    parts = [f"{line}\n" for line in context.constants]
    head = comment(f"{module.name} for {target.name}, made by tensor-selector.") + "\n"
    code = "".join(parts) + ("\n" if parts else "") + text
    launch = Launch(entry, (IntImm(1), IntImm(1), IntImm(1)), 1, 0, arguments)
    return Plan(
        module.name, target.name, head + preamble(code) + "\n" + code, module.buffers,
        module.scalars, module.requirements, (), (launch,), promises=module.promises,
    )  # fmt: skip


def _refuse_rings(module: Module) -> None:
    """ScheduleError for allocations of which several copies were asked for: sums in tile registers
    may have the operands of one step more, loaded ahead.
    """
    origins = {o.name: o for o in module.origins}
    for s in walk_stmt(module.body):
        if not isinstance(s, Allocate) or s.stages == 1:
            continue
        origin = origins.get(s.name)
        func = origin.func if origin else s.name
        where = Where(func=func, location=origin.location if origin else "")
        if s.memory is not Memory.AMX_TILE:
            raise ScheduleError(
                f"stages of `{func}` cannot overlap on a CPU",
                "a core makes its copies itself, one after the other",
                "leave pipeline_stages out, or ask it of the sums in tile registers, whose "
                "operands are loaded ahead then; parallel() uses more cores",
                where,
            )
        if s.stages > 2:
            raise ScheduleError(
                f"tiles of `{func}` cannot be loaded {s.stages - 1} steps ahead",
                "eight tile registers hold the sums and the operands of one step",
                "pipeline_stages of 2",
                where,
            )


class _Parameter:
    """One parameter of the function: how it is declared and passed, and lines that it brings."""

    def __init__(self, name: str, declaration: str, argument: Argument | None, line: str = ""):
        self.name = name
        self.declaration = declaration
        self.argument = argument
        self.line = line


def _parameters(module: Module, c: CContext) -> Iterator[_Parameter]:
    """Everything that the body may mention; what it does not goes later."""
    nonnegative: set[str] = set()
    for b in module.buffers:
        pointer = c.names.get(b.name)
        constant = "const " if b.role is Role.INPUT else ""
        kind = c_type(b.type.element)
        yield _Parameter(pointer, f"{constant}{kind} *restrict {pointer}", BufferArgument(b.name))
    for b in module.buffers:
        for symbol, t in _symbols(b):
            name = c.names.get(symbol.name)
            nonnegative.add(symbol.name)
            yield _Parameter(name, f"const {c_type(t)} {name}", ValueArgument(symbol, t))
    for s in module.scalars:
        yield _scalar(s, c)
    for b in module.buffers:
        elements, line = _size(b, c)
        if isinstance(elements, Var):
            nonnegative.add(elements.name)
            yield _Parameter(elements.name, "", None, line)
        storage = Storage(c.names.get(b.name), b.type.element, Space.GLOBAL, b, elements)
        c.storages[b.name] = storage
    c.ranges = Ranges({}, frozenset(nonnegative))


def _symbols(b: BufferParam) -> Iterator[tuple[Var, Type]]:
    """Strides are 64 bits wide, so that indices are."""
    for d in b.dims:
        for e, t in ((d.extent, INT32), (d.stride, INT64), (d.min, INT32)):
            if isinstance(e, Var):
                yield e, t


def _scalar(s: ScalarParam, c: CContext) -> _Parameter:
    name = c.names.get(s.name)
    value = Var(s.name, s.type)
    if s.type == FLOAT16:  # passed as its bits: not every caller knows the type
        bits = c.names.fresh(f"{name}_bits")
        line = f"const f16 {name} = f16_from_bits({bits});"
        return _Parameter(
            name, f"const {c_type(UINT16)} {bits}", ValueArgument(value, s.type), line
        )
    return _Parameter(name, f"const {c_type(s.type)} {name}", ValueArgument(value, s.type))


def _size(b: BufferParam, c: CContext) -> tuple[Expr, str]:
    """Elements from the first of a buffer to its last, and the line that works them out."""
    last: Expr = IntImm(0)
    for d in b.dims:
        last = add(last, mul(sub(d.extent, IntImm(1)), d.stride))
    if all(isinstance(d.extent, IntImm) and isinstance(d.stride, IntImm) for d in b.dims):
        return add(last, IntImm(1)), ""
    name = c.names.fresh(f"{c.names.get(b.name)}_size")
    empty = [f"{c.scalar.index(d.extent)} <= 0" for d in b.dims if isinstance(d.extent, Var)]
    parts = [_reach(d, c) for d in b.dims]
    value = " + ".join((*parts, "1"))
    test = f"{' || '.join(empty)} ? 0 : " if empty else ""
    return c.names.stand(name, Var(name)), f"const s64 {name} = {test}{value};"


def _reach(d: Dim, c: CContext) -> str:
    last = c.scalar.index(sub(d.extent, IntImm(1)))
    wide = last if isinstance(d.extent, IntImm) else f"(s64)({last})"
    return wide if d.stride == IntImm(1) else f"{wide} * {c.scalar.index(d.stride)}"


def _function(
    entry: str, body: str, parameters: list[_Parameter], c: CContext
) -> tuple[str, tuple[Argument, ...]]:
    used = words(body)
    lines = [p.line for p in parameters if p.line and p.name in used]
    used |= words("\n".join(lines))
    kept = [p for p in parameters if p.argument is not None and p.name in used]
    w = Writer()
    declarations = ", ".join(p.declaration for p in kept) or "void"
    with w.block(f"int {entry}({declarations})"):
        if c.can_fail:
            w.line("int failed = 0;")
        for line in lines:
            w.line(line)
        w.lines(body)
        w.line(f"return {'failed' if c.can_fail else '0'};")
    return w.text(), tuple(p.argument for p in kept if p.argument is not None)
