"""Small pipelines whose products read beside zeros: bands, masks and depths that are rounded up
over staged buffers. Each with its truth and the shapes of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import halide as hl
import numpy as np

import halide_bridge as hb
from selector.ir.bfloat16 import from_bits, to_bits

SHARED = hl.MemoryType.GPUShared
ELEMENTS = {
    "f16": (hl.Float(16), hl.Float(32), np.float16),
    "s8": (hl.Int(8), hl.Int(32), np.int8),
    "u8": (hl.UInt(8), hl.Int(32), np.uint8),
}
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """``truth(*inputs)`` is the float64 result of shape ``size``."""

    output: hl.Func
    size: Shape
    shapes: dict[str, Shape]
    truth: Callable[..., np.ndarray]
    element: str

    def inputs(self, seed: int = 3) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        if self.element == "bf16":
            drawn = {n: rng.standard_normal(s) for n, s in self.shapes.items()}
            return {n: to_bits(numbers.astype(np.float32)) for n, numbers in drawn.items()}
        dtype = ELEMENTS[self.element][2]
        if self.element == "f16":
            return {n: rng.standard_normal(s).astype(dtype) for n, s in self.shapes.items()}
        low = -9 if self.element == "s8" else 0
        return {n: rng.integers(low, 9, s).astype(dtype) for n, s in self.shapes.items()}


def names(text: str) -> list[hl.Var]:
    return [hl.Var(n) for n in text.split()]


def accumulate(sums: hl.Func, reduced: hl.RVar, *tile: hl.Var) -> hl.Func:
    """Keep ``sums`` of a tile in a warp's registers; the update."""
    for v in tile:
        sums.vectorize(v)
    update = sums.update().reorder(reduced, *tile).atomic().vectorize(reduced)
    for v in tile:
        update.vectorize(v)
    hb.store_in(sums, hb.MemoryType.WMMAAccumulator)
    return update


def stage(source: hl.ImageParam, reader: hl.Func, out: hl.Func, at: hl.Var) -> hl.Func:
    copy = source.in_(reader)
    copy.compute_at(out, at).store_in(SHARED)
    for v in copy.args():
        copy.vectorize(v)
    return copy


def tiles(out: hl.Func, x: hl.Var, y: hl.Var) -> hl.Var:
    """Blocks of one warp, 16 x 16 elements each."""
    xo, xi, yo, yi = names("xo xi yo yi")
    out.split(x, xo, xi, 16).split(y, yo, yi, 16).reorder(xi, yi, xo, yo)
    out.vectorize(xi).vectorize(yi).gpu_blocks(xo, yo)
    return xo


def rows(
    out: hl.Func, x: hl.Var, y: hl.Var, width: int, count: int, turns: int = 1
) -> tuple[hl.Var, hl.Var]:
    """Blocks of ``count`` warps, a row of ``width`` elements each, in ``turns`` one after the
    other; the loop that stages, and that of warps.
    """
    xo, xi, yo, ys, yi = names("xo xi yo ys yi")
    out.split(x, xo, xi, width).split(y, yo, yi, count * turns).split(yi, ys, yi, count)
    out.reorder(xi, yi, ys, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    return (ys if turns > 1 else xo), yi


def operands(element: str, *dims: tuple[str, int]) -> list[Any]:
    return [hl.ImageParam(ELEMENTS[element][0], count, name) for name, count in dims]


def times(element: str, a: hl.Expr, b: hl.Expr) -> hl.Expr:
    t = ELEMENTS[element][1]
    return hl.cast(t, a) * hl.cast(t, b)


def zero(element: str) -> hl.Expr:
    return hl.cast(ELEMENTS[element][1], 0)


def down_columns(element: str = "f16", taps: int = 5) -> Program:
    """A filter down the columns of a tile: its depth runs across staged rows."""
    x, y = names("x y")
    image, weights = operands(element, ("I", 2), ("K", 1))
    t = hl.RDom([(0, taps)], "t")
    sums, out = hl.Func("sums"), hl.Func("output")
    sums[x, y] = zero(element)
    sums[x, y] += times(element, image[x, y + t.x], weights[t.x])
    out[x, y] = sums[x, y]
    block = tiles(out, x, y)
    sums.compute_at(out, block)
    accumulate(sums, t.x, x, y)
    stage(image, sums, out, block)

    def truth(seen: np.ndarray, given: np.ndarray) -> np.ndarray:
        return sum(seen[i : i + 32].astype(float) * given[i] for i in range(taps))  # type: ignore[return-value]

    return Program(out, (32, 32), {"I": (31 + taps, 32), "K": (taps,)}, truth, element)


def interleaved(element: str = "f16", channels: int = 8, taps: int = 5) -> Program:
    """A filter along a row of pixels of several channels."""
    c, x, y, xo, xi = names("c x y xo xi")
    image, weights = operands(element, ("I", 3), ("K", 1))
    t = hl.RDom([(0, taps)], "t")
    sums, out = hl.Func("sums"), hl.Func("output")
    sums[c, x, y] = zero(element)
    sums[c, x, y] += times(element, image[c, x + t.x, y], weights[t.x])
    out[c, x, y] = sums[c, x, y]
    out.bound(c, 0, channels)
    image.dim(0).set_bounds(0, channels)
    image.dim(1).set_stride(channels)
    out.split(x, xo, xi, 16).reorder(c, xi, xo, y).vectorize(c).vectorize(xi).gpu_blocks(xo, y)
    sums.compute_at(out, xo)
    accumulate(sums, t.x, c, x)
    stage(image, sums, out, xo)

    def truth(seen: np.ndarray, given: np.ndarray) -> np.ndarray:
        return sum(seen[:, i : i + 32].astype(float) * given[i] for i in range(taps))  # type: ignore[return-value]

    size = (3, 32, channels)
    return Program(out, size, {"I": (3, 31 + taps, channels), "K": (taps,)}, truth, element)


def across_rows(
    element: str = "f16",
    width: int = 128,
    taps: int = 3,
    dilation: int = 1,
    stages: int = 0,
    by_warps: bool = False,
) -> Program:
    """A filter down the rows of a block, as a band whose dilation is the pitch of staged rows,
    which the bridge pads. ``stages``: of a loop over rows, ahead of which they are staged;
    ``by_warps``: each stages its own.
    """
    x, y = names("x y")
    image, weights = operands(element, ("I", 2), ("K", 1))
    t = hl.RDom([(0, taps)], "t")
    sums, out = hl.Func("sums"), hl.Func("output")
    sums[x, y] = zero(element)
    sums[x, y] += times(element, image[x, y + dilation * t.x], weights[t.x])
    out[x, y] = sums[x, y]
    block, warp = rows(out, x, y, width, 2, 4 if stages else 1)
    sums.compute_at(out, warp).bound_extent(x, width)
    accumulate(sums, t.x, x)
    copy = stage(image, sums, out, warp if by_warps else block)
    if stages:
        hb.pipeline_stages(copy, stages)

    def truth(seen: np.ndarray, given: np.ndarray) -> np.ndarray:
        parts = (seen[i * dilation :][:8].astype(float) * given[i] for i in range(taps))
        return sum(parts)  # type: ignore[return-value]

    wide = width + 37
    shapes = {"I": (8 + dilation * (taps - 1), wide), "K": (taps,)}
    return Program(out, (8, wide), shapes, truth, element)


def masked(element: str = "f16", count: int = 12, depth: int = 32, staged: str = "A") -> Program:
    """A product that ``select`` ends before its depth."""
    x, y = names("x y")
    left, right = operands(element, ("A", 2), ("B", 2))
    k = hl.RDom([(0, depth)], "k")
    sums, out = hl.Func("sums"), hl.Func("output")
    sums[x, y] = zero(element)
    term = times(element, left[k.x, y], right[x, k.x])
    sums[x, y] += hl.select(k.x < count, term, zero(element))
    out[x, y] = sums[x, y]
    block = tiles(out, x, y)
    sums.compute_at(out, block)
    accumulate(sums, k.x, x, y)
    for operand, name in ((left, "A"), (right, "B")):
        if name in staged:
            stage(operand, sums, out, block)

    def truth(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return one[:, :count].astype(float) @ other[:count].astype(float)

    return Program(out, (32, 32), {"A": (32, depth), "B": (depth, 32)}, truth, element)


def runs_of_taps(
    element: str = "f16", run: int = 5, count: int = 3, stride: int = 1, dilation: int = 1
) -> Program:
    """``count`` runs of taps in one update, one after the other, over staged rows."""
    x, y = names("x y")
    image, weights = operands(element, ("I", 2), ("K", 2))
    t = hl.RDom([(0, run), (0, count)], "t")
    sums, out = hl.Func("sums"), hl.Func("output")
    sums[x, y] = zero(element)
    at = stride * x + dilation * (t.x + run * t.y)
    sums[x, y] += times(element, image[at, y], weights[t.x, t.y])
    out[x, y] = sums[x, y]
    block, warp = rows(out, x, y, 128, 2)
    sums.compute_at(out, warp).bound_extent(x, 128).vectorize(x)
    update = sums.update().reorder(t.x, x, t.y, y).atomic()
    update.vectorize(t.x).vectorize(x)
    hb.store_in(sums, hb.MemoryType.WMMAAccumulator)
    stage(image, sums, out, block)
    reach = stride * 255 + 1

    def truth(seen: np.ndarray, given: np.ndarray) -> np.ndarray:
        taps = enumerate(given.reshape(-1).astype(float))
        return sum(seen[:, i * dilation :][:, :reach:stride] * k for i, k in taps)  # type: ignore[return-value]

    shapes = {"I": (4, reach + dilation * (run * count - 1)), "K": (count, run)}
    return Program(out, (4, 256), shapes, truth, element)


def in_phases(element: str = "f16", taps: int = 5, phases: int = 4, width: int = 128) -> Program:
    """Upsampling of staged rows."""
    x, y = names("x y")
    image, weights = operands(element, ("I", 2), ("K", 2))
    t = hl.RDom([(0, taps)], "t")
    sums, out = hl.Func("sums"), hl.Func("output")
    sums[x, y] = zero(element)
    sums[x, y] += times(element, image[x // phases + t.x, y], weights[t.x, x % phases])
    out[x, y] = sums[x, y]
    block, warp = rows(out, x, y, width, 2)
    sums.compute_at(out, warp).bound_extent(x, width)
    accumulate(sums, t.x, x)
    stage(image, sums, out, block)
    inputs = 2 * width // phases

    def truth(seen: np.ndarray, given: np.ndarray) -> np.ndarray:
        windows = np.stack([seen[:, i : i + inputs].astype(float) for i in range(taps)], axis=-1)
        return (windows @ given.T.astype(float)).reshape(4, -1)

    shapes = {"I": (4, inputs + taps - 1), "K": (phases, taps)}
    return Program(out, (4, 2 * width), shapes, truth, element)


def filter_bank(element: str = "f16", taps: int = 16, hop: int = 1, warps: int = 1) -> Program:
    """Windows of a signal times a staged bank of filters."""
    f, w, wo, wi, ww, fo, fi = names("f w wo wi ww fo fi")
    signal, bank = operands(element, ("S", 1), ("B", 2))
    t = hl.RDom([(0, taps)], "t")
    sums, out = hl.Func("sums"), hl.Func("output")
    sums[w, f] = zero(element)
    sums[w, f] += times(element, signal[hop * w + t.x], bank[t.x, f])
    out[w, f] = sums[w, f]
    out.split(f, fo, fi, 16).split(w, wo, wi, 16 * warps).split(wi, ww, wi, 16)
    out.reorder(wi, fi, ww, wo, fo).vectorize(wi).vectorize(fi)
    out.gpu_blocks(wo, fo).gpu_threads(ww)
    sums.compute_at(out, ww)
    accumulate(sums, t.x, w, f)
    stage(bank, sums, out, wo)
    windows = 32 * warps

    def truth(heard: np.ndarray, other: np.ndarray) -> np.ndarray:
        windowed = np.stack(
            [heard[hop * i :][:taps].astype(float) for i in range(windows)], axis=-1
        )
        return other.astype(float) @ windowed

    shapes = {"S": (hop * (windows - 1) + taps,), "B": (32, taps)}
    return Program(out, (32, windows), shapes, truth, element)


def unrolled_taps(element: str = "f16", depth: int = 8, step: int = 2) -> Program:
    """Four products of one staged matrix, each ``step`` elements further into its rows."""
    x, y = names("x y")
    image, weights = operands(element, ("I", 2), ("K", 2))
    k = hl.RDom([(0, depth), (0, 4)], "k")
    sums, out = hl.Func("sums"), hl.Func("output")
    sums[x, y] = zero(element)
    sums[x, y] += times(element, image[k.x + step * k.y, y], weights[x, k.x + depth * k.y])
    out[x, y] = sums[x, y]
    block = tiles(out, x, y)
    sums.compute_at(out, block)
    accumulate(sums, k.x, x, y).reorder(k.x, x, y, k.y).unroll(k.y)
    stage(image, sums, out, block)

    def truth(seen: np.ndarray, given: np.ndarray) -> np.ndarray:
        blocks = enumerate(given.reshape(4, depth, -1).astype(float))
        return sum(seen[:, step * i :][:, :depth].astype(float) @ b for i, b in blocks)  # type: ignore[return-value]

    shapes = {"I": (32, depth + 3 * step), "K": (4 * depth, 32)}
    return Program(out, (32, 32), shapes, truth, element)


def masked_in_tiles(
    count: int = 9, depth: int = 32, staged: str = "A", by_rows: bool = False
) -> Program:
    """A product for AMX that ``select`` ends before its depth; it is staged as far as that, element
    by element or (``by_rows``) in vectors of 16. Numbers are bits of bfloat16.
    """
    x, y, xo, xi, yo, yi = names("x y xo xi yo yi")
    left, right = (hl.ImageParam(hl.BFloat(16), 2, name) for name in "AB")
    k = hl.RDom([(0, depth)], "k")
    sums, out = hl.Func("sums"), hl.Func("output")
    sums[x, y] = zero("f16")
    sums[x, y] += hl.select(k.x < count, times("f16", left[k.x, y], right[x, k.x]), zero("f16"))
    out[x, y] = sums[x, y]
    out.split(x, xo, xi, 16).split(y, yo, yi, 16).reorder(xi, yi, xo, yo)
    out.vectorize(xi).vectorize(yi)
    sums.compute_at(out, xo)
    accumulate(sums, k.x, x, y)
    hb.store_in(sums, hb.MemoryType.AMXTile)
    for operand, name in ((left, "A"), (right, "B")):
        if name in staged:
            copy = operand.in_(sums)
            copy.compute_at(out, xo)
            if by_rows:
                copy.vectorize(copy.args()[0], 16)

    def truth(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        a, b = (from_bits(bits).astype(float) for bits in (one, other))
        return a[:, :count] @ b[:count]

    return Program(out, (32, 32), {"A": (32, depth), "B": (depth, 32)}, truth, "bf16")


def padded_windows(
    taps: int = 10, stride: int = 1, stages: int = 1, lasting: bool = False, align: int = 32
) -> Program:
    """A filter along rows on warpgroups, whose last windows reach into the padding of the staged
    rows, which are whole multiples of ``align`` elements: ``stages`` ahead, and by blocks that stay
    (``lasting``).
    """
    x, y, xo, xi, yo, ys, yi = names("x y xo xi yo ys yi")
    image, weights = operands("f16", ("I", 2), ("K", 1))
    t = hl.RDom([(0, taps)], "t")
    sums, out = hl.Func("sums"), hl.Func("output")
    sums[x, y] = zero("f16")
    sums[x, y] += times("f16", image[stride * x + t.x, y], weights[t.x])
    out[x, y] = sums[x, y]
    out.split(x, xo, xi, 512).split(y, yo, yi, 4).split(yi, ys, yi, 2)
    out.reorder(xi, yi, ys, xo, yo).vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    sums.compute_at(out, yi).bound_extent(x, 512).vectorize(x)
    sums.update().atomic().vectorize(x).vectorize(t.x)
    hb.store_in(sums, hb.MemoryType.WGMMAAccumulator)
    copy = image.in_(sums)
    copy.compute_at(out, ys).store_in(SHARED).vectorize(copy.args()[0])
    copy.align_storage(copy.args()[0], align)
    if stages > 1:
        hb.pipeline_stages(copy, stages)
    if lasting:
        hb.persistent(out, 1)
    reach = stride * 695 + 1

    def truth(seen: np.ndarray, given: np.ndarray) -> np.ndarray:
        parts = (seen[:, i:][:, :reach:stride].astype(float) * given[i] for i in range(taps))
        return sum(parts)  # type: ignore[return-value]

    shapes = {"I": (8, reach + taps - 1), "K": (taps,)}
    return Program(out, (8, 696), shapes, truth, "f16")


def partly_staged(count: int = 40, depth: int = 64) -> Program:
    """A product on warpgroups whose left operand is staged as far as the right one is not zero."""
    x, y, n, m, no, mo, ni, mi = names("x y n m no mo ni mi")
    a, b = operands("f16", ("A", 2), ("B", 2))
    k, r = hl.RDom([(0, depth)], "k"), hl.RDom([(0, count)], "r")
    left, right, sums, out = (hl.Func(name) for name in ("left", "right", "sums", "output"))
    left[x, y] = hl.undef(hl.Float(16))
    left[r.x, y] = a[r.x, y]
    right[x, y] = hl.select(y < count, b[x, hl.min(y, count - 1)], hl.cast(hl.Float(16), 0))
    sums[n, m] = zero("f16")
    sums[n, m] += times("f16", left[k.x, m], right[n, k.x])
    out[n, m] = sums[n, m]
    out.tile(n, m, no, mo, ni, mi, 32, 64).vectorize(ni).vectorize(mi).gpu_blocks(no, mo)
    sums.compute_at(out, no).bound_extent(n, 32).bound_extent(m, 64)
    hb.store_in(sums, hb.MemoryType.WGMMAAccumulator)
    sums.vectorize(n).vectorize(m)
    ku, kv = hl.RVar("ku"), hl.RVar("kv")
    update = sums.update().split(k.x, ku, kv, 16).reorder(kv, n, m, ku).atomic().unroll(ku)
    update.vectorize(kv).vectorize(n).vectorize(m)
    right.compute_at(out, no).store_in(SHARED).vectorize(x).vectorize(y)
    left.compute_at(out, no).store_in(SHARED).update().vectorize(r.x).vectorize(y)

    def truth(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return one.astype(float) @ other.astype(float)

    return Program(out, (64, 64), {"A": (64, count), "B": (count, 64)}, truth, "f16")
