"""Corpus: convolutions whose windows, inputs or outputs lie in memory in less usual ways."""

from __future__ import annotations

import halide as hl
from corpus_case import Case, variables
from corpus_mixed import accumulator
from corpus_types import tiled

import halide_bridge as hb

SHARED = hl.MemoryType.GPUShared
F16, F32 = hl.Float(16), hl.Float(32)
ROWS = ((131, 5), (128, 6), (300, 1))


def rows_of(out: hl.Func, conv: hl.Func, t: hl.RDom, x: hl.Var, y: hl.Var) -> hl.Var:
    """128 outputs per warp, two warps per block; the block's loop."""
    xo, xi, yo, yi = variables("xo xi yo yi")
    out.split(x, xo, xi, 128).split(y, yo, yi, 2).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.compute_at(out, yi)
    accumulator(conv, x, t)
    return xo


def convolved(
    source: hl.Func | hl.ImageParam, weights: hl.ImageParam, x: hl.Var, y: hl.Var
) -> tuple[hl.Func, hl.Func, hl.RDom]:
    """(convolution, output, taps) of 16 taps of ``source``."""
    t = hl.RDom([(0, 16)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(weights[t.x]) * hl.f32(source[x + t.x, y])
    out[x, y] = conv[x, y]
    return conv, out, t


def bounded(kind: str, staged: bool) -> hl.Func:
    """A centred window; what lies outside of the image is zero, or its edge."""
    x, y = variables("x y")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    wide = hl.Func("wide")
    u, v = hl.clamp(x - 7, 0, image.width() - 1), hl.clamp(y, 0, image.height() - 1)
    inside = (x >= 7) & (x - 7 < image.width())
    wide[x, y] = image[u, v] if kind == "edge" else hl.select(inside, image[u, v], hl.cast(F16, 0))
    conv, out, t = convolved(wide, weights, x, y)
    block = rows_of(out, conv, t, x, y)
    if staged:
        wide.compute_at(out, block).store_in(SHARED).bound_extent(x, 144).bound_extent(y, 2)
        wide.vectorize(x).vectorize(y)
    else:
        a, b, ai, bi = variables("a b ai bi")
        wide.compute_root().gpu_tile(x, y, a, b, ai, bi, 32, 4)
    return out


def centred(kind: str) -> hl.Func:
    """A centred window over an image that goes on; staged rows start at multiples of 16 bytes, and
    windows seven elements before one.
    """
    x, y = variables("x y")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    t = hl.RDom([(0, 16)], "t")
    edge = kind == "edge"
    wide = (
        hl.BoundaryConditions.repeat_edge(image)
        if edge
        else (hl.BoundaryConditions.constant_exterior(image, hl.cast(F16, 0)))
    )
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(weights[t.x]) * hl.f32(wide[x + t.x - 7, y])
    out[x, y] = conv[x, y]
    block = rows_of(out, conv, t, x, y)
    copy = wide.in_(conv)
    copy.compute_at(out, block).store_in(SHARED).align_bounds(copy.args()[0], 8)
    copy.vectorize(copy.args()[0])
    return out


def channels(staged: bool) -> hl.Func:
    """Three channels innermost in the input, one of them per block."""
    c, x, y, xo, xi, yo, yi = variables("c x y xo xi yo yi")
    image, weights = hl.ImageParam(F16, 3, "I"), hl.ImageParam(F16, 1, "K")
    t = hl.RDom([(0, 16)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y, c] = hl.f32(0.0)
    conv[x, y, c] += hl.f32(weights[t.x]) * hl.f32(image[c, x + t.x, y])
    out[x, y, c] = conv[x, y, c]
    image.dim(0).set_bounds(0, 3)
    image.dim(1).set_stride(3)
    out.split(x, xo, xi, 128).split(y, yo, yi, 2).reorder(xi, yi, xo, yo, c)
    out.vectorize(xi).gpu_blocks(xo, yo, c).gpu_threads(yi)
    conv.compute_at(out, yi)
    accumulator(conv, x, t)
    if staged:
        copy = image.in_(conv)
        a, b, d = copy.args()
        copy.compute_at(out, xo).store_in(SHARED).reorder_storage(b, d, a)
        copy.bound_extent(b, 144).bound_extent(d, 2).vectorize(b).vectorize(d)
    return out


def all_channels() -> hl.Func:
    """The reduction runs over rows of taps and input channels, serially."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, weights = hl.ImageParam(F16, 3, "I"), hl.ImageParam(F16, 3, "K")
    r = hl.RDom([(0, 8), (0, 3), (0, 4)], "r")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(weights[r.x, r.y, r.z]) * hl.f32(image[x + r.x, y + r.y, r.z])
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, 128).split(y, yo, yi, 2).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.bound_extent(x, 128).compute_at(out, yi).vectorize(x)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.update().reorder(r.x, x, r.y, r.z, y).atomic().vectorize(x).vectorize(r.x)
    return out


def shifted() -> hl.Func:
    """The window starts where a scalar says."""
    x, y = variables("x y")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    shift = hl.Param(hl.Int(32), "shift")
    moved = hl.Func("moved")
    moved[x, y] = image[hl.clamp(x + shift, 0, image.width() - 1), y]
    conv, out, t = convolved(moved, weights, x, y)
    block = rows_of(out, conv, t, x, y)
    moved.compute_at(out, block).store_in(SHARED).bound_extent(x, 144).bound_extent(y, 2)
    moved.vectorize(x).vectorize(y)
    return out


def flipped() -> hl.Func:
    """The window runs backwards through the image."""
    x, y = variables("x y")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    t = hl.RDom([(0, 16)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(weights[t.x]) * hl.f32(image[x + 15 - t.x, y])
    out[x, y] = conv[x, y]
    rows_of(out, conv, t, x, y)
    return out


def transposed_output(staged: bool) -> hl.Func:
    """Each warp's row becomes a column of the output."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    t = hl.RDom([(0, 16)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(weights[t.x]) * hl.f32(image[x + t.x, y])
    out[y, x] = conv[x, y]
    out.split(x, xo, xi, 128).split(y, yo, yi, 2).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.compute_at(out, yi)
    accumulator(conv, x, t)
    if staged:
        image.in_(conv).compute_at(out, xo).store_in(SHARED)
    return out


def rows_in_turn() -> hl.Func:
    """A warp computes its rows one after the other, each staged by the warp itself."""
    x, y, xo, xi, yo, yw, yi = variables("x y xo xi yo yw yi")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    conv, out, t = convolved(image, weights, x, y)
    out.split(x, xo, xi, 128).split(y, yo, yw, 6).split(yw, yw, yi, 3)
    out.reorder(xi, yi, yw, xo, yo).vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yw)
    conv.compute_at(out, yi)
    accumulator(conv, x, t)
    copy = image.in_(conv)
    copy.compute_at(out, yi).store_in(SHARED).bound_extent(copy.args()[0], 144)
    copy.vectorize(copy.args()[0])
    return out


def windows_of_columns() -> hl.Func:
    """The convolution runs along y, across the rows of the input."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    t = hl.RDom([(0, 16)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[y, x] = hl.f32(0.0)
    conv[y, x] += hl.f32(weights[t.x]) * hl.f32(image[x, y + t.x])
    out[x, y] = conv[y, x]
    out.split(y, yo, yi, 128).split(x, xo, xi, 2).reorder(yi, xi, xo, yo)
    out.vectorize(yi).gpu_blocks(xo, yo).gpu_threads(xi)
    conv.bound_extent(y, 128).compute_at(out, xi).vectorize(y)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.update().reorder(t.x, y).atomic().vectorize(y).vectorize(t.x)
    return out


def bias_of_both(vector: tuple[int, int]) -> hl.Func:
    """A product that starts from a bias along n plus one along m."""
    n, m, no, mo, ni, mi = variables("n m no mo ni mi")
    a, b = hl.ImageParam(F16, 2, "A"), hl.ImageParam(F16, 2, "B")
    along_n, along_m = hl.ImageParam(F32, 1, "along_n"), hl.ImageParam(F32, 1, "along_m")
    k = hl.RDom([(0, 40)], "k")
    mm, out = hl.Func("mm"), hl.Func("C")
    mm[n, m] = along_n[n] + along_m[m] * 2
    mm[n, m] += hl.f32(a[k.x, m]) * hl.f32(b[n, k.x])
    out[n, m] = hl.max(mm[n, m], 0.0)
    out.tile(n, m, no, mo, ni, mi, *vector).vectorize(ni).vectorize(mi).gpu_blocks(no, mo)
    mm.compute_at(out, no).bound_extent(n, vector[0]).bound_extent(m, vector[1])
    mm.vectorize(n).vectorize(m)
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)
    mm.update().reorder(k.x, n, m).atomic().vectorize(k.x).vectorize(n).vectorize(m)
    return out


def local_in_unrolled() -> hl.Func:
    """A Func computed anew for each of a thread's unrolled outputs."""
    x, y, xo, xi, xu = variables("x y xo xi xu")
    image = hl.ImageParam(F32, 2, "image")
    kept, out = hl.Func("kept"), hl.Func("out")
    kept[x, y] = hl.sqrt(hl.abs(image[x, y]))
    out[x, y] = kept[x, y] + kept[x + 1, y] * 2
    out.split(x, xo, xi, 64).split(xi, xi, xu, 2).unroll(xu).gpu_blocks(xo, y).gpu_threads(xi)
    kept.compute_at(out, xu)
    return out


def unrolled_scatter() -> hl.Func:
    """Updates at data-dependent places, unrolled."""
    b, y, yo, yi = variables("b y yo yi")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    r = hl.RDom([(0, 5)], "r")
    bins, out = hl.Func("bins"), hl.Func("out")
    place = hl.clamp(hl.i32(image[r.x, y]) / 32, 0, 7)
    bins[b, y] = hl.i32(0)
    bins[place, y] += place * place + 1
    out[b, y] = bins[b, y]
    out.bound(b, 0, 8).split(y, yo, yi, 16).reorder(b, yi, yo).gpu_blocks(yo).gpu_threads(yi)
    bins.compute_at(out, yi)
    bins.update().unroll(r.x)
    return out


def conditional_stage() -> hl.Func:
    """A stage of several statements that only some calls need, between two that all do."""
    x, y, xo, xi = variables("x y xo xi")
    image, wanted = hl.ImageParam(F32, 2, "image"), hl.Param(hl.Int(32), "wanted")
    s = hl.RDom([(0, 3)], "s")
    first, second, out = hl.Func("first"), hl.Func("second"), hl.Func("out")
    first[x, y] = image[x, y] * 2
    second[x, y] = first[x, y]
    second[x, y] += first[x + 1 + s.x, y]
    out[x, y] = first[x + 2, y] + hl.select(wanted > 0, second[x + 1, y], 0.0)
    out.split(x, xo, xi, 32).gpu_blocks(xo, y).gpu_threads(xi)
    for f in (first, second):
        f.compute_at(out, xo).store_in(SHARED).gpu_threads(x)
    second.update().gpu_threads(x)
    return out


def copy_only() -> list[hl.Func]:
    """Plain copies, of several types."""
    x, y = variables("x y")
    outputs: list[hl.Func] = []
    for name, t in (("a", F16), ("b", hl.UInt(8)), ("c", hl.Float(64))):
        image, f = hl.ImageParam(t, 2, f"from_{name}"), hl.Func(f"to_{name}")
        f[x, y] = image[x, y]
        outputs.append(tiled(f, x, y))
    return outputs


PLAIN_SIZES = ((61, 37), (64, 32), (1, 1))

WINDOWS: list[Case] = [
    *(
        Case(
            f"window_{kind}_{'staged' if staged else 'root'}",
            lambda kind=kind, staged=staged: bounded(kind, staged),
            ROWS,
            True,
            shapes=lambda size: {"I": size},
            tolerance=2e-6,
            warned=staged,
        )
        for kind in ("edge", "zero")
        for staged in (True, False)
    ),
    *(
        Case(
            f"window_{kind}_centred",
            lambda kind=kind: centred(kind),
            ROWS,
            True,
            shapes=lambda size: {"I": size},
            tolerance=2e-6,
        )
        for kind in ("edge", "zero")
    ),
    Case("window_channels", lambda: channels(False), ((131, 3, 3),), True, tolerance=2e-6),
    Case(
        "window_channels_staged",
        lambda: channels(True),
        ((131, 3, 3),),
        True,
        tolerance=2e-6,
        warned=True,
    ),
    Case("window_all_channels", all_channels, ROWS, True, tolerance=2e-6),
    Case(
        "window_shifted",
        shifted,
        ROWS,
        True,
        shapes=lambda size: {"I": size},
        scalars={"shift": 5},
        tolerance=2e-6,
    ),
    Case("window_flipped", flipped, ROWS, True, tolerance=2e-6),
    Case(
        "window_transposed",
        lambda: transposed_output(False),
        ((5, 131), (6, 128)),
        True,
        tolerance=2e-6,
    ),
    Case(
        "window_transposed_staged",
        lambda: transposed_output(True),
        ((5, 131),),
        True,
        tolerance=2e-6,
    ),
    Case("window_rows_in_turn", rows_in_turn, ROWS, True, tolerance=2e-6),
    Case("window_columns", windows_of_columns, ((5, 131), (4, 128)), True, tolerance=2e-6),
    Case(
        "product_bias_of_both",
        lambda: bias_of_both((16, 16)),
        ((33, 35), (16, 16)),
        True,
        tolerance=2e-6,
    ),
    Case(
        "product_bias_of_both_m8n32",
        lambda: bias_of_both((32, 8)),
        ((33, 35), (32, 8)),
        True,
        only=("wmma.mma.m8n32k16.f16.f32",),
        tolerance=2e-6,
    ),
    Case("local_in_unrolled", local_in_unrolled, PLAIN_SIZES, tolerance=2e-6),
    Case("unrolled_scatter", unrolled_scatter, ((8, 37),), values={"image": (0, 255)}, tolerance=0),
    Case(
        "conditional_stage", conditional_stage, PLAIN_SIZES, scalars={"wanted": 1}, tolerance=2e-6
    ),
    Case(
        "conditional_stage_off",
        conditional_stage,
        PLAIN_SIZES,
        scalars={"wanted": 0},
        tolerance=2e-6,
    ),
    Case("copy_only", copy_only, PLAIN_SIZES, tolerance=0),
]
