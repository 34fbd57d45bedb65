"""Upsampling by an integer factor with a 2-D filter, in plain Halide.

With x innermost: ``up(x, y) += f32(I(x / factor + t, y / factor + s)) * f32(K(factor * t + x %
factor, factor * s + y % factor))`` over the taps of a phase (paper section V-B): what an output
lies at between two pixels of the image, its phase, chooses its taps. Where the image continues
beyond its edges, the window is centred.
"""

from __future__ import annotations

import halide as hl

from casestudies.common.boundary import VALID, before
from casestudies.common.filters import Filter
from casestudies.common.padding import bounded
from selector.families.windows import Axis


def upsample(taps: int, factor: int = 2, boundary: str = VALID) -> Filter:
    """The unscheduled pipeline for ``taps`` taps of each phase along each axis; they and ``factor``
    are constants of the compiled kernel, the image's size is not.
    """
    image = hl.ImageParam(hl.Float(16), 2, "I")
    weights = hl.ImageParam(hl.Float(16), 2, "K")
    up, output = hl.Func("up"), hl.Func("output")
    x, y = hl.Var("x"), hl.Var("y")
    t = hl.RDom([(0, taps), (0, taps)], "t")
    source, back = bounded(image, boundary), before(boundary, taps)
    window = source[x / factor + t.x - back, y / factor + t.y - back]
    tap = weights[factor * t.x + x % factor, factor * t.y + y % factor]
    up[x, y] = hl.f32(0.0)
    up[x, y] += hl.f32(window) * hl.f32(tap)
    output[x, y] = up[x, y]
    axis = Axis(taps, phases=factor, first=-back)
    return Filter(axis, image, source, weights, up, output, x, y, t)
