"""Vector stores of one thread to an intermediate: 16 bytes at once where they lie side by side.

Lane by lane, neighbouring threads would store two bytes each, 16 bytes apart, and the L2 cache
would merge them. An intermediate starts aligned, so that the index alone says where a run may be
stored as one. A run that is a copy of a parameter's elements is loaded as aligned vectors and
shifted into place, whatever address it starts at.
"""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.gpu.codegen.threads.bounds import inside
from selector.gpu.ir.expressions import (
    POINTER,
    all_of,
    at_least,
    below,
    chosen,
    element,
    least,
    minus,
    number,
    plus,
    pointer,
    times,
)
from selector.gpu.ir.memory import Array, Evaluate, Point, StoreChunk
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine, carries, split_by_strides, to_affine
from selector.ir.contents import holds
from selector.ir.lanes import lane, own_lane
from selector.ir.nodes import Call, Expr, For, ForKind, IntImm, Load, Store, Var, VectorReduce
from selector.targets import VECTOR_BYTES

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
    per = VECTOR_BYTES // storage.type.bytes
    index = to_affine(lane(s.index, ((_LANE, lanes),)))
    first = index.rest(_LANE)
    if lanes % per or index.coefficient(_LANE).constant != 1 or first.mentions(_LANE.name):
        return None
    if any(c % per for _, c in first):
        return None
    if holds(s.value, VectorReduce):
        return None
    return Run(s, first, lanes, per)


def is_copy(run: Run, context: KernelContext) -> bool:
    """Whether it is one of a parameter's elements, whatever address they start at."""
    return _source(run, context) is not None


def emit_run(run: Run, context: KernelContext) -> None:
    """Write the store."""
    w, scalar, s = context.writer, context.scalar, run.store
    storage = context.storages[s.buffer]
    kind, further = c_type(storage.type), times("v", run.per)
    with w.loop("v", number(0), number(run.lanes // run.per), "unrolled"):
        start = scalar.number(run.first.to_expr())
        w.add(Point("to", kind, storage.at(plus(start, further))))
        source = _source(run, context)
        if source is None:
            _gather(run, context, kind, whole=True)
            return
        w.add(Let("int", ("c0",), (plus(scalar.number(source.coordinates[0]), further),)))
        extents = [scalar.number(e) for e in source.extents]
        pairs = zip(source.coordinates[1:], extents[1:], strict=True)
        inside = all_of([below(scalar.number(c), e) for c, e in pairs])
        valid = times(least(minus(extents[0], "c0"), run.per), storage.type.bytes)
        valid = valid if inside is None else chosen(inside, valid, 0)
        with w.when(at_least("c0", 0)):
            at = plus(scalar.number(source.first), further)
            w.add(Point("from", f"const {kind}", source.storage.at(at)))
            moved = Call(POINTER, "load_shifted", (pointer("to"), pointer("from"), valid))
            w.add(Let("Shifted", ("moved",), (moved,)))
            w.add(Evaluate(Call(POINTER, "store_shifted", (pointer("moved"),))))
        with w.otherwise():
            _gather(run, context, kind)


def _gather(run: Run, context: KernelContext, kind: str, *, whole: bool = False) -> None:
    """Element by element into registers, then out of them; ``whole``: without a test of each where
    all are inside of what is loaded, so that no load waits for another one.
    """
    w, variable = context.writer, context.names.variable("e")
    w.add(Array("run", kind, run.per, VECTOR_BYTES))
    at = Affine.of(context.names.variable("v")) * run.per + variable
    value = own_lane(run.store.value, ((at.to_expr(), run.lanes),))
    one = Store(run.store.buffer, value, variable)
    turns = For(variable.name, IntImm(0), IntImm(run.per), ForKind.SERIAL, one)
    found = inside(turns, context) if whole else None
    if found is None:
        _elements(run, value, context)
    else:
        free = found.loads - context.facts.inside
        context.facts.inside.update(free)
        with w.when(found.condition):
            _elements(run, value, context)
        context.facts.inside.difference_update(free)
        with w.otherwise():
            _elements(run, value, context)
    w.add(StoreChunk(pointer("to"), pointer("run")))


def _elements(run: Run, value: Expr, context: KernelContext) -> None:
    w = context.writer
    with w.loop("e", number(0), number(run.per), "unrolled"):
        w.store(element(value.type, pointer("run"), "e"), context.scalar.legal(value))


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a run is copied from: an array, its extents, the coordinates of the run's first
    element, and its index.
    """

    storage: Storage
    extents: tuple[Expr, ...]
    coordinates: tuple[Expr, ...]
    first: Expr


def _source(run: Run, context: KernelContext) -> _Source | None:
    """None if a run is no copy of neighbours of a parameter."""
    value = run.store.value
    if not isinstance(value, Load) or value.predicate is not None:
        return None
    storage = context.storages[value.buffer]
    if (
        value.buffer not in context.host.params
        or storage.param is None
        or carries(storage.param.dims)
    ):
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
    coordinates = (at[0].rest(_LANE).to_expr(), *(c.to_expr() for c in at[1:]))
    extents = tuple(d.extent for d in storage.param.dims)
    return _Source(storage, extents, coordinates, index.rest(_LANE).to_expr())
