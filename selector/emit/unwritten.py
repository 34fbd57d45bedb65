"""Staged buffers beside zeros: what their elements are, the zeros that a kernel writes for it, and
the check of every operand.

``intrinsics.unwritten`` says what memory may hold where no statement writes it, and finds out what
a staged buffer holds. Here a kernel adds what it alone knows: copies fill the last 16 bytes of a
row, instructions read whole steps of their depth. How far an operand is read is decided here alone,
and one that reads an element beside a zero which is no number, or past its depth lies outside of
its buffer, is refused: no kernel gets past the check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from selector.diagnostics import InternalError
from selector.emit.context import KernelContext
from selector.emit.copies import as_copy
from selector.emit.nests import as_nest
from selector.emit.scalar import Space
from selector.emit.threads import ThreadCode
from selector.emit.units import Unit
from selector.intrinsics.unwritten import (
    Contents,
    Event,
    Filled,
    Places,
    Ranges,
    Scope,
    contents,
    covered,
    zeros,
)
from selector.ir.affine import Affine
from selector.ir.nodes import Allocate, For, ForKind, Stmt, Store
from selector.ir.printer import print_expr
from selector.ir.traverse import stmt_children, walk_stmt
from selector.lowering.fragments import BLOCK_BYTES, depth_blocks
from selector.lowering.normalize import holds_tensor
from selector.lowering.structure import stored_names
from selector.lowering.tiles import DEPTH, ROW, Access, Accumulate, Banded, Operand, as_accumulate


def staged_contents(s: Allocate, context: KernelContext) -> Contents | None:
    """``contents`` of a buffer that has its place, by what its copies fill."""
    found: dict[int, Filled] = {}
    _find_copies(s.body, s.name, context, found)
    return contents(s, lambda x: found.get(id(x)), _read_by)


def _read_by(s: Store) -> Iterator[tuple[str, Affine, Ranges]]:
    statement = as_accumulate(s)
    if statement is None:
        return
    for o, other in ((statement.a, statement.b), (statement.b, statement.a)):
        if isinstance(o, Access) and _has_zeros(other):
            yield o.buffer, *_elements(o, o.depth)


def _elements(o: Access, depth: int) -> Filled:
    index = o.base + o.row_stride * ROW + o.depth_stride * DEPTH
    return index, {ROW.name: (0, o.rows), DEPTH.name: (0, depth)}


def _find_copies(s: Stmt, name: str, context: KernelContext, found: dict[int, Filled]) -> None:
    """What copies into a buffer fill, where that is more than the program says."""
    threads = isinstance(s, For) and s.kind is ForKind.GPU_THREAD
    if threads and not holds_tensor(s):
        return  # element by element
    alone = isinstance(s, For | Store) and not threads and set(stored_names(s)) == {name}
    nest = as_nest(s) if alone else None
    copy = as_copy(nest, context) if nest is not None else None
    if copy is None:
        for x in stmt_children(s):
            _find_copies(x, name, context, found)
    elif copy.rounded:
        ranges = {d.var.name: (0, d.count or 1) for d in copy.rows}
        found[id(s)] = copy.index, {**ranges, copy.x.var.name: (0, copy.chunks * copy.per)}


def write_zeros(
    s: Allocate, known: Contents, slot: int, context: KernelContext, unit: Unit
) -> None:
    """Zero what is unwritten in all slots of a buffer, ``slot`` elements apart."""
    w, storage = context.writer, context.storages[s.name]
    for number in range(s.stages):
        if number:
            pointer = f"({storage.pointer} + {number * slot})"
            context.storages[s.name] = replace(storage, pointer=pointer)
        for runs in known.runs:
            nest = as_nest(zeros(s.name, s.type.element, runs))
            assert nest is not None
            ThreadCode(context).spread(nest, unit.rank, unit.size)
    context.storages[s.name] = storage
    context.numbers[s.name] = known.written | known.unwritten
    unit.touch(set(), {s.name})
    if context.group:
        unit.panels = True
        unit.wait(w)


# -------------------------------------------------------------------------------- operands


def along_rows(o: Access, context: KernelContext) -> bool:
    """Whether the depth runs along rows that are a multiple of 16 bytes apart."""
    per = BLOCK_BYTES // o.type.bytes
    return o.depth_stride.constant == 1 and context.is_multiple(o.row_stride, per)


def settled(s: Accumulate, context: KernelContext) -> Accumulate:
    """The statement, whose operands know how far past their depth they may be read; checked."""
    s = replace(s, a=_settled(s.a, context), b=_settled(s.b, context))
    for operand, other in ((s.a, s.b), (s.b, s.a)):
        if isinstance(operand, Access) and _has_zeros(other):
            _check(s, operand, context)
    return s


def _settled(operand: Operand, context: KernelContext) -> Operand:
    """Elements past the depth may be read into a band's zeros only where numbers are known to lie
    there: in arrays, and in what staged copies fill. Others stop at the depth.
    """
    if isinstance(operand, Banded) or not operand.meets_band:
        return operand
    storage = context.storages[operand.buffer]
    numbers = context.numbers.get(operand.buffer)
    known = storage.space is Space.GLOBAL
    if storage.rounded_rows and numbers is not None:
        reached = _reached(operand, context)
        whole = context.is_multiple(operand.base, BLOCK_BYTES // operand.type.bytes)
        whole = whole and along_rows(operand, context) and bool(numbers.all())
        known = whole if reached is None else covered(reached, numbers)
    return replace(operand, meets_band=known)


def _reached(o: Access, context: KernelContext) -> Places | None:
    """The elements of a buffer that instructions read of a settled operand."""
    depth = depth_blocks(o) * BLOCK_BYTES // o.type.bytes if o.meets_band else o.depth
    start = o.base.offset
    key = (o.base - start, o.row_stride, o.depth_stride, o.rows, depth)
    if key not in context.reached:
        index, ranges = _elements(o, depth)
        context.reached[key] = Event(index - start, ranges, context.loops).places()
    found = context.reached[key]
    return None if found is None else found + start


def _check(s: Accumulate, o: Access, context: KernelContext) -> None:
    """``InternalError`` for an operand in shared memory that meets zeros of the other one, and
    reads there what is not known to be a number. One whose places are not known stays inside its
    depth, all of which has been seen to. Inside their depth operands lie in their buffer, which
    holds all that the program reads: other places are of iterations that a condition leaves out.
    """
    numbers, reached = context.numbers.get(o.buffer), _reached(o, context)
    if numbers is None or reached is None:
        return
    if not o.meets_band:
        reached = reached[(reached >= 0) & (reached < numbers.size)]
    if not covered(reached, numbers):
        raise InternalError(
            f"`{s.accumulator}` multiplies what nobody wrote in `{o.buffer}` by a zero: "
            f"{o.rows} rows of {o.depth} elements from {print_expr(o.base.to_expr())} on"
        )


def _has_zeros(operand: Operand) -> bool:
    return isinstance(operand, Banded) or operand.predicate is not None


def loops_of(body: Stmt) -> Scope:
    """The loops of a kernel, outer ones first; without those of one name that differ."""
    found: dict[str, For] = {}
    differ: set[str] = set()
    for s in walk_stmt(body):
        if isinstance(s, For):
            known = found.setdefault(s.name, s)
            if (known.min, known.extent) != (s.min, s.extent):
                differ.add(s.name)
    return Scope(tuple(s for s in found.values() if s.name not in differ))
