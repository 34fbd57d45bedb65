"""The schedule for warpgroups (wgmma, sm_90a): an implicit matrix product.

For each tap, 64 pixels of a row times the weights of the tap are one product of pixels x channels
with channels x filters, read in place from the staged part of the image. The weights stay in shared
memory, the copy engine brings the image, strip by strip.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.conv_layer.algorithm import TAPS, Layer

UNIT = 8  # filters come in eights, the columns of an instruction
DEPTH = 16  # channels of one vector statement
PIXELS = 64  # of one vector statement, the rows of an instruction
FILTERS = 32  # of one vector statement, at most: Halide's vectors have at most 65535 lanes
SHARED = 220 << 10  # bytes of a block, nearly all that there is
ADDRESSES = 48  # registers of a lane for all but sums
STATEMENTS = 96  # of one tile, at most: more take too long to compile


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows of a group, groups of a block, one below the other; a block does ``strips`` such tiles
    down the image, with ``stages`` of them in shared memory, and ``blocks`` of a multiprocessor do
    all the work.
    """

    rows: int = 2
    groups: int = 4
    strips: int = 2
    stages: int = 2
    blocks: int = 1

    @property
    def height(self) -> int:
        return self.rows * self.groups


CANDIDATES = (Groups(), Groups(groups=2), Groups(rows=1, groups=4), Groups(rows=1, groups=2))


def groups_for(channels: int, filters: int) -> Groups | None:
    """The largest tile that shared memory and registers hold, and that is compiled in time; None if
    there is none.
    """
    runs, wide = rounded(channels, DEPTH) // DEPTH, rounded(filters, UNIT)
    for size in CANDIDATES:
        statements = size.rows * TAPS**2 * runs * (wide // vector(wide))
        sums, registers = size.rows * wide // 2, 65536 // (128 * (size.groups + 1)) // 8 * 8
        small = sums + ADDRESSES <= registers and statements <= STATEMENTS
        if small and shared_bytes(channels, filters, size) <= SHARED:
            return size
    return None


def shared_bytes(channels: int, filters: int, size: Groups) -> int:
    """What a block has in shared memory: rows of at least 32 bytes, a power of two or whole
    panels of 128 bytes, and a box of results for each warp.
    """
    pixel, row = (row_bytes(rounded(channels, DEPTH)), row_bytes(rounded(filters, UNIT)))
    image = (PIXELS + TAPS - 1) * (size.height + TAPS - 1) * pixel
    weights = TAPS**2 * rounded(channels, DEPTH) * row
    return size.stages * image + weights + size.groups * PIXELS * 128


def row_bytes(channels: int) -> int:
    """Of f16 values in swizzled panels."""
    bytes_ = 2 * channels
    return next((w for w in (32, 64) if bytes_ <= w), rounded(bytes_, 128))


def vector(filters: int) -> int:
    """Filters of one vector statement."""
    return next(n for n in (FILTERS, 24, 16, UNIT) if filters % n == 0)


def rounded(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def warpgroups(p: Layer, groups: Groups | None = None) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    size = groups or groups_for(p.inputs, p.outputs) or CANDIDATES[-1]
    xo, xi, yo, yb, ys, yi, yw = (hl.Var(n) for n in ("xo", "xi", "yo", "yb", "ys", "yi", "yw"))
    co, ci = hl.Var("co"), hl.Var("ci")
    filters, channels = rounded(p.outputs, UNIT), rounded(p.inputs, DEPTH)
    wide = vector(filters)
    (
        p.output.bound(p.c, 0, p.outputs)
        .split(p.c, co, ci, wide)
        .split(p.x, xo, xi, PIXELS)
        .split(p.y, yo, yb, size.height * size.strips)
        .split(yb, ys, yi, size.height)
        .split(yi, yw, yi, size.rows)
        .reorder(ci, xi, co, yi, yw, ys, xo, yo, p.n)
        .vectorize(ci)
        .vectorize(xi)
        .unroll(co)
        .unroll(yi)
        .gpu_blocks(xo, yo, p.n)
        .gpu_threads(yw)
    )
    p.conv.compute_at(p.output, yw)
    hb.store_in(p.conv, hb.MemoryType.WGMMAAccumulator)
    p.conv.bound_extent(p.c, filters).bound_extent(p.x, PIXELS).bound_extent(p.y, size.rows)
    p.conv.split(p.c, co, ci, wide).reorder(ci, p.x, co, p.y)
    p.conv.vectorize(ci).vectorize(p.x).unroll(co).unroll(p.y)
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    update = p.conv.update().split(p.c, co, ci, wide).split(p.r.x, ro, ri, DEPTH)
    update.reorder(ri, ci, p.x, co, p.y, ro, p.r.y, p.r.z).atomic()
    update.vectorize(ri).vectorize(ci).vectorize(p.x)
    update.unroll(co).unroll(p.y).unroll(ro).unroll(p.r.y).unroll(p.r.z)
    image, weights = p.image.in_(p.conv), p.weights.in_(p.conv)
    copy(image.compute_at(p.output, ys), (channels, PIXELS + TAPS - 1, size.height + TAPS - 1, 1))
    hb.pipeline_stages(image, size.stages)
    copy(weights.compute_at(p.output, xo), (filters, channels, TAPS, TAPS))
    hb.persistent(p.output, size.blocks)
    return hb.resident_blocks(p.output, size.blocks) if size.blocks > 1 else p.output


def copy(staged: hl.Func, extents: tuple[int, ...]) -> None:
    """Make a copy in shared memory of that size, as one vector statement for each row."""
    staged.store_in(hl.MemoryType.GPUShared)
    for arg, extent in zip(staged.args(), extents, strict=True):
        staged.bound_extent(arg, extent)
    staged.vectorize(staged.args()[0]).vectorize(staged.args()[1])
