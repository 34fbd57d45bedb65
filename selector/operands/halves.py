"""Floats that are multiplied as halves, ``x`` as ``high(x) = f16(x)`` and ``low(x) = f16(x -
high(x))``: how far a sum of ``high*high + high*low + low*high`` is from that of the products.

``high`` rounds to p bits and is off by 2**-p of ``x`` at most, ``low`` has that in p bits again. So
``x`` is known to 2**-2p, as is ``y``, and ``low*low``, which is left out, is no more than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from selector.ir.nodes import Binary, BinaryOp, Broadcast, Cast, Expr, Load, Store
from selector.ir.types import BFLOAT16, FLOAT16, FLOAT32, Type
from selector.operands.computed_values import Computed
from selector.operands.scaling import update_of

_BITS = {FLOAT16: 11, BFLOAT16: 8}
_WHERE = {
    FLOAT16: ", as long as both values are from 2^-3 to 65504 (smaller ones are off by 2^-25)",
    BFLOAT16: "",
}
Part = tuple[bool, Type, Expr]
"""Whether it is the low one, its type, and of what it is a part."""


def error_bounds(stores: Iterable[Store], computed: Mapping[str, Computed]) -> dict[str, str]:
    """By accumulator what is known of its products, where all are of halves of floats."""
    pairs: dict[str, set[tuple[Part | None, Part | None]]] = {}
    for s in stores:
        total = update_of(s)
        if total is not None:
            a, b = _factors(total.value)
            pairs.setdefault(s.buffer, set()).add((_part(a, computed), _part(b, computed)))
    return {name: text for name, found in pairs.items() if (text := _bound(found))}


def error_bound(factors: Iterable[tuple[Expr, Expr]]) -> str:
    """The same of the products that a sum is of."""
    return _bound({(_part(a, {}), _part(b, {})) for a, b in factors})


def _factors(e: Expr) -> tuple[Expr | None, Expr | None]:
    return (e.a, e.b) if isinstance(e, Binary) and e.op is BinaryOp.MUL else (None, None)


def _part(e: Expr | None, computed: Mapping[str, Computed]) -> Part | None:
    """A factor as a part of a float."""
    while isinstance(e, Cast | Broadcast) and not _is_half(e):
        e = e.value
    if isinstance(e, Load) and e.buffer in computed:
        e = computed[e.buffer].value
    if not isinstance(e, Cast) or not _is_half(e):
        return None
    match e.value:
        case Binary(BinaryOp.SUB, x, Cast(_, high)) if high == Cast(e.type, x):
            return True, e.type, x
        case x:
            return False, e.type, x


def _is_half(e: Expr) -> bool:
    """Whether a float is rounded to 16 bits."""
    return isinstance(e, Cast) and e.type.element in _BITS and e.value.type.element == FLOAT32


def _bound(found: set[tuple[Part | None, Part | None]]) -> str:
    kinds = {part[1] for pair in found for part in pair if part is not None}
    if len(kinds) != 1 or any(part is None for pair in found for part in pair):
        return ""
    (kind,) = kinds
    wholes = {(a[2], b[2]) for a, b in found if a is not None and b is not None}
    wanted = {
        ((low, kind, x), (other, kind, y))
        for x, y in wholes
        for low, other in ((False, False), (False, True), (True, False))
    }
    if found != wanted:
        return ""
    bits = 2 * _BITS[kind]
    return f"each product of floats is off by at most 3 * 2^-{bits} of itself{_WHERE[kind]}"
