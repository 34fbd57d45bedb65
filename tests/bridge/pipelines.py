"""Pipelines that the bridge's tests lower: algorithm and schedule together, small enough to read.

Every function returns fresh Funcs. The accumulators are not placed in a tensor unit before
``mark``, so that stock Halide's own lowering of the same schedule can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import halide as hl

import halide_bridge as hb

WMMA = hb.MemoryType.WMMAAccumulator
SHARED = hl.MemoryType.GPUShared
HALF = hl.Float(16)


@dataclass
class Case:
    """What a test needs to lower a pipeline and to compute it by other means."""

    outputs: list[hl.Func]
    inputs: list[hl.ImageParam]
    marked: list[hl.Func] = field(default_factory=lambda: list[hl.Func]())
    target: str = "sm_90a"

    def mark(self, kind: hb.MemoryType = WMMA) -> Case:
        for func in self.marked:
            hb.store_in(func, kind)
        return self


def variables(names: str) -> list[hl.Var]:
    return [hl.Var(n) for n in names.split()]


def conv1d(
    k: int,
    *,
    lanes: int = 256,
    tiles: int = 4,
    rows: int = 4,
    staged: bool = True,
    kind: hl.Type = HALF,
) -> Case:
    """Valid 1-D convolution; one warp per row, ``tiles`` vectors of ``lanes`` outputs each."""
    x, y, xo, xi, xw, yo, yi = variables("x y xo xi xw yo yi")
    image, taps = hl.ImageParam(kind, 2, "I"), hl.ImageParam(kind, 1, "K")
    rx = hl.RDom([(0, k)], "rx")
    conv, out = hl.Func("conv"), hl.Func("output")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(taps[rx.x]) * hl.f32(image[x + rx.x, y])
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, lanes * tiles).split(xi, xw, xi, lanes).split(y, yo, yi, rows)
    out.reorder(xi, xw, yi, xo, yo).vectorize(xi).unroll(xw).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.compute_at(out, xw).vectorize(x)
    conv.update().reorder(rx.x, x).atomic().vectorize(x, lanes).vectorize(rx.x)
    if staged:
        image.in_(conv).compute_at(out, xo).store_in(SHARED)
    return Case([out], [image, taps], [conv])


def conv1d_paper(k: int) -> Case:
    """The paper's schedule (section V-A): segments of 256 pixels, tap chunks of 8, unrolled."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, taps = hl.ImageParam(hl.Float(16), 2, "I"), hl.ImageParam(hl.Float(16), 1, "K")
    rx = hl.RDom([(0, k)], "rx")
    rxo, rxi = hl.RVar("rxo"), hl.RVar("rxi")
    conv, out = hl.Func("conv"), hl.Func("output")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(taps[rx.x]) * hl.f32(image[x + rx.x, y])
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, 256).split(y, yo, yi, 4).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.compute_at(out, yi).vectorize(x)
    conv.update().split(rx.x, rxo, rxi, 8).reorder(rxi, x, rxo)
    conv.update().atomic().vectorize(x).vectorize(rxi).unroll(rxo)
    return Case([out], [image, taps], [conv])


def conv2d(
    k: int, *, tiles: int = 1, rows: int = 4, lanes: int = 256, kind: hl.Type = HALF
) -> Case:
    """Valid 2-D convolution: ry serial, the ``rows`` rows of a warp share a Toeplitz matrix."""
    x, y, xo, xi, yo, yi, yw, ywi, xw = variables("x y xo xi yo yi yw ywi xw")
    image, taps = hl.ImageParam(kind, 2, "I"), hl.ImageParam(kind, 2, "K")
    r = hl.RDom([(0, k), (0, k)], "r")
    conv, out = hl.Func("conv"), hl.Func("output")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(taps[r.x, r.y]) * hl.f32(image[x + r.x, y + r.y])
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, lanes * tiles).split(xi, xw, xi, lanes)
    out.split(y, yo, yi, 4 * rows).split(yi, yw, ywi, rows)
    out.reorder(xi, xw, ywi, yw, xo, yo).vectorize(xi).unroll(xw).unroll(ywi)
    out.gpu_blocks(xo, yo).gpu_threads(yw)
    conv.compute_at(out, yw).split(x, xw, xi, lanes).reorder(xi, xw, y)
    conv.vectorize(xi).unroll(xw).unroll(y)
    conv.update().split(x, xw, xi, lanes).reorder(r.x, xi, xw, y, r.y)
    conv.update().atomic().vectorize(xi).vectorize(r.x).unroll(xw).unroll(y)
    image.in_(conv).compute_at(out, xo).store_in(SHARED)
    return Case([out], [image, taps], [conv])


@dataclass(frozen=True)
class GemmTypes:
    operand: hl.Type
    accumulator: hl.Type


F16 = GemmTypes(HALF, hl.Float(32))
BF16 = GemmTypes(hl.BFloat(16), hl.Float(32))
S8 = GemmTypes(hl.Int(8), hl.Int(32))
U8 = GemmTypes(hl.UInt(8), hl.Int(32))
F32 = GemmTypes(hl.Float(32), hl.Float(32))


def _product(types: GemmTypes, k: int | None) -> tuple[Case, hl.Func, hl.RDom, hl.Var, hl.Var]:
    n, m = variables("n m")
    a, b = hl.ImageParam(types.operand, 2, "A"), hl.ImageParam(types.operand, 2, "B")
    r = hl.RDom([(0, a.width() if k is None else k)], "r")
    mm, out = hl.Func("mm"), hl.Func("C")
    mm[n, m] = hl.cast(types.accumulator, 0)
    mm[n, m] += hl.cast(types.accumulator, a[r.x, m]) * hl.cast(types.accumulator, b[n, r.x])
    out[n, m] = mm[n, m]
    return Case([out], [a, b], [mm]), mm, r, n, m


def gemm_simple(
    types: GemmTypes = F16, *, k: int | None = None, tile: tuple[int, int] = (16, 16)
) -> Case:
    """Operands straight from the buffers; each warp computes 32 x 64 in register-blocked tiles."""
    case, mm, r, n, m = _product(types, k)
    (out,) = case.outputs
    no, mo, ni, mi, nw, mw, nt, mt = variables("no mo ni mi nw mw nt mt")
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    out.tile(n, m, no, mo, ni, mi, 128, 128).tile(ni, mi, nw, mw, ni, mi, 32, 64)
    out.tile(ni, mi, nt, mt, ni, mi, *tile).reorder(ni, mi, nt, mt, nw, mw, no, mo)
    out.vectorize(ni).vectorize(mi).unroll(nt).unroll(mt).gpu_blocks(no, mo).gpu_threads(nw, mw)
    mm.compute_at(out, nw).vectorize(n, tile[0]).vectorize(m, tile[1])
    mm.update().split(r.x, ro, ri, 16).tile(n, m, nt, mt, ni, mi, *tile)
    mm.update().reorder(ri, ni, mi, nt, mt, ro).atomic()
    mm.update().vectorize(ri).vectorize(ni).vectorize(mi).unroll(nt).unroll(mt)
    return case


def gemm_staged(
    types: GemmTypes = F16,
    *,
    k: int | None = None,
    tile: tuple[int, int] = (16, 16),
    step: int = 32,
) -> Case:
    """A and B staged per ``step`` of the reduction; 8 warps of 32 x 64 in a 128 x 128 block."""
    case, mm, r, n, m = _product(types, k)
    (out,) = case.outputs
    a, b = case.inputs
    no, mo, ni, mi, nw, mw, nt, mt = variables("no mo ni mi nw mw nt mt")
    ro, ri, rt, rii = (hl.RVar(v) for v in ("ro", "ri", "rt", "rii"))

    def block(stage: hl.Func | hl.Stage) -> None:
        stage.tile(n, m, nw, mw, ni, mi, 32, 64).tile(ni, mi, nt, mt, ni, mi, *tile)

    out.tile(n, m, no, mo, n, m, 128, 128)
    block(out)
    out.reorder(ni, mi, nt, mt, nw, mw, no, mo).vectorize(ni).vectorize(mi).unroll(nt).unroll(mt)
    out.gpu_blocks(no, mo).gpu_threads(nw, mw)
    mm.compute_at(out, no)
    block(mm)
    mm.reorder(ni, mi, nt, mt, nw, mw).vectorize(ni).vectorize(mi).unroll(nt).unroll(mt)
    mm.gpu_threads(nw, mw)
    update = mm.update()
    update.split(r.x, ro, ri, step).split(ri, rt, rii, 16)
    block(update)
    update.reorder(rii, ni, mi, nt, mt, rt, nw, mw, ro).atomic()
    update.vectorize(rii).vectorize(ni).vectorize(mi).unroll(nt).unroll(mt).unroll(rt)
    update.gpu_threads(nw, mw)
    for operand in (a, b):
        operand.in_(mm).compute_at(mm, ro).store_in(SHARED)
    return case


def matmul_paper() -> Case:
    """The paper's MatMul (section III-A): 16 x 16 tiles, all 32 of r in one statement."""
    x, y, xi, yi = variables("x y xi yi")
    a, b = hl.ImageParam(hl.BFloat(16), 2, "A"), hl.ImageParam(hl.BFloat(16), 2, "B")
    r = hl.RDom([(0, 32)], "r")
    mm, out = hl.Func("mm"), hl.Func("matmul")
    mm[y, x] = hl.f32(0.0)
    mm[y, x] += hl.f32(a[r.x, x]) * hl.f32(b[y, r.x])
    out[y, x] = mm[y, x]
    out.bound(x, 0, 32).bound(y, 0, 16)
    out.tile(y, x, yi, xi, 16, 16).vectorize(yi).vectorize(xi)
    mm.compute_at(out, y).vectorize(y, 16).vectorize(x, 16)
    mm.update().reorder(r.x, y, x).atomic().vectorize(r.x).vectorize(y, 16).vectorize(x, 16)
    return Case([out], [a, b], [mm], target="amx")


def downsample(k: int, kind: hl.Type = HALF) -> Case:
    """Stride-2 2-D convolution, ry serial."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, taps = hl.ImageParam(kind, 2, "I"), hl.ImageParam(kind, 2, "K")
    r = hl.RDom([(0, k), (0, k)], "r")
    conv, out = hl.Func("conv"), hl.Func("output")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(taps[r.x, r.y]) * hl.f32(image[2 * x + r.x, 2 * y + r.y])
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, 256).split(y, yo, yi, 4).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.compute_at(out, yi).vectorize(x)
    conv.update().reorder(r.x, x, y, r.y).atomic().vectorize(x).vectorize(r.x)
    return Case([out], [image, taps], [conv])


def upsample(k: int, kind: hl.Type = HALF) -> Case:
    """Two phases a row, stored innermost; k/2 taps a phase."""
    p, x, y, xo, xi, yo, yi = variables("p x y xo xi yo yi")
    image, taps = hl.ImageParam(kind, 2, "I"), hl.ImageParam(kind, 2, "K")
    r = hl.RDom([(0, k // 2)], "r")
    conv, out = hl.Func("conv"), hl.Func("output")
    conv[p, x, y] = hl.f32(0.0)
    conv[p, x, y] += hl.f32(image[x + r.x, y]) * hl.f32(taps[p, r.x])
    out[p, x, y] = conv[p, x, y]
    out.bound(p, 0, 2).split(x, xo, xi, 128).split(y, yo, yi, 4).reorder(p, xi, yi, xo, yo)
    out.vectorize(p).vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.compute_at(out, yi).vectorize(p).vectorize(x)
    conv.update().reorder(r.x, p, x).atomic().vectorize(r.x).vectorize(p).vectorize(x)
    return Case([out], [image, taps], [conv])


def bias_relu(k: int) -> Case:
    """A convolution with an element-wise tail: bias, ReLU, f16 out."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, taps = hl.ImageParam(hl.Float(16), 2, "I"), hl.ImageParam(hl.Float(16), 1, "K")
    bias = hl.ImageParam(hl.Float(32), 1, "bias")
    rx = hl.RDom([(0, k)], "rx")
    conv, out = hl.Func("conv"), hl.Func("output")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(taps[rx.x]) * hl.f32(image[x + rx.x, y])
    out[x, y] = hl.cast(hl.Float(16), hl.max(conv[x, y] + bias[x], 0.0))
    out.split(x, xo, xi, 256).split(y, yo, yi, 2).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.compute_at(out, yi).vectorize(x)
    conv.update().reorder(rx.x, x).atomic().vectorize(x).vectorize(rx.x)
    return Case([out], [image, taps, bias], [conv])


EXAMPLES = {
    **{f"conv1d_k{k}": lambda k=k: conv1d(k) for k in (8, 16, 32, 64, 128)},
    "conv1d_k256": lambda: conv1d(256, lanes=128, tiles=4),
    "conv1d_k64_direct": lambda: conv1d(64, staged=False),
    "conv1d_k64_paper": lambda: conv1d_paper(64),
    "conv2d_k16": lambda: conv2d(16),
    "conv2d_k32": lambda: conv2d(32),
    "gemm_f16_staged": lambda: gemm_staged(F16),
    "gemm_f16_staged_wide": lambda: gemm_staged(F16, tile=(32, 64)),
    "gemm_bf16_staged": lambda: gemm_staged(BF16),
    "gemm_s8_staged": lambda: gemm_staged(S8),
    "gemm_u8_staged": lambda: gemm_staged(U8),
    "gemm_f16_simple": lambda: gemm_simple(F16),
    "gemm_f16_simple_wide": lambda: gemm_simple(F16, tile=(32, 64)),
    "gemm_f16_simple_k256": lambda: gemm_simple(F16, k=256),
    "matmul_paper": matmul_paper,
    "downsample_k16": lambda: downsample(16),
    "upsample_k16": lambda: upsample(16),
    "bias_relu_k16": lambda: bias_relu(16),
}
