"""A Halide image as it continues beyond its edges."""

from __future__ import annotations

import halide as hl

from casestudies.common.boundary import CLAMP, ZERO


def bounded(image: hl.ImageParam, boundary: str) -> hl.ImageParam | hl.Func:
    """The image in one of the modes of ``casestudies.common.boundary``."""
    if boundary == CLAMP:
        return hl.BoundaryConditions.repeat_edge(image)
    if boundary == ZERO:
        return hl.BoundaryConditions.constant_exterior(image, hl.cast(image.type(), 0))
    return image
