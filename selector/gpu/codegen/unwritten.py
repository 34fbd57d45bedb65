"""Staged buffers beside zeros: what their elements are, the zeros that a kernel writes for it, and
the check of every operand.

``intrinsics.unwritten`` says what memory may hold where no statement writes it, and finds out what
a staged buffer holds. Here a kernel adds what it alone knows: copies fill the last 16 bytes of a
row, instructions read whole steps of their depth. How far an operand is read is decided here alone,
and one that reads an element beside a zero which is no number, or past its depth lies outside of
its buffer, is refused: no kernel gets past the check.

What wgmma reads it takes as it lies, so that all of it is seen to, whatever it meets: operands in
panels element by element (``settled``), windows and their bands by what the descriptors of each
instruction name (``check_windows``), 16 bytes at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from selector.diagnostics import InternalError, ScheduleError, Where
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.copies.recognise import copy_of
from selector.gpu.codegen.scalars.storage import Space
from selector.gpu.codegen.threads.nests import as_nest
from selector.gpu.codegen.threads.plain import ThreadCode
from selector.gpu.codegen.units import Unit
from selector.gpu.codegen.warpgroups.window_code import (
    STEP_BYTES,
    WINDOWS,
    BandAddress,
    WindowProduct,
)
from selector.gpu.codegen.warpgroups.windows import CHUNK
from selector.gpu.ir.layouts import BYTE
from selector.intrinsics.regions import Marks, Ranges, Reach, zeros
from selector.intrinsics.unwritten import Contents, Event, Filled, Scope, contents, has_zeros
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Allocate, For, ForKind, IntImm, Load, Stmt, Store
from selector.ir.printer import print_expr
from selector.ir.traverse import walk_expr, walk_stmt
from selector.lowering.fragments import BLOCK_BYTES, depth_blocks
from selector.lowering.normalize import holds_tensor
from selector.lowering.structure import stored_names
from selector.lowering.tiles import DEPTH, ROW, Access, Accumulate, Banded, Operand, as_accumulate


def staged_contents(s: Allocate, context: KernelContext) -> Contents | None:
    """``contents`` of a buffer that has its place, by what its copies fill; columns for which its
    panels have no room are neither written nor zeroed.
    """
    found = contents(s, lambda x: _read_by(x, s.name, context), _Copies(s.name, context))
    panels = context.shared.layouts.panels.get(s.name)
    if found is None or panels is None:
        return found
    held = np.arange(found.written.size) % panels.pitch < panels.count * panels.width
    return Contents(found.written & held, found.unwritten & held)


def _read_by(s: Store, name: str, context: KernelContext) -> Iterator[tuple[str, Affine, Ranges]]:
    """What has to be a number: what meets zeros, and all that wgmma reads, in whole steps; of
    operands that a buffer is a source of.
    """
    statement = as_accumulate(s)
    if statement is None:
        return
    step = statement.instruction.k if _by_group(statement) else 1
    statement = context.as_accumulate(s) or statement
    for o, other in ((statement.a, statement.b), (statement.b, statement.a)):
        if isinstance(o, Access) and name in o.sources and (step > 1 or _has_zeros(other)):
            yield from _loaded(o, -(-o.depth // step) * step)


def _loaded(o: Access, depth: int) -> Iterator[tuple[str, Affine, Ranges]]:
    """What is read of which buffer; a computed operand stops at its depth, and its choices are
    taken to read whatever they choose.
    """
    if o.value is None:
        yield o.buffer, *_elements(o, depth)
        return
    ranges = {ROW.name: (0, o.rows), DEPTH.name: (0, o.depth)}
    for load in walk_expr(o.value):
        if isinstance(load, Load):
            yield load.buffer, to_affine(load.index), ranges


def _elements(o: Access, depth: int) -> Filled:
    index = o.base + o.row_stride * ROW + o.depth_stride * DEPTH
    return index, {ROW.name: (0, o.rows), DEPTH.name: (0, depth)}


class _Copies:
    """What a copy into a buffer fills, where that is more than the program says. It is asked for
    statements from the outside in.
    """

    def __init__(self, name: str, context: KernelContext) -> None:
        self.name, self.context = name, context
        self.known: set[int] = set()  # statements inside those that are written as they stand

    def __call__(self, s: Stmt) -> Filled | None:
        if not isinstance(s, For | Store) or id(s) in self.known:
            return None
        threads = isinstance(s, For) and s.kind is ForKind.GPU_THREAD
        if threads:
            if not holds_tensor(s):
                self._known(s)  # element by element
            return None
        if set(stored_names(s)) != {self.name}:
            return None
        copy = copy_of(s, self.context)
        if copy is None:
            return None
        if not copy.rounded:
            self._known(s)
            return None
        ranges = {d.var.name: (0, d.count or 1) for d in copy.rows}
        return copy.index, {**ranges, copy.x.var.name: (0, copy.chunks * copy.per)}

    def _known(self, s: Stmt) -> None:
        self.known |= {id(x) for x in walk_stmt(s)}


def write_zeros(
    s: Allocate, known: Contents, slot: int, context: KernelContext, unit: Unit
) -> None:
    """Zero what is unwritten in all stages of a buffer, ``slot`` elements apart."""
    w, storage = context.writer, context.storages[s.name]
    for number in range(s.stages):
        if number:
            context.storages[s.name] = replace(storage, start=IntImm(number * slot))
        for runs in known.runs:
            nest = as_nest(zeros(s.name, s.type.element, runs))
            assert nest is not None
            ThreadCode(context).spread(nest, unit.thread, unit.size)
    context.storages[s.name] = storage
    context.facts.numbers[s.name] = known.written | known.unwritten
    unit.touch(set(), {s.name})
    if context.block.group:
        unit.panels = True
        unit.wait(w)


# -------------------------------------------------------------------------------- operands


def along_rows(o: Access, context: KernelContext) -> bool:
    """Whether the depth runs along rows that are a multiple of 16 bytes apart."""
    per = BLOCK_BYTES // o.type.bytes
    return o.depth_stride.constant == 1 and context.is_multiple(o.row_stride, per)


def settled(s: Accumulate, context: KernelContext) -> Accumulate:
    """The statement, whose operands know how far past their depth they may be read; checked."""
    a, b = _settled(s.a, context), _settled(s.b, context)
    if a is not s.a or b is not s.b:
        s = replace(s, a=a, b=b)
    for operand, other in ((s.a, s.b), (s.b, s.a)):
        if isinstance(operand, Access) and (_by_group(s) or _has_zeros(other)):
            if operand.value is None:
                _check(s, operand, context)
            else:
                _check_computed(s, operand, context)
    return s


def _by_group(s: Accumulate) -> bool:
    """Whether an instruction of a warpgroup reads the operands, from memory as it is."""
    return s.instruction.reads_memory


def _settled(operand: Operand, context: KernelContext) -> Operand:
    """Elements past the depth may be read into a band's zeros only where numbers are known to lie
    there: in arrays, and in what staged copies fill. Others stop at the depth.
    """
    if isinstance(operand, Banded) or not operand.meets_band:
        return operand
    if operand.value is not None:
        return replace(operand, meets_band=False)
    storage = context.storages[operand.buffer]
    numbers = context.facts.numbers.get(operand.buffer)
    known = storage.space is Space.GLOBAL
    if storage.rounded_rows and numbers is not None:
        reached = _reached(operand, context)
        whole = context.is_multiple(operand.base, BLOCK_BYTES // operand.type.bytes)
        whole = whole and along_rows(operand, context) and bool(numbers.all())
        known = whole if reached is None else reached[0].covered(reached[1], numbers)
    return operand if known else replace(operand, meets_band=False)


def _reached(o: Access, context: KernelContext) -> tuple[Reach, int] | None:
    """The elements of a buffer that instructions read of a settled operand, and the first."""
    depth = depth_blocks(o) * BLOCK_BYTES // o.type.bytes if o.meets_band else o.depth
    start = o.base.offset
    key = (o.base - start, o.row_stride, o.depth_stride, o.rows, depth)
    if key not in context.facts.reached:
        index, ranges = _elements(o, depth)
        event = Event(index - start, ranges, context.facts.loops)
        context.facts.reached[key] = Reach.of(event.places())
    found = context.facts.reached[key]
    return None if found is None else (found, start)


def _check(s: Accumulate, o: Access, context: KernelContext) -> None:
    """``InternalError`` for an operand in shared memory that meets zeros of the other one, or is
    read by wgmma, and reads what is not known to be a number; ``ScheduleError`` where the program
    itself leaves that out. One whose places are not known stays
    inside its depth, all of which has been seen to. Inside their depth operands lie in their
    buffer, which holds all that the program reads: other places are of iterations that a condition
    leaves out.
    """
    numbers = context.facts.numbers.get(o.buffer)
    found = None if numbers is None else _reached(o, context)
    if numbers is None or found is None:
        if numbers is None and _by_group(s) and o.buffer not in context.registers.tiles:
            raise _refused(s.accumulator, o.buffer, "of which nothing is known")
        return
    reach, start = found
    first, missing = reach.missing(start, numbers)
    inside = not missing.any()
    if not (reach.covered(start, numbers) if o.meets_band else inside):
        _check_columns(s, o, first + np.flatnonzero(missing), context)
        raise _refused(
            s.accumulator,
            o.buffer,
            f"{o.rows} rows of {o.depth} elements from {print_expr(o.base.to_expr())} on",
        )


def _check_computed(s: Accumulate, o: Access, context: KernelContext) -> None:
    """``InternalError`` for a computed operand that meets zeros of the other one, and loads what is
    not known to be a number.
    """
    for buffer, index, ranges in _loaded(o, o.depth):
        numbers = context.facts.numbers.get(buffer)
        if numbers is None or numbers.all():
            continue
        event = Event(index - index.offset, ranges, context.facts.loops)
        reach = Reach.of(event.places())
        if reach is None or reach.missing(index.offset, numbers)[1].any():
            what = f"`{print_expr(index.to_expr())}` for {o.rows} rows of {o.depth} elements"
            raise _refused(s.accumulator, buffer, what)


def _check_columns(
    s: Accumulate, o: Access, missing: NDArray[np.int64], context: KernelContext
) -> None:
    """``ScheduleError`` if the panels have no room for it, because no statement of the program
    stores that far into a row; nor is it zeroed then.
    """
    panels = context.shared.layouts.panels.get(o.buffer)
    if panels is None or not missing.size:
        return
    last = int(np.max(missing % panels.pitch))
    if last >= panels.count * panels.width:
        raise ScheduleError(
            f"`{s.accumulator}` multiplies what no definition of `{o.buffer}` computes",
            f"of its rows the first {panels.columns} elements are written, and {last + 1} are read",
            f"give `{o.buffer}` a value wherever it is read, such as 0 in its pure definition "
            "instead of `hl.undef`; or end the sum with what is written",
            Where(func=s.accumulator),
        )


def _refused(accumulator: str, buffer: str, what: str) -> InternalError:
    return InternalError(f"`{accumulator}` multiplies what nobody wrote in `{buffer}`: {what}")


def _has_zeros(operand: Operand) -> bool:
    if isinstance(operand, Banded) or operand.predicate is not None:
        return True
    return operand.value is not None and has_zeros(operand.value)


# -------------------------------------------------------------------------------- windows


def check_windows(products: Sequence[WindowProduct], context: KernelContext) -> None:
    """``InternalError`` for an instruction one of whose descriptors, of its windows or of its band,
    reaches 16 bytes that are not known to be numbers.
    """
    rows = {p.buffer: _chunks(p.buffer, context) for p in products}
    for p in products:
        if not _windows_known(p, rows[p.buffer], context):
            what = f"windows {p.along} bytes deep from byte {p.offset} on"
            raise _refused(p.accumulator, p.buffer, what)
        assert p.band is not None
        if not _band_known(p, p.band, context):
            what = f"{p.n} columns from byte {p.band.place} of `{p.band.table}` on"
            raise _refused(p.accumulator, p.entry.operand.buffer, what)


def _chunks(buffer: str, context: KernelContext) -> Marks:
    """Which 16 bytes of a buffer of windows are known to be numbers, as they lie in memory."""
    rows, numbers = context.shared.layouts.windows[buffer], context.facts.numbers.get(buffer)
    if numbers is None:
        return np.zeros(0, np.bool_)
    if rows.step > 1:
        order = np.argsort(rows.place(np.arange(rows.pitch)))
        numbers = numbers.reshape(-1, rows.pitch)[:, order].ravel()
    chunks = numbers[: numbers.size // CHUNK * CHUNK].reshape(-1, CHUNK)
    return np.logical_and.reduce(chunks, axis=1)


def _windows_known(p: WindowProduct, known: Marks, context: KernelContext) -> bool:
    """Where the place of windows is not known, they still lie in their rows: ``window_products``
    has seen to that.
    """
    first = p.symbolic.divided_by(BLOCK_BYTES)
    if first is None or (p.offset | p.along) % BLOCK_BYTES:
        return False
    key = (first, p.along)
    if key not in context.facts.reached:
        index = first + ROW + Affine.of(DEPTH) * (p.along // BLOCK_BYTES)
        ranges = {ROW.name: (0, WINDOWS), DEPTH.name: (0, 2)}
        event = Event(index, ranges, context.facts.loops)
        context.facts.reached[key] = Reach.of(event.places())
    reach = context.facts.reached[key]
    if reach is None:
        return known.size > 0 and bool(known.all())
    return reach.covered(p.offset // BLOCK_BYTES, known)


def _band_known(p: WindowProduct, band: BandAddress, context: KernelContext) -> bool:
    known = context.facts.numbers[band.table]
    byte = band.layout(*np.ogrid[: p.n, :STEP_BYTES:BLOCK_BYTES])[BYTE]
    at = (band.place + byte) // BLOCK_BYTES
    return bool(at.min() >= 0 and at.max() < known.size and known[at].all())


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
