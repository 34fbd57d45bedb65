"""Copies into panels by the copy engine: which boxes of which tensor a staged copy is made of.

A copy is boxes if its rows run along the source's innermost dimension and are numbered by others,
each digit of their number by one; the tensor map names these in the order of the digits. What it
wants to be zero outside of the source's extents becomes the extents of the tensor map: the copy
engine writes zeros there.

Rows may number every second element of a dimension, or every s-th (``planes``). A product whose
rows are every second pixel cannot read them so: in a swizzled panel neighbouring rows are
neighbours. So a copy deals the pixels out, ``planes(c, x, y, p) = image(c, 2*x + p, y)``, each tap
reads neighbours of the plane of its parity, and each plane is boxes of its own map.

What the engine takes an array for, parameters say themselves. Intermediates are one run of memory
in the kernels that read them; their rows, planes, ... are those of the allocation. They begin at
multiples of 16 bytes, as maps want it, where the schedule says so (``align_storage``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.copies.recognise import Copy
from selector.gpu.codegen.scalars.storage import Storage
from selector.gpu.codegen.warpgroups.panels import Panels
from selector.gpu.codegen.warpgroups.planes import Walk, dealt, walks_of
from selector.gpu.ir.layouts import GROUP_ROWS
from selector.gpu.ir.memory import EngineCopy, Map
from selector.gpu.ir.views import View
from selector.ir.affine import Affine, carries, to_affine
from selector.ir.nodes import Binary, BinaryOp, BufferParam, Dim, Expr, For, IntImm, LetStmt, Var
from selector.ir.traverse import change_expr, conjuncts, free_vars, substitute
from selector.lowering.kernels import GridLoop
from selector.lowering.predicates import TRUE, slack
from selector.lowering.ranges import constant_ends
from selector.targets import LARGEST_BOX

RANK = "rank"  # of a block in its cluster
READY, STORES_READY = "maps_ready", "stores_ready"  # of what is read, of what is stored
_RANKS = (2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class Plane:
    """The tensor map, the first coordinate in each dimension, and the row where it begins."""

    map: Map
    first: tuple[Expr, ...]
    row: int


@dataclass(frozen=True, slots=True)
class Boxes:
    """A copy as boxes: its planes, and the dimension that numbers the rows of each, or ``inner`` of
    them at a time, with how many there are in all and in one box.
    """

    to: str
    planes: tuple[Plane, ...]
    along: int
    rows: int
    box_rows: int
    inner: int
    panels: Panels

    @property
    def first(self) -> tuple[Expr, ...]:
        """Where the first plane begins; others do at constant distances from there."""
        return self.planes[0].first

    @property
    def bytes(self) -> int:
        """What arrives in one stage."""
        rows = len(self.planes) * self.rows * self.inner
        return self.panels.count * rows * self.panels.row_bytes

    def name_maps(self, context: KernelContext) -> None:
        """A kernel has the maps that it copies by, and no others."""
        for plane in self.planes:
            map_name(plane.map, context)

    @property
    def box_bytes(self) -> int:
        """What one box brings."""
        return self.box_rows * self.inner * self.panels.row_bytes

    def write(self, context: KernelContext, barrier: Expr, share: int = 1) -> None:
        """One instruction for each box, for one thread; they arrive at ``barrier``. ``share``: this
        block's part, for as many blocks of the cluster.
        """
        p, storage = self.panels, context.storages[self.to]
        whole = p.count % share == 0  # panels, or else rows of every panel
        columns, rows = (p.count // share, self.rows) if whole else (p.count, self.rows // share)
        rank = Affine.of(context.names.stand(RANK, Var(RANK))) if share > 1 else Affine()
        blocks = (1 << share) - 1 if share > 1 else 0
        panel, row = (rank * columns, Affine()) if whole else (Affine(), rank * rows)
        steps = range(0, rows, self.box_rows)
        for plane, number, step in product(self.planes, range(columns), steps):
            at = [*plane.first]
            at[0] = (Affine.of(at[0]) + (panel + number) * p.width).to_expr()
            moved = (row + step) * plane.map.step(self.along)
            at[self.along] = (Affine.of(at[self.along]) + moved).to_expr()
            offset = p.byte((row + step) * self.inner + plane.row, panel + number)
            behind = context.number(offset.to_expr()) if offset.terms else None
            target = View(storage.base, storage.start, behind)
            places, name = tuple(map(context.number, at)), map_name(plane.map, context)
            context.writer.add(EngineCopy(target, name, places, barrier, self.box_bytes, blocks))


def boxes_of(copy: Copy | None, context: KernelContext, written: Container[str]) -> Boxes | None:
    """The boxes that a copy is, of an array that the kernel does not write; None if it is none."""
    if copy is None or copy.source.buffer in written:
        return None
    return as_boxes(copy, context)


def as_boxes(copy: Copy, context: KernelContext) -> Boxes | None:
    """The boxes that a copy is; None if it is none."""
    to, source = context.storages[copy.to], context.storages[copy.source.buffer]
    if to.panels is None or source.param is None or copy.continued:
        return None
    tensor = tensor_of(copy, source, (*context.indices.grid, *context.facts.loops.around))
    if tensor is None:
        return None
    panels, (dims, at) = to.panels, tensor
    if dims[0].stride != IntImm(1):
        return None
    walks = walks_of(copy, at, panels.pitch)
    if walks is None or copy.length > panels.count * panels.width:
        return None
    order = in_order([w.dimension for w in walks.rows], len(dims))
    dims, at = tuple(dims[d] for d in order), [at[d] for d in order]
    digits = [replace(w, dimension=order.index(w.dimension)) for w in walks.rows]
    param = replace(source.param, dims=dims)
    extents = bounded_extents(param, copy.predicate or TRUE, at, context)
    if extents is None:
        return None
    box = [1] * len(dims)
    box[0] = panels.width
    for walk in digits:
        box[walk.dimension] = walk.count
    along, rows = digits[-1].dimension, digits[-1].count
    inner = prod(w.count for w in digits[:-1])
    parts = 1
    first = [c.to_expr() for c in _first(copy, at, {})]
    cluster = context.block.cluster
    if panels.count % cluster and same_in_cluster(first, context):
        even = rows % cluster == rows * inner % (GROUP_ROWS * cluster) == 0
        parts = cluster if even else 1
    box[along] = box_rows = min(rows // parts, LARGEST_BOX)
    whole = rows % box_rows == 0 and (rows == box_rows or inner * box_rows % GROUP_ROWS == 0)
    if max(box) > LARGEST_BOX or not whole:
        return None
    strides = tuple(d.stride for d in dims[1:])
    become = "tf32" if panels.rounds else ""
    taken = Map("", copy.source.buffer, to.type, extents, strides, tuple(box), become)
    planes = _planes(copy, taken, at, digits, walks.planes)
    return None if planes is None else Boxes(copy.to, planes, along, rows, box_rows, inner, panels)


def _planes(
    copy: Copy, whole: Map, at: list[Affine], digits: list[Walk], dealing: tuple[Walk, ...]
) -> tuple[Plane, ...] | None:
    """A plane for each value of the digits that deal rows out; None if one is none, or has rows
    that do not begin where a panel's swizzle does, or more dimensions than a map.
    """
    found: list[Plane] = []
    for values in product(*(range(w.count) for w in dealing)):
        chosen = {w.name: v for w, v in zip(dealing, values, strict=True)}
        row = sum(w.step * v for w, v in zip(dealing, values, strict=True))
        plane = dealt(whole, _first(copy, at, chosen), digits)
        if plane is None or row % GROUP_ROWS or len(plane[0].box) not in _RANKS:
            return None
        found.append(Plane(*plane, row))
    return tuple(found)


def _first(copy: Copy, at: list[Affine], chosen: dict[str, int]) -> list[Affine]:
    """The coordinates where all digits are 0, but for some."""
    values: dict[str, Expr] = {
        d.var.name: IntImm(chosen.get(d.var.name, 0)) for d in (copy.x, *copy.rows)
    }
    return [to_affine(substitute(c.to_expr(), values)) for c in at]


def same_in_cluster(exprs: Iterable[Expr], context: KernelContext) -> bool:
    """Whether values are the same for all blocks of a cluster, whose first one is at a multiple of
    its size: the number of a block occurs in them only divided by multiples of that.
    """
    x, size = context.block.neighbours, context.block.cluster

    def without(e: Expr) -> Expr | None:
        match e:
            case Binary(BinaryOp.DIV, Var(name, _), IntImm(n, _)) if name == x and n % size == 0:
                return IntImm(0)
            case _:
                return None

    return all(x not in free_vars(change_expr(e, without)) for e in exprs)


def in_order(dimensions: Sequence[int], rank: int) -> list[int]:
    """All dimensions of a tensor, those that number rows in the given order: a map may name
    dimensions in any order but for the innermost one, and rows arrive in that of the map.
    """
    places = iter(sorted(dimensions))
    order = list(range(rank))
    for dimension in dimensions:
        order[next(places)] = dimension
    return order


def map_name(wanted: Map, context: KernelContext) -> str:
    """The kernel's parameter for a tensor map that has no name."""
    for known in context.host.maps:
        if replace(known, name="") == wanted:
            return known.name
    name = context.names.fresh(f"map_{wanted.of}")
    context.host.maps.append(replace(wanted, name=name))
    return name


def bounded_extents(
    param: BufferParam, wanted: Expr, at: list[Affine], context: KernelContext
) -> tuple[Expr, ...] | None:
    """The extents of a tensor whose elements at coordinates ``at`` are those of a buffer where
    ``wanted`` holds, and none elsewhere; None if they depend on more than the sizes of the call.
    """
    extents: list[Expr] = [d.extent for d in param.dims]
    known = {
        e.name
        for p in context.host.params.values()
        for d in p.dims
        for e in (d.extent, d.stride, d.min)
        if isinstance(e, Var)
    }
    for condition in conjuncts(wanted):
        room = slack(condition)
        if condition == TRUE or any(_holds_from(room, c) for c in at):
            continue  # nothing lies before the first element
        bounds = [] if room is None else [(room + c + 1).to_expr() for c in at]
        fitting = [(d, bound) for d, bound in enumerate(bounds) if free_vars(bound) <= known]
        if not fitting:
            return None
        d, bound = fitting[0]
        if bound != extents[d]:
            extents[d] = Binary(BinaryOp.MIN, extents[d], bound)
    return tuple(extents) if all(free_vars(e) <= known for e in extents) else None


def _holds_from(room: Affine | None, place: Affine) -> bool:
    """Whether a place is not negative exactly where ``room`` is not: it is so many times that, and
    less than as many more.
    """
    times = None if room is None else place.times(room)
    rest = None if room is None or times is None else (place - room * times).constant
    return times is not None and rest is not None and 0 <= rest < times


def tensor_of(
    copy: Copy, source: Storage, loops: Iterable[GridLoop | For | LetStmt] = ()
) -> tuple[tuple[Dim, ...], list[Affine]] | None:
    """The dimensions of a copy's source and its coordinates in them, innermost first; None where
    rows are not what they look like. ``loops``: those of the kernel.
    """
    if source.param is None or carries(source.param.dims):  # boxes are clipped where rows end
        return None
    if source.elements is None or not source.pitches:
        return source.param.dims, [to_affine(c) for c in copy.coordinates]
    return _by_rows(copy, (*source.pitches, source.elements), _ranges(copy, loops))


def _by_rows(
    copy: Copy, sizes: Sequence[Expr], ranges: Mapping[str, tuple[int, int]]
) -> tuple[tuple[Dim, ...], list[Affine]] | None:
    """The dimensions of an intermediate, and the coordinates of an element: how many planes, then
    rows, are in its index. The rows hold every element that is read of them, so that none runs into
    the next. A dimension of which the index counts none, in whole rows, is one with the next inner
    one, whose loop may have been fused with its own; the outermost one where that is what the index
    counts. None for rows that an index leaves, and for those of constant length that it may leave,
    as far as the copy shows.
    """
    dims, found = list[Dim](), list[Affine]()
    rest, size = to_affine(copy.source.index), sizes[-1]
    for stride in reversed(sizes[:-1]):
        pitch = to_affine(stride)
        (lead, factor), number = pitch.terms[0], rest.counted_by(pitch)
        place = (rest - number * pitch).counted_by(Affine.build({lead: 1}))
        rows, ends = _row(place, factor, ranges), constant_ends(place, ranges)
        fused = rows is None and ends is not None
        if not number.terms and (dims or fused):
            continue
        if fused:
            return None
        rest -= number * pitch
        if rows is None and (not lead or abs(place.offset) >= factor):
            return None
        number, rest = number + (rows or 0), rest - pitch * (rows or 0)
        found.append(number)
        dims.append(Dim(IntImm(0), Binary(BinaryOp.DIV, size, stride), stride))
        size = stride
    dims.append(Dim(IntImm(0), Binary(BinaryOp.DIV, size, IntImm(1)), IntImm(1)))
    return tuple(reversed(dims)), [rest, *reversed(found)]


def _ranges(copy: Copy, loops: Iterable[GridLoop | For | LetStmt]) -> dict[str, tuple[int, int]]:
    """The first and the last value of variables, where they are numbers."""
    found = dict[str, tuple[int, int]]()
    for loop in loops:
        match loop:
            case (
                GridLoop(name, IntImm(low), IntImm(extent))
                | For(name=name, min=IntImm(value=low), extent=IntImm(value=extent))
            ):
                found[name] = low, low + extent - 1
            case _:
                pass
    digits = (copy.x, *copy.rows)
    return found | {d.var.name: (0, d.count - 1) for d in digits if d.count is not None}


def _row(place: Affine, length: int, ranges: Mapping[str, tuple[int, int]]) -> int | None:
    """The row, of so many elements, in which a place is for every element of the copy: then what is
    left of it is the remainder, and the number of the row the quotient, of what they were made of.
    """
    ends = constant_ends(place, ranges)
    if ends is None or ends[0] // length != ends[1] // length:
        return None
    return ends[0] // length
