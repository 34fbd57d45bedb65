"""What a thread keeps of arrays in its registers: vectors side by side, each brought at once.

    t[ramp(0, 1, 8)] = a[ramp(8*x, 1, 8)] if 1 <= y          t[0..8]  = 1 <= y ? a[8*x ...] : zeros
    t[ramp(8, 1, 8)] = a[ramp(8*x + s, 1, 8)] if y < h   =>  t[8..16] = y < h ? a[8*x + s ...] : ...

Whether all lanes are inside, and rows aligned, is asked once, ahead of all that a thread does with
them; where that is not so it does all of it lane by lane, and none of it if it stores nothing. What
differs from vector to vector, where pixels lie beside an image, says of each whether it is loaded
or zeros. The loads wait for memory together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.gpu.codegen.threads.lanes import LANE, one_lane
from selector.gpu.codegen.threads.needs import Needs, Unknown
from selector.gpu.codegen.threads.windows import widest
from selector.gpu.ir.expressions import all_of, at_least, behind, below, flag, pointer
from selector.gpu.ir.memory import LoadVector, Point
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine, carries, split_by_strides, to_affine
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Broadcast,
    Compare,
    CompareOp,
    Evaluate,
    Expr,
    For,
    IntImm,
    LetStmt,
    Load,
    Ramp,
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import conjuncts, free_vars, walk_stmt

WORD = 4  # bytes of a register


@dataclass(frozen=True, slots=True)
class Tiles:
    """The arrays of a thread that are some, and when they come as vectors; what holds where it
    ``stored`` anything, if anything has to.
    """

    names: frozenset[str]
    condition: Expr
    stored: Expr | None


@dataclass(frozen=True, slots=True)
class _Vector:
    """Elements of an array from ``start`` on, for those of the thread's from ``first`` on: what all
    its ``lanes`` need, and what it needs beside that to be no zeros (``own``).
    """

    store: Store
    buffer: str
    start: Affine
    first: Affine
    lanes: Needs
    own: Needs


def tiles_of(s: Allocate, context: KernelContext) -> Tiles | None:
    """Those of what a thread allocates from one array of its own on; None where there are none, or
    a condition is not the same for all that it does.
    """
    mine = {x.name for x in walk_stmt(s) if isinstance(x, Allocate)}
    bound = {x.name for x in walk_stmt(s) if isinstance(x, For | LetStmt)}
    stores = [x for x in walk_stmt(s) if isinstance(x, Store) and x.buffer in mine]
    vectors = [v for x in stores if (v := _vector(x, context)) is not None]
    rooms = [room for v in vectors for room in v.lanes.least]
    if not vectors or any(bound & free_vars(room.to_expr()) for room in rooms):
        return None
    flags = (context.aligned_flag(v.buffer, v.lanes.lanes) for v in vectors)
    inside = (c for v in vectors for c in _conditions(v.lanes, context))
    condition = all_of(dict.fromkeys([*flags, *inside]))
    assert condition is not None
    outer = [x for x in walk_stmt(s) if isinstance(x, Store) and x.buffer not in mine]
    alone = outer and not any(isinstance(x, Evaluate) for x in walk_stmt(s))
    needed = _needed(outer, bound) if alone else []
    stored = all_of(map(context.scalar.legal, needed))
    return Tiles(frozenset(v.store.buffer for v in vectors), condition, stored)


def _needed(stores: Sequence[Store], own: Set[str]) -> list[Expr]:
    """What all of these need to store in any of their lanes, as far as it is said without what
    stands within: where places grow from lane to lane, that the first one is below its end.
    """
    tests = [[*map(_first_lane, conjuncts(x.predicate))] if x.predicate else [] for x in stores]
    found = [t for t in tests[0] if t is not None and all(t in others for others in tests)]
    return [t for t in dict.fromkeys(found) if not free_vars(t) & own]


def _first_lane(test: Expr) -> Expr | None:
    """A condition that holds in the first lane if it does in any; None where nobody knows one."""
    match test:
        case Compare(CompareOp.LT | CompareOp.LE as op, Ramp(a, IntImm(step), _), Broadcast(b, _)):
            return Compare(op, a, b) if step >= 0 else None
        case Broadcast(value, _):
            return value
        case _:
            return test if test.type.lanes == 1 else None


def emit_tile(stmts: Sequence[Stmt], context: KernelContext) -> bool:
    """Write some statements where the condition of tiles holds, if they are all such vectors."""
    vectors = [_vector(s, context) for s in stmts if isinstance(s, Store)]
    found = [v for v in vectors if v is not None]
    if not found or len(found) < len(stmts):
        return False
    names, places = dict[Expr, Expr](), dict[str, tuple[str, Affine]]()
    asked = [dict.fromkeys(_conditions(v.own, context)) for v in found]
    everywhere = [c for c in asked[0] if all(c in others for others in asked)]
    shared = all_of(everywhere)
    for v, conditions in zip(found, asked, strict=True):
        own = context.storages[v.store.buffer]
        first, bytes_ = context.scalar.number(v.first.to_expr()), v.lanes.lanes * own.type.bytes
        differing = [*([] if shared is None else [shared])]
        differing += [c for c in conditions if c not in everywhere]
        wanted = all_of(_named(c, names, context) for c in differing)
        source = _source(v, places, context)
        context.writer.add(LoadVector(pointer(own.base), first, source, bytes_, wanted=wanted))
    return True


def _named(condition: Expr, known: dict[Expr, Expr], context: KernelContext) -> Expr:
    """A condition that several vectors share is asked once."""
    if condition not in known:
        name = context.names.fresh("in")
        context.writer.add(Let("bool", (name,), (condition,)))
        known[condition] = flag(name)
    return known[condition]


def _source(v: _Vector, places: dict[str, tuple[str, Affine]], context: KernelContext) -> Expr:
    """Where a vector begins, from where the first one of its array does."""
    storage = context.storages[v.buffer]
    if v.buffer not in places:
        name, kind = context.names.fresh("tile"), c_type(storage.type)
        at = storage.at(context.scalar.number(v.start.to_expr()))
        context.writer.add(Point(name, f"const {kind}", at))
        places[v.buffer] = name, v.start
    name, start = places[v.buffer]
    return behind(pointer(name), context.scalar.number((v.start - start).to_expr()))


def _conditions(needs: Needs, context: KernelContext) -> Iterator[Expr]:
    """Both ends of an extent are one, of a number without a sign."""
    scalar, left = context.scalar, [room + least for room, least in needs.least.items()]
    while left:
        room = left.pop(0)
        both = ((x, _extent(room + x + 1)) for x in left)
        other, extent = next(((x, e) for x, e in both if e is not None), (None, None))
        if other is not None and extent is not None:
            left.remove(other)
            yield below(scalar.number(room.to_expr()), scalar.number(extent))
        else:
            yield at_least(scalar.number(room.to_expr()), 0)
    yield from map(scalar.legal, needs.tests)


def _extent(e: Affine) -> Expr | None:
    """A value that is a variable: the two that it is the sum of, and 1, count from either end."""
    match e.terms:
        case (((Var() as variable,), 1),):
            return variable
        case _:
            return None


def _vector(s: Store, context: KernelContext) -> _Vector | None:
    """A statement that sets a thread's own to neighbours of an array, as many as fill a vector."""
    lanes = s.value.type.lanes
    if lanes == 1 or s.predicate is not None or not isinstance(s.value, Load):
        return None
    one = one_lane(s)
    load, to = one.value, to_affine(one.index)
    if not isinstance(load, Load):
        return None
    storage, own = context.storages.get(load.buffer), context.storages.get(s.buffer)
    if storage is None or storage.param is None or carries(storage.param.dims):
        return None
    if storage.space is not Space.GLOBAL or (own is not None and own.space is not Space.LOCAL):
        return None
    first, start = to.rest(LANE), to_affine(load.index).rest(LANE)
    steps = [a.coefficient(LANE).constant for a in (to, to_affine(load.index))]
    words = lanes * storage.type.bytes >= WORD and widest(storage, lanes) == lanes
    if steps != [1, 1] or not words or not context.is_multiple(start, lanes, load.buffer):
        return None
    found = split_by_strides(load.index, storage.param.dims)
    if found is None or first.constant is None or first.constant % lanes:
        return None
    needs = _needs(load, found, storage, lanes)
    if needs is None:
        return None
    start = _without_maxima(start, needs[1])
    return _Vector(s, load.buffer, start, first, *needs)


def _needs(
    load: Load, coordinates: Sequence[Expr], storage: Storage, lanes: int
) -> tuple[Needs, Needs] | None:
    """Of the lanes, and of the vector as a whole."""
    common, own = Needs(lanes), Needs(lanes)
    assert storage.param is not None
    try:
        for c, d in zip(coordinates, storage.param.dims, strict=True):
            along = LANE.name in free_vars(c)
            _inside(to_affine(c), to_affine(d.extent), common if along else own)
        if load.predicate is not None:
            common.holds(load.predicate, alike=own)
    except Unknown:
        return None
    return common, own


def _without_maxima(index: Affine, needs: Needs) -> Affine:
    """An index where those of its maxima that are what they bound, wherever the vector is wanted,
    are that: then it is as far from another one as their coordinates are.
    """
    found = Affine()
    for atoms, factor in index:
        left = [_bounded(a, needs) for a in atoms]
        part = Affine.of(IntImm(factor))
        for atom in left:
            part = part * atom
        found += part
    return found


def _bounded(atom: Expr, needs: Needs) -> Affine:
    match atom:
        case Binary(BinaryOp.MAX, a, IntImm(value=least)):
            above = to_affine(a) - least
            known = any(_follows(above, room + n) for room, n in needs.least.items())
            return to_affine(a) if known else Affine.of(atom)
        case _:
            return Affine.of(atom)


def _follows(wanted: Affine, known: Affine) -> bool:
    """Whether one value is at least 0 where another one is: a multiple, and no less than that."""
    m, c = known.terms[0]
    times = next((w // c for n, w in wanted if n == m and w % c == 0), 0)
    left = (wanted - known * times).constant
    return times > 0 and left is not None and left >= 0


def _inside(coordinate: Affine, extent: Affine, needs: Needs) -> None:
    """Where an element is at least at 0 in any case, that is not asked."""
    ends: tuple[Affine, ...] = (coordinate,)
    match coordinate.terms:
        case (((Binary(BinaryOp.MAX, a, IntImm(value=least)),), 1),) if least >= 0:
            ends = (to_affine(a), Affine.of(IntImm(least)))
        case _:
            needs.everywhere(coordinate)
    for end in ends:
        needs.everywhere(extent - end - 1)
