"""Corpus: tables that a pipeline makes from the sizes: intermediates that tensor kernels stage."""

from __future__ import annotations

import halide as hl
from corpus_case import Case, variables

import halide_bridge as hb

SHARED = hl.MemoryType.GPUShared
F16 = hl.Float(16)


def averaged(terms: int, run: int, stages: int, count: bool = False) -> hl.Func:
    """``out(x, y) = sum_r I(r, y) * table(r, x)`` with a table of quotients of the image's width
    (or of a number, ``count``), staged ``run`` terms at a time.
    """
    x, y, k, n, xo, xi, yo, yi = variables("x y k n xo xi yo yi")
    image = hl.ImageParam(F16, 2, "I")
    table, sums, out = hl.Func("table"), hl.Func("sums"), hl.Func("out")
    r, ro, ri = hl.RDom([(0, terms)], "r"), hl.RVar("ro"), hl.RVar("ri")
    scale = hl.Param(hl.Int(32), "count") if count else 1000 / image.width()
    table[k, n] = hl.cast(F16, hl.f32((3 * k + 5 * n) % 7 + scale) / 16)
    sums[x, y] = hl.f32(0.0)
    sums[x, y] += hl.f32(image[r.x, y]) * hl.f32(table[r.x, x])
    out[x, y] = sums[x, y]
    out.tile(x, y, xo, yo, xi, yi, 16, 16).vectorize(xi).vectorize(yi).gpu_blocks(xo, yo)
    sums.compute_at(out, xo).bound_extent(x, 16).bound_extent(y, 16).vectorize(x).vectorize(y)
    update = sums.update().split(r.x, ro, ri, run).reorder(ri, x, y, ro)
    update.atomic().vectorize(ri).vectorize(x).vectorize(y)
    hb.store_in(sums, hb.MemoryType.WMMAAccumulator)
    staged = table.in_(sums).compute_at(sums, ro).store_in(SHARED)
    staged.bound_extent(k, run).bound_extent(n, 16).vectorize(k).vectorize(n)
    if stages > 1:
        hb.pipeline_stages(staged, stages)
    table.compute_root().gpu_tile(k, n, xo, yo, xi, yi, 16, 4)
    return out


SIZES = ((61, 37), (64, 32), (1, 1))

TABLES: list[Case] = [
    *(
        Case(
            f"table_{terms}_by_{run}_stages_{stages}{'_number' if count else ''}",
            lambda terms=terms, run=run, stages=stages, count=count: averaged(
                terms, run, stages, count
            ),
            SIZES,
            True,
            shapes=lambda size, terms=terms: {"I": (terms, size[1])},
            scalars={"count": 5} if count else {},
        )
        for terms, run, stages, count in (
            (64, 64, 1, False),
            (96, 32, 3, False),
            (80, 16, 2, True),
            (45, 15, 1, False),
        )
    ),
]
