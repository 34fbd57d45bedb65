"""The denoiser with the fast DCT, for CUDA cores, in plain Halide: the second variant of the paper
(section V-E), whose products are butterflies. The definition is that of ``algorithm``; tiles are
added after the transforms back and not inside of them, so f16 stands in other places.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from casestudies.common.stock import fix_dense
from casestudies.dct_denoise import butterflies, matrices
from casestudies.dct_denoise.problem import STRIDE, TILE, Problem

SHARED = hl.MemoryType.GPUShared


@dataclass(frozen=True, slots=True)
class Stage:
    """16 numbers of one tile side by side along ``axis`` of ``kept`` (f16), from one run of
    butterflies, a tuple of ``lines``.
    """

    lines: hl.Func
    kept: hl.Func
    axis: hl.Var


@dataclass(frozen=True, slots=True)
class FastDenoising:
    """The Funcs that a schedule talks about; ``stages`` in the order in which they are computed."""

    image: hl.ImageParam
    threshold: hl.ImageParam
    padded: hl.Func
    stages: tuple[Stage, ...]
    output: hl.Func
    x: hl.Var
    y: hl.Var
    c: hl.Var


def denoise() -> FastDenoising:
    """The unscheduled pipeline."""
    image, threshold = hl.ImageParam(hl.Float(16), 3, "I"), hl.ImageParam(hl.Float(16), 1, "T")
    x, y, c = (hl.Var(name) for name in "xyc")
    padded, output = hl.Func("padded"), hl.Func("output")
    inside = (hl.clamp(x, 0, image.width() - 1), hl.clamp(y, 0, image.height() - 1))
    padded[x, y, c] = image[*inside, c]

    def bins_of(values: list[hl.Expr]) -> list[hl.Expr]:
        return butterflies.forward([hl.f32(v) for v in values], hl.f32)

    def pixels_of(values: list[hl.Expr]) -> list[hl.Expr]:
        back = butterflies.inverse([hl.f32(v) for v in values], hl.f32)
        return [v * hl.f32(float(w)) for w, v in zip(matrices.window(), back, strict=True)]

    def cored(value: hl.Expr) -> hl.Expr:
        return hl.select(hl.abs(value) > hl.f32(threshold[0]), value, hl.f32(0))

    def both(at: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
        """Where the two tiles that cover a pixel have it."""
        first = TILE * (at // STRIDE) + at % STRIDE + STRIDE
        return first, first + STRIDE

    across, down = range(-STRIDE, TILE - STRIDE), range(TILE)
    lines = bins_of([padded[STRIDE * x + i, y, c] for i in across])
    rows = _stage("rows", lines, (x, y, c), x, lambda v: v)
    lines = bins_of([rows.kept[x, STRIDE * y + j, c] for j in across])
    bins = _stage("bins", lines, (x, y, c), y, cored)
    tall = _stage("tall", pixels_of([bins.kept[x, TILE * y + k, c] for k in down]), (x, y, c), y)
    low, high = both(y)
    columns = [
        hl.f32(tall.kept[TILE * x + k, low, c]) + hl.f32(tall.kept[TILE * x + k, high, c])
        for k in down
    ]
    wide = _stage("wide", pixels_of(columns), (x, y, c), x)
    low, high = both(x)
    total = hl.f32(wide.kept[low, y, c]) + hl.f32(wide.kept[high, y, c])
    output[x, y, c] = hl.cast(hl.Float(16), total)
    return FastDenoising(image, threshold, padded, (rows, bins, tall, wide), output, x, y, c)


def _stage(
    name: str, values: list[hl.Expr], place: tuple[hl.Var, ...], axis: hl.Var, finish: object = None
) -> Stage:
    """Butterflies of one tile at ``place``, and their results side by side along ``axis``."""
    lines, kept = hl.Func(f"{name}_lines"), hl.Func(name)
    lines[place] = tuple(values)
    tile = tuple(v // TILE if v.name() == axis.name() else v for v in place)
    value = hl.mux(axis % TILE, [lines[tile][n] for n in range(TILE)])
    kept[place] = hl.cast(hl.Float(16), finish(value) if callable(finish) else value)
    return Stage(lines, kept, axis)


def cuda(p: FastDenoising, problem: Problem, width: int = 56, height: int = 16) -> hl.Func:
    """Best effort for stock Halide and one size: a thread runs the butterflies of one tile's line
    in registers, shared memory lies between the stages; returns the output. Refused by
    ``compile_shared`` for pictures of few tiles, whose shared memory Halide sizes when called.
    """
    inputs = {spec.name: spec for spec in problem.inputs}
    fix_dense(p.image, inputs["I"].shape)
    fix_dense(p.threshold, inputs["T"].shape)
    fix_dense(p.output.output_buffer(), problem.output.shape)
    xo, xi, xt, yo, yi, yt = (hl.Var(n) for n in ("xo", "xi", "xt", "yo", "yi", "yt"))
    tail = hl.TailStrategy.PredicateStores  # all blocks compute alike
    (
        p.output.tile(p.x, p.y, xo, yo, xi, yi, width, height, tail)
        .reorder(yi, xi, xo, yo, p.c)
        .unroll(yi)
        .gpu_blocks(xo, yo, p.c)
        .gpu_threads(xi)
    )
    for stage in p.stages:
        tile, inner = hl.Var("tile"), hl.Var("inner")
        other = p.y if stage.axis.name() == p.x.name() else p.x
        stage.kept.align_bounds(stage.axis, TILE)  # whole tiles: one run of butterflies each
        stage.kept.compute_at(p.output, xo).store_in(SHARED).split(stage.axis, tile, inner, TILE)
        stage.kept.reorder(inner, other, tile).unroll(inner).gpu_threads(other)
        stage.lines.compute_at(stage.kept, other)
    p.padded.compute_at(p.output, xo).store_in(SHARED)
    p.padded.tile(p.x, p.y, xt, yt, 72, 8).gpu_threads(xt)
    return p.output


def plain(p: FastDenoising) -> hl.Func:
    """Halide's default order on the CPU, every stage once."""
    for f in (p.padded, *(s.lines for s in p.stages), *(s.kept for s in p.stages)):
        f.compute_root()
    return p.output
