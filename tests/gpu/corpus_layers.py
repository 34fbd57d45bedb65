"""Corpus: convolutions over channels on warpgroups, whose products read windows of a staged image
in place, row by row from any pixel; results leave from inside the loop that stages it.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl
from corpus_case import Case, Shape, variables

import halide_bridge as hb

SHARED = hl.MemoryType.GPUShared
F16, F32, BF16 = hl.Float(16), hl.Float(32), hl.BFloat(16)
PIXELS, DEPTH, WIDE = 64, 16, 32


@dataclass(frozen=True)
class Windows:
    """``out[c, x, y] = f(sum I[i, x + s, y + t] * K[c, i, s, t])``: ``channels`` in and out,
    ``taps`` s and t; ``rows`` of a group, ``groups`` below each other, ``strips`` of them one after
    the other with ``stages`` of the image in shared memory; ``blocks`` of a multiprocessor do the
    work of all.
    """

    channels: tuple[int, int] = (32, 32)
    taps: tuple[int, int] = (3, 3)
    rows: int = 1
    groups: int = 2
    strips: int = 3
    stages: int = 2
    blocks: int = 0
    types: tuple[hl.Type, hl.Type] = (F16, F32)  # of the operands, of the result
    copied: bool = False  # the image before, into pixels of whole 16 bytes


def rounded(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def convolution(p: Windows) -> hl.Func:
    c, x, y, xo, xi, yo, yb, ys, yi, yw, co, ci = variables("c x y xo xi yo yb ys yi yw co ci")
    image, weights = hl.ImageParam(p.types[0], 3, "I"), hl.ImageParam(p.types[0], 4, "K")
    conv, out = hl.Func("conv"), hl.Func("out")
    inputs, outputs = p.channels
    r = hl.RDom([(0, inputs), (0, p.taps[0]), (0, p.taps[1])], "r")
    conv[c, x, y] = 0.0
    conv[c, x, y] += hl.f32(image[r.x, x + r.y, y + r.z]) * hl.f32(weights[c, r.x, r.y, r.z])
    out[c, x, y] = hl.cast(p.types[1], hl.max(conv[c, x, y], 0.0))

    filters, channels = rounded(outputs, 8), rounded(inputs, DEPTH)
    wide = next(n for n in (WIDE, 24, 16, 8) if filters % n == 0)
    height = p.rows * p.groups
    out.bound(c, 0, outputs).split(c, co, ci, wide).split(x, xo, xi, PIXELS)
    out.split(y, yo, yb, height * p.strips).split(yb, ys, yi, height).split(yi, yw, yi, p.rows)
    out.reorder(ci, xi, co, yi, yw, ys, xo, yo).vectorize(ci).vectorize(xi).unroll(co).unroll(yi)
    out.gpu_blocks(xo, yo).gpu_threads(yw)
    hb.store_in(conv.compute_at(out, yw), hb.MemoryType.WGMMAAccumulator)
    conv.bound_extent(c, filters).bound_extent(x, PIXELS).bound_extent(y, p.rows)
    conv.split(c, co, ci, wide).reorder(ci, x, co, y).vectorize(ci).vectorize(x)
    conv.unroll(co).unroll(y)
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    update = conv.update().split(c, co, ci, wide).split(r.x, ro, ri, DEPTH)
    update.reorder(ri, ci, x, co, y, ro, r.y, r.z).atomic()
    update.vectorize(ri).vectorize(ci).vectorize(x)
    update.unroll(co).unroll(y).unroll(ro).unroll(r.y).unroll(r.z)
    windows = (channels, PIXELS + p.taps[0] - 1, height + p.taps[1] - 1)
    source = _aligned(image.in_(conv)) if p.copied else image
    staged = _copied(source.in_(conv).compute_at(out, ys), windows)
    if p.stages > 1:
        hb.pipeline_stages(staged, p.stages)
    _copied(weights.in_(conv).compute_at(out, xo), (filters, channels, *p.taps))
    return hb.persistent(out, p.blocks) if p.blocks else out


def _aligned(copy: hl.Func) -> hl.Func:
    """A kernel's own copy, whose rows have constant length, a multiple of 16 bytes."""
    c, x, y = copy.args()
    co, ci, xo, xi = variables("co ci xo xi")
    copy.compute_root().align_storage(c, 8).split(c, co, ci, 8).split(x, xo, xi, 64)
    copy.reorder(ci, co, xi, xo, y).vectorize(ci).gpu_threads(xi).gpu_blocks(xo, y)
    return copy


def _copied(staged: hl.Func, extents: tuple[int, ...]) -> hl.Func:
    staged.store_in(SHARED)
    for arg, extent in zip(staged.args(), extents, strict=True):
        staged.bound_extent(arg, extent)
    return staged.vectorize(staged.args()[0]).vectorize(staged.args()[1])


def _shapes(p: Windows, size: Shape) -> dict[str, Shape]:
    _, width, height = size
    inputs, outputs = p.channels
    return {
        "I": (inputs, width + p.taps[0] - 1, height + p.taps[1] - 1),
        "K": (outputs, inputs, *p.taps),
    }


VARIANTS: dict[str, Windows] = {
    "narrow": Windows((16, 16)),  # rows of 32 bytes
    "middle": Windows(),  # 64
    "wide": Windows((64, 64), strips=2),  # 128
    "more": Windows((80, 16), (2, 2)),  # two panels
    "unmapped": Windows((3, 12)),  # rows that tensor maps cannot describe
    "rounded": Windows((40, 24), rows=2, groups=1),
    "bf16": Windows((32, 16), types=(BF16, F32)),
    "halves": Windows((16, 32), rows=2, stages=3, types=(F16, F16)),
    "flat": Windows((8, 8), (5, 1)),
    "lasting": Windows((16, 32), strips=2, blocks=1),
    "lasting_unmapped": Windows((3, 30), rows=2, blocks=2),
    "unstaged": Windows((16, 16), stages=1),
    "aligned": Windows((20, 20), copied=True),
    "aligned_few": Windows((3, 64), strips=2, blocks=1, copied=True),
}


def _cases() -> list[Case]:
    return [
        Case(
            f"layers_{name}",
            lambda p=p: convolution(p),
            tuple((p.channels[1], *size) for size in ((70, 13), (5, 2))),
            tensor=True,
            shapes=lambda s, p=p: _shapes(p, s),
            tolerance=1e-3 if p.types[1] == F16 else 3e-6,
            target="sm_90a",
        )
        for name, p in VARIANTS.items()
    ]


LAYERS = _cases()
