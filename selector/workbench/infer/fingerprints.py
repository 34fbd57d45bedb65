"""Values of terms on random memory; equal values are what two terms are first believed equal for.

Names have the same values in every term and whatever came before: they are drawn from the seed and
the name. Symbols are of either sign, small and large, and zero; integers take their whole range,
floats need all of their mantissa, so that sums in another order are other values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from zlib import crc32

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.eqsat.decode import Decoder, Term
from selector.ir.arithmetic import Array, dtype_of
from selector.ir.evaluator import Buffer, Frame, evaluate
from selector.ir.nodes import Expr, Load, Var
from selector.ir.traverse import walk_expr
from selector.ir.types import INT32, IllTyped, Type, limits

WORLDS = 12
MEMORY = 256
_FAR = 97
"""The largest symbol; in two thirds of the worlds they are small."""


@dataclass
class Fingerprints:
    """Random worlds; values are (WORLDS, lanes)."""

    seed: int = 0
    frame: Frame = field(init=False)

    def __post_init__(self) -> None:
        self.frame = Frame(WORLDS, {}, {}, (np.arange(WORLDS),))

    def value(self, term: Term) -> tuple[Type, Array] | None:
        """Type and values of a term; None for one that has no type."""
        try:
            e = Decoder().expr(term)
            return e.type, self.evaluate(e, self.frame)
        except (IllTyped, InternalError, ValueError, TypeError, OverflowError):
            return None

    def evaluate(self, e: Expr, frame: Frame) -> Array:
        """The value of an expression in a frame, with what it names."""
        for part in walk_expr(e):
            match part:
                case Var(name, t) if name not in frame.variables:
                    frame.variables[name] = self._random(name, t.element, t.lanes)
                case Load(t, name) if name not in frame.buffers:
                    data = self._random(f"{t.element} {name}", t.element, MEMORY, whole=True)
                    frame.buffers[name] = Buffer(t.element, data)
                case _:
                    pass
        with np.errstate(all="ignore"):
            value = evaluate(e, frame)
        return np.broadcast_to(value, (frame.size, e.type.lanes))

    def batch(self, values: Sequence[Array]) -> Frame:
        """A frame of many tuples of operands side by side: operand i is the variable ``#i``, of
        shape (tuples, WORLDS, lanes), or (1, WORLDS, lanes) where all tuples share it."""
        count = max(len(v) for v in values)
        frame = Frame(count * WORLDS, {}, self.frame.buffers, (np.tile(np.arange(WORLDS), count),))
        for i, v in enumerate(values):
            wide = np.broadcast_to(v, (count, *v.shape[1:]))
            frame.variables[f"#{i}"] = wide.reshape(count * WORLDS, -1)
        return frame

    def _random(self, name: str, t: Type, count: int, whole: bool = False) -> Array:
        """(WORLDS, count) values of a type for a name; ``whole``: an int32 is no index."""
        draw = np.random.default_rng([self.seed, crc32(name.encode())])
        shape = (WORLDS, count)
        if t.is_bool:
            return draw.integers(0, 2, shape).astype(bool)
        if t == INT32 and not whole:
            near, far = draw.integers(-3, 7, shape), draw.integers(-_FAR, _FAR + 1, shape)
            return np.where(np.arange(WORLDS)[:, None] % 3 == 0, far, near).astype(np.int32)
        if t.is_integer:
            low, high = limits(t)
            return draw.integers(low, high + 1, shape).astype(dtype_of(t))
        return draw.normal(size=shape).astype(dtype_of(t))


def keys(values: Array) -> list[int]:
    """A number for each tuple of (tuples, WORLDS * lanes) values, equal for equal ones; zeros of
    either sign are one."""
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), np.nan, values.astype(np.float64) + 0.0).view(np.int64)
    draw = np.random.default_rng(values.shape[1])
    factors = draw.integers(-(1 << 62), 1 << 62, values.shape[1]) | 1
    with np.errstate(over="ignore"):
        mixed = values.astype(np.int64)
        mixed = (mixed ^ (mixed >> 29)) * factors
        return np.sum(mixed ^ (mixed >> 32), axis=1).tolist()


def agree(a: tuple[Type, Array] | None, b: tuple[Type, Array] | None) -> bool:
    """Whether two values are of one type and equal; a NaN is as good as another."""
    if a is None or b is None or a[0] != b[0]:
        return False
    return bool(np.all((a[1] == b[1]) | ((a[1] != a[1]) & (b[1] != b[1]))))
