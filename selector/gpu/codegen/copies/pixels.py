"""Copies of pixels, whose elements lie next to each other, to planes in shared memory.

A thread loads 16 bytes as often as a pixel has elements, from anywhere, and stores as many of each
plane. Pixels that lie beyond an end of their row it takes element by element, and so do all threads
where pixels have other elements (``nest_code``).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.copies.chunks import spread
from selector.gpu.codegen.copies.recognise import CHUNK_BYTES, Ends, inside_of
from selector.gpu.codegen.scalars.storage import Space, c_type
from selector.gpu.codegen.threads.nests import Digit, Nest, where
from selector.gpu.ir.expressions import (
    all_of,
    behind,
    both,
    element,
    equal,
    masked,
    mixed_radix,
    number,
    plus,
    pointer,
    quotient,
    remainder,
    times,
)
from selector.gpu.ir.memory import Array, LoadVector, Point, StoreVector
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine, split_by_strides, to_affine
from selector.ir.nodes import (
    BinaryOp,
    BufferParam,
    Cast,
    Compare,
    CompareOp,
    Expr,
    IntImm,
    Load,
    Store,
    Var,
)
from selector.ir.types import UINT64
from selector.lowering.predicates import TRUE, conjunction, holds_everywhere

CHANNELS = 4  # of a pixel at most: so many vectors of a thread wait at once
UNROLLED = 4  # turns of a thread


@dataclass(frozen=True, slots=True)
class PixelCopy:
    """A nest that copies pixels to planes: ``c`` counts their elements, ``x`` pixels of a row, of
    which a thread has ``per`` at once, from element ``start`` of the source on, if these are
    ``inside``. ``plane``: elements from one plane to the next; ``whole``: the uniform condition
    under which it may, and ``aligned``: that under which these begin at multiples of 16 bytes.
    """

    nest: Nest
    c: Digit
    x: Digit
    per: int
    plane: int
    start: Expr
    inside: Expr
    whole: Expr | None
    aligned: Expr

    @property
    def channels(self) -> int:
        return self.c.count or 1


@dataclass(frozen=True, slots=True)
class _Image:
    """What is copied: the coordinate of a pixel in its row as it stands there, and what that is
    where it lies inside of a row of an ``extent``; the ``stride`` of pixels; the ``rows``'
    coordinates; when all of these are ``within``; ``tests`` of the array, and those of where its
    rows begin.
    """

    pixel: Expr
    inside: Affine
    extent: Affine
    stride: Affine
    rows: tuple[Expr, ...]
    within: Expr
    tests: tuple[Expr, ...]
    aligned: Expr


def as_pixel_copy(nest: Nest, context: KernelContext) -> PixelCopy | None:
    """The copy of pixels that a nest is; None if it is none."""
    load, to = nest.store.value, context.storages.get(nest.store.buffer)
    if not isinstance(load, Load) or load.predicate or nest.store.predicate or nest.condition:
        return None
    source = context.storages.get(load.buffer)
    if to is None or source is None or to.space is not Space.SHARED or to.type != source.type:
        return None
    if source.space is not Space.GLOBAL or source.param is None or to.panels or to.strips:
        return None
    if any(d.count is None for d in nest.digits):
        return None
    index, per = to_affine(nest.store.index), CHUNK_BYTES // to.type.bytes
    for c in (d for d in nest.digits if 1 < (d.count or 1) <= CHANNELS):
        image = _image(load.index, c, source.param, context)
        if image is None:
            continue
        for x in (d for d in nest.digits if index.coefficient(d.var).constant == 1):
            starts = (*image.inside.rest(x.var), *index.rest(x.var))
            alike = image.inside.coefficient(x.var).constant == 1
            alike = alike and not any(to_affine(e).mentions(x.var.name) for e in image.rows)
            alike = alike and not any(n % per for _, n in starts) and not (x.count or 0) % per
            plane = index.coefficient(c.var).constant
            whole = holds_everywhere(image.within, {d.var: d.count or 1 for d in nest.digits})
            if not alike or not plane or whole is None:
                continue
            moved = (image.inside - to_affine(image.pixel)) * image.stride
            start = (to_affine(load.index) + moved).rest(c.var).to_expr()
            tests = (*(() if whole == TRUE else (context.condition(whole),)), *image.tests)
            room = (image.extent - image.inside - per).to_expr()
            inside = (Compare(CompareOp.LE, IntImm(0), e) for e in (image.inside.to_expr(), room))
            own = conjunction(*inside), all_of(tests), image.aligned
            return PixelCopy(nest, c, x, per, plane, start, *own)
    return None


def _image(index: Expr, c: Digit, source: BufferParam, context: KernelContext) -> _Image | None:
    """What an index reads if ``c`` counts the elements of a pixel that lie next to each other: in
    one dimension with the pixels of a row, or in one of their own; None if it does not.
    """
    found, n, scalar = split_by_strides(index, source.dims), c.count or 1, context.scalar
    if not found or to_affine(found[0]).coefficient(c.var).constant != 1:
        return None
    start = Cast(UINT64, pointer(context.storages[source.name].base))
    own, dims = to_affine(found[0]), source.dims
    tests, aligned = list[Expr](), [equal(masked(start, CHUNK_BYTES - 1), 0)]
    if own == Affine.of(c.var):
        if len(dims) < 2:
            return None
        pixel, extent, rest = found[1], dims[1].extent, slice(2, None)
        stride = to_affine(dims[1].stride)
        tests.append(equal(scalar.number(dims[1].stride), n))
    else:
        counted, length = own.rest(c.var).divided_by(n), to_affine(dims[0].extent).divided_by(n)
        if counted is None or length is None:
            return None
        pixel, extent, rest = counted.to_expr(), length.to_expr(), slice(1, None)
        stride = Affine.of(n)
    inside = inside_of(pixel, extent).inside
    rows = tuple(map(inside_of, found[rest], (d.extent for d in dims[rest])))
    if any(to_affine(e).mentions(c.var.name) for e in (pixel, *found[rest])):
        return None
    within: Expr = TRUE
    for row, dim in zip(rows, dims[rest], strict=True):
        if row.folded is not None:
            return None
        within = conjunction(within, _lies(row.inside, dim.extent, row.held))
        per = CHUNK_BYTES // context.storages[source.name].type.bytes
        aligned.append(equal(masked(scalar.number(dim.stride), per - 1), 0))
    place = to_affine(inside), to_affine(extent), stride
    return _Image(pixel, *place, found[rest], within, tuple(tests), both(*aligned))


def _lies(at: Expr, extent: Expr, held: Ends) -> Expr:
    """Whether a coordinate is one; held at an end, it is, if there is any."""
    low = TRUE if BinaryOp.MAX in held else Compare(CompareOp.LE, IntImm(0), at)
    high = TRUE if BinaryOp.MIN in held else Compare(CompareOp.LT, at, extent)
    some = conjunction(high, Compare(CompareOp.LT, IntImm(0), extent)) if held else high
    return conjunction(low, some)


def emit_pixel_copy(
    copy: PixelCopy, context: KernelContext, thread: Expr, size: int, one: Callable[[Store], None]
) -> None:
    """Write the copy for where it may go so, spread over ``size`` threads; ``thread``: the number
    of this one. ``one`` writes the store of an element.
    """
    w, per = context.writer, copy.per
    rows = [d for d in copy.nest.digits if d not in (copy.c, copy.x)]
    counts = [(copy.x.count or 1) // per, *(d.count or 1 for d in rows)]
    total = prod(counts)
    with spread(context, thread, size, total, unroll=-(-total // size) <= UNROLLED):
        for digit, value in zip((copy.x, *rows), mixed_radix("i", counts[:-1]), strict=True):
            value = times(value, per) if digit is copy.x else value
            w.add(Let("int", (context.names.get(digit.var.name),), (value,)))
        with w.when(context.scalar.legal(copy.inside)):
            _vectors(copy, context)
        with w.otherwise():
            channel = context.names.get(copy.c.var.name)
            further = Var(context.names.fresh("further"))
            moved: dict[str, Expr] = {copy.x.var.name: (Affine.of(copy.x.var) + further).to_expr()}
            with (
                w.loop(channel, number(0), number(copy.channels)),
                w.loop(context.names.get(further.name), number(0), number(per), "unrolled"),
            ):
                one(where(copy.nest.store, moved))


def _vectors(copy: PixelCopy, context: KernelContext) -> None:
    """All of a thread's pixels."""
    w, scalar, store = context.writer, context.scalar, copy.nest.store
    assert isinstance(store.value, Load)
    n, per, kind = copy.channels, copy.per, c_type(store.value.type)
    to, source = context.storages[store.buffer], context.storages[store.value.buffer]
    first = to_affine(store.index).rest(copy.c.var).to_expr()
    w.add(Point("to", kind, to.at(scalar.number(first))))
    w.add(Point("from", f"const {kind}", source.at(scalar.number(copy.start))))
    w.add(Array("run", kind, n * per, CHUNK_BYTES))
    w.add(Array("planes", kind, n * per, CHUNK_BYTES))
    with w.when(copy.aligned):
        for k in range(0, n * per, per):
            part = behind(pointer("from"), number(k))
            w.add(LoadVector(pointer("run"), number(k), part, CHUNK_BYTES))
    with w.otherwise():
        bytes_ = n * CHUNK_BYTES
        w.add(LoadVector(pointer("run"), number(0), pointer("from"), bytes_, "anywhere"))
    with w.loop("e", number(0), number(n * per), "unrolled"):
        place = plus(times(remainder("e", n), per), quotient("e", n))
        own = element(store.value.type, pointer("run"), "e")
        w.store(element(store.value.type, pointer("planes"), place), own)
    for k in range(n):
        there = behind(pointer("to"), number(k * copy.plane))
        w.add(StoreVector(there, pointer("planes"), k * per, CHUNK_BYTES))
