"""The matrix product, in plain Halide: ``mm(n, m) += wide(A(k, m)) * wide(B(n, k))`` with n
innermost; operands may be stored transposed, and the sums go through an epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from casestudies.gemm.problem import elements

HALIDE_TYPES = {
    "f16": hl.Float(16),
    "bf16": hl.BFloat(16),
    "f32": hl.Float(32),
    "s8": hl.Int(8),
    "u8": hl.UInt(8),
    "s32": hl.Int(32),
}


@dataclass(frozen=True, slots=True)
class Product:
    """The Funcs that a schedule talks about."""

    a: hl.ImageParam
    b: hl.ImageParam
    mm: hl.Func
    output: hl.Func
    n: hl.Var
    m: hl.Var
    k: hl.RDom
    layout: str = "nn"
    batch: hl.Var | None = None

    def box(self, name: str, n: int, m: int, k: int) -> tuple[int, int]:
        """What a tile of n x m results and a run of k read of operand A or B, in its own order."""
        x, y = (k, m) if name == "A" else (n, k)
        return (y, x) if self.layout["AB".index(name)] == "t" else (x, y)

    def along(self, name: str) -> bool:
        """Whether neighbours in the memory of operand A or B are neighbours in the sum."""
        return self.layout["AB".index(name)] == ("n" if name == "A" else "t")


def multiply(
    types: str, layout: str = "nn", epilogue: str = "", *, batched: bool = False
) -> Product:
    """The unscheduled pipeline for operand and result types such as ``f16-f32``; any M, N and K.
    ``batched``: of any number of pairs of matrices.

    ``layout``: "t" for A, then for B, where the operand is stored transposed. ``epilogue``: any of
    "scale", "bias" and "relu", joined by "-", in that order: ``max(scale[n] * sum + bias[n], 0)``;
    scaled sums of bytes are rounded to the nearest of the result's whole numbers, ties to even.
    """
    left, right, result = (HALIDE_TYPES[t] for t in elements(types))
    wide = hl.Float(32) if left.is_float() else hl.Int(32)
    around = (hl.Var("z"),) if batched else ()
    a, b = hl.ImageParam(left, 2 + batched, "A"), hl.ImageParam(right, 2 + batched, "B")
    mm, output = hl.Func("mm"), hl.Func("C")
    n, m = hl.Var("n"), hl.Var("m")
    k = hl.RDom([(0, a.height() if layout[0] == "t" else a.width())], "k")
    left = a[(m, k.x, *around)] if layout[0] == "t" else a[(k.x, m, *around)]
    right = b[(k.x, n, *around)] if layout[1] == "t" else b[(n, k.x, *around)]
    place = (n, m, *around)
    mm[place] = hl.cast(wide, 0)
    mm[place] += hl.cast(wide, left) * hl.cast(wide, right)
    value = mm[place]
    steps = epilogue.split("-")
    if "scale" in steps:
        value = hl.f32(value) * hl.ImageParam(hl.Float(32), 1, "scale")[n]
    if "bias" in steps:
        value = value + hl.ImageParam(wide, 1, "bias")[n]
    if "relu" in steps:
        value = hl.max(value, hl.cast(wide, 0))
    if result == hl.Int(8):
        value = hl.clamp(hl.round(value), -128.0, 127.0)
    output[place] = hl.cast(result, value)
    return Product(a, b, mm, output, n, m, k, layout, *around)
