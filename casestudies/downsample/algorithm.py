"""A 2-D filter at every ``factor``-th pixel, in plain Halide.

With x innermost: ``down(x, y) += f32(I(factor * x + t, factor * y + s)) * f32(K(t, s))`` over
``taps`` x ``taps`` (paper section V-B). Where the image continues beyond its edges, the window is
centred on the pixels that an output stands for.
"""

from __future__ import annotations

import halide as hl

from casestudies.common.boundary import VALID, before
from casestudies.common.filters import Filter
from casestudies.common.padding import bounded
from selector.families.windows import Axis


def downsample(taps: int, factor: int = 2, boundary: str = VALID) -> Filter:
    """The unscheduled pipeline; ``taps`` and ``factor`` are constants of the compiled kernel, the
    image's size is not.
    """
    image = hl.ImageParam(hl.Float(16), 2, "I")
    weights = hl.ImageParam(hl.Float(16), 2, "K")
    down, output = hl.Func("down"), hl.Func("output")
    x, y = hl.Var("x"), hl.Var("y")
    t = hl.RDom([(0, taps), (0, taps)], "t")
    source, back = bounded(image, boundary), before(boundary, taps, factor)
    window = source[factor * x + t.x - back, factor * y + t.y - back]
    down[x, y] = hl.f32(0.0)
    down[x, y] += hl.f32(window) * hl.f32(weights[t.x, t.y])
    output[x, y] = down[x, y]
    axis = Axis(taps, factor, first=-back)
    return Filter(axis, image, source, weights, down, output, x, y, t)
