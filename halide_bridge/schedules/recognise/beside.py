"""What the scores of attention are made of beside operands: arrays of keys and queries; and which
heads share operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd

from halide_bridge.schedules.recognise.program import Access, Member, Program
from halide_bridge.schedules.recognise.reading import computes, names_of
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm, Var
from selector.ir.traverse import free_vars

KEYS = "keys"  # an axis that is none of the output's
Axes = Mapping[str, tuple[str, ...]]
"""What the dimensions of Funcs go along, in the output's variables."""


def own_axes(member: Member, axes: tuple[str, ...]) -> dict[str, str]:
    """By the variables of a Func."""
    found = dict(zip(member.args, axes, strict=True))
    return found | {r.name: KEYS for s in member.stages for r in s.reduced}


def shared_path(paths: Sequence[tuple[str, ...] | None]) -> list[str]:
    """The Funcs on all of some paths."""
    return [name for name in paths[0] or () if all(name in (path or ()) for path in paths)]


def matrices_of(
    path: Sequence[str], axes: Axes, queries: str, program: Program
) -> tuple[tuple[str, str, int], ...]:
    """What Funcs on a path to the scores read for each key and query."""
    found: list[tuple[str, str, int]] = []
    for reader, access in _arrays(path, program):
        own = own_axes(reader, axes[reader.name])
        along = [own.get(name, "") for name in names_of(access)]
        if program.members[access.func].types[0].bits != 16:
            continue
        if along[0] == KEYS and along.count(queries) == along.count(KEYS) == 1:
            found.append((access.func, reader.name, along.index(queries)))
    return tuple(found)


def blocks_of(path: Sequence[str], axes: Axes, queries: str, program: Program) -> tuple[int, int]:
    """Of how many keys and of how many queries such Funcs read one element, where they read one of
    several keys.
    """
    found = 0, 0
    for reader, access in _arrays(path, program):
        own = own_axes(reader, axes[reader.name])
        keys, rows = (_together(access, [n for n in own if own[n] == a]) for a in (KEYS, queries))
        if keys > 1:
            found = gcd(found[0], keys), gcd(found[1], rows)
    return found


Read = tuple[Access, Mapping[str, str]]
"""What is read, and what the variables of the reader go along."""


def sharing_of(query: Read, key: Read, value: Read) -> tuple[int, str]:
    """How many neighbouring heads read the same keys and values, and what these go along; 1 where
    each reads its own.
    """
    found = {_shared(*read) for read in (key, value)}
    access, along = query
    own = [along.get(name, "") for name in names_of(access)]
    ((count, head), *others) = found
    return (count, head) if not others and own.count(head) == 1 else (1, "")


def _shared(access: Access, along: Mapping[str, str]) -> tuple[int, str]:
    """The number that an index is a quotient by, and what its variable goes along, which is in no
    other index.
    """
    for index in access.indices:
        names = free_vars(index)
        count = _quotient(index)
        if count > 1 and sum(not names.isdisjoint(free_vars(i)) for i in access.indices) == 1:
            (name,) = names
            return count, along.get(name, "")
    return 1, ""


def _together(access: Access, variables: Sequence[str]) -> int:
    """How many neighbours along some variables read one element; 0 if all do."""
    return gcd(*(_quotient(i) for i in access.indices if not free_vars(i).isdisjoint(variables)))


def _quotient(index: Expr) -> int:
    match index:
        case Binary(BinaryOp.DIV, Var(), IntImm(value)) if value > 0:
            return value
        case _:
            return 1


def _arrays(path: Sequence[str], program: Program) -> Iterator[tuple[Member, Access]]:
    """Elements of arguments that pure Funcs read, each once."""
    for reader in (program.members[name] for name in path if program.members[name].pure):
        for access in dict.fromkeys(reader.accesses()):
            source = program.members.get(access.func)
            if source is not None and not computes(source, program):
                yield reader, access
