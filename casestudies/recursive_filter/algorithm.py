"""The recursive filter ``Y_t = X_t + a Y_(t-1) + b Y_(t-2)``, in plain Halide (paper section V-D).

The compiler shares its steps among threads (``lowering.scans``). a and b are constants of the
kernel, so that it is known after how many steps the filter forgets what came before.
"""

from __future__ import annotations

import halide as hl

F16 = hl.Float(16)


def recursion(a: float, b: float) -> hl.Func:
    """The unscheduled output; before the first sample there are zeros."""
    x = hl.ImageParam(F16, 2, "X")
    t, c, filtered, output = hl.Var("t"), hl.Var("c"), hl.Func("filtered"), hl.Func("output")
    samples = hl.BoundaryConditions.constant_exterior(x, hl.cast(F16, 0))
    r = hl.RDom([(0, x.width())], "r")
    filtered[t, c] = hl.f32(samples[t, c])
    filtered[r, c] += hl.f32(a) * filtered[r - 1, c] + hl.f32(b) * filtered[r - 2, c]
    output[t, c] = hl.cast(F16, filtered[t, c])
    return output
