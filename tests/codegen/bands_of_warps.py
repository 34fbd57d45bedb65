"""Convolutions whose bands depend on the warp, as pipelines: taps, masks, and where both stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import halide as hl

import halide_bridge as hb

F16 = hl.Float(16)
Index = Callable[[hl.RVar, hl.Var, hl.Var], tuple[hl.Expr, hl.Expr]]
Mask = Callable[[hl.RVar, hl.Var, hl.Var], hl.Expr]

TAPS: dict[str, Index] = {
    "the same": lambda r, x, y: (hl.Expr(r), hl.i32(0)),
    "of a row": lambda r, x, y: (hl.Expr(r), hl.Expr(y)),
    "of every fourth row": lambda r, x, y: (hl.Expr(r), y % 4),
    "of a pair of rows": lambda r, x, y: (hl.Expr(r), y / 2),
    "of a block": lambda r, x, y: (hl.Expr(r), y / 4),
    "of a column of blocks": lambda r, x, y: (hl.Expr(r), x / 256),
    "moved by the row": lambda r, x, y: (r + y, hl.i32(0)),
    "moved in the block": lambda r, x, y: (r + y % 4, hl.i32(1)),
}
"""Which taps (tap, filter) an output (x, y) has."""

MASKS: dict[str, Mask | None] = {
    "none": None,
    "rows": lambda r, x, y: y % 2 == 0,
    "taps": lambda r, x, y: r < 5,
    "taps of a row": lambda r, x, y: r < y,
    "taps in the block": lambda r, x, y: r >= y % 4,
    "wide": lambda r, x, y: hl.i64(y * 8 + r) < hl.i64(40),
}
"""Where a product counts."""


@dataclass(frozen=True)
class Filter:
    """``out[x, y] = sum over r of K[taps(r, x, y)] * I[x + r, y]``, a warp for each row of a block,
    counted by one or two thread loops. ``masked``: the product, or one of its factors. ``staged``:
    arrays in shared memory; with ``own`` every warp has taps of its own there.
    """

    taps: str = "the same"
    mask: str = "none"
    masked: str = "product"
    loops: int = 1
    staged: frozenset[str] = field(default_factory=frozenset[str])
    own: bool = False
    count: int = 8

    def build(self) -> hl.Func:
        x, y, xo, xi, yo, yi, yj, yk = map(hl.Var, ("x", "y", "xo", "xi", "yo", "yi", "yj", "yk"))
        image, taps = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 2, "K")
        r = hl.RDom([(0, self.count)], "r")
        conv, out, kept = hl.Func("conv"), hl.Func("out"), hl.Func("kept")
        a, b = hl.Var("a"), hl.Var("b")
        kept[a, b] = taps[a, b]
        source = kept if "K" in self.staged else taps
        tap, pixel = source[TAPS[self.taps](r.x, x, y)], image[x + r.x, y]
        mask, zero = MASKS[self.mask], hl.cast(F16, 0)
        if mask is not None and self.masked == "taps":
            tap = hl.select(mask(r.x, x, y), tap, zero)
        if mask is not None and self.masked == "image":
            pixel = hl.select(mask(r.x, x, y), pixel, zero)
        product = hl.f32(tap) * hl.f32(pixel)
        if mask is not None and self.masked == "product":
            product = hl.select(mask(r.x, x, y), product, hl.f32(0))
        conv[x, y] = hl.f32(0)
        conv[x, y] += product
        out[x, y] = conv[x, y]
        out.split(x, xo, xi, 256).split(y, yo, yi, 4).reorder(xi, yi, xo, yo)
        out.vectorize(xi).gpu_blocks(xo, yo)
        if self.loops == 2:
            out.split(yi, yj, yk, 2).gpu_threads(yk, yj)
        else:
            out.gpu_threads(yi)
        warp = yi if self.loops == 1 else yk
        conv.compute_at(out, warp).vectorize(x)
        conv.update().reorder(r.x, x).atomic().vectorize(x).vectorize(r.x)
        if "K" in self.staged:
            kept.compute_at(out, warp if self.own else xo).store_in(hl.MemoryType.GPUShared)
        if "I" in self.staged:
            image.in_(conv).compute_at(out, xo).store_in(hl.MemoryType.GPUShared)
        hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
        return out
