"""Corpus: rows of accumulators that are reduced in registers as they are read out."""

from __future__ import annotations

import halide as hl
from corpus_case import Case, Shape, variables

import halide_bridge as hb

F16, S8 = hl.Float(16), hl.Int(8)
RUN = 32


def softmax_parts(
    rows: int, warps: int, kind: str = "softmax", memory: str = "float", vector: int = 16
) -> hl.Func:
    """Of every run of 32 columns of a product: its largest element (``max``), the sum (``sum``), or
    the logarithm of the sum of exponentials; columns past the last do not count. ``vector``: rows
    of one statement.
    """
    n, m, t, mo, mi, mw, mu, mv = variables("n m t mo mi mw mu mv")
    operand, wide = (S8, hl.Int(32)) if memory == "integer" else (F16, hl.Float(32))
    a, b = hl.ImageParam(operand, 2, "A"), hl.ImageParam(operand, 2, "B")
    columns = hl.Param(hl.Int(32), "columns")
    k, c = hl.RDom([(0, 32)], "k"), hl.RDom([(0, RUN)], "c")
    mm, peak, mass, out = (hl.Func(name) for name in ("mm", "peak", "mass", "out"))
    lowest = hl.cast(wide, -(2**30))
    mm[n, m] = hl.cast(wide, 0)
    mm[n, m] += hl.cast(wide, a[k.x, m]) * hl.cast(wide, b[n, k.x])
    seen = hl.select(t * RUN + c.x < columns, mm[t * RUN + c.x, m], lowest)
    counted = hl.select(t * RUN + c.x < columns, mm[t * RUN + c.x, m], hl.cast(wide, 0))
    peak[m, t] = lowest
    peak[m, t] = hl.max(peak[m, t], seen)
    mass[m, t] = hl.cast(wide, 0)
    mass[m, t] += hl.exp(seen - peak[m, t]) if kind == "softmax" else counted
    values = {"max": peak, "sum": mass}
    if kind == "softmax":
        out[m, t] = peak[m, t] + hl.log(mass[m, t])
    else:
        out[m, t] = values[kind][m, t]
    out.split(m, mo, mi, rows * warps).split(mi, mw, mi, rows).reorder(mi, mw, mo, t)
    out.vectorize(mi).gpu_blocks(mo, t).gpu_threads(mw)
    for f in (peak, mass):
        f.compute_at(out, mw).bound_extent(m, rows).vectorize(m)
        update = f.update().split(m, mu, mv, vector).reorder(c.x, mv, mu)
        update.atomic().vectorize(c.x).vectorize(mv).unroll(mu)
    mm.compute_at(out, mw).bound_extent(n, RUN).bound_extent(m, rows)
    mm.split(m, mu, mv, vector).reorder(n, mv, mu).vectorize(n).vectorize(mv).unroll(mu)
    update = mm.update().split(m, mu, mv, vector).reorder(k.x, n, mv, mu).atomic()
    update.vectorize(k.x).vectorize(n).vectorize(mv).unroll(mu)
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)
    return out


def _shapes(size: Shape) -> dict[str, Shape]:
    return {"A": (32, size[0]), "B": (RUN * size[1], 32)}


def _case(rows: int, warps: int, kind: str, memory: str = "float") -> Case:
    return Case(
        f"rows_{kind}_{memory}_{rows}_{warps}",
        lambda: softmax_parts(rows, warps, kind, memory),
        ((45, 3), (64, 2)),
        True,
        shapes=_shapes,
        scalars={"columns": 70},
        tolerance=0 if memory == "integer" else 2e-6,
    )


ROWS: list[Case] = [
    *(_case(*size, kind) for kind in ("softmax", "max", "sum") for size in ((16, 4), (32, 2))),
    *(_case(16, 2, kind, "integer") for kind in ("max", "sum")),
]
