"""The matrix product ``mm(n, m) += wide(A(k, m)) * wide(B(k, n))`` for the CPU, in plain Halide.

B comes in one of two layouts: ``standard``, row-major ``B(n, k)``; ``vnni``, groups of k side by
side, ``B(k % g, n, k / g)``, as AMX reads it (g = 2 for bf16, 4 for bytes).
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from casestudies.amx_matmul.problem import GROUP, LAYOUTS
from selector.diagnostics import UserError

HALIDE_TYPES = {"bf16": hl.BFloat(16), "s8": hl.Int(8), "u8": hl.UInt(8)}


@dataclass(frozen=True, slots=True)
class Product:
    """The Funcs that a schedule talks about. ``group``: k that lie side by side in B (1:
    standard)."""

    a: hl.ImageParam
    b: hl.ImageParam
    mm: hl.Func
    output: hl.Func
    n: hl.Var
    m: hl.Var
    k: hl.RDom
    group: int
    element_bytes: int


def multiply(types: tuple[str, str] = ("bf16", "bf16"), layout: str = "standard") -> Product:
    """The unscheduled pipeline for operand types such as ``("u8", "s8")``; any M, N and K.

    With ``vnni``, B is (ceil(K / g), N, g) in NumPy's order, and K a multiple of g.
    """
    if layout not in LAYOUTS:
        raise UserError(f"no layout {layout!r}", hint=f"layouts: {', '.join(LAYOUTS)}")
    wide = hl.Float(32) if types[0] == "bf16" else hl.Int(32)
    a_type, b_type = (HALIDE_TYPES[t] for t in types)
    group = GROUP[types[1]] if layout == "vnni" else 1
    a, mm, output = hl.ImageParam(a_type, 2, "A"), hl.Func("mm"), hl.Func("C")
    n, m = hl.Var("n"), hl.Var("m")
    mm[n, m] = hl.cast(wide, 0)
    if group == 1:
        b = hl.ImageParam(b_type, 2, "B")
        k = hl.RDom([(0, a.width())], "k")
        mm[n, m] += hl.cast(wide, a[k.x, m]) * hl.cast(wide, b[n, k.x])
    else:
        b = hl.ImageParam(b_type, 3, "B")
        b.dim(0).set_bounds(0, group).set_stride(1)
        b.dim(1).set_stride(group)
        k = hl.RDom([(0, group), (0, a.width() // group)], "k")
        mm[n, m] += hl.cast(wide, a[k.x + group * k.y, m]) * hl.cast(wide, b[k.x, n, k.y])
    output[n, m] = mm[n, m]
    return Product(a, b, mm, output, n, m, k, group, 4 // GROUP[types[0]])
