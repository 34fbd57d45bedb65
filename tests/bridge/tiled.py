"""Small pipelines of one tiled sum, for tests of what is selected and what is refused.

``mm(x, y)`` sums a value over ``r``, ``out`` reads it; the tile and a piece of the sum are vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import halide as hl
import numpy as np

import halide_bridge as hb
from selector.intrinsics import find
from selector.ir.nodes import Call
from selector.ir.traverse import walk_all_exprs

WMMA, AMX = hb.MemoryType.WMMAAccumulator, hb.MemoryType.AMXTile
F16, BF16, F32 = hl.Float(16), hl.BFloat(16), hl.Float(32)
I8, U8, I16, I32 = hl.Int(8), hl.UInt(8), hl.Int(16), hl.Int(32)

Value = Callable[[hl.Var, hl.Var, hl.RVar], hl.Expr]
SIZE = 64


@dataclass(frozen=True)
class Tiled:
    """How ``mm`` is computed; ``read`` is what ``out`` makes of it, ``update`` schedules the sum,
    ``staged`` are Funcs computed before, ``where`` is a condition on ``r``. ``on``: the target,
    if not that of the memory."""

    value: Value
    accumulator: hl.Type = field(default_factory=lambda: F32)
    memory: hb.MemoryType = WMMA
    tile: tuple[int, int] = (16, 16)
    depth: int = 16
    extent: int = SIZE
    combine: Callable[[hl.Expr, hl.Expr], hl.Expr] | None = None
    read: Callable[[hl.Func, hl.Var, hl.Var], hl.Expr] | None = None
    update: Callable[[hl.Stage, hl.Var, hl.Var, hl.RVar, int], None] | None = None
    staged: tuple[hl.Func, ...] = ()
    on: str = ""
    scalar_read: bool = False
    where: Value | None = None

    @property
    def is_gpu(self) -> bool:
        return (self.on != "amx" and self.memory is not AMX) or self.on.startswith("sm_")

    def build(self) -> hl.Func:
        """The scheduled output, ``SIZE`` x ``SIZE``."""
        x, y, xo, yo, xi, yi = (hl.Var(n) for n in ("x", "y", "xo", "yo", "xi", "yi"))
        r = hl.RDom([(0, self.extent)], "r")
        mm, out = hl.Func("mm"), hl.Func("out")
        mm[x, y] = hl.cast(self.accumulator, 0)
        value = self.value(x, y, r.x)
        if self.where is not None:
            r.where(self.where(x, y, r.x))
        if self.combine is None:
            mm[x, y] += value
        else:
            mm[x, y] = self.combine(mm[x, y], value)
        out[x, y] = mm[x, y] if self.read is None else self.read(mm, x, y)
        out.bound(x, 0, SIZE).bound(y, 0, SIZE)
        out.tile(x, y, xo, yo, xi, yi, *self.tile)
        if not self.scalar_read:
            out.vectorize(xi).vectorize(yi)
        if self.is_gpu:
            out.gpu_blocks(xo, yo)
        for func in self.staged:
            func.compute_root()
            if self.is_gpu:
                func.gpu_blocks(func.args()[-1])
        mm.compute_at(out, xo).vectorize(x).vectorize(y)
        (self.update or whole)(mm.update(), x, y, r.x, self.depth)
        return hb.store_in(mm, self.memory) and out


def whole(update: hl.Stage, x: hl.Var, y: hl.Var, r: hl.RVar, depth: int) -> None:
    """The tile and a piece of the sum as one vector, the sum innermost."""
    outer, inner = hl.RVar("ro"), hl.RVar("ri")
    update.split(r, outer, inner, depth).reorder(inner, x, y, outer).atomic()
    update.vectorize(inner).vectorize(x).vectorize(y)


def names_selected(output: hl.Func, target: str) -> list[str]:
    """The instructions of a compiled output."""
    module = hb.compile(output, target=target, cache=False).module
    calls = (e for e in walk_all_exprs(module.body) if isinstance(e, Call))
    return [e.name for e in calls if find(e.name) is not None]


def random(t: type[np.generic], *shape: int, seed: int = 0) -> np.ndarray:
    """Small whole numbers, so that sums are exact."""
    low = 0 if np.issubdtype(t, np.unsignedinteger) else -4
    return np.random.default_rng(seed).integers(low, 5, shape).astype(t)
