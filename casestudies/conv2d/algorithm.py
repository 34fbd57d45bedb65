"""The 2-D convolution, in plain Halide.

With x innermost: ``conv(x, y) += f32(I(x + t, y + s)) * f32(K(t, s))`` over ``taps`` x ``taps``
(paper section V-A). Where the image continues beyond its edges, the window is centred on its
output.
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
    weights = hl.ImageParam(TYPES[element], 2, "K")
    conv, output = hl.Func("conv"), hl.Func("output")
    x, y = hl.Var("x"), hl.Var("y")
    t = hl.RDom([(0, taps), (0, taps)], "t")
    conv[x, y] = hl.f32(0.0)
    source, back = bounded(image, boundary), before(boundary, taps)
    window = source[x + t.x - back, y + t.y - back]
    conv[x, y] += hl.f32(window) * hl.f32(weights[t.x, t.y])
    output[x, y] = conv[x, y]
    return Filter(Axis(taps, first=-back), image, source, weights, conv, output, x, y, t)
