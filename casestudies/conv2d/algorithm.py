"""The 2-D convolution, in plain Halide.

With x innermost: ``conv(x, y) += f32(I(x + t, y + s)) * f32(K(t, s))`` over ``taps`` x ``taps``
(paper section V-A).
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl


@dataclass(frozen=True, slots=True)
class Convolution:
    """The Funcs that a schedule talks about; ``t.x`` runs along a row of the taps, ``t.y`` over
    their rows.
    """

    taps: int
    image: hl.ImageParam
    weights: hl.ImageParam
    conv: hl.Func
    output: hl.Func
    x: hl.Var
    y: hl.Var
    t: hl.RDom


def convolve(taps: int) -> Convolution:
    """The unscheduled pipeline; ``taps`` is a constant of the compiled kernel, the image's size is
    not.
    """
    image = hl.ImageParam(hl.Float(16), 2, "I")
    weights = hl.ImageParam(hl.Float(16), 2, "K")
    conv, output = hl.Func("conv"), hl.Func("output")
    x, y = hl.Var("x"), hl.Var("y")
    t = hl.RDom([(0, taps), (0, taps)], "t")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(image[x + t.x, y + t.y]) * hl.f32(weights[t.x, t.y])
    output[x, y] = conv[x, y]
    return Convolution(taps, image, weights, conv, output, x, y, t)
