"""Staged copies into shared memory: which nests are copies; ``copy_code`` writes them.

A copy is a nest whose store takes a load of a parameter unchanged. Its rows are cut into chunks of
16 bytes. Where the pitch of the rows allows it the last chunk of a row is filled to its end, so
that tiles that read a little past a row meet numbers and not garbage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from selector.emit.context import KernelContext
from selector.emit.nests import Digit, Nest, as_nest, cut_digits, independent, merge_digits
from selector.emit.scalar import Space
from selector.ir.affine import Affine, carries, split_by_strides, to_affine
from selector.ir.nodes import Binary, BinaryOp, BufferParam, Expr, Load, Stmt

CHUNK_BYTES = 16


Ends = frozenset[BinaryOp]
"""Where a coordinate is held: ``MAX`` at 0, ``MIN`` at the last element."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A staged copy: ``to[index]`` from ``source``, rows of ``length`` elements along ``x``, cut
    into chunks.
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
        return bool(carries(source.dims)) and not any(self.clamped)


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
    nest = merge_digits(nest, [to_affine(nest.store.index), to_affine(load.index)])
    nest = cut_digits(nest, source.param.dims)
    load = nest.store.value
    assert isinstance(load, Load)
    found = split_by_strides(load.index, source.param.dims)
    coordinates = None if found is None else _unclamped(found, source.param)
    if (
        coordinates is None
        or not independent(nest, None)
        or any(d.count is None for d in nest.digits)
    ):
        return None
    copy = _build(nest, load, coordinates, CHUNK_BYTES // to.type.bytes)
    if copy is not None and load.buffer not in context.params and copy.length % copy.per:
        return replace(copy, rounded=False)  # past a row's end an intermediate may hold anything
    return copy


def _unclamped(coordinates: tuple[Expr, ...], source: BufferParam) -> tuple[tuple[Expr, Ends], ...]:
    """Each coordinate without clamps to the source's ends, and those that it had."""
    return tuple(_unclamp(c, d.extent) for c, d in zip(coordinates, source.dims, strict=True))


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


def _build(nest: Nest, load: Load, clamps: tuple[tuple[Expr, Ends], ...], per: int) -> Copy | None:
    coordinates, clamped = tuple(c for c, _ in clamps), tuple(held for _, held in clamps)
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
        return Copy(to, index, load, coordinates, x, rows, x.count, per, rounded, wanted, clamped)
    return None
