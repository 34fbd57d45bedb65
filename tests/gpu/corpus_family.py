"""Corpus: the convolution family and small products, from the corpus of variants, and fused ones.

The variants of ``tests/robustness`` that reach other parts of the emitter: bands of several phases,
reductions over two axes, loaded starts, taps of several accumulators, factors.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "robustness"))

import halide as hl
from corpus_case import Case, Shape, variables
from halide_tiles import GROUPS, upsampled
from halide_variants import Pipeline, around, rows
from machines import WMMA, Machine

import halide_bridge as hb

SHARED = hl.MemoryType.GPUShared
F16, F32 = hl.Float(16), hl.Float(32)

CHOSEN = (
    "upsampling", "plane", "block-sparse", "transform", "two filters", "channels", "stride 2, dil",
    "stride 3, dil", "every third", "taps counted", "factor from", "row, uneven", "starts from a",
    "window by div", "product, layout nn", "product, k through", "product, uneven",
)  # fmt: skip


def _case(p: Pipeline, m: Machine = WMMA, suffix: str = "", tolerance: float = 2e-6) -> Case:
    name = "variant_" + re.sub(r"\W+", "_", p.name + suffix)
    return Case(
        name, lambda: p.build(m), (p.size,), True, shapes=p.shapes, scalars=p.scalars,
        values=p.values, tolerance=tolerance,
    )  # fmt: skip


def _chosen() -> Iterator[Case]:
    for group in (rows, around, *GROUPS):
        for p in group():
            if p.name.startswith(CHOSEN) and not p.why and WMMA.name in p.machines:
                yield _case(p)


def _typed() -> Iterator[Case]:
    """Bands of several phases of every type."""
    for kinds, tolerance in (
        (("bfloat16", "bfloat16", "float32"), 2e-6), (("int8", "int8", "int32"), 0.0),
        (("uint8", "uint8", "int32"), 0.0), (("float16", "float16", "float16"), 1e-2),
    ):  # fmt: skip
        m = WMMA.with_types(*kinds)
        for s, lanes in ((2, 256), (3, 384)):
            p = Pipeline(
                f"upsampling by {s}", upsampled(s, 5, "div and mod", lanes), (lanes + 40, 3),
                lambda x, size: x["I"],
                lambda size, s=s: {"I": (-(-size[0] // s) + 4, size[1]), "K": (5 * s,)},
            )  # fmt: skip
            yield _case(p, m, f" of {kinds[0]} to {kinds[2]}", tolerance)


def upsampled_plane(s: int, taps: int, staged: bool) -> hl.Func:
    """Upsampling by s along both axes, phases innermost in the output: (px, x, py, y)."""
    x, y, px, py, xo, xi, yo, yi = variables("x y px py xo xi yo yi")
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 2, "K")
    t = hl.RDom([(0, taps), (0, taps)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[px, x, py, y] = hl.f32(0.0)
    tap = weights[s * t.x + px, s * t.y + py]
    conv[px, x, py, y] += hl.f32(image[x + t.x, y + t.y]) * hl.f32(tap)
    out[px, x, py, y] = conv[px, x, py, y]
    out.bound(px, 0, s).bound(py, 0, s).split(x, xo, xi, 128).split(y, yo, yi, 2)
    out.reorder(px, xi, py, yi, xo, yo).vectorize(px).vectorize(xi).unroll(py)
    out.gpu_blocks(xo, yo).gpu_threads(yi)
    conv.compute_at(out, yi).bound_extent(x, 128).bound(px, 0, s).bound(py, 0, s)
    conv.vectorize(px).vectorize(x).unroll(py)
    update = conv.update().reorder(t.x, px, x, py, t.y)
    update.atomic().vectorize(t.x).vectorize(px).vectorize(x).unroll(py)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    if staged:
        copy = image.in_(conv)
        u, v = copy.args()
        copy.compute_at(out, xo).store_in(SHARED).bound_extent(u, -(-(127 + taps) // 8) * 8)
        copy.bound_extent(v, 1 + taps).vectorize(u).vectorize(v)
    return out


def transform_of_blocks() -> hl.Func:
    """D * X * D' of each 16 x 16 block, small bins dropped, and back again: four products in one
    kernel, with the values between them in shared memory."""
    i, j, bx, by = variables("i j bx by")
    image, matrix = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 2, "D")
    kept: hl.Func | None = None
    stages: list[tuple[hl.Func, hl.RDom]] = []
    copies: list[hl.Func] = []
    for number in range(4):
        k = hl.RDom([(0, 16)], f"k{number}")
        f = hl.Func(f"product{number}")
        columns, back = number % 2 == 0, number >= 2

        u, v, row = (i, k.x, j) if columns else (k.x, j, i)
        entry = matrix[row, k.x] if back else matrix[k.x, row]
        pixel = image[16 * bx + u, 16 * by + v] if kept is None else kept[u, v, bx, by]
        f[i, j, bx, by] = hl.f32(0.0)
        f[i, j, bx, by] += hl.f32(pixel) * hl.f32(entry)
        stages.append((f, k))
        if number < 3:
            stored = hl.Func(f"kept{number}")
            bins = f[i, j, bx, by]
            if number == 1:
                bins = hl.select(hl.abs(bins) < 1.0, 0.0, bins)
            stored[i, j, bx, by] = hl.cast(F16, bins)
            copies.append(stored)
            kept = stored
    out = hl.Func("out")
    out[i, j, bx, by] = stages[-1][0][i, j, bx, by]
    out.bound(i, 0, 16).bound(j, 0, 16).vectorize(i).vectorize(j).gpu_blocks(bx, by)
    for f, k in stages:
        f.compute_at(out, bx).bound_extent(i, 16).bound_extent(j, 16).vectorize(i).vectorize(j)
        f.update().reorder(k.x, i, j).atomic().vectorize(k.x).vectorize(i).vectorize(j)
        hb.store_in(f, hb.MemoryType.WMMAAccumulator)
    for copy in copies:
        copy.compute_at(out, bx).store_in(SHARED).bound_extent(i, 16).bound_extent(j, 16)
        copy.vectorize(i).vectorize(j)
    return out


def _planes(size: Shape, s: int, taps: int) -> dict[str, Shape]:
    return {"I": (size[1] + taps - 1, size[3] + taps - 1), "K": (s * taps, s * taps)}


FAMILY: list[Case] = [
    *_chosen(),
    *_typed(),
    *(
        Case(
            f"upsampled_plane_{s}_{'staged' if staged else 'direct'}",
            lambda s=s, staged=staged: upsampled_plane(s, 4, staged),
            ((s, 131, s, 3),),
            True,
            shapes=lambda size, s=s: _planes(size, s, 4),
            tolerance=2e-6,
        )
        for s in (2, 3)
        for staged in (True, False)
    ),
    Case(
        "transform_of_blocks",
        transform_of_blocks,
        ((16, 16, 3, 2),),
        True,
        shapes=lambda size: {"I": (16 * size[2], 16 * size[3]), "D": (16, 16)},
        tolerance=2e-3,
    ),
]
