"""The code of staged copies: 16 bytes at a time with cp.async where rows are aligned, else
element by element.

A tile that lies inside its source as a whole takes a path without tests (``chunks``).
"""

from __future__ import annotations

from collections.abc import Callable

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.copies.chunks import (
    LANE,
    TO,
    addresses,
    border_chunk,
    cache_of,
    decode,
    decode_rows,
    element_type,
    emit_border,
    leave_at,
    lies_in_rows,
    lies_inside,
    note_rounded,
    place_of,
    spread,
    whole_inside,
)
from selector.gpu.codegen.copies.recognise import Copy
from selector.gpu.codegen.warpgroups.shifted_copies import emit_shifted
from selector.gpu.cuda.expressions import spell
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import (
    address,
    both,
    flag,
    less,
    negated,
    number,
    plus,
    quotient,
    remainder,
    times,
)
from selector.gpu.ir.memory import CopyAsync, Point
from selector.gpu.ir.nodes import Let
from selector.gpu.ir.views import View
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Expr, IntImm
from selector.ir.traverse import substitute

UNROLL_COPIES = 16
AT_ONCE = 4  # chunks of rows that begin anywhere, which wait for registers
FEW_STEPS = 3  # as many addresses are worked out one by one
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
    w = context.writer
    note_rounded(copy, context)
    total = copy.chunks * copy.count
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
            addresses(copy, context, decode(copy, context), inside=True)
            w.add(CopyAsync(TO, number("from"), cache_of(copy, context, thread)))

    def border() -> None:
        emit_border(copy, context, thread, size, unroll=inside is None and few)

    def shifted() -> None:
        emit_shifted(copy, context, thread, size, AT_ONCE, inside=True)

    def held() -> None:
        emit_shifted(copy, context, thread, size, AT_ONCE, held=True)

    ways = [] if inside is None else [(inside, whole)]
    anywhere = lies_inside(copy, context) if copy.continued and ways else None
    if anywhere is not None and anywhere != inside and context.storages[copy.to].panels is None:
        ways.append((anywhere, shifted))
        in_rows = lies_in_rows(copy, context)
        ways += [] if in_rows is None else [(in_rows, held)]
    one_of(w, ways if between is None else [*ways, between], border)


def one_of(w: Builder, ways: list[Way], last: Callable[[], None]) -> None:
    """What is written for the first of the conditions that holds, or for none."""
    if not ways:
        with w.block():
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
    rows = copy.count
    strips = context.storages[copy.to].strips
    distance = 1 if strips is None else strips.step

    def whole() -> None:
        with w.loop("i", number(0), number(rows), "unrolled"):
            leave_at(w, limit)
            _row_by_warp(copy, context, 32 // distance * 16)

    def border() -> None:
        emit_border(copy, context, LANE, 32, unroll=False, limit=limit)

    one_of(w, [(inside, whole)] if inside is not None and 32 % distance == 0 else [], border)


def _row_by_warp(copy: Copy, context: KernelContext, step: int) -> None:
    """Row ``i``: a lane's chunks are 32 apart, and their places ``step`` bytes."""
    w = context.writer
    w.add(Let("int", ("x",), (times(LANE, copy.per),)))
    rows = decode_rows(copy, context, number("i"))
    values = {copy.x.var.name: context.names.variable("x"), **rows}
    addresses(copy, context, values, inside=True)
    w.add(Let("u32", ("there",), (TO,)))
    cache = cache_of(copy, context, LANE)
    for n, first in enumerate(range(0, copy.chunks, 32)):
        there = plus("there", n * step) if n else number("there")
        source = plus("from", first * copy.per) if n else number("from")
        some = less(LANE, copy.chunks - first) if copy.chunks - first < 32 else None
        w.add(CopyAsync(there, source, cache, some))


def split_copy(
    copy: Copy, context: KernelContext, thread: Expr, size: int, condition: Expr
) -> list[Callable[[], None]] | None:
    """The copy in pieces that may be written far apart: a head with the border's part, then one
    copy per piece.

    All of it happens under ``condition``. None where the threads do not cover whole rows, step by
    step, or a step would not lie within one plane; a copy that does not occupy them all is one
    step.
    """
    odd = copy.continued or size % copy.chunks
    inside = None if odd else whole_inside(copy, context)
    if inside is None:
        return None
    if context.storages[copy.to].panels is not None:
        return None  # rows are not one pitch apart
    rows, step_rows = copy.count, size // copy.chunks
    if rows > step_rows and rows % step_rows:
        return None
    pitches = [copy.index.coefficient(d.var).constant for d in copy.rows]
    if None in pitches or (len(copy.rows) > 1 and (copy.rows[0].count or 1) % step_rows):
        return None
    busy = less(thread, copy.chunks * rows) if rows < step_rows else None
    note_rounded(copy, context)
    go, start, source = (context.names.fresh(f"{n}_{copy.to}") for n in ("whole", "to", "from"))
    origin, cache = to_affine(copy.source.index), cache_of(copy, context, thread)
    bytes_ = copy.source.type.bytes

    def head() -> None:
        w = context.writer
        w.add(Let("bool", (go,), (both(condition, inside),)))
        border = w.when(both(condition, negated(flag(go))))
        with border, spread(context, thread, size, copy.chunks * rows, unroll=False):
            values = decode(copy, context)
            addresses(copy, context, values)
            border_chunk(copy, context, values, cache)
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
    values: dict[str, Expr] = {
        copy.x.var.name: times(remainder(thread, copy.chunks), copy.per),
        **{d.var.name: quotient(thread, copy.chunks) for d in copy.rows[:1]},
    }
    values = {name: names.stand(f"({spell(e)})", e) for name, e in values.items()}
    values |= {d.var.name: IntImm(0) for d in copy.rows[1:]}
    to, index = context.storages[copy.to], place_of(copy, context, values)
    w.add(Let("u32", (start,), (address(to.base, to.start, index),)))
    pointer = context.storages[copy.source.buffer].base
    at = context.number(substitute(copy.source.index, values))
    w.add(Point(source, f"const {element_type(copy, context)}", View(pointer, index=at)))
