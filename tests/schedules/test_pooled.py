"""What an image is around itself is no array of its own, however many dimensions have ends: blocks
inside of it do not ask for these.
"""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from plain_emulated import emulated
from plain_pipelines import F16, Plain, floats

pytestmark = pytest.mark.verified("tests/emulation")

c, x, y, n = (hl.Var(name) for name in ("c", "x", "y", "n"))
INSIDE = "constant_exterior: inside those that read it"


def pooled(step: int, shape: tuple[int, ...] = (2, 15, 17, 24)) -> Plain:
    """The largest of 3 x 3 pixels, with nothing around the image."""
    image, out, r = hl.ImageParam(F16, 4, "image"), hl.Func("out"), hl.RDom([(0, 3), (0, 3)])
    least = hl.cast(F16, -60000.0)
    edge = hl.BoundaryConditions.constant_exterior(image, least)
    out[c, x, y, n] = hl.maximum(edge[c, step * x + r.x - 1, step * y + r.y - 1, n])
    number, height, width, channels = shape
    sizes = (number, -(-height // step), -(-width // step), channels)
    return Plain(out, [(image, floats(*shape, type_=np.float16))], sizes)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("shape", [(2, 15, 17, 24), (1, 8, 16, 64), (1, 5, 3, 9)])
def test_windows_read_the_image_itself(step: int, shape: tuple[int, ...]) -> None:
    schedule, _ = emulated(lambda: pooled(step, shape), tolerance=1e-9)
    assert INSIDE in schedule.report
