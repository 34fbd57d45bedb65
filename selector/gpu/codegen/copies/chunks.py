"""Chunks of staged copies: where each goes and comes from, which lie inside their source as a
whole, and how one at the border is stored element by element: zeros outside, or the nearest element
where coordinates are clamped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.copies.recognise import CHUNK_BYTES, Copy, Ends
from selector.gpu.codegen.scalars.legal import guarded
from selector.gpu.codegen.scalars.storage import c_type
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import (
    FALSE,
    address,
    at_least,
    at_most,
    below,
    both,
    element,
    equal,
    given,
    least,
    less,
    masked,
    minus,
    mixed_radix,
    most,
    number,
    place,
    plus,
    pointer,
    quotient,
    remainder,
    times,
)
from selector.gpu.ir.memory import Array, CopyAsync, CopyElement, Point, StoreChunk
from selector.gpu.ir.nodes import Leave, Let
from selector.gpu.ir.views import View
from selector.ir.affine import Affine, carry, to_affine
from selector.ir.nodes import BinaryOp, BufferParam, Call, Compare, CompareOp, Expr, IntImm, Var
from selector.ir.traverse import free_vars, map_expr, substitute
from selector.lowering.predicates import TRUE, conjunction, holds_everywhere

LANE = number("lane")
TO = address("to")
ELEMENT = Var("$e")
"""The number of an element in its chunk."""

Values = dict[str, Expr]


def emit_border(
    copy: Copy,
    context: KernelContext,
    thread: Expr,
    size: int,
    *,
    unroll: bool,
    limit: Expr | None = None,
) -> None:
    """The copy, tested chunk by chunk; only the first ``limit`` rows."""
    total = copy.chunks * copy.count
    limit = None if limit is None else times(limit, copy.chunks)
    with spread(context, thread, size, total, unroll=unroll, limit=limit):
        values = decode(copy, context)
        addresses(copy, context, values)
        border_chunk(copy, context, values, cache_of(copy, context, thread))


def note_rounded(copy: Copy, context: KernelContext) -> None:
    """The copy fills rows to their last 16 bytes, if it may."""
    if copy.rounded:
        to = context.storages[copy.to]
        context.storages[copy.to] = replace(to, rounded_rows=True)


def leave_at(w: Builder, end: Expr | None) -> None:
    """No more of a loop from its number ``end`` on, if there is one."""
    if end is not None:
        with w.when(at_least("i", end)):
            w.add(Leave("loop"))


@contextmanager
def spread(
    context: KernelContext,
    thread: Expr,
    size: int,
    total: int,
    *,
    unroll: bool,
    limit: Expr | None = None,
) -> Generator[None]:
    """A loop over ``total`` numbers ``i``, or those below ``limit``, a thread's share of them."""
    w, steps = context.writer, number(-(-total // size))
    with w.loop("step", number(0), steps, "unrolled" if unroll else "rolled"):
        w.add(Let("int", ("i",), (plus(thread, times("step", size)),)))
        leave_at(w, number(total) if total % size else None)
        leave_at(w, limit)
        yield


def cache_of(copy: Copy, context: KernelContext, thread: Expr) -> str:
    """Past L1; but through it where all blocks copy the same, the weights of a filter, say: else
    they all ask the same few lines of L2 for it, at the same time. And where warps copy for
    themselves what other warps of the block copy, too.
    """
    if thread == LANE and context.block.warps > 1 and _warps_share(copy, context):
        return "through"
    own = {d.var.name for d in (copy.x, *copy.rows)}
    mentioned = {name for c in copy.coordinates for name in free_vars(c)}
    return "through" if mentioned <= context.host.sizes | own else "past"


def _warps_share(copy: Copy, context: KernelContext) -> bool:
    """Whether windows of two warps may overlap: each is not known to start where one ends."""
    counts = {d.var.name: d.count or 1 for d in copy.rows}
    for n, coordinate in enumerate(copy.coordinates):
        affine = to_affine(coordinate)
        window = 1 + sum(
            abs(affine.coefficient(Var(name)).constant or 0) * (count - 1)
            for name, count in counts.items()
        )
        window += copy.length - 1 if n == 0 else 0
        steps = [affine.coefficient(Var(name)).constant for name in context.registers.thread_vars]
        if any(step is not None and abs(step) >= window for step in steps):
            return False
    return True


def provably_aligned(copy: Copy) -> bool:
    start = to_affine(copy.coordinates[0]).rest(copy.x.var)
    return all(c % copy.per == 0 for _, c in start)


def whole_inside(copy: Copy, context: KernelContext) -> Expr | None:
    """The uniform condition under which every chunk is a whole one inside the source, and begins at
    a multiple of 16 bytes; None if none is known.
    """
    whole = lies_inside(copy, context)
    if whole is None:
        return None
    aligned = context.aligned_flag(copy.source.buffer, copy.per)
    return aligned if whole == TRUE else both(aligned, whole)


def lies_inside(copy: Copy, context: KernelContext) -> Expr | None:
    """The same, wherever rows begin."""
    source = context.storages[copy.source.buffer]
    assert source.param is not None
    if not provably_aligned(copy) or (not copy.rounded and copy.length % copy.per):
        return None
    digits: dict[Var, int] = {copy.x.var: copy.chunks * copy.per}
    digits |= {d.var: d.count or 1 for d in copy.rows}
    wanted: Expr = copy.predicate or TRUE
    if copy.source.buffer in context.host.params:  # an intermediate holds all that is read of it
        low = Compare(CompareOp.LE, IntImm(0), copy.coordinates[0])
        high = Compare(CompareOp.LT, copy.coordinates[0], source.param.dims[0].extent)
        wanted = conjunction(conjunction(wanted, low), high)
        wanted = _rows_inside(copy, source.param, wanted)
    whole = holds_everywhere(wanted, digits)
    return whole if whole in (None, TRUE) else context.condition(whole)


def lies_in_rows(copy: Copy, context: KernelContext) -> Expr | None:
    """The uniform condition under which every chunk is of a row of the source which holds a chunk,
    and is held at both ends; None if none is known.
    """
    source = context.storages[copy.source.buffer].param
    both_ends = frozenset((BinaryOp.MAX, BinaryOp.MIN))
    whole = copy.rounded or copy.length % copy.per == 0
    if source is None or copy.clamped[0] != both_ends or copy.predicate is not None or not whole:
        return None
    digits: dict[Var, int] = {d.var: d.count or 1 for d in copy.rows}
    one = Compare(CompareOp.LE, IntImm(copy.per), source.dims[0].extent)
    wanted = _rows_inside(copy, source, one)
    found = holds_everywhere(wanted, digits)
    return None if found is None else context.condition(found)


def _rows_inside(copy: Copy, source: BufferParam, wanted: Expr) -> Expr:
    """And all rows are the source's: held at an end, a row is inside there, if there is one."""
    for n, (coordinate, dim) in enumerate(zip(copy.coordinates, source.dims, strict=True)):
        if n == 0:
            continue
        low = Compare(CompareOp.LE, IntImm(0), coordinate)
        high = Compare(CompareOp.LT, coordinate, dim.extent)
        if copy.clamped[n]:
            low = TRUE if BinaryOp.MAX in copy.clamped[n] else low
            high = TRUE if BinaryOp.MIN in copy.clamped[n] else high
            high = conjunction(high, Compare(CompareOp.LT, IntImm(0), dim.extent))
        wanted = conjunction(conjunction(wanted, low), high)
    return wanted


def addresses(
    copy: Copy,
    context: KernelContext,
    values: dict[str, Expr],
    inside: bool = False,
    held: bool = False,
) -> None:
    """Declare ``to``, the coordinates ``c0``, ``c1`` ... and ``from`` of chunk ``i``; ``inside``:
    of the source, as ``whole_inside`` says. ``held``: the chunk begins at ``begin``, and ``c0`` is
    where one begins in the row that has what it is held at.
    """
    w, scalar, kind = context.writer, context.scalar, element_type(copy, context)
    to, source = context.storages[copy.to], context.storages[copy.source.buffer]
    assert source.param is not None
    w.add(Point("to", kind, View(to.base, to.start, index=place_of(copy, context, values))))
    start = number("c0")
    for n, (c, dim) in enumerate(zip(copy.coordinates, source.param.dims, strict=True)):
        at = context.number(substitute(c, values))
        folded = copy.folded[n]
        if held and n == 0:
            w.add(Let("int", ("begin",), (at,)))
            last = minus(scalar.number(dim.extent), copy.per)
            at = given(most(least("begin", last), 0))
        elif n and copy.clamped[n]:
            at = given(_held(at, scalar.number(dim.extent), copy.clamped[n]))
        elif n and folded is not None and not inside:
            at = given(_folded(folded, values, context))
        w.add(Let("int", (f"c{n}",), (at,)))
        if n:
            start = plus(start, times(f"c{n}", scalar.number(dim.stride)))
    w.add(Point("from", f"const {kind}", View(source.base, index=given(start))))


def place_of(copy: Copy, context: KernelContext, values: Values) -> Expr:
    """Where a chunk goes, as an index of the target."""
    to, x = context.storages[copy.to], copy.x.var
    row = copy.index.rest(x)
    at = substitute(copy.index.to_expr(), values)
    index = context.number(at)
    if to.panels is not None:
        p = to.panels
        return place("panel_index", p.pitch, p.rows, p.bytes, p.row_bytes, index=index)
    if to.strips is None:
        return index
    pitch, step, per = to.strips.pitch, to.strips.step, to.strips.per
    if any(c % pitch for _, c in row):
        start, column = times(quotient(index, pitch), pitch), remainder(index, pitch)
    else:
        column = context.number(substitute(x, values))
        start = context.number(substitute(row.to_expr(), values))
    return plus(start, place("strip_column", pitch, step, per, index=column))


def border_chunk(copy: Copy, context: KernelContext, values: dict[str, Expr], cache: str) -> None:
    """One chunk that may lie outside: asynchronous if it is whole, else element by element."""
    w = context.writer
    param = context.storages[copy.source.buffer].param
    assert param is not None
    extents = [context.number(d.extent) for d in param.dims]
    rows_inside = [below(f"c{n}", e) for n, e in enumerate(extents) if n]
    chunk = [at_least("c0", 0), at_most(plus("c0", copy.per), extents[0]), *rows_inside]
    if copy.carries(param):
        at = carry(_declared(copy, context), param.dims)
        chunk = [at_most(plus(context.number(at[0]), copy.per), extents[0])]
        for c, e in zip(at[1:], extents[1:], strict=True):
            chunk.append(below(context.number(c), e))
    wanted = element_predicate(copy, values)
    if wanted is not None:
        whole = holds_everywhere(wanted, {ELEMENT: copy.per})
        chunk.append(FALSE if whole is None else context.condition(whole))
    if not copy.rounded and copy.length % copy.per:
        chunk.append(at_most(plus("x", copy.per), copy.length))
    if not provably_aligned(copy):
        chunk.append(equal(masked("c0", copy.per - 1), 0))
    aligned = context.aligned_flag(copy.source.buffer, copy.per)
    with w.when(both(aligned, *chunk)):
        w.add(CopyAsync(TO, number("from"), cache))
    with w.otherwise():
        _elements(copy, context, values, rows_inside, wanted)


def _declared(copy: Copy, context: KernelContext) -> tuple[Expr, ...]:
    """The coordinates that ``addresses`` has declared."""
    return tuple(context.names.variable(f"c{n}") for n in range(len(copy.coordinates)))


def _held(coordinate: Expr, extent: Expr, ends: Ends) -> Expr:
    """A coordinate, or where it lies beyond one of these ends the end."""
    if BinaryOp.MIN in ends:
        coordinate = least(coordinate, minus(extent, 1))
    return most(coordinate, 0) if BinaryOp.MAX in ends else coordinate


def element_type(copy: Copy, context: KernelContext) -> str:
    return c_type(context.storages[copy.to].type)


def decode(copy: Copy, context: KernelContext) -> dict[str, Expr]:
    """Declare the digits of chunk ``i``; their IR values."""
    chunk, *rows = mixed_radix("i", [copy.chunks, *_counts(copy)][:-1])
    context.writer.add(Let("int", ("x",), (times(chunk, copy.per),)))
    x = context.names.variable("x")
    return {copy.x.var.name: x, **_declare_rows(copy, context, rows)}


def decode_rows(copy: Copy, context: KernelContext, rest: Expr) -> dict[str, Expr]:
    """Declare the digits of row ``rest``; their IR values."""
    return _declare_rows(copy, context, mixed_radix(rest, _counts(copy)[:-1]))


def _counts(copy: Copy) -> list[int]:
    return [digit.count or 1 for digit in copy.rows]


def _declare_rows(copy: Copy, context: KernelContext, rows: Iterable[Expr]) -> dict[str, Expr]:
    values: dict[str, Expr] = {}
    for n, (digit, value) in enumerate(zip(copy.rows, rows, strict=False)):
        context.writer.add(Let("int", (f"row{n}",), (value,)))
        values[digit.var.name] = context.names.variable(f"row{n}")
    return values


def element_predicate(copy: Copy, values: dict[str, Expr]) -> Expr | None:
    """The condition on element ``ELEMENT`` of the chunk that ``values`` name."""
    if copy.predicate is None:
        return None
    x = copy.x.var.name
    at = (Affine.of(values[x]) + ELEMENT).to_expr()
    return substitute(copy.predicate, {**values, x: at})


def _elements(
    copy: Copy, context: KernelContext, values: Values, rows_inside: list[Expr], wanted: Expr | None
) -> None:
    w, scalar = context.writer, context.scalar
    context.names.variable("e")
    param, x = context.storages[copy.source.buffer].param, plus("c0", "e")
    assert param is not None
    extent = context.number(param.dims[0].extent)
    tests, source = [below(x, extent), *rows_inside], number("e")
    held = given(_first_held(copy, context, values, x, extent))
    if not copy.ends(0):
        tests[0], source = below(held, extent), minus(held, "c0")
    if copy.carries(param):
        c0, *rest = _declared(copy, context)
        at = ((Affine.of(c0) + ELEMENT).to_expr(), *rest)
        tests = [given(test) for test in scalar.all_within(at, param.dims)]
    tests += [] if wanted is None else [context.condition(wanted)]
    cut, kind = not copy.rounded and copy.length % copy.per, element_type(copy, context)
    if copy.folded[0] is not None and not cut:  # all are asked for before the first is there
        w.add(Array("run", kind, copy.per, CHUNK_BYTES))
        with w.loop("e", number(0), number(copy.per), "unrolled"):
            w.add(Let("int", ("at",), (minus(held, "c0"),)))
            inside = [below(plus("c0", "at"), extent), *tests[1:]]
            found = element(copy.source.type, pointer("from"), "at")
            w.store(element(copy.source.type, pointer("run"), "e"), guarded(found, *inside))
        w.add(StoreChunk(pointer("to"), pointer("run")))
        return
    within = less(plus("x", "e"), copy.length) if cut else None
    with w.loop("e", number(0), number(copy.per), "unrolled"):
        w.add(CopyElement("to", kind, number("e"), "from", source, both(*tests), within))


def _first_held(copy: Copy, context: KernelContext, values: Values, x: Expr, extent: Expr) -> Expr:
    """Where the source has element ``ELEMENT`` of a chunk, whose place is ``x``."""
    folded, own = copy.folded[0], copy.x.var.name
    if folded is None:
        return _held(x, extent, copy.clamped[0])
    at = (Affine.of(values[own]) + ELEMENT).to_expr()
    return _folded(folded, {**values, own: at}, context)


def _folded(e: Expr, values: Values, context: KernelContext) -> Expr:
    """A coordinate that mirrors or comes around, and does so once where it is asked for."""

    def near(x: Expr) -> Expr:
        match x:
            case Call(t, "floor_mod", (a, b)) if not isinstance(b, IntImm):
                return Call(t, "floor_mod_near", (near(a), near(b)))
            case _:
                return map_expr(x, near)

    return near(context.number(substitute(e, values)))
