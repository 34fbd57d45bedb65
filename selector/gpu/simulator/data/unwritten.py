"""Which threads' value of an expression is made of what nobody wrote.

Zero times that is that: only a choice that does not take it, and ``&&`` and ``||`` that do not ask,
are without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from selector.gpu.simulator.data.arithmetic import Arithmetic, own_element, shuffled
from selector.gpu.simulator.data.values import Mask, Pointer, Threads
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Compare, Expr, Not, Select, Var


class Unwritten:
    """Of one kernel."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic

    def of(self, e: Expr, v: Threads) -> Mask | None:
        """The mask; None: nobody's."""
        match e:
            case Var(name):
                return v.mask(name)
            case Cast(_, value) | Not(value):
                return self.of(value, v)
            case Select(c, a, b):
                return self._choice(v, c, a, b)
            case Binary(BinaryOp.AND, a, b):
                return self._asked(v, a, b, when=True)
            case Binary(BinaryOp.OR, a, b):
                return self._asked(v, a, b, when=False)
            case Binary(_, a, b) | Compare(_, a, b):
                return either(self.of(a, v), self.of(b, v))
            case Call(_, "element", (whole, *parts)):
                return self._element(v, e, whole, parts)
            case Call(_, "pair_at" | "pair_in_panels"):
                arithmetic = self.arithmetic
                return arithmetic.memories.marks(v, arithmetic.pair(e, v))
            case Call(_, "shuffle_xor", (value, by)):
                mask = self.of(value, v)
                lane = v["lane"] ^ self.arithmetic.of(by)(v)
                return None if mask is None else shuffled(v, mask, lane)
            case Call(_, _, arguments):
                return either(*(self.of(a, v) for a in arguments))
            case _:
                return None

    def _choice(self, v: Threads, c: Expr, a: Expr, b: Expr) -> Mask | None:
        holds = np.broadcast_to(self.arithmetic.of(c)(v), (v.count,))
        first, second = self._among(holds, v, a), self._among(~holds, v, b)
        return either(self.of(c, v), first, second)

    def _asked(self, v: Threads, a: Expr, b: Expr, *, when: bool) -> Mask | None:
        holds = np.broadcast_to(self.arithmetic.of(a)(v), (v.count,))
        return either(self.of(a, v), self._among(holds == when, v, b))

    def _among(self, active: Any, v: Threads, e: Expr) -> Mask | None:
        if not active.any():
            return None
        mask = self.arithmetic.among(active, v, lambda v: self.of(e, v))
        return None if mask is None else mask & active

    def _element(self, v: Threads, e: Expr, whole: Expr, parts: list[Expr]) -> Mask | None:
        places = either(*(self.of(part, v) for part in parts))
        of = self.arithmetic.of(whole)(v)
        if isinstance(of, Pointer):
            for part in parts:
                of = of + self.arithmetic.of(part)(v)
            return either(places, self.arithmetic.memories.marks(v, of))
        mask = self.of(whole, v)
        if mask is None:
            return places
        return either(places, own_element(mask, self.arithmetic.of(parts[0])(v)))


def either(*masks: Any) -> Any:
    """Where one of them holds."""
    found = None
    for mask in masks:
        if mask is not None:
            found = mask if found is None else found | mask
    return found
