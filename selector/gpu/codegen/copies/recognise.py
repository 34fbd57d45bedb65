"""Staged copies into shared memory: which nests are copies; ``copies.code`` writes them.

A copy is a nest whose store takes a load of a parameter unchanged. Its rows are cut into chunks of
16 bytes. Where the pitch of the rows allows it the last chunk of a row is filled to its end, so
that tiles that read a little past a row meet numbers and not garbage.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space
from selector.gpu.codegen.threads.nests import (
    Digit,
    Nest,
    as_nest,
    cut_digits,
    independent,
    merge_digits,
)
from selector.ir.affine import Affine, carries, split_by_strides, to_affine
from selector.ir.nodes import Binary, BinaryOp, BufferParam, Expr, IntImm, Load, Select, Stmt
from selector.lowering.predicates import slack

CHUNK_BYTES = 16


Ends = frozenset[BinaryOp]
"""Where a coordinate is held: ``MAX`` at 0, ``MIN`` at the last element."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A staged copy: ``to[index]`` from ``source``, rows of ``length`` elements along ``x``, cut
    into chunks. A coordinate that mirrors or comes around outside of the source is in
    ``coordinates`` as it is inside, and as a whole in ``folded``.
    """

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
    clamped: tuple[Ends, ...]  # ends of the source where a coordinate is held: its edges go on
    folded: tuple[Expr | None, ...]

    @property
    def continued(self) -> bool:
        """Whether there is more than the source and zeros: what lies beyond its edges."""
        return any(self.clamped) or any(e is not None for e in self.folded)

    def ends(self, dimension: int) -> bool:
        """Whether the source just ends along a dimension."""
        return not self.clamped[dimension] and self.folded[dimension] is None

    @property
    def chunks(self) -> int:
        """Of a row."""
        return -(-self.length // self.per)

    @property
    def count(self) -> int:
        """Of rows."""
        return prod(d.count or 1 for d in self.rows)

    def carries(self, source: BufferParam) -> bool:
        """Whether rows may run into each other: their coordinates do not show where they end."""
        return bool(carries(source.dims)) and not self.continued


def copy_of(s: Stmt, context: KernelContext) -> Copy | None:
    """The copy that a statement is; None if it is none."""
    nest = as_nest(s)
    return None if nest is None else as_copy(nest, context)


def as_copy(nest: Nest, context: KernelContext) -> Copy | None:
    """The copy that a nest is; None if it is no copy from global to shared memory with aligned
    rows.
    """
    load, to = nest.store.value, context.storages.get(nest.store.buffer)
    if not isinstance(load, Load) or nest.store.predicate is not None:
        return None
    source = context.storages.get(load.buffer)
    if to is None or source is None or to.space is not Space.SHARED or nest.condition is not None:
        return None
    if source.space is not Space.GLOBAL or source.param is None or to.type != source.type:
        return None
    if source.param.dims[0].stride != IntImm(1):  # one channel of pixels is no row of neighbours
        return None
    nest = merge_digits(nest, [to_affine(nest.store.index), to_affine(load.index)])
    nest = cut_digits(nest, source.param.dims)
    load = nest.store.value
    assert isinstance(load, Load)
    found = split_by_strides(load.index, source.param.dims)
    coordinates = None if found is None else unclamped(found, source.param)
    if (
        coordinates is None
        or not independent(nest, None)
        or any(d.count is None for d in nest.digits)
    ):
        return None
    copy = _build(nest, load, coordinates, CHUNK_BYTES // to.type.bytes)
    if copy is not None and load.buffer not in context.host.params and copy.length % copy.per:
        return replace(copy, rounded=False)  # past a row's end an intermediate may hold anything
    return copy


@dataclass(frozen=True, slots=True)
class Coordinate:
    """What a coordinate is inside of its source, where it is held, and what it was if it does
    something else outside.
    """

    inside: Expr
    held: Ends = frozenset()
    folded: Expr | None = None


def unclamped(coordinates: tuple[Expr, ...], source: BufferParam) -> tuple[Coordinate, ...]:
    """Each coordinate without clamps to the source's ends, and what it is beyond them."""
    return tuple(inside_of(c, d.extent) for c, d in zip(coordinates, source.dims, strict=True))


def inside_of(e: Expr, extent: Expr) -> Coordinate:
    """A coordinate along a dimension of that extent."""
    inside = _unfolded(e, extent) or _counted_on(e, extent)
    if inside is not None:
        return Coordinate(inside, folded=e)
    return Coordinate(*_unclamp(e, extent))


def _counted_on(e: Expr, extent: Expr) -> Expr | None:
    """``3 * f(v / 3) + v % 3`` where a row has ``extent / 3`` pixels of three elements next to each
    other: with the pixel inside, an element that counts on with ``v``.
    """
    index = to_affine(e)
    for m, c in index:
        match m:
            case (Binary(BinaryOp.MOD, v, IntImm(n)) as channel,) if c == 1 and n > 1:
                pixel = index.rest(channel).divided_by(n)
                pixels = to_affine(extent).divided_by(n)
                if pixel is None or pixels is None:
                    return None
                place = inside_of(pixel.to_expr(), pixels.to_expr())
                number = Binary(BinaryOp.DIV, v, IntImm(n))
                rest = to_affine(place.inside).rest(number)
                if to_affine(place.inside) - rest != Affine.of(number):
                    return None
                return (rest * n + v).to_expr()
            case _:
                pass
    return None


def _unfolded(e: Expr, extent: Expr) -> Expr | None:
    """The side of a select that a coordinate is wherever that lies inside of its source."""
    index = to_affine(e)
    choices = [(m[0], c) for m, c in index if len(m) == 1 and isinstance(m[0], Select)]
    if len(choices) != 1 or choices[0][1] != 1:
        return None
    select, _ = choices[0]
    assert isinstance(select, Select)
    side = (to_affine(select.otherwise) + index.rest(select)).to_expr()
    inside, _ = _unclamp(side, extent)
    place, end = to_affine(inside), to_affine(extent)
    ways = [(place, end)]
    for m, c in place:
        match m:
            case (Binary(BinaryOp.DIV, v, IntImm(n)) as number,) if c == 1:
                ways.append((place.rest(number) * n + v, end * n))
            case _:
                pass
    return inside if any(_is_outside(select.condition, *way) for way in ways) else None


def _is_outside(condition: Expr, place: Affine, extent: Affine) -> bool:
    """Whether a condition holds for places outside of an extent only."""
    match condition:
        case Binary(BinaryOp.OR, a, b):
            return _is_outside(a, place, extent) and _is_outside(b, place, extent)
        case _:
            room = slack(condition)
            if room is None:
                return False
            beyond = (place - extent - room).constant, (-place - 1 - room).constant
            return any(n is not None and n >= 0 for n in beyond)


def _unclamp(e: Expr, extent: Expr) -> tuple[Expr, Ends]:
    """The coordinate inside ``max(min(e, extent - 1), 0)``, constants moved in or out of it."""
    index = to_affine(e)
    terms = [(m, c) for m, c in index if m]
    if len(terms) != 1 or len(terms[0][0]) != 1 or terms[0][1] != 1:
        return e, frozenset()
    shift = index.offset
    ends = {BinaryOp.MAX: -Affine.of(shift), BinaryOp.MIN: to_affine(extent) - 1 - shift}
    inner: Expr = terms[0][0][0]
    found: set[BinaryOp] = set()
    while isinstance(inner, Binary) and inner.op in ends and inner.op not in found:
        a, b, end = inner.a, inner.b, ends[inner.op]
        held = a if to_affine(b) == end else b if to_affine(a) == end else None
        if held is None:
            break
        found.add(inner.op)
        inner = held
    return ((to_affine(inner) + shift).to_expr(), frozenset(found)) if found else (e, frozenset())


def _build(nest: Nest, load: Load, found: tuple[Coordinate, ...], per: int) -> Copy | None:
    coordinates, clamped = tuple(c.inside for c in found), tuple(c.held for c in found)
    folded = tuple(c.folded for c in found)
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
        to, wanted = nest.store.buffer, load.predicate
        return Copy(
            to, index, load, coordinates, x, rows, x.count, per, rounded, wanted, clamped, folded
        )
    return None
