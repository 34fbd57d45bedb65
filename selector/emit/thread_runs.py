"""Vector stores of one thread to an intermediate: 16 bytes at once where they lie side by side.

Lane by lane, neighbouring threads would store two bytes each, 16 bytes apart, and the L2 cache
would merge them. An intermediate starts aligned, so that the index alone says where a run may be
stored as one. A run that is a copy of a parameter's elements is loaded as aligned vectors and
shifted into place, whatever address it starts at.
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.emit.context import KernelContext
from selector.emit.scalar import Space, c_type
from selector.ir.affine import Affine, carries, split_by_strides, to_affine
from selector.ir.lanes import lane
from selector.ir.nodes import Expr, Load, Store, Var, VectorReduce
from selector.ir.traverse import walk_expr

RUN_BYTES = 16
_LANE = Var("$l0")


@dataclass(frozen=True, slots=True)
class Run:
    """A vector store of ``lanes`` neighbours from element ``first`` on, a multiple of ``per``,
    which are 16 bytes.
    """

    store: Store
    first: Affine
    lanes: int
    per: int


def as_run(s: Store, context: KernelContext) -> Run | None:
    """The run that a vector store is; None if it may have gaps or start at any address."""
    storage, lanes = context.storages[s.buffer], s.value.type.lanes
    if storage.space is not Space.GLOBAL or storage.elements is None or s.predicate is not None:
        return None
    per = RUN_BYTES // storage.type.bytes
    index = to_affine(lane(s.index, ((_LANE, lanes),)))
    first = index.rest(_LANE)
    if lanes % per or index.coefficient(_LANE).constant != 1 or first.mentions(_LANE.name):
        return None
    if any(c % per for _, c in first):
        return None
    if any(isinstance(e, VectorReduce) for e in walk_expr(s.value)):
        return None
    return Run(s, first, lanes, per)


def emit_run(run: Run, context: KernelContext) -> None:
    """Write the store."""
    w, scalar, s = context.writer, context.scalar, run.store
    storage = context.storages[s.buffer]
    kind, count = c_type(storage.type), run.lanes // run.per
    w.line("#pragma unroll")
    with w.block(f"for (int v = 0; v < {count}; ++v)"):
        start = f"{storage.pointer} + {scalar.index(run.first.to_expr())}"
        w.line(f"{kind}* const to = {start} + v * {run.per};")
        source = _source(run, context)
        if source is None:
            _gather(run, context, kind)
            return
        coordinates, extents, pointer = source
        w.line(f"const int c0 = {scalar.index(coordinates[0])} + v * {run.per};")
        inside = [
            f"(u32)({scalar.index(c)}) < (u32)({e})"
            for c, e in zip(coordinates[1:], extents[1:], strict=True)
        ]
        valid = f"min({extents[0]} - c0, {run.per}) * {storage.type.bytes}"
        if inside:
            valid = f"{' && '.join(inside)} ? {valid} : 0"
        with w.block("if (c0 >= 0)"):
            from_ = f"{pointer} + v * {run.per}"
            w.line(f"const Shifted moved = load_shifted(to, {from_}, {valid});")
            w.line("store_shifted(moved);")
        with w.block("else"):
            _gather(run, context, kind)


def _gather(run: Run, context: KernelContext, kind: str) -> None:
    """Element by element into registers, then out of them."""
    w, value = context.writer, run.store.value
    w.line(f"alignas({RUN_BYTES}) {kind} run[{run.per}];")
    at = Affine.of(context.names.variable("v")) * run.per + context.names.variable("e")
    element = lane(value, ((at.to_expr(), run.lanes),)) if value.type.lanes > 1 else value
    w.line("#pragma unroll")
    w.line(f"for (int e = 0; e < {run.per}; ++e) run[e] = {context.scalar.expr(element)};")
    w.line("*(uint4*)to = *(const uint4*)run;")


def _source(run: Run, context: KernelContext) -> tuple[tuple[Expr, ...], list[str], str] | None:
    """Where a run is copied from: coordinates of its first element, extents, and the address; None
    if it is no copy of neighbours of a parameter.
    """
    value, scalar = run.store.value, context.scalar
    if not isinstance(value, Load) or value.predicate is not None:
        return None
    storage = context.storages[value.buffer]
    if value.buffer not in context.params or storage.param is None or carries(storage.param.dims):
        return None
    if storage.type != context.storages[run.store.buffer].type:
        return None
    index = to_affine(lane(value.index, ((_LANE, run.lanes),)))
    found = split_by_strides(index.to_expr(), storage.param.dims)
    if found is None:
        return None
    at = [to_affine(c) for c in found]
    if at[0].coefficient(_LANE).constant != 1 or any(c.mentions(_LANE.name) for c in at[1:]):
        return None
    first = (at[0].rest(_LANE).to_expr(), *(c.to_expr() for c in at[1:]))
    pointer = f"{storage.pointer} + {scalar.index(index.rest(_LANE).to_expr())}"
    return first, [scalar.index(d.extent) for d in storage.param.dims], pointer
