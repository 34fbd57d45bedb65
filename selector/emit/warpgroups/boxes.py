"""Copies into panels by the copy engine: which boxes of which tensor a staged copy is made of.

A copy is boxes if its rows run along the source's innermost dimension and are numbered by others,
each digit of their number by one; the tensor map names these in the order of the digits. What it
wants to be zero outside of the source's extents becomes the extents of the tensor map: the copy
engine writes zeros there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from selector.emit.context import KernelContext
from selector.emit.copies import Copy
from selector.emit.warpgroups.panels import Panels
from selector.emit.warpgroups.tensors import tensor_of
from selector.gpu.ir.layouts import GROUP_ROWS
from selector.gpu.ir.memory import EngineCopy, Map
from selector.gpu.ir.views import View
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Binary, BinaryOp, BufferParam, Expr, IntImm, Var
from selector.ir.traverse import free_vars, map_expr, substitute
from selector.lowering.predicates import TRUE, conjuncts, slack

RANK = "rank"  # of a block in its cluster
READY, STORES_READY = "maps_ready", "stores_ready"  # of what is read, of what is stored
LARGEST_BOX = 256
_RANKS = (2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class Boxes:
    """A copy as boxes: the tensor map, the first coordinate in each dimension, and the
    dimension that numbers the rows, or ``inner`` of them at a time, with how many there are in all
    and in one box.
    """

    to: str
    map: Map
    first: tuple[Expr, ...]
    along: int
    rows: int
    box_rows: int
    inner: int
    panels: Panels

    @property
    def bytes(self) -> int:
        """What arrives in one slot."""
        return self.panels.count * self.rows * self.inner * self.panels.row_bytes

    @property
    def box_bytes(self) -> int:
        """What one box brings."""
        return self.box_rows * self.inner * self.panels.row_bytes

    def write(self, context: KernelContext, barrier: Expr, share: int = 1) -> None:
        """One instruction for each box, for one thread; they arrive at ``barrier``. ``share``: this
        block's part, for as many blocks of the cluster.
        """
        p, storage, name = self.panels, context.storages[self.to], map_name(self.map, context)
        whole = p.count % share == 0  # panels, or else rows of every panel
        columns, rows = (p.count // share, self.rows) if whole else (p.count, self.rows // share)
        rank = Affine.of(Var(context.names.verbatim(RANK))) if share > 1 else Affine()
        blocks = (1 << share) - 1 if share > 1 else 0
        panel, row = (rank * columns, Affine()) if whole else (Affine(), rank * rows)
        for number in range(columns):
            for step in range(0, rows, self.box_rows):
                at = [*self.first]
                at[0] = (Affine.of(at[0]) + (panel + number) * p.width).to_expr()
                at[self.along] = (Affine.of(at[self.along]) + row + step).to_expr()
                offset = p.byte((row + step) * self.inner, panel + number)
                behind = context.number(offset.to_expr()) if offset.terms else None
                target = View(storage.base, storage.start, behind)
                places = tuple(map(context.number, at))
                copy = EngineCopy(target, name, places, barrier, self.box_bytes, blocks)
                context.writer.add(copy)


def as_boxes(copy: Copy, context: KernelContext) -> Boxes | None:
    """The boxes that a copy is; None if it is none."""
    to, source = context.storages[copy.to], context.storages[copy.source.buffer]
    if to.panels is None or source.param is None or any(copy.clamped):
        return None
    tensor = tensor_of(copy, source)
    if tensor is None:
        return None
    panels, (dims, at) = to.panels, tensor
    if len(dims) not in _RANKS or dims[0].stride != IntImm(1):
        return None
    digits = _row_digits(copy, at, panels)
    if digits is None or copy.length > panels.count * panels.width:
        return None
    order = in_order([dimension for dimension, _ in digits], len(dims))
    dims, at = tuple(dims[d] for d in order), [at[d] for d in order]
    digits = [(order.index(dimension), count) for dimension, count in digits]
    param = replace(source.param, dims=dims)
    extents = bounded_extents(param, copy.predicate or TRUE, at, context)
    if extents is None:
        return None
    nothing: dict[str, Expr] = {d.var.name: IntImm(0) for d in (copy.x, *copy.rows)}
    first = tuple(to_affine(substitute(c.to_expr(), nothing)).to_expr() for c in at)
    box = [1] * len(dims)
    box[0] = panels.width
    for dimension, count in digits:
        box[dimension] = count
    along, rows = digits[-1]
    inner = prod(count for _, count in digits[:-1])
    parts = 1
    if panels.count % context.cluster and same_in_cluster(first, context):
        parts = context.cluster if rows * inner % (GROUP_ROWS * context.cluster) == 0 else 1
    box[along] = box_rows = min(rows // parts, LARGEST_BOX)
    whole = rows % box_rows == 0 and (rows == box_rows or inner * box_rows % GROUP_ROWS == 0)
    if max(box) > LARGEST_BOX or not whole:
        return None
    strides = tuple(d.stride for d in dims[1:])
    taken = Map("", copy.source.buffer, to.type, extents, strides, tuple(box))
    return Boxes(copy.to, taken, first, along, rows, box_rows, inner, panels)


def same_in_cluster(exprs: Iterable[Expr], context: KernelContext) -> bool:
    """Whether values are the same for all blocks of a cluster, whose first one is at a multiple of
    its size: the number of a block occurs in them only divided by multiples of that.
    """
    x, size = context.neighbours, context.cluster

    def without(e: Expr) -> Expr:
        match e:
            case Binary(BinaryOp.DIV, Var(name, _), IntImm(n, _)) if name == x and n % size == 0:
                return IntImm(0)
            case _:
                return map_expr(e, without)

    return all(x not in free_vars(without(e)) for e in exprs)


def _row_digits(copy: Copy, at: list[Affine], panels: Panels) -> list[tuple[int, int]] | None:
    """The dimension that each digit of the rows' number walks along, and how far, innermost first;
    None if they do not number the rows as a box does.
    """
    steps: list[tuple[int, int, int]] = []
    expected = Affine.of(copy.x.var)
    for digit in (d for d in copy.rows if d.count != 1):
        moving = [d for d, c in enumerate(at) if c.mentions(digit.var.name)]
        step = copy.index.coefficient(digit.var).constant
        one = len(moving) == 1 and at[moving[0]].coefficient(digit.var).constant == 1
        if digit.count is None or step is None or not one or moving[0] == 0:
            return None
        steps.append((step, moving[0], digit.count))
        expected += Affine.of(digit.var) * step
    steps.sort()
    dimensions, rows = [d for _, d, _ in steps], panels.pitch
    if not steps or copy.index != expected or len(set(dimensions)) != len(dimensions):
        return None
    for step, _, count in steps:
        if step != rows:
            return None
        rows *= count
    return [(dimension, count) for _, dimension, count in steps]


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
    for known in context.maps:
        if replace(known, name="") == wanted:
            return known.name
    name = context.names.fresh(f"map_{wanted.of}")
    context.maps.append(replace(wanted, name=name))
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
        for p in context.params.values()
        for d in p.dims
        for e in (d.extent, d.stride, d.min)
        if isinstance(e, Var)
    }
    for condition in conjuncts(wanted):
        room = slack(condition)
        if condition == TRUE or room in at:
            continue  # nothing lies before the first element
        bounds = [] if room is None else [(room + c + 1).to_expr() for c in at]
        fitting = [(d, bound) for d, bound in enumerate(bounds) if free_vars(bound) <= known]
        if not fitting:
            return None
        d, bound = fitting[0]
        if bound != extents[d]:
            extents[d] = Binary(BinaryOp.MIN, extents[d], bound)
    return tuple(extents) if all(free_vars(e) <= known for e in extents) else None
