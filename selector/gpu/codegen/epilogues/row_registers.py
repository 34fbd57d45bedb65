"""Numbers of rows, in the registers of the lanes that hold the rows.

What is made of the rows of accumulators (``row_sums``) and used with them again, maxima and sums
for instance, needs no memory: the four lanes of a row have all the same number. Register
``2*i + half`` of an array holds element ``rows*i + 8*half + g``, for a unit's part of the array.

An array is kept so if nobody touches it but read-outs of accumulators, at the row of the element,
and statements on whole runs of rows, all of them in the unit whose part it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import prod

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.gpu.codegen.context import KernelContext, thread_part
from selector.gpu.codegen.epilogues.elements import COLUMN, ROW, ElementScalar
from selector.gpu.codegen.epilogues.regions import Region, RowRegisters
from selector.gpu.codegen.products.accumulators import by_warp
from selector.gpu.codegen.scalars.storage import c_type
from selector.gpu.ir.lane_maps import PAIRS, ROWS
from selector.gpu.ir.products import Fragment
from selector.ir.access import access
from selector.ir.affine import Affine, to_affine
from selector.ir.contents import holds, loaded, nodes_of
from selector.ir.lanes import Digits, lane
from selector.ir.nodes import Allocate, Call, Expr, Load, Memory, Stmt, Store, Var, VectorReduce
from selector.ir.traverse import change_expr, stmt_exprs, union_of_names, walk_stmt
from selector.ir.types import Type
from selector.lowering.normalize import TENSOR_MEMORY, is_read_out
from selector.lowering.structure import thread_regions
from selector.lowering.tiles import first_lane

Covered = Callable[[str, Affine, int], list[tuple[Region, Digits]]]


def row_arrays(body: Stmt, context: KernelContext, covered: Covered) -> dict[str, int]:
    """The allocations that are kept by rows, with the elements of a unit's part."""
    uses = list(_uses(body))
    names = {
        s.name
        for s in walk_stmt(body)
        if isinstance(s, Allocate) and s.memory not in TENSOR_MEMORY and s.type.bits == 32
        and s.memory is not Memory.REGISTER and s.stages == 1
    }  # fmt: skip
    known = {s.buffer for s, _ in uses if _is_row_sum(s)} & names
    if not known:
        return {}
    while True:
        more = {s.buffer for s, _ in uses if _reads(s) & known} & names - known
        if not more:
            break
        known |= more
    inside = {id(s) for s, _ in uses}
    for s in walk_stmt(body):
        if id(s) not in inside:
            known -= _reads(s) | ({s.buffer} if isinstance(s, Store) else set())
    while True:
        found = _kept(uses, known, context, covered)
        if found.keys() == known:
            return found
        known = set(found)


def _kept(
    uses: list[tuple[Store, list[tuple[str, int]]]],
    names: set[str],
    context: KernelContext,
    covered: Covered,
) -> dict[str, int]:
    """Those of the arrays that every statement uses by rows, if all of them are kept."""
    parts: dict[str, set[tuple[Affine, ...]]] = {name: set() for name in names}
    sizes = dict.fromkeys(sorted(names), 0)
    lost: set[str] = set()
    by_loops: dict[tuple[object, ...], tuple[Affine, ...]] = {}
    for s, loops in uses:
        for name in (_reads(s) | {s.buffer}) & names:
            reach = _reach(s, name, context, covered)
            if reach is None or (s.buffer not in names and not _reads_tiles(s)):
                lost.add(name)
                continue
            sizes[name] = max(sizes[name], reach)
            for index in _indices(s, name):
                part = thread_part(first_lane(index), context)
                key = (part, *loops)
                if key not in by_loops:
                    by_loops[key] = by_warp(part, loops)
                parts[name].add(by_loops[key])
    return {
        name: size
        for name, size in sizes.items()
        if name not in lost and len(parts[name]) == 1 and _apart(next(iter(parts[name])), size)
    }


def _uses(body: Stmt) -> Iterator[tuple[Store, list[tuple[str, int]]]]:
    """Every store inside a unit, with the loops over units."""
    regions = list(thread_regions(body)) or [([], body)]
    for loops, region in regions:
        for s in walk_stmt(region):
            if isinstance(s, Store):
                yield s, loops


def _reads_tiles(s: Store) -> bool:
    return any(e.name == "tile.read" for e in nodes_of(s.value, Call))


def _is_row_sum(s: Store) -> bool:
    return is_read_out(s) and holds(s.value, VectorReduce)


def _reads(s: Stmt) -> frozenset[str]:
    return union_of_names(map(loaded, stmt_exprs(s)))


def _indices(s: Store, name: str) -> Iterator[Expr]:
    if s.buffer == name:
        yield s.index
    for e in stmt_exprs(s):
        yield from (x.index for x in nodes_of(e, Load) if x.buffer == name)


def _apart(parts: tuple[Affine, ...], size: int) -> bool:
    """Whether the units have parts of their own."""
    starts = [p.constant for p in parts]
    known = sorted(x for x in starts if x is not None)
    return len(known) == len(starts) and all(b - a >= size for a, b in pairwise(known))


def _reach(s: Store, name: str, context: KernelContext, covered: Covered) -> int | None:
    """How far into a unit's part a statement reaches; None if it is not by rows."""
    rows = 64 if context.block.group else 16
    if s.buffer == name:
        start = _start(first_lane(s.index), context)
        walked = access(s.index)
        if start is None or start % rows or s.predicate is not None or walked is None:
            return None
        if not walked.is_dense() or walked.lanes % rows:
            return None
        reach = start + walked.lanes
    else:
        reach = 0
    if not _reads_tiles(s):
        digits: Digits = ((ROW, s.index.type.lanes),)
        return _loads_by_row(s.value, name, digits, context, rows, reach)
    source = _first_read(s.value)
    for region, outer in covered(source.buffer, first_lane(source.index), source.type.lanes):
        if region.swapped or region.m % rows:
            return None
        wide: Digits = ((COLUMN, region.n), (ROW, region.m), *outer)
        found = _loads_by_row(s.value, name, wide, context, rows, reach)
        if found is None:
            return None
        reach = max(reach, found)
    return reach


def _loads_by_row(
    e: Expr, name: str, digits: Digits, context: KernelContext, rows: int, reach: int
) -> int | None:
    for x in nodes_of(e, Load):
        if x.buffer != name:
            continue
        own = digits
        if x.index.type.lanes != prod(n for _, n in digits):  # by rows, beside reductions
            own = tuple((d, n) for d, n in digits if d is not COLUMN)
            if x.index.type.lanes != prod(n for _, n in own):
                return None
        start = row_start(x, own, context)
        if start is None or start % rows or x.predicate is not None:
            return None
        reach = max(reach, start + dict(digits)[ROW])
    return reach


def row_start(load: Load, digits: Digits, context: KernelContext) -> int | None:
    """c where the lane of row m reads element ``c + m`` of the unit's part."""
    index = to_affine(lane(load.index, digits))
    if index.mentions(COLUMN.name) or index.coefficient(ROW).constant != 1:
        return None
    return _start(index.rest(ROW), context)


def _start(index: Affine, context: KernelContext) -> int | None:
    return (index - thread_part(index, context)).constant


def _first_read(value: Expr) -> Load:
    for e in nodes_of(value, Call):
        if e.name == "tile.read" and isinstance(e.args[0], Load):
            return e.args[0]
    raise InternalError("a read-out that reads no accumulator")


# ---------------------------------------------------------------------- nodes


@dataclass(frozen=True, slots=True)
class RowElement:
    """The number of an element's row, of a type: that of the block's first one is element
    ``start``.
    """

    buffer: str
    start: int
    type: Type

    def at(self, scalar: ElementScalar) -> Expr:
        rows = scalar.context.registers.rows[self.buffer]
        return rows.at(self.start + scalar.here.down, self.type)


def row_element(load: Load, scalar: ElementScalar) -> Var | None:
    """What stands for a lane's load from an array of rows, whose index is one of ``ROW``."""
    if load.buffer not in scalar.context.registers.rows:
        return None
    index = to_affine(load.index)
    start = _start(index.rest(ROW), scalar.context)
    if start is None or index.coefficient(ROW).constant != 1:
        raise InternalError(f"`{load.buffer}` is kept by rows and read otherwise")
    return scalar.leaf(RowElement(load.buffer, start, load.type), load.type)


def with_rows(e: Expr, scalar: ElementScalar) -> Expr:
    """A lane's expression with what stands for its loads from arrays of rows."""
    return change_expr(e, lambda x: row_element(x, scalar) if isinstance(x, Load) else None)


def assign_rows(s: Store, context: KernelContext) -> None:
    """A statement on a run of rows."""
    array, lanes = context.registers.rows[s.buffer], s.index.type.lanes
    start = _start(first_lane(s.index), context)
    assert start is not None
    scalar = ElementScalar(context, Region(0, lanes, 8, False, array.rows))
    value = with_rows(lane(s.value, ((ROW, lanes),)), scalar)
    for i in range(lanes // array.rows):
        for half in PAIRS:
            found = scalar.at((i, 0, half)).value(value)
            context.writer.store(array.at(start + scalar.here.down, value.type), found)


def declare(s: Allocate, elements: int, context: KernelContext) -> None:
    """The registers of an allocation."""
    rows = 64 if context.block.group else 16
    name = context.names.fresh(s.name)
    context.registers.rows[s.name] = RowRegisters(name, rows)
    registers = (elements // rows * 2,)
    context.writer.add(Fragment(name, c_type(s.type.element), registers, ROWS[rows]))
