"""Corpus: convolutions on warpgroups, whose windows wgmma reads in raw rows of shared memory."""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl
from corpus_case import Case, Shape, variables

import halide_bridge as hb

SHARED = hl.MemoryType.GPUShared
F16, F32, BF16 = hl.Float(16), hl.Float(32), hl.BFloat(16)
WINDOWS = 64  # of one statement


@dataclass(frozen=True)
class Windows:
    """``out[x, y] = sum I[stride * x + t, step * y + s] * K[t, s]``, ``reverse``: taps against
    the image's order. A group computes ``rows`` rows, a block has ``groups``, and computes
    ``segments`` parts of a column one after the other, staged ``stages`` ahead. ``unrolled``: so
    are the rows of taps. ``part``: windows begin 8 pixels apart, whatever the stride. ``edges``:
    the image goes on beyond them, windows are centred. ``phases`` outputs of a pixel, with taps of
    their own; with ``own_taps`` every row has its own.
    """

    taps: int = 16
    tap_rows: int = 4
    rows: int = 4
    step: int = 1
    stride: int = 1
    reverse: bool = False
    unrolled: bool = False
    groups: int = 1
    segments: int = 1
    stages: int = 1
    types: tuple[hl.Type, hl.Type] = (F16, F32)
    edges: bool = False
    epilogue: bool = False
    part: bool = False
    phases: int = 1
    own_taps: bool = False

    @property
    def window(self) -> int:
        """Outputs of a window."""
        return 8 // self.stride if self.part else 8

    @property
    def outputs(self) -> int:
        """Of a statement."""
        return WINDOWS * self.window * self.phases

    @property
    def back(self) -> int:
        return self.taps // 2 - 1 if self.edges else 0

    @property
    def pitch(self) -> int:
        """Elements of a row that the windows reach."""
        lead = -self.back % (self.window * self.stride)
        depth = lead + self.taps + (self.window - 1) * self.stride
        reach = self.stride * self.window * (WINDOWS - 1) + 16 * -(-depth // 16)
        return -(-reach // 8) * 8


def windowed(p: Windows) -> hl.Func:
    x, y, xo, xi, yo, yi, ys, yw = variables("x y xo xi yo yi ys yw")
    operand, accumulator = p.types
    image, weights = hl.ImageParam(operand, 2, "I"), hl.ImageParam(operand, 2, "K")
    t = hl.RDom([(0, p.taps), (0, p.tap_rows)], "t")
    source: hl.Func | hl.ImageParam = image
    if p.edges:
        source = hl.BoundaryConditions.constant_exterior(image, hl.cast(operand, 0))
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.cast(accumulator, 0)
    row = p.tap_rows - 1 - t.y if p.reverse else t.y
    pixel, tap = (x, t.x) if p.phases == 1 else (x / p.phases, p.phases * t.x + x % p.phases)
    window = source[p.stride * pixel + t.x - p.back, p.step * y + row]
    conv[x, y] += hl.cast(accumulator, window) * hl.cast(
        accumulator, weights[tap, t.y + y if p.own_taps else t.y]
    )
    value = hl.f32(conv[x, y])
    out[x, y] = hl.max(value * 0.5, -1.0) if p.epilogue else value

    height = p.rows * p.groups
    out.split(x, xo, xi, p.outputs).split(y, yo, yi, height * p.segments)
    out.split(yi, ys, yi, height).split(yi, yw, yi, p.rows).reorder(xi, yi, yw, ys, xo, yo)
    out.vectorize(xi).unroll(yi).gpu_blocks(xo, yo).gpu_threads(yw)
    conv.bound_extent(x, p.outputs).bound_extent(y, p.rows).compute_at(out, yw)
    hb.store_in(conv, hb.MemoryType.WGMMAAccumulator)
    conv.vectorize(x).unroll(y)
    update = conv.update().reorder(t.x, x, y, t.y).atomic().vectorize(x).vectorize(t.x)
    if p.unrolled:
        update.unroll(y).unroll(t.y)
    staged = source.in_(conv)
    column, line = staged.args()
    staged.compute_at(out, ys).store_in(SHARED).vectorize(column)
    staged.align_bounds(column, 16) if p.edges else staged.bound_extent(column, p.pitch)
    staged.bound_extent(line, p.step * (height - 1) + p.tap_rows)
    if p.stages > 1:
        hb.pipeline_stages(staged, p.stages)
    return out


VARIANTS: dict[str, Windows] = {
    "plain": Windows(),
    "ring": Windows(groups=2, segments=3, stages=2, rows=8, tap_rows=5),
    "long": Windows(taps=32, tap_rows=3, groups=2, segments=2, stages=2),
    "odd": Windows(taps=7, tap_rows=7, rows=3, groups=3, segments=2, stages=3),
    "every_second_row": Windows(taps=9, tap_rows=6, step=2, groups=2),
    "every_second_output": Windows(taps=16, step=2, stride=2, groups=2, segments=2),
    "every_second_output_of_edges": Windows(taps=9, stride=2, segments=2, edges=True),
    "every_fourth_output": Windows(taps=6, stride=4, groups=3, tap_rows=2),
    "one_slot": Windows(groups=3, segments=3, rows=8, tap_rows=7),
    "reversed": Windows(reverse=True, groups=2, segments=2, stages=2),
    "unrolled": Windows(unrolled=True, tap_rows=3, groups=2),
    "edges": Windows(edges=True, segments=2, stages=2, groups=2),
    "bf16": Windows(types=(BF16, F32), segments=2, stages=2),
    "f16_sums": Windows(types=(F16, F16), segments=2, stages=2),
    "epilogue": Windows(epilogue=True, groups=2),
    "halves": Windows(stride=2, step=2, part=True),
    "halves_ring": Windows(
        stride=2, step=2, part=True, rows=8, tap_rows=16, groups=2, segments=2, stages=2
    ),
    "halves_of_odd_rows": Windows(
        taps=7, tap_rows=7, stride=2, step=2, part=True, rows=3, groups=3, segments=2, stages=2
    ),
    "halves_of_edges": Windows(
        taps=12, tap_rows=12, stride=2, step=2, part=True, segments=2, stages=2, edges=True
    ),
    "halves_of_every_row": Windows(taps=9, stride=2, part=True, rows=6, tap_rows=5),
    "halves_bf16": Windows(stride=2, step=2, part=True, types=(BF16, F32), groups=2, epilogue=True),
    "halves_f16_sums": Windows(stride=2, step=2, part=True, types=(F16, F16), segments=2, stages=2),
    "phases": Windows(taps=8, phases=2, groups=2, segments=2, stages=2),
    "four_phases": Windows(taps=5, phases=4, rows=3, tap_rows=3),
    "quarters": Windows(taps=10, tap_rows=6, stride=4, step=4, part=True, rows=5, groups=2),
}
SIZES: tuple[Shape, ...] = ((1024, 48), (517, 19), (1, 1))


def _shapes(p: Windows, size: Shape) -> dict[str, Shape]:
    width, height = size
    margin = 0 if p.edges else p.taps - 1
    columns = p.stride * -(-width // p.phases) + margin
    image = (-(-columns // 8) * 8, p.step * (height - 1) + p.tap_rows)
    return {"I": image, "K": (p.taps * p.phases, p.tap_rows)}


def _unaligned(p: Windows, size: Shape) -> dict[str, Shape]:
    shapes = _shapes(p, size)
    return {**shapes, "I": (shapes["I"][0] + 3, shapes["I"][1])}


GROUP_WINDOWS = [
    Case(
        f"group_windows_{name}{suffix}",
        lambda p=p: windowed(p),
        SIZES,
        tensor=True,
        shapes=lambda s, p=p, shapes=shapes: shapes(p, s),
        # A single output may be what is left of sums that cancel.
        tolerance=5e-3 if p.types[1] == F16 else 1e-5,
        target="sm_90a",
    )
    for name, p in VARIANTS.items()
    for suffix, shapes in (("", _shapes), ("_unaligned", _unaligned))
]
