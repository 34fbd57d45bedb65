"""Staged copies into shared memory: 16 bytes at a time with cp.async where rows are aligned, else element by element.

A copy is a nest whose store takes a load of a parameter unchanged. Its rows are cut into chunks of 16 bytes; a chunk
that lies inside the source goes as one asynchronous copy, one at the border element by element with zeros outside.
Where the pitch of the rows allows it the last chunk of a row is filled to its end, so that tiles that read a little
past a row meet numbers and not garbage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from selector.emit.context import KernelContext
from selector.emit.nests import Digit, Nest, independent, merge_digits
from selector.emit.scalar import Space, c_type
from selector.ir.affine import Affine, split_by_strides, to_affine
from selector.ir.nodes import Expr, Load, Var
from selector.ir.traverse import substitute
from selector.lowering.predicates import holds_everywhere

CHUNK_BYTES = 16
UNROLL_COPIES = 16


@dataclass(frozen=True, slots=True)
class Copy:
    """A staged copy: ``to[index]`` from ``source``, rows of ``length`` elements along ``x``, cut into chunks."""

    to: str
    index: Affine
    source: Load
    coordinates: tuple[Expr, ...]
    x: Digit
    rows: tuple[Digit, ...]
    length: int
    per: int  # elements of a chunk
    rounded: bool  # the last chunk of a row may be filled to its end
    predicate: Expr | None  # elements where it is false are 0

    @property
    def chunks(self) -> int:
        return -(-self.length // self.per)


def as_copy(nest: Nest, context: KernelContext) -> Copy | None:
    """The copy that a nest is; None if it is no copy from global to shared memory with aligned rows."""
    load, to = nest.store.value, context.storages.get(nest.store.buffer)
    if not isinstance(load, Load) or nest.store.predicate is not None:
        return None
    source = context.storages.get(load.buffer)
    if to is None or source is None or to.space is not Space.SHARED or nest.condition is not None:
        return None
    if source.space is not Space.GLOBAL or source.param is None or to.type != source.type:
        return None
    nest = merge_digits(nest, [to_affine(nest.store.index), to_affine(load.index)])
    load = nest.store.value
    assert isinstance(load, Load)
    coordinates = split_by_strides(load.index, source.param.dims)
    if coordinates is None or not independent(nest, None) or any(d.count is None for d in nest.digits):
        return None
    return _build(nest, load, coordinates, CHUNK_BYTES // to.type.bytes)


def _build(nest: Nest, load: Load, coordinates: tuple[Expr, ...], per: int) -> Copy | None:
    index, first = to_affine(nest.store.index), to_affine(coordinates[0])
    for x in nest.digits:
        if index.coefficient(x.var).constant != 1 or first.coefficient(x.var).constant != 1:
            continue
        if any(to_affine(c).mentions(x.var.name) for c in coordinates[1:]):
            continue
        rows = tuple(d for d in nest.digits if d is not x and d.count != 1)
        pitches = [index.coefficient(d.var).constant for d in rows]
        rest = index.rest(x.var)
        if any(c % per for _, c in rest):
            return None
        assert x.count is not None
        length = -(-x.count // per) * per
        rounded = all(p is not None and abs(p) >= length for p in pitches)
        return Copy(
            nest.store.buffer, index, load, coordinates, x, rows, x.count, per, rounded, load.predicate
        )  # fmt: skip
    return None


def emit_copy(copy: Copy, context: KernelContext, rank: str, size: int, slot: str = "") -> None:
    """Write the copy, spread over ``size`` threads numbered ``rank``; ``slot`` is added to the destination."""
    w, names, scalar = context.writer, context.names, context.scalar
    to, source = context.storages[copy.to], context.storages[copy.source.buffer]
    assert source.param is not None
    total = copy.chunks
    for d in copy.rows:
        total *= d.count or 1
    if copy.rounded:
        context.storages[copy.to] = replace(to, rounded_rows=True)
    aligned = context.aligned_flag(copy.source.buffer, copy.per)
    start = to_affine(copy.coordinates[0]).rest(copy.x.var)
    provable = all(c % copy.per == 0 for _, c in start)
    steps = -(-total // size)
    if steps <= UNROLL_COPIES:
        w.line("#pragma unroll")
    with w.block(f"for (int step = 0; step < {steps}; ++step)"):
        w.line(f"const int i = {rank} + step * {size};")
        if total % size:
            w.line(f"if (i >= {total}) break;")
        values = _decode(copy, context)
        index = substitute(copy.index.to_expr(), values)
        w.line(f"{_ctype(copy, context)}* const to = {to.pointer}{slot} + ({scalar.index(index)});")
        for number, (c, dim) in enumerate(zip(copy.coordinates, source.param.dims, strict=True)):
            name = f"c{number}"
            w.line(f"const int {name} = {scalar.index(substitute(c, values))};")
            names.bind(f"${name}", name)
            names.bind(f"$e{number}", f"({scalar.index(dim.extent)})")
        flat = " + ".join(
            f"c{n} * {scalar.index(d.stride)}" if n else "c0" for n, d in enumerate(source.param.dims)
        )
        w.line(f"const {_ctype(copy, context)}* const from = {source.pointer} + ({flat});")
        extents = [scalar.index(d.extent) for d in source.param.dims]
        rows_inside = [f"(u32)c{n} < (u32){e}" for n, e in enumerate(extents) if n]
        chunk = [f"c0 >= 0 && c0 + {copy.per} <= {extents[0]}", *rows_inside]
        wanted = _predicate(copy, values)
        if wanted is not None:
            whole = holds_everywhere(wanted, {Var("$e"): copy.per})
            chunk.append("false" if whole is None else scalar.expr(whole))
        if not copy.rounded and copy.length % copy.per:
            chunk.append(f"x + {copy.per} <= {copy.length}")
        if not provable:
            chunk.append(f"(c0 & {copy.per - 1}) == 0")
        with w.block(f"if ({' && '.join([aligned, *chunk])})"):
            w.line("copy16(shared_address(to), from);")
        with w.block("else"):
            _elements(copy, context, rows_inside, extents[0], wanted)


def _ctype(copy: Copy, context: KernelContext) -> str:
    return c_type(context.storages[copy.to].type)


def _decode(copy: Copy, context: KernelContext) -> dict[str, Expr]:
    """Declare the digits of chunk ``i``; their IR values."""
    w, names = context.writer, context.names
    values: dict[str, Expr] = {}
    rest = "i"
    if copy.rows:
        w.line(f"const int x = i % {copy.chunks} * {copy.per};")
        rest = f"i / {copy.chunks}"
    else:
        w.line(f"const int x = i * {copy.per};")
    names.bind("$x", "x")
    values[copy.x.var.name] = Var("$x")
    for number, digit in enumerate(copy.rows):
        last = number == len(copy.rows) - 1
        w.line(f"const int row{number} = {rest}{'' if last else f' % {digit.count}'};")
        rest += f" / {digit.count}"
        names.bind(f"$row{number}", f"row{number}")
        values[digit.var.name] = Var(f"$row{number}")
    return values


def _predicate(copy: Copy, values: dict[str, Expr]) -> Expr | None:
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
    context.names.bind("$e", "e")
    tests = [f"(u32)(c0 + e) < (u32){extent}", *rows_inside]
    tests += [] if wanted is None else [context.scalar.expr(wanted)]
    zero = f"{_ctype(copy, context)}{{}}"
    w.line("#pragma unroll")
    with w.block(f"for (int e = 0; e < {copy.per}; ++e)"):
        test = "" if copy.rounded or copy.length % copy.per == 0 else f"if (x + e < {copy.length}) "
        w.line(f"{test}to[e] = {' && '.join(tests)} ? from[e] : {zero};")
