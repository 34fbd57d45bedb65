"""Functions of the elements of a tile that several statements compute: in the tile, once.

    m = max(m, max over n of f(x))                  x = f(x)
    t = t + sum over n of 2^(f(x) - m)       =>     m = max(m, max over n of x)
    w = 2^(f(x) - m)                                t = t + sum over n of 2^(x - m)
                                                    w = 2^(x - m)

Where f calls a function, converts numbers or reads an array: a product with a number is nothing
beside the powers. All of the statements are to read the tile by the same f, and no others to read
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from selector.ir.contents import loaded
from selector.ir.nodes import Allocate, Call, Cast, Expr, IntImm, Load, Memory, Ramp, Stmt, Store
from selector.ir.traverse import expr_children, replaced_all, walk_expr, walk_stmt
from selector.lowering.structure import loaded_names, stored_names

_TILES = (Memory.WMMA_ACCUMULATOR, Memory.WGMMA_ACCUMULATOR)


def tile_functions(allocations: Sequence[Allocate], body: list[Stmt]) -> list[Stmt]:
    """The statements of an iteration, with what they read of its own tiles computed there, ahead of
    all that read the tile.
    """
    tiles = [a.name for a in allocations if a.memory in _TILES]
    for name in tiles:
        at = [i for i, s in enumerate(body) if name in loaded_names(s) - stored_names(s)]
        if not at or not all(isinstance(body[i], Store) for i in at):
            continue
        first, fills, changed = at[0], list[Stmt](), body
        written = frozenset[str]().union(*map(stored_names, body[first:]))
        loads = dict.fromkeys(x for i in at for x in _loads(body[i], name))
        for load in loads if _are_apart([*loads]) and name not in written else ():
            readers = [s for i in at if load in _loads(s := changed[i], name)]
            value = _common(load, readers, {*tiles})
            if value is not None and not loaded(value) & written:
                fills.append(Store(name, load.index, value))
                changed = [_replaced_in(s, value, load) if s in readers else s for s in changed]
        if len(fills) == len(loads):
            body = [*changed[:first], *fills, *changed[first:]]
    return body


def _are_apart(loads: list[Load]) -> bool:
    """Whether vectors of a tile have no element in common: all of one length, whole ones apart."""
    lanes = loads[0].type.lanes
    return all(
        isinstance(x.index, Ramp)
        and isinstance(x.index.base, IntImm)
        and (x.index.stride, x.index.count) == (IntImm(1), lanes)
        and x.index.base.value % lanes == 0
        for x in loads
    )


def _common(load: Load, readers: list[Stmt], tiles: Set[str]) -> Expr | None:
    """The function of one vector of a tile by which all of several readers read it, if it is worth
    it.
    """
    values = [s.value for s in readers if isinstance(s, Store)]
    for e in _around(values[0], load):
        if _is_of(e, load, tiles) and all(_only_by(e, load, value) for value in values):
            return e if len(values) > 1 and _costs(e, load) else None
    return None


def _replaced_in(s: Stmt, value: Expr, load: Load) -> Stmt:
    assert isinstance(s, Store)
    return Store(s.buffer, s.index, replaced_all(s.value, {value: load}), s.predicate)


def _loads(s: Stmt, name: str) -> list[Load]:
    stores = [x for x in walk_stmt(s) if isinstance(x, Store)]
    found = (e for x in stores for e in walk_expr(x.value))
    return [e for e in found if isinstance(e, Load) and e.buffer == name]


def _around(e: Expr, load: Load) -> Iterator[Expr]:
    """The expressions around a load, largest first."""
    if e == load:
        return
    for child in expr_children(e):
        if load in walk_expr(child):
            yield child
            yield from _around(child, load)


def _is_of(e: Expr, load: Load, tiles: Set[str]) -> bool:
    """Whether a vector is a function of one of a tile, lane by lane, and of nothing that is made in
    the iteration.
    """
    return e.type == load.type and not (loaded(e) & tiles) - {load.buffer}


def _only_by(e: Expr, load: Load, value: Expr) -> bool:
    """Whether a value reads the load by that expression alone."""
    return load not in walk_expr(replaced_all(value, {e: Call(e.type, "taken", ())}))


def _costs(e: Expr, load: Load) -> bool:
    """Whether a function is more than sums and products with numbers."""
    parts = [x for x in walk_expr(e) if x != load]
    return any(isinstance(x, Call | Cast | Load) for x in parts)
