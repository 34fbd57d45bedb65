"""Corpus: convolutions on tensor instructions, with what a schedule puts around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import halide as hl
from corpus_case import Case, variables

import halide_bridge as hb

SHARED = hl.MemoryType.GPUShared
F16, F32, BF16 = hl.Float(16), hl.Float(32), hl.BFloat(16)
S8, U8, S32 = hl.Int(8), hl.UInt(8), hl.Int(32)

Epilogue = Callable[[hl.Expr, hl.Var, hl.Var], hl.Expr]


def identity(value: hl.Expr, x: hl.Var, y: hl.Var) -> hl.Expr:
    return value


@dataclass(frozen=True)
class Row:
    """A convolution along x: its numbers, types, tiles, and where its input is staged."""

    taps: int = 16
    stride: int = 1
    dilation: int = 1
    reverse: bool = False
    types: tuple[hl.Type, hl.Type] = (F16, F32)
    lanes: int = 128
    vectors: int = 2
    rows: int = 2
    staged: str = "block"  # "block", "warp", "" or a producer: "cast", "scale"
    epilogue: Epilogue = identity
    initial: bool = False
    computed_taps: bool = False
    rounded: bool = True  # staged rows are a multiple of 16 bytes long

    @property
    def reach(self) -> int:
        """Input elements that ``lanes`` x ``vectors`` outputs need."""
        return self.stride * (self.lanes * self.vectors - 1) + self.dilation * (self.taps - 1) + 1


def row_convolution(r: Row) -> hl.Func:
    x, y, xo, xv, xi, yo, yi = variables("x y xo xv xi yo yi")
    operand, accumulator = r.types
    image = hl.ImageParam(F32 if r.staged in ("cast", "scale") else operand, 2, "I")
    weights = hl.ImageParam(operand, 1, "K")
    bias = hl.ImageParam(accumulator, 1, "bias")
    t = hl.RDom([(0, r.taps)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    source, produced = _source(image, r, x, y)
    taps: hl.Func | hl.ImageParam = weights
    if r.computed_taps:
        taps = hl.Func("taps")
        taps[x] = hl.cast(operand, hl.f32(weights[x]) * 0.5 + 0.25)
    tap = r.taps - 1 - t.x if r.reverse else t.x
    conv[x, y] = bias[x] if r.initial else hl.cast(accumulator, 0)
    window = source[x * r.stride + t.x * r.dilation, y]
    conv[x, y] += hl.cast(accumulator, taps[tap]) * hl.cast(accumulator, window)
    out[x, y] = r.epilogue(conv[x, y], x, y)

    out.split(x, xo, xi, r.lanes * r.vectors).split(xi, xv, xi, r.lanes).split(y, yo, yi, r.rows)
    out.reorder(xi, xv, yi, xo, yo).vectorize(xi).unroll(xv).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.bound_extent(x, r.lanes * r.vectors).compute_at(out, yi)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.split(x, xv, xi, r.lanes).vectorize(xi).unroll(xv)
    update = conv.update()
    update.split(x, xv, xi, r.lanes).reorder(t.x, xi, xv).atomic()
    update.vectorize(xi).vectorize(t.x).unroll(xv)
    if r.computed_taps:
        assert isinstance(taps, hl.Func)
        taps.compute_at(out, xo).store_in(SHARED).vectorize(x, 8)
    _stage(image, conv, out, r, produced, xo, yi)
    return out


def _source(
    image: hl.ImageParam, r: Row, x: hl.Var, y: hl.Var
) -> tuple[hl.Func | hl.ImageParam, hl.Func | None]:
    if r.staged not in ("cast", "scale"):
        return image, None
    produced = hl.Func("produced")
    value = image[x, y] * 0.25 - 0.5 if r.staged == "scale" else image[x, y]
    produced[x, y] = hl.cast(r.types[0], value)
    return produced, produced


def _stage(
    image: hl.ImageParam,
    conv: hl.Func,
    out: hl.Func,
    r: Row,
    produced: hl.Func | None,
    xo: hl.Var,
    yi: hl.Var,
) -> None:
    if r.staged == "":
        return
    staged = image.in_(conv) if produced is None else produced
    u, v = staged.args()
    width = -(-r.reach // 16) * 16 if r.rounded else r.reach
    staged.store_in(SHARED).bound_extent(u, width).vectorize(u)
    if r.staged == "warp":
        staged.compute_at(out, yi)
    else:
        staged.compute_at(out, xo).bound_extent(v, r.rows).vectorize(v)


@dataclass(frozen=True)
class Plane:
    """A convolution along x and y."""

    taps: int = 5
    stride: int = 1
    lanes: int = 128
    rows: int = 2
    warps: int = 2
    tap_rows: str = "serial"  # "serial", "unrolled", "some"
    stages: int = 1
    staged: str = "block"  # "block", "row", ""
    epilogue: Epilogue = identity
    types: tuple[hl.Type, hl.Type] = (F16, F32)


def plane_convolution(p: Plane) -> hl.Func:
    x, y, xo, xi, yo, yw, yi = variables("x y xo xi yo yw yi")
    operand, accumulator = p.types
    image, weights = hl.ImageParam(operand, 2, "I"), hl.ImageParam(operand, 2, "K")
    r = hl.RDom([(0, p.taps), (0, p.taps)], "r")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.cast(accumulator, 0)
    window = image[x * p.stride + r.x, y * p.stride + r.y]
    conv[x, y] += hl.cast(accumulator, weights[r.x, r.y]) * hl.cast(accumulator, window)
    out[x, y] = p.epilogue(conv[x, y], x, y)
    out.split(x, xo, xi, p.lanes).split(y, yo, yi, p.rows * p.warps).split(yi, yw, yi, p.rows)
    out.reorder(xi, yi, yw, xo, yo).vectorize(xi).unroll(yi).gpu_blocks(xo, yo).gpu_threads(yw)
    conv.bound_extent(x, p.lanes).bound_extent(y, p.rows).compute_at(out, yw)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.vectorize(x).unroll(y)
    update = conv.update()
    if p.tap_rows == "some":
        to, ti = hl.RVar("to"), hl.RVar("ti")
        update.split(r.y, to, ti, 2).reorder(r.x, x, y, ti, to).unroll(ti)
    else:
        update.reorder(r.x, x, y, r.y)
    update.atomic().vectorize(x).vectorize(r.x).unroll(y)
    if p.tap_rows == "unrolled":
        update.unroll(r.y)
    if p.staged:
        staged = image.in_(conv)
        u, v = staged.args()
        width = -(-(p.stride * (p.lanes - 1) + p.taps) // 8) * 8
        height = p.stride * (p.rows * p.warps - 1) + p.taps
        staged.store_in(SHARED).compute_at(out, xo)
        staged.bound_extent(u, width).bound_extent(v, height).vectorize(u).vectorize(v)
    return out


def rows_in_a_loop(stages: int, segments: int = 4, taps: int = 24) -> hl.Func:
    """Groups of rows one after the other in a block, their input ``stages`` groups ahead."""
    x, y, xo, xi, yo, ys, yi = variables("x y xo xi yo ys yi")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    t = hl.RDom([(0, taps)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(weights[t.x]) * hl.f32(image[x + t.x, y])
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, 128).split(y, yo, yi, 2 * segments).split(yi, ys, yi, 2)
    out.reorder(xi, yi, ys, xo, yo).vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.bound_extent(x, 128).compute_at(out, yi).vectorize(x)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.update().reorder(t.x, x).atomic().vectorize(x).vectorize(t.x)
    staged = image.in_(conv)
    u, v = staged.args()
    staged.compute_at(out, ys).store_in(SHARED).bound_extent(u, -(-(127 + taps) // 8) * 8)
    staged.bound_extent(v, 2).vectorize(u).vectorize(v)
    if stages > 1:
        hb.pipeline_stages(staged, stages)
    return out


def post_blur(where: str) -> hl.Func:
    """The result of a convolution goes through shared memory into a stencil of the same kernel."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    t = hl.RDom([(0, 16)], "t")
    conv, kept, out = hl.Func("conv"), hl.Func("kept"), hl.Func("out")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(weights[t.x]) * hl.f32(image[x + t.x, y])
    kept[x, y] = hl.max(conv[x, y], 0.0)
    out[x, y] = kept[x, y] + kept[x + 1, y] * 0.5 + kept[x, y + 1] * 0.25
    out.split(x, xo, xi, 120).split(y, yo, yi, 3).reorder(xi, yi, xo, yo).gpu_blocks(xo, yo)
    if where == "threads":
        out.gpu_threads(yi)
    kept.compute_at(out, xo).store_in(SHARED).bound_extent(x, 128).bound_extent(y, 4)
    kept.vectorize(x).gpu_threads(y)
    conv.bound_extent(x, 128).compute_at(kept, y).vectorize(x)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.update().reorder(t.x, x).atomic().vectorize(x).vectorize(t.x)
    return out


def before_and_after() -> hl.Func:
    """A producer with a reduction before the convolution, and a second kernel after it."""
    x, y, xo, xi, yo, yi, u, v = variables("x y xo xi yo yi u v")
    image, weights = hl.ImageParam(F32, 2, "I"), hl.ImageParam(F16, 1, "K")
    t, s = hl.RDom([(0, 16)], "t"), hl.RDom([(0, 3)], "s")
    smooth, source = hl.Func("smooth"), hl.Func("source")
    conv, middle, out = hl.Func("conv"), hl.Func("middle"), hl.Func("out")
    smooth[x, y] = hl.f32(0.0)
    smooth[x, y] += image[x, y + s.x] / 3
    source[x, y] = hl.cast(F16, smooth[x, y])
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(weights[t.x]) * hl.f32(source[x + t.x, y])
    middle[x, y] = conv[x, y]
    out[x, y] = middle[x, y] - middle[x + 1, y + 1]
    out.gpu_tile(x, y, xo, yo, xi, yi, 32, 4)
    middle.compute_root().split(x, u, xi, 128).split(y, v, yi, 2).reorder(xi, yi, u, v)
    middle.vectorize(xi).gpu_blocks(u, v).gpu_threads(yi)
    conv.bound_extent(x, 128).compute_at(middle, yi).vectorize(x)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.update().reorder(t.x, x).atomic().vectorize(x).vectorize(t.x)
    a, b = source.args()
    source.compute_at(middle, u).store_in(SHARED).bound_extent(a, 144).bound_extent(b, 2)
    source.vectorize(a).vectorize(b)
    smooth.compute_at(middle, u).store_in(SHARED).bound_extent(x, 144).bound_extent(y, 2)
    smooth.vectorize(x).vectorize(y)
    smooth.update().reorder(s.x, x, y).vectorize(x).vectorize(y).unroll(s.x)
    return out


def two_accumulators(same_input: bool) -> hl.Func:
    """Two convolutions of one kernel, combined in its epilogue."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    other, second = hl.ImageParam(F16, 2, "J"), hl.ImageParam(F16, 1, "L")
    t = hl.RDom([(0, 16)], "t")
    one, two, out = hl.Func("one"), hl.Func("two"), hl.Func("out")
    for f, taps, source in ((one, weights, image), (two, second, image if same_input else other)):
        f[x, y] = hl.f32(0.0)
        f[x, y] += hl.f32(taps[t.x]) * hl.f32(source[x + t.x, y])
    out[x, y] = hl.sqrt(one[x, y] * one[x, y] + two[x, y] * two[x, y])
    out.split(x, xo, xi, 128).split(y, yo, yi, 2).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    for f in (one, two):
        f.bound_extent(x, 128).compute_at(out, yi).vectorize(x)
        hb.store_in(f, hb.MemoryType.WMMAAccumulator)
        f.update().reorder(t.x, x).atomic().vectorize(x).vectorize(t.x)
    return out


def residual() -> hl.Func:
    """The output adds another image, and stores f16."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    rest = hl.ImageParam(F16, 2, "R")
    gain = hl.Param(F32, "gain")
    t = hl.RDom([(0, 16)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(weights[t.x]) * hl.f32(image[x + t.x, y])
    out[x, y] = hl.cast(F16, conv[x, y] * gain + hl.f32(rest[x, y]))
    out.split(x, xo, xi, 128).split(y, yo, yi, 2).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.bound_extent(x, 128).compute_at(out, yi).vectorize(x)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.update().reorder(t.x, x).atomic().vectorize(x).vectorize(t.x)
    return out


def downsampled_plane(stages: int = 1) -> hl.Func:
    return plane_convolution(Plane(stride=2, stages=stages))


def one_warp() -> hl.Func:
    """A kernel without thread loops: its block is one warp."""
    x, y, xo, xi = variables("x y xo xi")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    t = hl.RDom([(0, 12)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(weights[t.x]) * hl.f32(image[x + t.x, y])
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, 128).vectorize(xi).gpu_blocks(xo, y)
    conv.bound_extent(x, 128).compute_at(out, xo).vectorize(x)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.update().reorder(t.x, x).atomic().vectorize(x).vectorize(t.x)
    image.in_(conv).compute_at(out, xo).store_in(SHARED)
    return out


SIZES = ((513, 5), (512, 4), (131, 1))
SMALL = ((131, 3),)
HALF = 1e-3
BFLOAT = 1e-2


def _row(
    name: str, r: Row, sizes: tuple[tuple[int, ...], ...] = SMALL, tolerance: float = 2e-6
) -> Case:
    return Case(f"row_{name}", lambda: row_convolution(r), sizes, tensor=True, tolerance=tolerance)


def _gelu(v: hl.Expr) -> hl.Expr:
    cubic = v + hl.f32(0.044715) * v * v * v
    return 0.5 * v * (1 + hl.tanh(hl.f32(0.79788456) * cubic))


def _epilogues() -> Iterable[Case]:
    table: dict[str, Epilogue] = {
        "relu": lambda v, x, y: hl.max(v, 0.0),
        "clamp": lambda v, x, y: hl.clamp(v, -1.0, 1.0),
        "f16": lambda v, x, y: hl.cast(F16, v),
        "bf16": lambda v, x, y: hl.cast(BF16, v),
        "s8": lambda v, x, y: hl.i8(hl.clamp(v * 10, -128.0, 127.0)),
        "u8": lambda v, x, y: hl.saturating_cast(hl.UInt(8), v * 20 + 100),
        "s32": lambda v, x, y: hl.i32(hl.round(v * 100)),
        "f64": lambda v, x, y: hl.cast(hl.Float(64), v) * 2,
        "select": lambda v, x, y: hl.select((x + y) % 2 == 0, v, -v),
        "border": lambda v, x, y: hl.select((x < 3) | (y > 1), 0.0, v),
        "coordinates": lambda v, x, y: v * hl.f32(x) + hl.f32(y),
        "math": lambda v, x, y: hl.tanh(v) + hl.exp(-hl.abs(v)),
        "gelu": lambda v, x, y: _gelu(v),
        "bool": lambda v, x, y: v > 0.5,
        "twice": lambda v, x, y: v * v + v,
    }
    loose = {"f16": HALF, "bf16": BFLOAT, "s8": 0.02, "u8": 0.02, "s32": HALF, "bool": 1e-3}
    for name, epilogue in table.items():
        yield _row(f"epilogue_{name}", Row(epilogue=epilogue), SIZES, loose.get(name, 5e-6))


def _taps() -> Iterable[Case]:
    for taps in (2, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33):
        yield _row(f"taps_{taps}", Row(taps=taps, vectors=1))
    for taps in (3, 8, 17):
        yield _row(f"taps_{taps}_direct", Row(taps=taps, vectors=1, staged=""))


CONVOLUTIONS: list[Case] = [
    _row("staged", Row(), SIZES),
    _row("direct", Row(staged=""), SIZES),
    _row("warp", Row(staged="warp"), SIZES),
    _row("cast", Row(staged="cast"), SIZES, HALF),
    _row("scale", Row(staged="scale"), SIZES, HALF),
    _row("unrounded", Row(rounded=False), SIZES),
    _row("unrounded_warp", Row(rounded=False, staged="warp", taps=11), SIZES),
    _row("initial", Row(initial=True), SIZES),
    _row("computed_taps", Row(computed_taps=True), SIZES, HALF),
    _row("reverse", Row(reverse=True), SIZES),
    *(_row(f"stride_{s}", Row(stride=s, vectors=1)) for s in (2, 3, 4)),
    *(_row(f"stride_{s}_direct", Row(stride=s, vectors=1, staged="")) for s in (2, 3)),
    *(_row(f"dilation_{d}", Row(dilation=d, taps=8)) for d in (2, 3)),
    _row("stride_dilation", Row(stride=2, dilation=3, taps=5, vectors=1)),
    _row("bf16", Row(types=(BF16, F32)), SIZES),
    _row("s8", Row(types=(S8, S32)), SIZES, 0),
    _row("u8", Row(types=(U8, S32)), SIZES, 0),
    _row("s8_direct", Row(types=(S8, S32), staged="", taps=13), SIZES, 0),
    _row("f16_accumulator", Row(types=(F16, F16)), SIZES, 5e-3),
    _row("wide", Row(lanes=256, vectors=4, rows=4, taps=64), ((2049, 5), (1024, 4))),
    _row("long", Row(lanes=128, vectors=2, rows=1, taps=200), ((300, 3),)),
    *_epilogues(),
    *_taps(),
    *(
        Case(
            f"plane_{n}",
            lambda p=p: plane_convolution(p),
            ((131, 9), (128, 4)),
            True,
            tolerance=2e-6,
        )
        for n, p in {
            "serial": Plane(),
            "unrolled": Plane(tap_rows="unrolled"),
            "some": Plane(taps=6, tap_rows="some"),
            "direct": Plane(staged=""),
            "stride": Plane(stride=2),
            "two": Plane(taps=2),
            "relu": Plane(epilogue=lambda v, x, y: hl.max(v, 0.0)),
            "bf16": Plane(types=(BF16, F32)),
            "s8": Plane(types=(S8, S32)),
        }.items()
    ),
    *(
        Case(
            f"loop_{s}_{g}",
            lambda s=s, g=g: rows_in_a_loop(s, g),
            ((131, 19), (128, 16), (200, 3)),
            True,
            tolerance=2e-6,
        )
        for s, g in ((1, 4), (2, 4), (3, 4), (4, 4), (2, 1), (4, 2))
    ),
    Case("post_blur", lambda: post_blur(""), ((119, 5), (250, 7)), True, tolerance=2e-6),
    Case(
        "post_blur_threads",
        lambda: post_blur("threads"),
        ((119, 5), (250, 7)),
        True,
        tolerance=2e-6,
    ),
    Case("before_and_after", before_and_after, ((119, 5), (250, 7)), True, tolerance=HALF),
    Case("two_accumulators", lambda: two_accumulators(True), SIZES, True, tolerance=2e-6),
    Case(
        "two_accumulators_two_inputs", lambda: two_accumulators(False), SIZES, True, tolerance=2e-6
    ),
    Case("residual", residual, SIZES, True, scalars={"gain": 0.5}, tolerance=HALF),
    Case("one_warp", one_warp, SIZES, True, tolerance=2e-6),
]
