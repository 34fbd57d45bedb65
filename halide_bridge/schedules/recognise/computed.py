"""Factors of products that are more than elements: of which variables, or of what place, Funcs of
their own would be.
"""

from __future__ import annotations

from collections.abc import Iterator

from halide_bridge.schedules.recognise.products import (
    element,
    factors,
    is_multiplied,
    read_alone,
    source_type,
    used_by,
)
from halide_bridge.schedules.recognise.program import Member, Program, access_of, accesses
from selector.ir.nodes import Expr, Var
from selector.ir.traverse import expr_children, free_vars, walk_expr


def computed_factors(member: Member, program: Program) -> list[tuple[int, tuple[str, ...]]]:
    """Of what would be a product but for factors that are more than an element, those, by number
    (decoded bytes beside what is none are more), with the variables of the sum that they depend on:
    the dimensions of Funcs that have them; none for those of a place that is more than variables.
    Empty where it would be none, or they are of types that are not multiplied.
    """
    pair = factors(member)
    if pair is None or not all(is_multiplied(source_type(e)) for e in pair):
        return []
    used = used_by(pair, member)
    if used is None:
        places = [_place_of(e) or () for e in pair]
        filtered = any(_reads_neighbours(place) for place in places)
        made = [i for i, e in enumerate(pair) if places[i] and element(e) is None]
        return [(i, ()) for i in made if filtered]
    decoded = [t != t.stored for t in map(source_type, pair)]
    found: list[tuple[int, tuple[str, ...]]] = []
    for factor, e in enumerate(pair):
        alone = decoded[factor] and not all(decoded)
        if alone or element(e) is None or isinstance(read_alone(e, member, program), str):
            windowed = _reads_neighbours(_place_of(e) or ()) and element(e) is None
            order = () if windowed else _order(e, used[factor])
            found.append((factor, tuple(order)))
    return found


def _reads_neighbours(place: tuple[Expr, ...]) -> bool:
    """Whether neighbours are read by way of two variables."""
    return any(len(free_vars(i)) > 1 for i in place)


def is_filter(member: Member) -> bool:
    """Whether a sum's terms are products one factor of which has all variables of the other one."""
    pair = factors(member)
    return pair is not None and used_by(pair, member) is None


def _place_of(e: Expr) -> tuple[Expr, ...] | None:
    """Where a factor reads elements, if that is one place, and it depends on nothing else."""
    places = {*_places(e)}
    return places.pop() or None if len(places) == 1 else None


def _places(e: Expr) -> Iterator[tuple[Expr, ...]]:
    """At what is computed from no element; empty for what depends on a variable beside that."""
    access = access_of(e)
    if access is None:
        if isinstance(e, Var):
            yield ()
        for part in expr_children(e):
            yield from _places(part)
    elif any(True for i in access.indices for _ in accesses(i)):
        for i in access.indices:
            yield from _places(i)
    elif any(map(free_vars, access.indices)):
        yield access.indices


def _order(e: Expr, variables: set[str]) -> list[str]:
    """As the first element that an expression reads has them, outer ones last."""
    first = [
        v.name for access in accesses(e) for i in access.indices for v in walk_expr(i)
        if isinstance(v, Var) and v.name in variables
    ]  # fmt: skip
    return [*dict.fromkeys((*first, *sorted(variables)))]
