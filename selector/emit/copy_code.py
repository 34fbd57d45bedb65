"""The code of staged copies: 16 bytes at a time with cp.async where rows are aligned, else
element by element.

A chunk that lies inside the source goes as one asynchronous copy, one at the border element by
element with zeros outside, or with the nearest element where coordinates are clamped.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from math import prod

from selector.emit.context import KernelContext
from selector.emit.copies import Copy, Ends
from selector.emit.scalar import c_type
from selector.gpu.cuda.expressions import spell
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import (
    address,
    at_least,
    at_most,
    below,
    both,
    equal,
    flag,
    less,
    masked,
    minus,
    negated,
    number,
    place,
    plus,
    quotient,
    remainder,
    times,
)
from selector.gpu.ir.memory import CopyAsync, CopyElement, Point
from selector.gpu.ir.nodes import Leave, Let
from selector.gpu.ir.views import View
from selector.ir.affine import Affine, carry, to_affine
from selector.ir.nodes import Binary, BinaryOp, Compare, CompareOp, Expr, IntImm, Var
from selector.ir.traverse import free_vars, substitute
from selector.lowering.predicates import TRUE, conjunction, holds_everywhere

UNROLL_COPIES = 16
FEW_STEPS = 3  # as many addresses are worked out one by one
LANE = number("lane")
TO = address("to")

Values = dict[str, Expr]

Way = tuple[Expr, Callable[[], None]]
"""A condition, and what is written for where it holds."""


def emit_copy(
    copy: Copy,
    context: KernelContext,
    thread: Expr,
    size: int,
    unroll: int = UNROLL_COPIES,
    between: Way | None = None,
) -> None:
    """Write the copy, spread over ``size`` threads numbered ``thread``; up to ``unroll`` steps are
    unrolled.

    A tile that lies inside its source as a whole takes a path without tests; the border is tested
    chunk by chunk, but where the condition of ``between`` holds: there its code makes the copy.
    """
    w, to = context.writer, context.storages[copy.to]
    if copy.rounded:
        context.storages[copy.to] = replace(to, rounded_rows=True)
    total = copy.chunks * prod(d.count or 1 for d in copy.rows)
    steps = -(-total // size)
    split = FEW_STEPS < steps <= 3 * unroll
    pieces = split_copy(copy, context, thread, size, flag("true")) if split else None
    if pieces is not None:
        for piece in pieces:
            piece()
        return
    few = steps <= unroll
    inside = whole_inside(copy, context)

    def whole() -> None:
        with spread(context, thread, size, total, unroll=few):
            addresses(copy, context, decode(copy, context))
            w.add(CopyAsync(TO, number("from"), _cache(copy, context, thread)))

    def border() -> None:
        emit_border(copy, context, thread, size, unroll=inside is None and few)

    ways = [] if inside is None else [(inside, whole)]
    one_of(w, ways if between is None else [*ways, between], border)


def one_of(w: Builder, ways: list[Way], last: Callable[[], None]) -> None:
    """What is written for the first of the conditions that holds, or for none."""
    if not ways:
        with w.block(""):
            last()
        return
    (condition, write), *rest = ways
    with w.when(condition):
        write()
    with w.otherwise():
        if rest:
            one_of(w, rest, last)
        else:
            last()


def emit_part(copy: Copy, context: KernelContext, limit: Expr | None) -> None:
    """Write a copy, or its first ``limit`` rows, by one warp; what lies inside takes a path without
    tests.
    """
    w, inside = context.writer, whole_inside(copy, context)
    rows = prod(d.count or 1 for d in copy.rows)
    strips = context.storages[copy.to].strips
    distance = 1 if strips is None else strips.step

    def whole() -> None:
        with w.loop("i", number(0), number(rows), "unrolled"):
            _leave_at(w, limit)
            _row_by_warp(copy, context, 32 // distance * 16)

    def border() -> None:
        emit_border(copy, context, LANE, 32, unroll=False, limit=limit)

    one_of(w, [(inside, whole)] if inside is not None and 32 % distance == 0 else [], border)


def _leave_at(w: Builder, end: Expr | None) -> None:
    """No more of a loop from its number ``end`` on, if there is one."""
    if end is not None:
        with w.when(at_least("i", end)):
            w.add(Leave("loop"))


def _row_by_warp(copy: Copy, context: KernelContext, step: int) -> None:
    """Row ``i``: a lane's chunks are 32 apart, and their places ``step`` bytes."""
    w = context.writer
    context.names.bind("$x", "x")
    w.add(Let("int", ("x",), (times(LANE, copy.per),)))
    rows = decode_rows(copy, context, number("i"))
    addresses(copy, context, {copy.x.var.name: Var("$x"), **rows})
    w.add(Let("u32", ("there",), (TO,)))
    cache = _cache(copy, context, LANE)
    for n, first in enumerate(range(0, copy.chunks, 32)):
        there = plus("there", n * step) if n else number("there")
        source = plus("from", first * copy.per) if n else number("from")
        some = less(LANE, copy.chunks - first) if copy.chunks - first < 32 else None
        w.add(CopyAsync(there, source, cache, some))


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
    total = copy.chunks * prod(d.count or 1 for d in copy.rows)
    limit = None if limit is None else times(limit, copy.chunks)
    with spread(context, thread, size, total, unroll=unroll, limit=limit):
        values = decode(copy, context)
        addresses(copy, context, values)
        _border_chunk(copy, context, values, _cache(copy, context, thread))


def _cache(copy: Copy, context: KernelContext, thread: Expr) -> str:
    """Past L1; but through it where all blocks copy the same, the weights of a filter, say: else
    they all ask the same few lines of L2 for it, at the same time. And where warps copy for
    themselves what other warps of the block copy, too.
    """
    if thread == LANE and context.warps > 1 and _warps_share(copy, context):
        return "through"
    sizes = {
        name
        for param in context.params.values()
        for dim in param.dims
        for part in (dim.min, dim.extent, dim.stride)
        for name in free_vars(part)
    }
    own = {d.var.name for d in (copy.x, *copy.rows)}
    mentioned = {name for c in copy.coordinates for name in free_vars(c)}
    return "through" if mentioned <= sizes | own else "past"


def _warps_share(copy: Copy, context: KernelContext) -> bool:
    """Whether windows of two warps may overlap: each is not known to start where one ends."""
    counts = {d.var.name: d.count or 1 for d in copy.rows}
    for number, coordinate in enumerate(copy.coordinates):
        affine = to_affine(coordinate)
        window = 1 + sum(
            abs(affine.coefficient(Var(name)).constant or 0) * (count - 1)
            for name, count in counts.items()
        )
        window += copy.length - 1 if number == 0 else 0
        steps = [affine.coefficient(Var(name)).constant for name in context.thread_vars]
        if any(step is not None and abs(step) >= window for step in steps):
            return False
    return True


def split_copy(
    copy: Copy, context: KernelContext, thread: Expr, size: int, condition: Expr
) -> list[Callable[[], None]] | None:
    """The copy in pieces that may be written far apart: a head with the border's part, then one
    copy per piece.

    All of it happens under ``condition``. None where the threads do not cover whole rows, step by
    step, or a step would not lie within one plane; a copy that does not occupy them all is one
    step.
    """
    odd = any(copy.clamped) or size % copy.chunks
    inside = None if odd else whole_inside(copy, context)
    if inside is None:
        return None
    if context.storages[copy.to].panels is not None:
        return None  # rows are not one pitch apart
    rows, step_rows = prod(d.count or 1 for d in copy.rows), size // copy.chunks
    if rows > step_rows and rows % step_rows:
        return None
    pitches = [copy.index.coefficient(d.var).constant for d in copy.rows]
    if None in pitches or (len(copy.rows) > 1 and (copy.rows[0].count or 1) % step_rows):
        return None
    busy = less(thread, copy.chunks * rows) if rows < step_rows else None
    if copy.rounded:
        to = context.storages[copy.to]
        context.storages[copy.to] = replace(to, rounded_rows=True)
    go, start, source = (context.names.fresh(f"{n}_{copy.to}") for n in ("whole", "to", "from"))
    origin, cache = to_affine(copy.source.index), _cache(copy, context, thread)
    bytes_ = copy.source.type.bytes

    def head() -> None:
        w = context.writer
        w.add(Let("bool", (go,), (both(condition, inside),)))
        border = w.when(both(condition, negated(flag(go))))
        with border, spread(context, thread, size, copy.chunks * rows, unroll=False):
            values = decode(copy, context)
            addresses(copy, context, values)
            _border_chunk(copy, context, values, cache)
        _first_chunk(copy, context, thread, start, source)

    def step(n: int) -> Callable[[], None]:
        def write() -> None:
            row, to, there = n * step_rows, 0, Affine()
            for digit, pitch in zip(copy.rows, pitches, strict=True):
                row, at = divmod(row, digit.count or 1)
                to += at * (pitch or 0) * bytes_
                there += origin.coefficient(digit.var) * at
            further = plus(source, context.number(there.to_expr()))
            wanted = both(flag(go), busy)
            context.writer.add(CopyAsync(plus(start, to), further, cache, wanted))

        return write

    return [head, *(step(n) for n in range(max(1, rows // step_rows)))]


def _first_chunk(copy: Copy, context: KernelContext, thread: Expr, start: str, source: str) -> None:
    """Declare where the first chunk of a thread goes, which is in its first row, and comes from."""
    w, names = context.writer, context.names
    exact: dict[str, Expr] = {
        copy.x.var.name: times(remainder(thread, copy.chunks), copy.per),
        **{d.var.name: quotient(thread, copy.chunks) for d in copy.rows[:1]},
    }
    values: dict[str, Expr] = {
        name: Var(names.verbatim(f"({spell(e, {})})")) for name, e in exact.items()
    }
    zeros: dict[str, Expr] = {d.var.name: IntImm(0) for d in copy.rows[1:]}
    values, exact = values | zeros, exact | zeros
    to, index = context.storages[copy.to], _place(copy, context, values, exact)
    w.add(Let("u32", (start,), (address(to.base, to.start, index),)))
    pointer = context.storages[copy.source.buffer].base
    at = _number(copy.source.index, context, values, exact)
    w.add(Point(source, f"const {element_type(copy, context)}", View(pointer, index=at)))


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
        _leave_at(w, number(total) if total % size else None)
        _leave_at(w, limit)
        yield


def provably_aligned(copy: Copy) -> bool:
    start = to_affine(copy.coordinates[0]).rest(copy.x.var)
    return all(c % copy.per == 0 for _, c in start)


def whole_inside(copy: Copy, context: KernelContext) -> Expr | None:
    """The uniform condition under which every chunk is a whole one inside the source; None if none
    is known.
    """
    source = context.storages[copy.source.buffer]
    assert source.param is not None
    if not provably_aligned(copy) or (not copy.rounded and copy.length % copy.per):
        return None
    digits: dict[Var, int] = {copy.x.var: copy.chunks * copy.per}
    digits |= {d.var: d.count or 1 for d in copy.rows}
    wanted: Expr | None = copy.predicate or TRUE
    dims = zip(copy.coordinates, source.param.dims, strict=True)
    if copy.source.buffer not in context.params:  # an intermediate holds all that is read of it
        dims = ()
    for n, (coordinate, dim) in enumerate(dims):
        low = Compare(CompareOp.LE, IntImm(0), coordinate)
        high = Compare(CompareOp.LT, coordinate, dim.extent)
        if n and copy.clamped[n]:  # held at an end, a row is inside there, if there is one
            low = TRUE if BinaryOp.MAX in copy.clamped[n] else low
            high = TRUE if BinaryOp.MIN in copy.clamped[n] else high
            high = conjunction(high, Compare(CompareOp.LT, IntImm(0), dim.extent))
        wanted = conjunction(conjunction(wanted, low), high)
    whole = holds_everywhere(wanted, digits)
    if whole is None:
        return None
    aligned = flag(context.aligned_flag(copy.source.buffer, copy.per))
    return aligned if whole == TRUE else both(aligned, _condition(whole, context))


def _condition(e: Expr, context: KernelContext) -> Expr:
    return context.known(e, context.scalar.expr(e))


def addresses(copy: Copy, context: KernelContext, values: dict[str, Expr]) -> None:
    """Declare ``to``, the coordinates ``c0``, ``c1`` ... and ``from`` of chunk ``i``."""
    w, scalar, kind = context.writer, context.scalar, element_type(copy, context)
    to, source = context.storages[copy.to], context.storages[copy.source.buffer]
    assert source.param is not None
    w.add(Point("to", kind, View(to.base, to.start, index=_place(copy, context, values))))
    terms: list[str] = []
    index = Affine()
    for n, (c, dim) in enumerate(zip(copy.coordinates, source.param.dims, strict=True)):
        at = substitute(c, values)
        text = scalar.index(at)
        if n and copy.clamped[n]:
            text = _held(text, scalar.index(dim.extent), copy.clamped[n])
            at = _held_value(at, dim.extent, copy.clamped[n])
        w.add(Let("int", (f"c{n}",), (context.known(at, text),)))
        terms.append(f"c{n} * {scalar.index(dim.stride)}" if n else "c0")
        index += Affine.of(Var(f"c{n}")) * (to_affine(dim.stride) if n else 1)
    start = context.known(index.to_expr(), f"({' + '.join(terms)})")
    w.add(Point("from", f"const {kind}", View(source.base, index=start)))


def _number(e: Expr, context: KernelContext, values: Values, exact: Values | None) -> Expr:
    """A number of the chunk that ``values`` name, whose names are text for the ``exact`` ones."""
    text = context.scalar.index(substitute(e, values))
    return context.known(substitute(e, values if exact is None else exact), text)


def _place(copy: Copy, context: KernelContext, values: Values, exact: Values | None = None) -> Expr:
    """Where a chunk goes, as an index of the target."""
    to, scalar, x = context.storages[copy.to], context.scalar, copy.x.var
    row = copy.index.rest(x)
    index = _number(copy.index.to_expr(), context, values, exact)
    if to.panels is not None:
        p = to.panels
        return place("panel_index", p.pitch, p.rows, p.bytes, p.row_bytes, index=index)
    if to.strips is None:
        return index
    pitch, step, per = to.strips.pitch, to.strips.step, to.strips.per
    if any(c % pitch for _, c in row):
        at = substitute(copy.index.to_expr(), values)
        whole = context.known(at, f"({scalar.index(at)})")
        start, column = times(quotient(whole, pitch), pitch), remainder(whole, pitch)
    else:
        column = _number(x, context, values, exact)
        start = _number(row.to_expr(), context, values, exact)
    return plus(start, place("strip_column", pitch, step, per, index=column))


def _border_chunk(copy: Copy, context: KernelContext, values: dict[str, Expr], cache: str) -> None:
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
            chunk.append(below(context.known(c, f"({context.scalar.index(c)})"), e))
    wanted = element_predicate(copy, values)
    if wanted is not None:
        whole = holds_everywhere(wanted, {Var("$e"): copy.per})
        chunk.append(flag("false") if whole is None else _condition(whole, context))
    if not copy.rounded and copy.length % copy.per:
        chunk.append(at_most(plus("x", copy.per), copy.length))
    if not provably_aligned(copy):
        chunk.append(equal(masked("c0", copy.per - 1), 0))
    aligned = flag(context.aligned_flag(copy.source.buffer, copy.per))
    with w.when(both(aligned, *chunk)):
        w.add(CopyAsync(TO, number("from"), cache))
    with w.otherwise():
        _elements(copy, context, rows_inside, extents[0], wanted)


def _declared(copy: Copy, context: KernelContext) -> tuple[Expr, ...]:
    """The coordinates that ``addresses`` has declared."""
    for n in range(len(copy.coordinates)):
        context.names.bind(f"$c{n}", f"c{n}")
    return tuple(Var(f"$c{n}") for n in range(len(copy.coordinates)))


def _held(coordinate: str, extent: str, ends: Ends) -> str:
    """A coordinate, or where it lies beyond one of these ends the end."""
    text = f"min({coordinate}, {extent} - 1)" if BinaryOp.MIN in ends else f"({coordinate})"
    return f"max({text}, 0)" if BinaryOp.MAX in ends else text


def element_type(copy: Copy, context: KernelContext) -> str:
    return c_type(context.storages[copy.to].type)


def _held_value(coordinate: Expr, extent: Expr, ends: Ends) -> Expr:
    if BinaryOp.MIN in ends:
        coordinate = Binary(BinaryOp.MIN, coordinate, minus(extent, 1))
    return Binary(BinaryOp.MAX, coordinate, IntImm(0)) if BinaryOp.MAX in ends else coordinate


def decode(copy: Copy, context: KernelContext) -> dict[str, Expr]:
    """Declare the digits of chunk ``i``; their IR values."""
    i = number("i")
    chunk = remainder(i, copy.chunks) if copy.rows else i
    context.writer.add(Let("int", ("x",), (times(chunk, copy.per),)))
    context.names.bind("$x", "x")
    rest = quotient(i, copy.chunks) if copy.rows else i
    return {copy.x.var.name: Var("$x"), **decode_rows(copy, context, rest)}


def decode_rows(copy: Copy, context: KernelContext, rest: Expr) -> dict[str, Expr]:
    """Declare the digits of row ``rest``; their IR values."""
    values: dict[str, Expr] = {}
    for n, digit in enumerate(copy.rows):
        last = n == len(copy.rows) - 1
        value = rest if last else remainder(rest, digit.count or 1)
        context.writer.add(Let("int", (f"row{n}",), (value,)))
        rest = quotient(rest, digit.count or 1)
        context.names.bind(f"$row{n}", f"row{n}")
        values[digit.var.name] = Var(f"$row{n}")
    return values


def element_predicate(copy: Copy, values: dict[str, Expr]) -> Expr | None:
    """The condition on element ``$e`` of the chunk that ``values`` name."""
    if copy.predicate is None:
        return None
    x = copy.x.var.name
    at = (Affine.of(values[x]) + Var("$e")).to_expr()
    return substitute(copy.predicate, {**values, x: at})


def _elements(
    copy: Copy, context: KernelContext, rows_inside: list[Expr], extent: Expr, wanted: Expr | None
) -> None:
    w, scalar = context.writer, context.scalar
    context.names.bind("$e", "e")
    param, x = context.storages[copy.source.buffer].param, plus("c0", "e")
    assert param is not None
    tests, source = [below(x, extent), *rows_inside], number("e")
    if copy.clamped[0]:
        text = _held("c0 + e", scalar.index(param.dims[0].extent), copy.clamped[0])
        held = context.known(_held_value(x, param.dims[0].extent, copy.clamped[0]), text)
        tests[0], source = below(held, extent), minus(held, "c0")
    if copy.carries(param):
        c0, *rest = _declared(copy, context)
        at = ((Affine.of(c0) + Var("$e")).to_expr(), *rest)
        pairs = [(c, d.extent) for c, d in zip(carry(at, param.dims), param.dims, strict=True)]
        texts = ((below(c, e), scalar.inside(c, e)) for c, e in pairs)
        tests = [context.known(test, text) for test, text in texts if text is not None]
    tests += [] if wanted is None else [_condition(wanted, context)]
    cut = not copy.rounded and copy.length % copy.per
    within = less(plus("x", "e"), copy.length) if cut else None
    with w.loop("e", number(0), number(copy.per), "unrolled"):
        kind, e = element_type(copy, context), number("e")
        w.add(CopyElement("to", kind, e, "from", source, both(*tests), within))
