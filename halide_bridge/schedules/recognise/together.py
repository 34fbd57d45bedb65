"""Sums of several products that share their rows and columns:

    re[n, m] += f32(ar[k, m]) * f32(br[k, n]) - f32(ai[k, m]) * f32(bi[k, n])

One product has all their terms, with the factors one after the other along ``k`` (``hb.together``):
complex products, and single floats as the products of their halves (``hb.split_product``).
"""

from __future__ import annotations

from collections.abc import Iterator

from halide_bridge.schedules.recognise.products import added
from halide_bridge.schedules.recognise.program import Member, accesses
from selector.ir.nodes import Binary, BinaryOp, Cast, Expr, Var
from selector.ir.traverse import walk_expr
from selector.ir.types import FLOAT32, INT32, Type
from selector.operands.halves import error_bound


def products_of(member: Member) -> int:
    """How many such products it is the sum of; 0 where they are no such, or one. Bytes have no
    negative: none is subtracted.
    """
    term = added(member)
    if term is None or member.fixed or len(member.args) < 2:
        return 0
    update = member.stages[1]
    if update.predicate is not None or len(update.reduced) != 1:
        return 0
    found = [*_terms(term)]
    if len(found) < 2 or any(pair is None for pair in found):
        return 0
    (along,), wide = update.reduced, member.types[0]
    sides: set[tuple[frozenset[str], frozenset[str], Type, Type]] = set()
    for pair in found:
        assert pair is not None
        kinds = tuple(map(_narrow, pair))
        used = [frozenset(v.name for v in walk_expr(e) if isinstance(v, Var)) for e in pair]
        if any(k is None or e.type != wide for k, e in zip(kinds, pair, strict=True)):
            return 0
        if wide not in (FLOAT32, INT32) or any(along.name not in u for u in used):
            return 0
        own = [u & frozenset(member.args) for u in used]
        first = member.args[0] in own[0]
        (a, b), (s, t) = (own[::-1], kinds[::-1]) if first else (own, kinds)
        if s is not None and t is not None:
            sides.add((a, b, s, t))
    ((rows, columns, s, t), *others) = sides
    alike = s == t or s.bits == t.bits == 8
    return len(found) if not others and rows - columns and columns - rows and alike else 0


def precision_of(member: Member) -> str:
    """What is known of such products, where they are of halves of floats."""
    term = added(member)
    return "" if term is None else error_bound(pair for pair in _terms(term) if pair is not None)


def _terms(e: Expr) -> Iterator[tuple[Expr, Expr] | None]:
    """The factors of what is added up; None for what is no product."""
    match e:
        case Binary(BinaryOp.SUB) if e.type.is_integer:
            yield None
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, b):
            yield from (*_terms(a), *_terms(b))
        case Binary(BinaryOp.MUL, a, b):
            yield a, b
        case _:
            yield None


def _narrow(e: Expr) -> Type | None:
    """The type that a factor is cast from, if tensor units multiply it and it reads something."""
    if not isinstance(e, Cast) or next(accesses(e), None) is None:
        return None
    kind = e.value.type
    return kind if kind.bits == 8 or (kind.bits == 16 and kind.is_float) else None
