"""Corpus: pipelined loops, whose staged inputs are copied several iterations ahead."""

from __future__ import annotations

import halide as hl
from corpus_case import Case, variables
from corpus_mixed import accumulator
from corpus_windows import convolved

import halide_bridge as hb

SHARED = hl.MemoryType.GPUShared
F16, F32 = hl.Float(16), hl.Float(32)
ROWS = ((131, 19), (128, 16), (250, 3))


def rows_in_turn(stages: int, width: int | None = 144) -> hl.Func:
    """A warp computes three rows in turn and stages them itself, ahead."""
    x, y, xo, xi, yo, yw, yi = variables("x y xo xi yo yw yi")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    conv, out, t = convolved(image, weights, x, y)
    out.split(x, xo, xi, 128).split(y, yo, yw, 6).split(yw, yw, yi, 3)
    out.reorder(xi, yi, yw, xo, yo).vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yw)
    conv.compute_at(out, yi)
    accumulator(conv, x, t)
    copy = image.in_(conv)
    along = copy.args()[0]
    copy.compute_at(out, yi).store_in(SHARED).vectorize(along)
    if width is not None:
        copy.bound_extent(along, width)
    hb.pipeline_stages(copy, stages)
    return out


def through_shared(stages: int) -> hl.Func:
    """Every iteration passes its result through shared memory, which the next one overwrites."""
    x, y, xo, xi, yo, ys, yi = variables("x y xo xi yo ys yi")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    conv, kept, t = convolved(image, weights, x, y)
    out = hl.Func("result")
    out[x, y] = kept[x, y] + kept[x + 1, y] * 0.5 + kept[x + 8, y] * 0.25
    out.split(x, xo, xi, 120).split(y, yo, yi, 16).split(yi, ys, yi, 2)
    out.reorder(xi, yi, ys, xo, yo).gpu_blocks(xo, yo)
    kept.compute_at(out, ys).store_in(SHARED).bound_extent(x, 128).bound_extent(y, 2)
    kept.vectorize(x).gpu_threads(y)
    conv.compute_at(kept, y)
    accumulator(conv, x, t)
    stage_rows(image.in_(conv), out, ys, stages)
    return out


def stage_rows(staged: hl.Func, out: hl.Func, loop: hl.Var, stages: int) -> None:
    u, v = staged.args()
    staged.compute_at(out, loop).store_in(SHARED).bound_extent(u, 144).bound_extent(v, 2)
    staged.vectorize(u).vectorize(v)
    hb.pipeline_stages(staged, stages)


def cast_ahead(stages: int) -> hl.Func:
    """What is staged is no copy: f32 becomes f16 on the way."""
    x, y, xo, xi, yo, ys, yi = variables("x y xo xi yo ys yi")
    image, weights = hl.ImageParam(F32, 2, "I"), hl.ImageParam(F16, 1, "K")
    narrow = hl.Func("narrow")
    narrow[x, y] = hl.cast(F16, image[x, y] * 0.5)
    conv, out, t = convolved(narrow, weights, x, y)
    out.split(x, xo, xi, 128).split(y, yo, yi, 8).split(yi, ys, yi, 2)
    out.reorder(xi, yi, ys, xo, yo).vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.compute_at(out, yi)
    accumulator(conv, x, t)
    stage_rows(narrow, out, ys, stages)
    return out


def two_products(stages: int) -> hl.Func:
    """Two updates of one accumulator, each a pipelined loop of its own."""
    n, m, no, mo, ni, mi, nw = variables("n m no mo ni mi nw")
    a, b, c, d = (hl.ImageParam(F16, 2, name) for name in "ABCD")
    k, j = hl.RDom([(0, a.width())], "k"), hl.RDom([(0, c.width())], "j")
    mm, out = hl.Func("mm"), hl.Func("out")
    mm[n, m] = hl.f32(0.0)
    mm[n, m] += hl.f32(a[k.x, m]) * hl.f32(b[n, k.x])
    mm[n, m] += hl.f32(c[j.x, m]) * hl.f32(d[n, j.x])
    out[n, m] = mm[n, m]
    out.tile(n, m, no, mo, ni, mi, 32, 32).split(ni, nw, ni, 16).reorder(ni, mi, nw, no, mo)
    out.vectorize(ni).vectorize(mi).gpu_blocks(no, mo).gpu_threads(nw)
    mm.compute_at(out, no).bound_extent(n, 32).bound_extent(m, 32)
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)
    mm.split(n, nw, ni, 16).reorder(ni, m, nw).vectorize(ni).vectorize(m).gpu_threads(nw)
    for number, (r, operands) in enumerate(((k, (a, b)), (j, (c, d)))):
        ro, ri = hl.RVar("ro"), hl.RVar("ri")
        update = mm.update(number).split(r.x, ro, ri, 32).split(n, nw, ni, 16)
        update.reorder(ri, ni, m, nw, ro).atomic()
        update.vectorize(ri).vectorize(ni).vectorize(m).gpu_threads(nw)
        for operand in operands:
            copy = operand.in_(mm)
            u, v = copy.args()
            copy.compute_at(mm, ro).store_in(SHARED).vectorize(u).vectorize(v)
            copy.bound_extent(u, 32).bound_extent(v, 32)
            if stages > 1:
                hb.pipeline_stages(copy, stages)
    return out


def plain_loop(stages: int, extent: int) -> hl.Func:
    """No tensor statements: a block walks over tiles whose inputs are copied ahead."""
    x, y, xo, xs, xi = variables("x y xo xs xi")
    image = hl.ImageParam(F32, 2, "image")
    source, out = hl.Func("source"), hl.Func("out")
    source[x, y] = image[x, y]
    out[x, y] = source[x, y] + source[x + 1, y] * 2 - source[x + 3, y]
    out.split(x, xo, xi, 4 * extent).split(xi, xs, xi, extent).reorder(xi, xs, xo, y)
    out.gpu_blocks(xo, y).gpu_threads(xi)
    source.compute_at(out, xs).store_in(SHARED).vectorize(x)
    hb.pipeline_stages(source, stages)
    return out


def _depths(size: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    n, m = size
    return {"A": (75, m), "B": (n, 75), "C": (32, m), "D": (n, 32)}


PRODUCT = ((33, 35), (64, 32))

RINGS: list[Case] = [
    *(
        Case(f"ring_rows_{s}", lambda s=s: rows_in_turn(s), ROWS, True, tolerance=2e-6)
        for s in (2, 3)
    ),
    Case("ring_rows_odd", lambda: rows_in_turn(3, None), ROWS, True, tolerance=2e-6),
    *(
        Case(f"ring_through_{s}", lambda s=s: through_shared(s), ROWS, True, tolerance=2e-6)
        for s in (2, 3, 4)
    ),
    *(
        Case(f"ring_cast_{s}", lambda s=s: cast_ahead(s), ROWS, True, tolerance=1e-3)
        for s in (2, 3)
    ),
    *(
        Case(
            f"ring_products_{s}",
            lambda s=s: two_products(s),
            PRODUCT,
            True,
            shapes=_depths,
            tolerance=2e-6,
        )
        for s in (1, 2, 3)
    ),
    *(
        Case(
            f"ring_plain_{s}_{n}",
            lambda s=s, n=n: plain_loop(s, n),
            ((531, 3), (1024, 2)),
            tolerance=2e-6,
        )
        for s, n in ((2, 64), (3, 64), (3, 50))
    ),
]
