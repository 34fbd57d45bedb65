"""Sums of which only a narrower value is read: what is stored of them is that.

    wide[x, y] += ...                       f32, read by nobody else than
    narrow[x, y] = f16(wide[x, y])          which others read at many places of their own

Who reads an element casts it anyway, so the results are the same, bit for bit. Where ``narrow`` is
no Func, but a cast in all that read ``wide``, a Func is made of it (``hb.narrowed``). And factors
of products that are computed in more bits than their values need (``hb.narrow_factors``).
"""

from __future__ import annotations

from collections.abc import Iterator

from halide_bridge.records import ELEMENT
from halide_bridge.schedules.recognise.computed import is_filter
from halide_bridge.schedules.recognise.products import element, factors, source_type
from halide_bridge.schedules.recognise.program import Member, Program, accesses
from halide_bridge.schedules.sizes import is_argument
from selector.ir.nodes import Call, Cast, Expr, Var
from selector.ir.traverse import expr_children
from selector.ir.types import FLOAT32, Type


def only_cast(member: Member, program: Program) -> tuple[Member, ...]:
    """Those that read a sum, if all do by way of a cast to one narrower type, and at more places
    than their own element; else none.
    """
    if not _is_sum(member, program) or len(member.types) != 1:
        return ()
    found = program.readers(member)
    kinds = {kind for r in found for s in r.stages for e in s.values for kind in _seen(e, member)}
    stored = [e for r in found for s in r.stages for e in (*s.indices, s.predicate) if e]
    if len(kinds) != 1 or any(a.func == member.name for e in stored for a in accesses(e)):
        return ()
    (kind,) = kinds
    narrower = kind is not None and kind.bytes < member.types[0].bytes
    again = narrower and all(_reads_around(r, member) for r in found)
    return found if again and not any(r.fixed or r.extern for r in found) else ()


def narrowest(member: Member, program: Program) -> Member | None:
    """The pure Func that has fewer bytes for each element of a sum, of which it is made where it
    is, while nobody else reads the sum, and those that read it read more than their own element.
    None if there is none.
    """
    best, last = None, member
    while _is_sum(member, program):
        found = program.readers(last)
        if len(found) != 1 or not _is_made_of(found[0], last, program):
            break
        (last,) = found
        best = last if _bytes(last) < _bytes(best or member) else best
    if best is None or not all(_reads_around(r, best) for r in program.readers(best)):
        return None
    return best


def _is_sum(member: Member, program: Program) -> bool:
    free = not member.fixed and member.name not in program.outputs
    return member.reduction and bool(member.args) and free


def _is_made_of(reader: Member, member: Member, program: Program) -> bool:
    """Whether a pure Func is computed from one's own element and arguments."""
    if not reader.pure or reader.fixed or reader.extern or reader.name in program.outputs:
        return False
    own = tuple(map(Var, reader.args))
    mine = [a for a in reader.accesses() if a.func == member.name]
    others = [program.members.get(a.func) for a in reader.accesses() if a.func != member.name]
    return all(a.indices == own for a in mine) and all(
        m is not None and is_argument(m, program) for m in others
    )


def _reads_around(reader: Member, member: Member) -> bool:
    """Whether it reads one at places that its own variables do not choose alone."""
    own = {*map(Var, reader.args)}
    return any(not own.issuperset(a.indices) for a in reader.accesses() if a.func == member.name)


def _bytes(member: Member) -> int:
    return sum(kind.bytes for kind in member.types)


def _seen(e: Expr, member: Member) -> Iterator[Type | None]:
    """To what each element of a Func is cast that an expression reads; None if it is not."""
    match e:
        case Cast(value=Call(name=name) as read) if name == f"{member.name}{ELEMENT}0":
            yield e.type
            inner = expr_children(read)
        case Call(name=name) if name == f"{member.name}{ELEMENT}0":
            yield None
            inner = expr_children(e)
        case _:
            inner = expr_children(e)
    for part in inner:
        yield from _seen(part, member)


def has_wide_factors(member: Member) -> bool:
    """Whether a sum multiplies factors in float32 of which one is no element of 16 bits; of a
    filter, which takes bytes as they are, one that is more than an element. What values they have,
    Halide's expressions say.
    """
    pair = factors(member)
    if pair is None or member.fixed or member.types[0] != FLOAT32:
        return False
    wide = [e for e in pair if source_type(e).bits != 16]
    return any(element(e) is None or not is_filter(member) for e in wide)
