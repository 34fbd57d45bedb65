"""What an expression or a statement holds, found once for every node and kept with it.

A pass that looks for a class of nodes, or for a buffer, passes over whatever holds none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast, get_args

from selector.ir.known import Known
from selector.ir.nodes import Expr, Let, Load
from selector.ir.traverse import OPERANDS, expr_children, map_expr, substitute, union_of_names

E = TypeVar("E", bound=Known)

_BITS: dict[type, int] = {kind: 1 << n for n, kind in enumerate(get_args(Expr))}
_LOAD = _BITS[Load]
_NO_NAMES = frozenset[str]()


def kinds_of(e: Expr) -> int:
    """A bit for each class of nodes that is in an expression."""
    found: int = getattr(e, "known_kinds", 0)
    if not found:
        found = _BITS[type(e)]
        for child in OPERANDS[type(e)](e):
            found |= getattr(child, "known_kinds", 0) or kinds_of(child)
        e.known_kinds = found
    return found


def bits_of(*kinds: type[Known]) -> int:
    """The bits that ``kinds_of`` has for these classes."""
    return sum(_BITS[k] for k in kinds)


def holds(e: Expr, kind: type[Known]) -> bool:
    """Whether an expression is or has a node of a class."""
    return bool(kinds_of(e) & _BITS[kind])


def nodes_of(e: Expr, kind: type[E]) -> Iterator[E]:
    """The nodes of a class in an expression, parents first; what holds none is not walked."""
    bit = _BITS[kind]
    stack = [e] if kinds_of(e) & bit else []
    while stack:
        top = stack.pop()
        if type(top) is kind:
            yield cast(E, top)
        stack += [x for x in expr_children(top)[::-1] if kinds_of(x) & bit]


def without_lets(e: Expr) -> Expr:
    """With all lets of an expression written out."""
    match e:
        case Let(name, value, body):
            return without_lets(substitute(body, {name: value}))
        case _:
            return map_expr(e, without_lets) if holds(e, Let) else e


def loaded(e: Expr) -> frozenset[str]:
    """Buffers that an expression loads from."""
    if not kinds_of(e) & _LOAD:
        return _NO_NAMES
    found: frozenset[str] | None = getattr(e, "known_loads", None)
    if found is None:
        found = union_of_names(map(loaded, expr_children(e)))
        if isinstance(e, Load) and e.buffer not in found:
            found |= {e.buffer}
        e.known_loads = found
    return found


def may_hold(e: Expr, part: Expr) -> bool:
    """Whether a part could be in an expression, by the classes of its nodes and its loads."""
    return not kinds_of(part) & ~kinds_of(e) and loaded(part) <= loaded(e)
