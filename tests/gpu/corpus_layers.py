"""Corpus: convolutions over channels on warpgroups, whose products read windows of a staged image
in place, row by row from any pixel; results leave from inside the loop that stages it. With a
stride, pixels are dealt out into planes as they are staged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

import halide as hl
from corpus_case import Case, Shape, variables

import halide_bridge as hb

SHARED = hl.MemoryType.GPUShared
F16, F32, BF16 = hl.Float(16), hl.Float(32), hl.BFloat(16)
PIXELS, DEPTH, WIDE = 64, 16, 32


@dataclass(frozen=True)
class Windows:
    """``out[c, x, y] = f(sum I[i, x + s, y + t] * K[c, i, s, t])``, taps ``dilation`` and outputs
    ``stride`` pixels apart: ``channels`` in and out, ``taps`` s and t; ``rows`` of a group,
    ``groups`` below each other, ``strips`` of them one after the other with ``stages`` of the image
    in shared memory; ``blocks`` of a multiprocessor do the work of all.
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
    stride: int = 1
    dilation: int = 1
    border: int = 0  # zeros around the image
    whole: int = 8  # that the columns of a plane are a multiple of, as swizzles are

    @property
    def down(self) -> int:
        """Staged rows from one row of outputs to the next: one tap needs none between."""
        return self.stride if self.taps[1] > 1 else 1

    @property
    def planes(self) -> int:
        """How many of the pixels between two outputs meet a tap."""
        return min(self.stride // gcd(self.stride, self.dilation), self.taps[0])

    def reach(self, outputs: int, taps: int) -> int:
        """Pixels of the image, or its rows, that so many outputs need."""
        pixels = self.stride * (outputs - 1) + self.dilation * (taps - 1) + 1
        return pixels - 2 * self.border + (self.stride - 1) * self.copied


def rounded(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def convolution(p: Windows, change: Callable[[hl.Func], object] = lambda staged: None) -> hl.Func:
    """``change`` has the last word on how the image is staged."""
    c, x, y, xo, xi, yo, yb, ys, yi, yw, co, ci = variables("c x y xo xi yo yb ys yi yw co ci")
    image, weights = hl.ImageParam(p.types[0], 3, "I"), hl.ImageParam(p.types[0], 4, "K")
    conv, out = hl.Func("conv"), hl.Func("out")
    inputs, outputs = p.channels
    r = hl.RDom([(0, inputs), (0, p.taps[0]), (0, p.taps[1])], "r")
    conv[c, x, y] = 0.0
    planes = None if p.stride == 1 else _planes(p, image)
    at = p.dilation * r.y, y * p.down + p.dilation * r.z
    if planes is None:
        pixel = image[r.x, x + at[0], at[1]]
    else:
        pixel = planes[r.x, x + at[0] // p.stride, at[1], at[0] % p.stride]
    conv[c, x, y] += hl.f32(pixel) * hl.f32(weights[c, r.x, r.y, r.z])
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
    high = p.down * (height - 1) + p.dilation * (p.taps[1] - 1) + 1
    windows = (channels, PIXELS + p.dilation * (p.taps[0] - 1), high)
    source = _aligned(image.in_(planes or conv)) if p.copied else image
    if planes is not None:
        columns = PIXELS + p.dilation * (p.taps[0] - 1) // p.stride
        windows = (channels, rounded(columns, p.whole), high, p.planes)
    staged = _copied((planes or source.in_(conv)).compute_at(out, ys), windows)
    change(staged)
    if p.stages > 1:
        hb.pipeline_stages(staged, p.stages)
    _copied(weights.in_(conv).compute_at(out, xo), (filters, channels, *p.taps))
    return hb.persistent(out, p.blocks) if p.blocks else out


def _planes(p: Windows, image: hl.ImageParam) -> hl.Func:
    """The pixels of a row dealt out; what lies beside the image is zero."""
    c, x, y, q = variables("c x y q")
    planes, zero = hl.Func("planes"), hl.cast(p.types[0], 0)
    column, row = p.stride * x + q, y * (p.stride // p.down)
    width, height = image.dim(1).extent(), image.dim(2).extent()
    if p.border:
        ends = [(hl.Expr(), hl.Expr()), (0, width), (0, height)]
        wide = hl.BoundaryConditions.constant_exterior(image, zero, ends)
        planes[c, x, y, q] = wide[c, column - p.border, row - p.border]
    elif p.copied:
        planes[c, x, y, q] = image[c, column, row]
    else:  # the last plane of an odd width has a pixel less
        there = image[c, hl.min(column, width - 1), row]
        planes[c, x, y, q] = hl.select(column < width, there, zero)
    return planes


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
    inputs, outputs = p.channels
    return {
        "I": (inputs, *map(p.reach, size[1:], p.taps)),
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
    "apart": Windows((32, 16), dilation=3),
    "stride": Windows((64, 32), strips=2, stride=2, groups=1),  # 128 bytes
    "stride_rows": Windows((16, 32), rows=2, stride=2),
    "stride_more": Windows((80, 16), (2, 2), groups=1, stride=2),
    "stride_bf16": Windows((32, 16), types=(BF16, F32), stride=2),
    "stride_lasting": Windows((16, 32), strips=2, blocks=1, stride=2),
    "stride_unmapped": Windows((3, 12), stride=2),
    "stride_aligned": Windows((20, 20), strips=2, stride=2, copied=True),
    "stride_border": Windows((32, 32), strips=2, stride=2, border=1, groups=1),
    "stride_1x1": Windows((64, 64), (1, 1), stride=2, stages=3),
    "stride_apart": Windows((16, 16), stride=2, dilation=3),
    "stride_even": Windows((32, 32), stride=2, dilation=2),  # one plane
    "stride_3": Windows((16, 24), (5, 2), stride=3),
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
