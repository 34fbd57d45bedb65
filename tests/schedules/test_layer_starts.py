"""What the sums of a layer begin with, and how its groups share a block."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED, SIMULATED

import halide_bridge as hb
from selector.families.layers import Shape, candidates
from selector.machine import machine_for

pytestmark = [EMULATED, SIMULATED]

F16, F32 = hl.Float(16), hl.Float(32)
c, x, y, n = (hl.Var(v) for v in "cxyn")


def layer(start: str, channels: int = 16) -> hl.Func:
    """``start``: what sums begin with, a number for each filter or for each output."""
    image, weights = hl.ImageParam(F16, 4, "image"), hl.ImageParam(F16, 4, "w")
    first = hl.ImageParam(F32, 1 if start == "filters" else 4, "first")
    total, out = hl.Func("total"), hl.Func("out")
    r = hl.RDom([(0, channels), (0, 3), (0, 3)], "r")
    total[c, x, y, n] = first[c] if start == "filters" else first[c, x, y, n]
    pixel = hl.f32(image[r.x, x + r.y, y + r.z, n])
    total[c, x, y, n] += pixel * hl.f32(weights[c, r.x, r.y, r.z])
    out[c, x, y, n] = hl.max(total[c, x, y, n], 0)
    return out


@pytest.mark.parametrize("start", ["filters", "outputs"])
def test_a_number_for_each_filter_is_there_before_the_first_product(start: str) -> None:
    """Where who stores would wait for it; what differs from pixel to pixel is added there."""
    source = hb.autoschedule(layer(start), target="sm_90a", sizes=(4096, 64, 64, 16)).source
    assert ("from_zero" in source) == (start == "outputs")
    output = layer(start)
    kernel = hb.compile(output, target="sm_90a", schedule="auto", sizes=(4096, 64, 64, 16))
    assert ("const float filling" in kernel.source) == (start == "filters")
    size, random = (2, 3, 67, 16), np.random.default_rng(2)
    image = random.standard_normal((2, 5, 69, 16)).astype(np.float16)
    weights = random.standard_normal((3, 3, 16, 16)).astype(np.float16)
    first = random.standard_normal(size[-1:] if start == "filters" else size).astype(np.float32)
    truth = np.zeros(size) + first
    for v, u in np.ndindex(3, 3):
        truth += image[:, v : v + 3, u : u + 67].astype(float) @ weights[v, u].astype(float)
    found = check(kernel, sizes=size, image=image, w=weights, first=first)
    np.testing.assert_allclose(found, np.maximum(truth, 0), rtol=1e-4, atol=1e-4)


def test_blocks_that_keep_weights_have_as_many_groups_as_there_is_room_for() -> None:
    """Their pixels are read once, and results of some leave while others multiply."""
    for channels in (16, 32):
        shape = Shape(
            (64, 64, 4096), channels, channels, 9, reach=(2, 2, 0), rows=1, fixed=True, across=True
        )
        assert candidates(shape, machine_for("sm_90a"))[0].groups == 4
