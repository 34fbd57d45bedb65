"""What an array has where a recurrence along it has no step: of the kernel before it.

    for all i:  y[i] = f(i)                        y[-1] = f(-1)
    for i >= 0: y[i] = y[i] + a*y[i - 1]           for i >= 0: y[i] = f(i) + a*y[i - 1]
    for all i:  g[i] = h(y[i])                     for all other i: g[i] = h(f(i))

The recurrence begins with what ``f`` is there, and who reads the other elements computes them, so
that nobody stores them: often they are zeros, before the first sample of a signal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from selector.dataclass import dataclass
from selector.ir.lanes import in_lanes, lane
from selector.ir.nodes import (
    Dim,
    Expr,
    For,
    IntImm,
    Load,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import literal
from selector.ir.traverse import change_expr, change_stmts, substitute, walk_expr
from selector.lowering.scans.find import Spread, find
from selector.lowering.scans.turns import nested
from selector.lowering.scans.walks import coordinates, moved
from selector.lowering.scans.zeros import without_zeros

LOADS = 8  # of a start at most
LANE = "$origin_lane"


@dataclass(frozen=True, slots=True)
class Origin:
    """``value``, at the coordinates ``here`` of some ``variables``, of an array with these
    ``dims``; ``states``: what that is before the first step of the recurrence, nearest first.
    """

    value: Expr
    here: tuple[Expr, ...]
    variables: tuple[Var, ...]
    dims: tuple[Dim, ...]
    states: tuple[Expr, ...]

    def at(self, index: Expr) -> Expr | None:
        """Of the element at an index."""
        there = coordinates(index, self.dims)
        return None if there is None else moved(self.value, self.here, there, self.variables)


def origin_of(
    value: Expr,
    here: tuple[Expr, ...],
    variables: tuple[Var, ...],
    dims: tuple[Dim, ...],
    found: Spread,
    of_step: Expr,
) -> Origin:
    """Of a recurrence, of which ``of_step`` is the value at a step."""
    first = {x.name: x.min for x in found.loops}
    places = (IntImm(-n - 1) for n in range(found.order))
    states = (substitute(of_step, {**first, found.loops[-1].name: p}) for p in places)
    return Origin(value, here, variables, dims, tuple(map(without_zeros, states)))


def without_array(s: Stmt, origin: Origin, buffer: str) -> Stmt | None:
    """A kernel that computes what it reads of an array; None if it is not known what that is."""
    store = list(nested(s))[-1]
    if not isinstance(store, Store):
        return None
    lanes = store.value.type.lanes
    own = ((Var(LANE), lanes),)
    value = computed(lane(store.value, own), {buffer: origin})
    others = (store.index, *(() if store.predicate is None else (store.predicate,)))
    if value is None or any(x.buffer == buffer for e in others for x in _loads(e)):
        return None
    again = replace(store, value=in_lanes(value, LANE, lanes) if lanes > 1 else value)
    return change_stmts(s, lambda x: again if x == store else None)


def begun_with(
    buffers: Sequence[str], origins: Mapping[str, Origin]
) -> dict[str, tuple[Expr, ...]]:
    """The states that recurrences begin with, each of which may read the one before; none where one
    of them is not known, or would be read from too much.
    """
    begun, known = dict[str, tuple[Expr, ...]](), dict[str, Origin]()
    for buffer in buffers:
        if buffer not in origins:
            return {}
        origin = origins[buffer]
        states = [computed(e, known) for e in origin.states]
        found = tuple(without_zeros(e) for e in states if e is not None)
        if len(found) < len(states) or any(len(_loads(e)) > LOADS for e in found):
            return {}
        begun[buffer] = found
        value = computed(origin.value, known)
        if value is not None:
            known[buffer] = replace(origin, value=value)
    return begun


def computed(e: Expr, origins: Mapping[str, Origin]) -> Expr | None:
    """With what elements of these arrays are, instead of them."""

    def value(x: Expr) -> Expr | None:
        if not (isinstance(x, Load) and x.buffer in origins):
            return None
        found = origins[x.buffer].at(x.index)
        if found is None or x.predicate is None:
            return found
        return Select(x.predicate, found, literal(0, x.type))

    found = change_expr(e, value)
    return None if any(x.buffer in origins for x in _loads(found)) else found


def recurrent(s: Stmt) -> str:
    """The array that a recurrence stores, nothing for any other statement."""
    found = find(s) if isinstance(s, For) else None
    return "" if found is None else found.store.buffer


def _loads(e: Expr) -> list[Load]:
    return [x for x in walk_expr(e) if isinstance(x, Load)]
