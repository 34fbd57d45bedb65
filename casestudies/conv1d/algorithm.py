"""The 1-D convolution of an image's rows, in plain Halide.

With x innermost: ``conv(x, y) += f32(I(x + t, y)) * f32(K(t))`` over ``taps`` taps (paper section
V-A). Where the image continues beyond its edges, the window is centred on its output.
"""

from __future__ import annotations

import halide as hl

from casestudies.common.boundary import VALID, before
from casestudies.common.filters import TYPES, Filter
from casestudies.common.padding import bounded
from selector.families.windows import Axis


def convolve(taps: int, boundary: str = VALID, element: str = "f16") -> Filter:
    """The unscheduled pipeline; ``taps`` is a constant of the compiled kernel, the image's size is
    not.
    """
    image = hl.ImageParam(TYPES[element], 2, "I")
    weights = hl.ImageParam(TYPES[element], 1, "K")
    conv, output = hl.Func("conv"), hl.Func("output")
    x, y = hl.Var("x"), hl.Var("y")
    t = hl.RDom([(0, taps)], "t")
    conv[x, y] = hl.f32(0.0)
    source, back = bounded(image, boundary), before(boundary, taps)
    conv[x, y] += hl.f32(source[x + t.x - back, y]) * hl.f32(weights[t.x])
    output[x, y] = conv[x, y]
    return Filter(Axis(taps, first=-back), image, source, weights, conv, output, x, y, t)
