"""Sums and the like that sweep through an argument once, by whose threads they are shared.

A *sweep* reads all of it, or rows or columns of it, for an element: nothing that it reads is read
for another element as well, as in a product or a window. Several sweeps over the same rows, with
what reads them at its own row (softmax, norms), are one kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from halide_bridge.schedules.recognise.facts import (
    SMALL,
    Body,
    Place,
    Placement,
    leaves_out,
    side_by_side,
)
from halide_bridge.schedules.recognise.program import (
    Access,
    Member,
    Reduced,
    accesses,
    in_any_order,
    number,
)
from selector.dataclass import dataclass
from selector.ir.nodes import Binary, BinaryOp, Call, Compare, CompareOp, Expr, Select, Var
from selector.ir.traverse import free_vars

SHORT = 16  # elements of a sum that are not worth several threads
ROW = 1 << 16  # elements of a row that one block reads
_ASSOCIATIVE = frozenset(
    {BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX, BinaryOp.AND, BinaryOp.OR}
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """``along``: the number of the reduction variable along which threads lie, where they do not
    lie along ``kept``, a dimension of the Func.
    """

    along: int
    kept: str = ""


def associative(member: Member) -> bool:
    """Whether each value is combined with others by one operation, in any order."""
    if len(member.stages) != 2:
        return False
    values = enumerate(member.stages[1].values)
    return all(_combines(member, k, value) for k, value in values) and in_any_order(member)


def _combines(member: Member, number: int, value: Expr) -> bool:
    match value:
        case Binary(op, Call() as a, b) if op in _ASSOCIATIVE:
            first, rest = a, b
        case Binary(op, a, Call() as b) if op in _ASSOCIATIVE:
            first, rest = b, a
        case _:
            return False
    own = Access(member.name, number, member.stages[1].indices)
    return next(accesses(first), None) == own and all(a.func != member.name for a in accesses(rest))


def chooses(member: Member) -> bool:
    """Whether all values are those of the first element that beats the others, as argmax's are."""
    if len(member.stages) != 2 or len(member.types) < 2 or member.stages[1].predicate is not None:
        return False
    tests = [v.condition if isinstance(v, Select) else None for v in member.stages[1].values]
    strict = isinstance(tests[0], Compare) and tests[0].op in (CompareOp.LT, CompareOp.GT)
    return strict and all(test == tests[0] for test in tests)


def sweep_of(member: Member, placement: Placement) -> Sweep | None:
    """How threads share a reduction; None if one thread does each element."""
    if not member.reduction or member.fixed or not associative(member) or member.whole(SMALL):
        return None
    body = placement.bodies[member.name][1]
    reduced = body.stage.reduced
    if size_of(reduced, SHORT + 1) <= SHORT or not _sweeps(member, body):
        return None
    every = frozenset(r.name for r in reduced).union(member.args)
    side = side_by_side(body, every if member.args else frozenset())
    longest = max(range(len(reduced)), key=lambda i: size_of(reduced[i : i + 1], ROW))
    for place, r in enumerate(reduced):
        if r.name in side and size_of((r,), ROW) > SHORT:
            return Sweep(place)
    for d, arg in enumerate(member.args):
        if arg in side and (placement.extent(member.name, d) or ROW) > SMALL:
            return Sweep(longest, arg)
    return Sweep(longest)


def size_of(reduced: Iterable[Reduced], unknown: int) -> int:
    """Turns of all these loops, where those of unknown length are so long."""
    total = 1
    for r in reduced:
        size = number(r.extent)
        total *= unknown if size is None else size
    return total


def _sweeps(member: Member, body: Body) -> bool:
    """Whether something is read once for each element, and nothing at places that a reduction
    variable and one of the element choose together.
    """
    reduced, args = {r.name for r in body.stage.reduced}, set(member.args)
    whole = not args
    for access in body.reads():
        names = [free_vars(i) for i in access.indices]
        mentioned = frozenset[str]().union(*names)
        if access.func == member.name or not mentioned & reduced:
            continue
        if any(n & reduced and n & args for n in names):
            return False
        whole = whole or args | reduced <= mentioned
    return whole


@dataclass(frozen=True, slots=True)
class Shared:
    """What is computed at the blocks of a kernel: ``funcs``, producers first, at ``rows``, which
    are arguments of the kernel's Func. ``once``: those that only it reads, each at its own element.
    """

    funcs: tuple[str, ...]
    rows: tuple[str, ...]
    once: frozenset[str]


def share(found: Placement, tiled: frozenset[str]) -> dict[str, Shared]:
    """The kernels whose blocks compute sweeps, by Func; those of ``tiled`` do something else."""
    shared: dict[str, Shared] = {}
    sweeps = {m.name: s for m in found.program if (s := _shareable(m, found)) is not None}
    for name in [name for name in sweeps if _left_out(name, found)]:
        del sweeps[name]
        found.places[name] = Place.KERNEL
        found.reader.pop(name, None)
    for member in found.program:
        if found.places[member.name] is not Place.KERNEL or not member.pure or not member.args:
            continue
        if member.name in tiled:
            continue
        group = _rows(member, found, sweeps) or _own(member, found, sweeps)
        if group is not None:
            shared[member.name] = group
            for name in group.funcs:
                found.places[name] = Place.BLOCK
                found.reader[name] = member.name
                del sweeps[name]
    for name in sweeps:  # that share a reader with what its threads do alone
        if found.places[name] is Place.THREAD:
            found.places[name] = Place.KERNEL
            del found.reader[name]
    return shared


def _shareable(member: Member, found: Placement) -> Sweep | None:
    places = (Place.KERNEL, Place.THREAD)
    if found.places[member.name] not in places or member.name in found.program.outputs:
        return None
    return sweep_of(member, found)


def _left_out(name: str, found: Placement) -> bool:
    """Whether a condition says that some of its elements are not read."""
    return any(
        leaves_out(value, name, ends=True)
        for bodies in found.bodies.values()
        for body in bodies
        for value in body.values
    )


def _own(member: Member, found: Placement, sweeps: dict[str, Sweep]) -> Shared | None:
    """Those that a Func reads at its own element, if they are alike."""
    mine = [m.name for m in found.program if found.reader.get(m.name) == member.name]
    if not mine or not all(name in sweeps for name in mine):
        return None
    if len({sweeps[name].kept for name in mine}) > 1:
        return None
    return Shared(tuple(mine), member.args, frozenset(mine))


def _rows(member: Member, found: Placement, sweeps: dict[str, Sweep]) -> Shared | None:
    """Sweeps over the rows of a Func: all that read them are among them."""
    names = [m.name for m in found.program if m.name in sweeps and is_row(m, sweeps[m.name])]
    while True:
        rows: dict[str, tuple[str, ...]] = {member.name: member.args}
        for name in reversed(names):
            readers = list(_readers(name, found))
            own = {_rows_of(found.program.members[r], a, rows.get(r)) for r, a in readers}
            if len(own) == 1 and (only := next(iter(own))) is not None:
                rows[name] = only
        del rows[member.name]
        common = next(iter(rows.values()), ())
        kept = [name for name in names if rows.get(name) == common and common]
        if kept == names:
            break
        names = kept
    ordered = tuple(a for a in member.args if a in common)
    if not names or ordered != common:
        return None
    once = (name for name in names if {r for r, _ in _readers(name, found)} == {member.name})
    return Shared(tuple(names), common, frozenset(once))


def is_row(member: Member, sweep: Sweep) -> bool:
    """Whether a sweep is of one line at a time, and there may be many of them."""
    others = [r for i, r in enumerate(member.stages[1].reduced) if i != sweep.along]
    return not sweep.kept and bool(member.args) and size_of(others, ROW) < SHORT


def _readers(name: str, found: Placement) -> Iterator[tuple[str, Access]]:
    """Who reads a Func, and at which element."""
    for reader, bodies in found.bodies.items():
        if reader != name:
            for body in bodies:
                yield from ((reader, a) for a in body.reads() if a.func == name)


def _rows_of(
    reader: Member, access: Access, rows: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """The arguments of the kernel's Func at which an element is read, if these are all."""
    if rows is None:
        return None
    at = dict(zip(reader.args, rows, strict=True))
    found = tuple(at.get(i.name, "") if isinstance(i, Var) else "" for i in access.indices)
    return found if all(found) and len(set(found)) == len(found) else None
