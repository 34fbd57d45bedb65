"""Corpus: structures of schedules that the other files do not have; awkward names."""

from __future__ import annotations

from collections.abc import Callable

import halide as hl
from corpus_case import Case, variables
from corpus_types import tiled

import halide_bridge as hb

SHARED, HEAP = hl.MemoryType.GPUShared, hl.MemoryType.Heap
F16, F32, U8 = hl.Float(16), hl.Float(32), hl.UInt(8)
RAGGED = ((61, 37), (64, 32), (1, 1))


def accumulator(conv: hl.Func, inner: hl.Var, reduction: hl.RDom, lanes: int = 128) -> None:
    """The usual schedule of a row of a convolution in an accumulator."""
    conv.bound_extent(inner, lanes).vectorize(inner)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.update().reorder(reduction.x, inner).atomic().vectorize(inner).vectorize(reduction.x)


def awkward_names(tensor: bool) -> hl.Func:
    """Parameters and Funcs called as what emitted code declares itself, and as C's keywords."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    i, smem = hl.ImageParam(F16, 2, "i"), hl.ImageParam(F32, 1, "smem")
    to_f32, lane = hl.ImageParam(F16, 1, "to_f32"), hl.Param(F32, "lane")
    double, int_ = hl.Func("double"), hl.Func("int")
    t = hl.RDom([(0, 9)], "t")
    double[x, y] = hl.f32(0.0)
    double[x, y] += hl.f32(to_f32[t.x]) * hl.f32(i[x + t.x, y])
    int_[x, y] = double[x, y] * lane + smem[x]
    if not tensor:
        tiled(int_, x, y)
        return int_
    int_.split(x, xo, xi, 128).split(y, yo, yi, 2).reorder(xi, yi, xo, yo)
    int_.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    double.compute_at(int_, yi)
    accumulator(double, x, t)
    i.in_(double).compute_at(int_, xo).store_in(SHARED)
    return int_


def short_names() -> list[hl.Func]:
    """Single letters and numbered letters as buffers."""
    x, y = variables("x y")
    inputs = [
        hl.ImageParam(F32, 2, n) for n in ("x", "r0", "a0", "c0", "p0", "e", "g", "q", "row0")
    ]
    total: hl.Expr = hl.f32(0.0)
    for number, p in enumerate(inputs):
        total = total + p[x, y] * hl.f32(number + 1)
    outputs = [hl.Func("item"), hl.Func("to")]
    for f in outputs:
        f[x, y] = total
        tiled(f, x, y)
    return outputs


def inline_reductions() -> hl.Func:
    x, y = variables("x y")
    image = hl.ImageParam(F32, 2, "image")
    r = hl.RDom([(0, 7)], "r")
    out = hl.Func("out")
    out[x, y] = (
        hl.sum(image[x + r.x, y]) + hl.maximum(image[x + r.x, y]) - hl.minimum(image[x, y + r.x])
    )
    return tiled(out, x, y)


def index_of_largest() -> hl.Func:
    x, y = variables("x y")
    image = hl.ImageParam(F32, 2, "image")
    r = hl.RDom([(0, 7)], "r")
    out, best = hl.Func("out"), hl.argmax(image[x + r.x, y])
    out[x, y] = best[0]
    return tiled(out, x, y)


def unrolled_in_thread() -> hl.Func:
    """Each thread computes 2 x 2 outputs from registers."""
    x, y, xo, yo, xi, yi, xu, yu = variables("x y xo yo xi yi xu yu")
    image = hl.ImageParam(F32, 2, "image")
    kept, out = hl.Func("kept"), hl.Func("out")
    kept[x, y] = hl.sqrt(hl.abs(image[x, y]))
    out[x, y] = kept[x, y] + kept[x + 1, y] + kept[x, y + 1] + kept[x + 1, y + 1]
    out.split(x, xo, xi, 32).split(y, yo, yi, 16).split(xi, xi, xu, 2).split(yi, yi, yu, 2)
    out.reorder(xu, yu, xi, yi, xo, yo).unroll(xu).unroll(yu)
    out.gpu_blocks(xo, yo).gpu_threads(xi, yi)
    kept.compute_at(out, xi).unroll(x).unroll(y)
    return out


def two_staged() -> hl.Func:
    """Two Funcs in shared memory, each from the other's stencil, with barriers between them."""
    x, y, xo, yo, xi, yi = variables("x y xo yo xi yi")
    image = hl.ImageParam(F32, 2, "image")
    first, second, out = hl.Func("first"), hl.Func("second"), hl.Func("out")
    first[x, y] = image[x, y] + image[x + 1, y] * 0.5
    second[x, y] = first[x, y] - first[x, y + 1] + first[x + 1, y]
    out[x, y] = second[x, y] * first[x, y] + second[x + 1, y + 1]
    out.gpu_tile(x, y, xo, yo, xi, yi, 16, 8)
    for f in (first, second):
        f.compute_at(out, xo).store_in(SHARED).gpu_threads(x, y)
    return out


def loop_over_tiles() -> hl.Func:
    """A block that walks over tiles, staging each in the same shared memory."""
    x, y, xo, xs, xi, yo, yi = variables("x y xo xs xi yo yi")
    image = hl.ImageParam(F32, 2, "image")
    kept, out = hl.Func("kept"), hl.Func("out")
    kept[x, y] = image[x, y] * image[x + 1, y]
    out[x, y] = kept[x, y] + kept[x + 2, y] + kept[x, y + 1]
    out.split(x, xo, xi, 64).split(xi, xs, xi, 16).split(y, yo, yi, 8)
    out.reorder(xi, yi, xs, xo, yo).gpu_blocks(xo, yo).gpu_threads(xi, yi)
    kept.compute_at(out, xs).store_in(SHARED).gpu_threads(x, y)
    return out


def shared_reduction() -> hl.Func:
    """Sums of a block's rows: partial sums in shared memory, then their sum."""
    y, yo, yi, u = variables("y yo yi u")
    image = hl.ImageParam(F32, 2, "image")
    r = hl.RDom([(0, 128)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[y] = hl.f32(0.0)
    total[y] += image[r.x, y]
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    partial = total.update().split(r.x, ro, ri, 32).rfactor(ri, u)
    out[y] = total[y] * 2
    out.split(y, yo, yi, 8).gpu_blocks(yo).gpu_threads(yi)
    total.compute_at(out, yo).gpu_threads(y)
    total.update().gpu_threads(y)
    partial.compute_at(out, yo).store_in(SHARED).gpu_threads(u, y)
    partial.update().gpu_threads(u, y)
    return out


def different_threads() -> hl.Func:
    """Stages of one kernel with thread loops of different extents."""
    x, y, xo, xi = variables("x y xo xi")
    image = hl.ImageParam(F32, 2, "image")
    wide, out = hl.Func("wide"), hl.Func("out")
    wide[x, y] = image[x, y] * 3
    out[x, y] = wide[2 * x, y] + wide[2 * x + 1, y] + wide[2 * x + 7, y]
    out.split(x, xo, xi, 24).gpu_blocks(xo, y).gpu_threads(xi)
    wide.compute_at(out, xo).store_in(SHARED).gpu_threads(x)
    return out


def guarded() -> hl.Func:
    """Specializations and predicates of a reduction domain."""
    x, y = variables("x y")
    image = hl.ImageParam(F32, 2, "image")
    flip = hl.Param(hl.Bool(), "flip")
    r = hl.RDom([(0, 9), (0, 9)], "r")
    r.where(r.x + r.y < 9)
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = hl.f32(0.0)
    total[x, y] += image[x + r.x, y + r.y]
    out[x, y] = hl.select(flip, -total[x, y], total[x, y])
    total.update().unscheduled()
    return tiled(out, x, y)


def reversed_walk() -> hl.Func:
    """Negative strides, in reads and in an index of a staged Func."""
    x, y, xo, yo, xi, yi = variables("x y xo yo xi yi")
    image = hl.ImageParam(F32, 2, "image")
    kept, out = hl.Func("kept"), hl.Func("out")
    kept[x, y] = image[63 - x, y] * 2
    out[x, y] = kept[x, y] - kept[63 - x, y]
    out.bound(x, 0, 64).gpu_tile(x, y, xo, yo, xi, yi, 16, 8)
    kept.compute_at(out, xo).store_in(SHARED).bound_extent(x, 64).gpu_threads(x)
    return out


def byte_image() -> hl.Func:
    """8-bit in, wide arithmetic, saturated 8-bit out, with vectors."""
    x, y, xo, xi, xv = variables("x y xo xi xv")
    image = hl.ImageParam(U8, 2, "image")
    out = hl.Func("out")
    wide = hl.i16(image[x, y]) + 2 * hl.i16(image[x + 1, y]) - hl.i16(image[x + 2, y])
    out[x, y] = hl.u8(hl.clamp(wide / 2, 0, 255))
    out.split(x, xo, xi, 128).split(xi, xi, xv, 4).reorder(xv, xi, xo, y)
    out.vectorize(xv).gpu_blocks(xo, y).gpu_threads(xi)
    return out


def interleaved() -> hl.Func:
    """Channels innermost, bounded and unrolled."""
    c, x, y, xo, yo, xi, yi = variables("c x y xo yo xi yi")
    image = hl.ImageParam(U8, 3, "image")
    out = hl.Func("out")
    grey = (hl.f32(image[0, x, y]) + hl.f32(image[1, x, y]) + hl.f32(image[2, x, y])) / 3
    out[c, x, y] = hl.u8(hl.clamp(hl.f32(image[c, x, y]) * 0.5 + grey * 0.5, 0.0, 255.0))
    image.dim(0).set_bounds(0, 3)
    out.bound(c, 0, 3).reorder(c, x, y).unroll(c)
    out.split(x, xo, xi, 16).split(y, yo, yi, 8).reorder(c, xi, yi, xo, yo)
    return out.gpu_blocks(xo, yo).gpu_threads(xi, yi)


def histogram_kernel() -> hl.Func:
    """A reduction over the whole input by one thread of one block."""
    b, bo, bi = variables("b bo bi")
    image = hl.ImageParam(U8, 1, "image")
    r = hl.RDom([(0, 300)], "r")
    out = hl.Func("out")
    out[b] = hl.sum(hl.select(hl.i32(image[r.x]) / 64 == b, 1, 0))
    return out.gpu_tile(b, bo, bi, 4)


def tensor_then_reduce() -> hl.Func:
    """A convolution, kept in shared memory, of which each thread sums a row."""
    x, y, yo, yi = variables("x y yo yi")
    image, taps = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    t, s = hl.RDom([(0, 8)], "t"), hl.RDom([(0, 128)], "s")
    conv, kept, total, out = (hl.Func(n) for n in ("conv", "kept", "total", "out"))
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(taps[t.x]) * hl.f32(image[x + t.x, y])
    kept[x, y] = conv[x, y]
    total[y] = hl.f32(0.0)
    total[y] += kept[s.x, y]
    out[y] = total[y]
    out.split(y, yo, yi, 4).gpu_blocks(yo)
    total.compute_at(out, yo)
    kept.compute_at(out, yo).store_in(SHARED).bound_extent(x, 128).bound_extent(y, 4)
    kept.vectorize(x).gpu_threads(y)
    conv.compute_at(kept, y)
    accumulator(conv, x, t)
    return out


def separable(middle: hl.MemoryType) -> hl.Func:
    """Two passes on tensor instructions; the first result is kept as f16, transposed taps."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, taps = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    t, s = hl.RDom([(0, 8)], "t"), hl.RDom([(0, 8)], "s")
    one, kept, two, out = (hl.Func(n) for n in ("one", "kept", "two", "out"))
    one[x, y] = hl.f32(0.0)
    one[x, y] += hl.f32(taps[t.x]) * hl.f32(image[x + t.x, y])
    kept[x, y] = hl.cast(F16, one[x, y])
    two[x, y] = hl.f32(0.0)
    two[x, y] += hl.f32(taps[s.x]) * hl.f32(kept[x + s.x, y])
    out[x, y] = two[x, y]
    out.split(x, xo, xi, 128).split(y, yo, yi, 2).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    two.compute_at(out, yi)
    accumulator(two, x, s)
    if middle == HEAP:
        u, v, ui, vi = variables("u v ui vi")
        kept.compute_root().split(x, u, ui, 128).split(y, v, vi, 2).reorder(ui, vi, u, v)
        kept.vectorize(ui).gpu_blocks(u, v).gpu_threads(vi)
        one.compute_at(kept, vi)
        accumulator(one, x, t)
    else:
        xv = hl.Var("xv")
        kept.compute_at(out, xo).store_in(SHARED).bound_extent(x, 256).bound_extent(y, 2)
        kept.split(x, xv, x, 128).reorder(x, xv, y).vectorize(x).unroll(xv).gpu_threads(y)
        one.compute_at(kept, xv)
        accumulator(one, x, t)
    return out


def per_phase() -> hl.Func:
    """Two phases per output pixel with their own taps: a matrix product in disguise."""
    p, x, y, xo, xi, yo, yi = variables("p x y xo xi yo yi")
    image, taps = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 2, "K")
    r = hl.RDom([(0, 16)], "r")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[p, x, y] = hl.f32(0.0)
    conv[p, x, y] += hl.f32(image[x + r.x, y]) * hl.f32(taps[p, r.x])
    out[p, x, y] = conv[p, x, y]
    out.bound(p, 0, 8).split(x, xo, xi, 32).split(y, yo, yi, 2).reorder(p, xi, yi, xo, yo)
    out.vectorize(p).vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.bound_extent(x, 32).compute_at(out, yi).vectorize(p).vectorize(x)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.update().reorder(r.x, p, x).atomic().vectorize(r.x).vectorize(p).vectorize(x)
    return out


def warps_of_two_kinds() -> hl.Func:
    """Fewer warps in one tensor stage than in the other."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, taps = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    t = hl.RDom([(0, 8)], "t")
    conv, kept, out = (hl.Func(n) for n in ("conv", "kept", "out"))
    other = hl.Func("other")
    for f, factor in ((conv, 1.0), (other, 2.0)):
        f[x, y] = hl.f32(factor)
        f[x, y] += hl.f32(taps[t.x]) * hl.f32(image[x + t.x, y])
    kept[x, y] = conv[x, y]
    out[x, y] = other[x, y] + kept[x, y] - kept[x, y + 1]
    out.split(x, xo, xi, 128).split(y, yo, yi, 3).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    other.compute_at(out, yi)
    accumulator(other, x, t)
    kept.compute_at(out, xo).store_in(SHARED).bound_extent(x, 128).bound_extent(y, 4)
    kept.vectorize(x).gpu_threads(y)
    conv.compute_at(kept, y)
    accumulator(conv, x, t)
    return out


def _plain(
    name: str,
    build: Callable[[], object],
    sizes: tuple[tuple[int, ...], ...] = RAGGED,
    tolerance: float = 2e-6,
    **more: object,
) -> Case:
    return Case(name, build, sizes, tolerance=tolerance, **more)  # type: ignore[arg-type]


ROWS = ((131, 5), (128, 6), (300, 1))

MIXED: list[Case] = [
    _plain("names", lambda: awkward_names(False), scalars={"lane": 0.5}),
    Case(
        "names_tensor",
        lambda: awkward_names(True),
        ROWS,
        True,
        scalars={"lane": 0.5},
        tolerance=2e-6,
    ),
    _plain("names_short", short_names),
    _plain("inline_reductions", inline_reductions),
    _plain("index_of_largest", index_of_largest, tolerance=0),
    _plain("unrolled_in_thread", unrolled_in_thread),
    _plain("two_staged", two_staged),
    _plain("loop_over_tiles", loop_over_tiles),
    _plain("shared_reduction", shared_reduction, ((37,), (8,))),
    _plain("different_threads", different_threads),
    _plain("guarded", guarded, scalars={"flip": 1}, tolerance=1e-5),
    _plain("reversed_walk", reversed_walk, ((64, 17), (64, 8))),
    _plain("byte_image", byte_image, ((259, 5), (256, 4)), 0, values={"image": (0, 255)}),
    _plain("interleaved", interleaved, ((3, 61, 17), (3, 16, 8)), 1e-2, values={"image": (0, 255)}),
    _plain("histogram_kernel", histogram_kernel, ((4,),), 0, values={"image": (0, 255)}),
    Case("tensor_then_reduce", tensor_then_reduce, ((9,), (4,)), True, tolerance=1e-5),
    Case("separable_root", lambda: separable(HEAP), ROWS, True, tolerance=1e-3),
    Case("separable_shared", lambda: separable(SHARED), ROWS, True, tolerance=1e-3),
    Case("per_phase", per_phase, ((8, 35, 3), (8, 32, 2)), True, tolerance=2e-6),
    Case("warps_of_two_kinds", warps_of_two_kinds, ROWS, True, tolerance=2e-6),
]
