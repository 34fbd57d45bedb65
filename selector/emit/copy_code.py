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
from selector.emit.scalar import c_type, strip_column
from selector.ir.affine import Affine, carry, to_affine
from selector.ir.nodes import BinaryOp, Compare, CompareOp, Expr, IntImm, Var
from selector.ir.traverse import free_vars, substitute
from selector.lowering.predicates import TRUE, conjunction, holds_everywhere

UNROLL_COPIES = 16
FEW_STEPS = 3  # as many addresses are worked out one by one


def emit_copy(
    copy: Copy,
    context: KernelContext,
    rank: str,
    size: int,
    unroll: int = UNROLL_COPIES,
    between: tuple[str, Callable[[], None]] | None = None,
) -> None:
    """Write the copy, spread over ``size`` threads numbered ``rank``; up to ``unroll`` steps are
    unrolled.

    A tile that lies inside its source as a whole takes a path without tests; the border is tested
    chunk by chunk, but where the condition of ``between`` holds: there its code makes the copy.
    """
    w, to = context.writer, context.storages[copy.to]
    if copy.rounded:
        context.storages[copy.to] = replace(to, rounded_rows=True)
    total = copy.chunks
    for d in copy.rows:
        total *= d.count or 1
    steps = -(-total // size)
    split = FEW_STEPS < steps <= 3 * unroll
    pieces = split_copy(copy, context, rank, size, "true") if split else None
    if pieces is not None:
        for piece in pieces:
            piece()
        return
    few = steps <= unroll
    inside = whole_inside(copy, context)
    if inside is not None:
        with w.block(f"if ({inside})"), spread(context, rank, size, total, unroll=few):
            addresses(copy, context, decode(copy, context))
            w.line(f"{_copy_function(copy, context, rank)}(shared_address(to), from);")
    if between is not None:
        with w.block(f"{'if' if inside is None else 'else if'} ({between[0]})"):
            between[1]()
    with w.block("" if inside is None and between is None else "else"):
        emit_border(copy, context, rank, size, unroll=inside is None and few)


def emit_part(copy: Copy, context: KernelContext, limit: str) -> None:
    """Write a copy, or its first ``limit`` rows, by one warp; what lies inside takes a path without
    tests.
    """
    w, inside = context.writer, whole_inside(copy, context)
    rows = prod(d.count or 1 for d in copy.rows)
    strips = context.storages[copy.to].strips
    distance = 1 if strips is None else strips.step
    if inside is not None and 32 % distance == 0:
        with w.block(f"if ({inside})"):
            w.line("#pragma unroll")
            with w.block(f"for (int i = 0; i < {rows}; ++i)"):
                if limit:
                    w.line(f"if (i >= {limit}) break;")
                _row_by_warp(copy, context, 32 // distance * 16)
    with w.block("" if inside is None else "else"):
        emit_border(copy, context, "lane", 32, unroll=False, limit=limit)


def _row_by_warp(copy: Copy, context: KernelContext, step: int) -> None:
    """Row ``i``: a lane's chunks are 32 apart, and their places ``step`` bytes."""
    w = context.writer
    w.line(f"const int x = lane * {copy.per};")
    x = context.names.variable("x")
    addresses(copy, context, {copy.x.var.name: x, **decode_rows(copy, context, "i")})
    w.line("const u32 there = shared_address(to);")
    function = _copy_function(copy, context, "lane")
    for number, first in enumerate(range(0, copy.chunks, 32)):
        test = f"if (lane < {copy.chunks - first}) " if copy.chunks - first < 32 else ""
        there = f"there + {number * step}" if number else "there"
        source = f"from + {first * copy.per}" if first else "from"
        w.line(f"{test}{function}({there}, {source});")


def emit_border(
    copy: Copy, context: KernelContext, rank: str, size: int, *, unroll: bool, limit: str = ""
) -> None:
    """The copy, tested chunk by chunk; only the first ``limit`` rows."""
    total = copy.chunks * prod(d.count or 1 for d in copy.rows)
    limit = f"({limit}) * {copy.chunks}" if limit else ""
    with spread(context, rank, size, total, unroll=unroll, limit=limit):
        values = decode(copy, context)
        addresses(copy, context, values)
        _border_chunk(copy, context, values, _copy_function(copy, context, rank))


def _copy_function(copy: Copy, context: KernelContext, rank: str) -> str:
    """Past L1; but through it where all blocks copy the same, the weights of a filter, say: else
    they all ask the same few lines of L2 for it, at the same time. And where warps copy for
    themselves what other warps of the block copy, too.
    """
    if rank == "lane" and context.warps > 1 and _warps_share(copy, context):
        return "copy16_cached"
    sizes = {
        name
        for param in context.params.values()
        for dim in param.dims
        for part in (dim.min, dim.extent, dim.stride)
        for name in free_vars(part)
    }
    own = {d.var.name for d in (copy.x, *copy.rows)}
    mentioned = {name for c in copy.coordinates for name in free_vars(c)}
    return "copy16_cached" if mentioned <= sizes | own else "copy16"


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
    copy: Copy, context: KernelContext, rank: str, size: int, condition: str
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
    busy = f" && {rank} < {copy.chunks * rows}" if rows < step_rows else ""
    if copy.rounded:
        to = context.storages[copy.to]
        context.storages[copy.to] = replace(to, rounded_rows=True)
    go, start, source = (context.names.fresh(f"{n}_{copy.to}") for n in ("whole", "to", "from"))
    origin, function = to_affine(copy.source.index), _copy_function(copy, context, rank)
    bytes_ = copy.source.type.bytes

    def head() -> None:
        w, scalar = context.writer, context.scalar
        w.line(f"const bool {go} = {condition} && {inside};")
        border = w.block(f"if ({condition} && !{go})")
        with border, spread(context, rank, size, copy.chunks * rows, unroll=False):
            values = decode(copy, context)
            addresses(copy, context, values)
            _border_chunk(copy, context, values, function)
        x = f"({rank} % {copy.chunks} * {copy.per})"
        values: dict[str, Expr] = {copy.x.var.name: context.names.variable(x)}
        for digit in copy.rows[:1]:
            values[digit.var.name] = context.names.variable(f"({rank} / {copy.chunks})")
        for digit in copy.rows[1:]:
            values[digit.var.name] = IntImm(0)
        index = _place(copy, context, values)
        w.line(
            f"const u32 {start} = shared_address({context.storages[copy.to].pointer} + {index});"
        )
        pointer = context.storages[copy.source.buffer].pointer
        index = scalar.index(substitute(copy.source.index, values))
        w.line(f"const {element_type(copy, context)}* const {source} = {pointer} + {index};")

    def step(number: int) -> Callable[[], None]:
        def write() -> None:
            row, to, there = number * step_rows, 0, Affine()
            for digit, pitch in zip(copy.rows, pitches, strict=True):
                row, at = divmod(row, digit.count or 1)
                to += at * (pitch or 0) * bytes_
                there += origin.coefficient(digit.var) * at
            origin_text = context.scalar.index(there.to_expr())
            context.writer.line(
                f"if ({go}{busy}) {function}({start} + {to}, {source} + {origin_text});"
            )

        return write

    return [head, *(step(n) for n in range(max(1, rows // step_rows)))]


@contextmanager
def spread(
    context: KernelContext, rank: str, size: int, total: int, *, unroll: bool, limit: str = ""
) -> Generator[None]:
    """A loop over ``total`` numbers ``i``, or those below ``limit``, a thread's share of them."""
    steps = -(-total // size)
    context.writer.line("#pragma unroll" if unroll else "#pragma unroll 1")
    with context.writer.block(f"for (int step = 0; step < {steps}; ++step)"):
        context.writer.line(f"const int i = {rank} + step * {size};")
        if total % size:
            context.writer.line(f"if (i >= {total}) break;")
        if limit:
            context.writer.line(f"if (i >= {limit}) break;")
        yield


def provably_aligned(copy: Copy) -> bool:
    start = to_affine(copy.coordinates[0]).rest(copy.x.var)
    return all(c % copy.per == 0 for _, c in start)


def whole_inside(copy: Copy, context: KernelContext) -> str | None:
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
    aligned = context.aligned_flag(copy.source.buffer, copy.per)
    return aligned if whole == TRUE else f"{aligned} && {context.scalar.expr(whole)}"


def addresses(copy: Copy, context: KernelContext, values: dict[str, Expr]) -> None:
    """Declare ``to``, the coordinates ``c0``, ``c1`` ... and ``from`` of chunk ``i``."""
    w, scalar = context.writer, context.scalar
    to, source = context.storages[copy.to], context.storages[copy.source.buffer]
    assert source.param is not None
    w.line(
        f"{element_type(copy, context)}* const to = {to.pointer} + {_place(copy, context, values)};"
    )
    terms: list[str] = []
    for number, (c, dim) in enumerate(zip(copy.coordinates, source.param.dims, strict=True)):
        text = scalar.index(substitute(c, values))
        if number and copy.clamped[number]:
            text = _held(text, scalar.index(dim.extent), copy.clamped[number])
        w.line(f"const int c{number} = {text};")
        terms.append(f"c{number} * {scalar.index(dim.stride)}" if number else "c0")
    start = f"{source.pointer} + ({' + '.join(terms)})"
    w.line(f"const {element_type(copy, context)}* const from = {start};")


def _place(copy: Copy, context: KernelContext, values: dict[str, Expr]) -> str:
    """Where a chunk goes, as an index of the target."""
    to, scalar, x = context.storages[copy.to], context.scalar, copy.x.var
    row = copy.index.rest(x)
    if to.strips is None or any(c % to.strips.pitch for _, c in row):
        return to.place(scalar.index(substitute(copy.index.to_expr(), values)))
    column = strip_column(to.strips, scalar.index(values[x.name]))
    return f"({scalar.index(substitute(row.to_expr(), values))} + {column})"


def _border_chunk(
    copy: Copy, context: KernelContext, values: dict[str, Expr], function: str
) -> None:
    """One chunk that may lie outside: asynchronous if it is whole, else element by element."""
    w, scalar = context.writer, context.scalar
    source = context.storages[copy.source.buffer]
    assert source.param is not None
    extents = [scalar.index(d.extent) for d in source.param.dims]
    rows_inside = [f"(u32)c{n} < (u32){e}" for n, e in enumerate(extents) if n]
    chunk = [f"c0 >= 0 && c0 + {copy.per} <= {extents[0]}", *rows_inside]
    if copy.carries(source.param):
        at = carry(_declared(copy, context), source.param.dims)
        chunk = [f"{scalar.index(at[0])} + {copy.per} <= {extents[0]}"]
        chunk += [
            f"(u32)({scalar.index(c)}) < (u32){e}" for c, e in zip(at[1:], extents[1:], strict=True)
        ]
    wanted = element_predicate(copy, values)
    if wanted is not None:
        whole = holds_everywhere(wanted, {Var("$e"): copy.per})
        chunk.append("false" if whole is None else scalar.expr(whole))
    if not copy.rounded and copy.length % copy.per:
        chunk.append(f"x + {copy.per} <= {copy.length}")
    if not provably_aligned(copy):
        chunk.append(f"(c0 & {copy.per - 1}) == 0")
    aligned = context.aligned_flag(copy.source.buffer, copy.per)
    with w.block(f"if ({' && '.join([aligned, *chunk])})"):
        w.line(f"{function}(shared_address(to), from);")
    with w.block("else"):
        _elements(copy, context, rows_inside, extents[0], wanted)


def _declared(copy: Copy, context: KernelContext) -> tuple[Expr, ...]:
    """The coordinates that ``addresses`` has declared."""
    return tuple(context.names.variable(f"c{n}") for n in range(len(copy.coordinates)))


def _held(coordinate: str, extent: str, ends: Ends) -> str:
    """A coordinate, or where it lies beyond one of these ends the end."""
    text = f"min({coordinate}, {extent} - 1)" if BinaryOp.MIN in ends else f"({coordinate})"
    return f"max({text}, 0)" if BinaryOp.MAX in ends else text


def element_type(copy: Copy, context: KernelContext) -> str:
    return c_type(context.storages[copy.to].type)


def decode(copy: Copy, context: KernelContext) -> dict[str, Expr]:
    """Declare the digits of chunk ``i``; their IR values."""
    w, names = context.writer, context.names
    rest = "i"
    if copy.rows:
        w.line(f"const int x = i % {copy.chunks} * {copy.per};")
        rest = f"i / {copy.chunks}"
    else:
        w.line(f"const int x = i * {copy.per};")
    return {copy.x.var.name: names.variable("x"), **decode_rows(copy, context, rest)}


def decode_rows(copy: Copy, context: KernelContext, rest: str) -> dict[str, Expr]:
    """Declare the digits of row ``rest``; their IR values."""
    w, names = context.writer, context.names
    values: dict[str, Expr] = {}
    for number, digit in enumerate(copy.rows):
        last = number == len(copy.rows) - 1
        w.line(f"const int row{number} = {rest}{'' if last else f' % {digit.count}'};")
        rest += f" / {digit.count}"
        values[digit.var.name] = names.variable(f"row{number}")
    return values


def element_predicate(copy: Copy, values: dict[str, Expr]) -> Expr | None:
    """The condition on element ``$e`` of the chunk that ``values`` name."""
    if copy.predicate is None:
        return None
    x = copy.x.var.name
    at = (Affine.of(values[x]) + Var("$e")).to_expr()
    return substitute(copy.predicate, {**values, x: at})


def _elements(
    copy: Copy, context: KernelContext, rows_inside: list[str], extent: str, wanted: Expr | None
) -> None:
    w = context.writer
    e = context.names.variable("e")
    tests = [f"(u32)(c0 + e) < (u32){extent}", *rows_inside]
    element = "from[e]"
    if copy.clamped[0]:
        held = _held("c0 + e", extent, copy.clamped[0])
        tests[0], element = f"(u32){held} < (u32){extent}", f"from[{held} - c0]"
    param = context.storages[copy.source.buffer].param
    if param is not None and copy.carries(param):
        c0, *rest = _declared(copy, context)
        at = ((Affine.of(c0) + e).to_expr(), *rest)
        tests = context.scalar.all_inside(at, param.dims)
    tests += [] if wanted is None else [context.scalar.expr(wanted)]
    zero = f"{element_type(copy, context)}{{}}"
    w.line("#pragma unroll")
    with w.block(f"for (int e = 0; e < {copy.per}; ++e)"):
        test = "" if copy.rounded or copy.length % copy.per == 0 else f"if (x + e < {copy.length}) "
        w.line(f"{test}to[e] = {' && '.join(tests)} ? {element} : {zero};")
