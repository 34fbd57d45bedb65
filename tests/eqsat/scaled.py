"""Programs as large as somebody may write: thousands of taps, many accumulators, many Funcs."""

from __future__ import annotations

import halide as hl

import halide_bridge as hb

F16, LANES, TILE = hl.Float(16), 256, 16


def taps(count: int, chunk: int, unrolled: bool) -> hl.Func:
    """A filter of rows, ``chunk`` taps a statement; ``unrolled``: one statement for each chunk."""
    image, weights = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 1, "weights")
    x, y, xo, xi = (hl.Var(n) for n in ("x", "y", "xo", "xi"))
    conv, out = hl.Func("conv"), hl.Func("out")
    t, to, ti = hl.RDom([(0, count)], "t"), hl.RVar("to"), hl.RVar("ti")
    conv[x, y] = hl.f32(0)
    conv[x, y] += hl.f32(image[x + t, y]) * hl.f32(weights[t])
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, LANES).vectorize(xi).gpu_blocks(xo, y)
    conv.compute_at(out, xo).bound_extent(x, LANES).vectorize(x)
    update = conv.update().split(t, to, ti, chunk).reorder(ti, x, to)
    update.atomic().vectorize(ti).vectorize(x)
    if unrolled:
        update.unroll(to)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    return out


def accumulators(side: int) -> hl.Func:
    """A product whose block has ``side`` x ``side`` tiles in registers."""
    a, b = hl.ImageParam(F16, 2, "a"), hl.ImageParam(F16, 2, "b")
    x, y, xo, yo, xu, yu, xi, yi = (
        hl.Var(n) for n in ("x", "y", "xo", "yo", "xu", "yu", "xi", "yi")
    )
    total, out = hl.Func("total"), hl.Func("out")
    r, ro, ri = hl.RDom([(0, 64)], "r"), hl.RVar("ro"), hl.RVar("ri")
    total[x, y] = hl.f32(0)
    total[x, y] += hl.f32(a[r, y]) * hl.f32(b[x, r])
    out[x, y] = total[x, y]
    width = TILE * side
    out.split(x, xo, xi, width).split(y, yo, yi, width).gpu_blocks(xo, yo)
    total.compute_at(out, xo).bound_extent(x, width).bound_extent(y, width)
    total.update().split(r, ro, ri, 16)
    for stage, (u, v) in ((out, (xi, yi)), (total, (x, y)), (total.update(), (x, y))):
        stage.split(u, xu, u, TILE).split(v, yu, v, TILE)
    out.reorder(xi, yi, xu, yu, xo, yo)
    total.reorder(x, y, xu, yu)
    total.update().reorder(ri, x, y, xu, yu, ro).atomic().vectorize(ri)
    for stage, (u, v) in ((out, (xi, yi)), (total, (x, y)), (total.update(), (x, y))):
        stage.vectorize(u).vectorize(v).unroll(xu).unroll(yu)
    hb.store_in(total, hb.MemoryType.WMMAAccumulator)
    return out


def funcs(count: int) -> hl.Func:
    """So many filters of an image in one kernel, added up."""
    image, weights = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 2, "weights")
    x, y, xo, xi = (hl.Var(n) for n in ("x", "y", "xo", "xi"))
    t, out = hl.RDom([(0, 8)], "t"), hl.Func("out")
    filters = [hl.Func(f"filter{k}") for k in range(count)]
    value = hl.f32(0)
    for k, f in enumerate(filters):
        f[x, y] = hl.f32(0)
        f[x, y] += hl.f32(image[x + t + k % 3, y + k // 3]) * hl.f32(weights[t, k])
        value += hl.max(f[x, y], 0) if k % 2 else f[x, y]
    out[x, y] = value
    out.split(x, xo, xi, LANES).vectorize(xi).gpu_blocks(xo, y)
    for f in filters:
        f.compute_at(out, xo).bound_extent(x, LANES).vectorize(x)
        f.update().reorder(t, x).atomic().vectorize(t).vectorize(x)
        hb.store_in(f, hb.MemoryType.WMMAAccumulator)
    return out
