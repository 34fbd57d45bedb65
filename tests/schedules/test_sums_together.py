"""Several sums that one Func reads: windows have kernels of their own, short sums stay with the
thread, and of products for tensor units one is computed by the blocks that store the result.
"""

from __future__ import annotations

import halide as hl
import pytest
from plain_models import power_spectrum
from plain_pipelines import F32, Plain
from test_plain_pipelines import PIPELINES

import halide_bridge as hb

X, Y = hl.Var("x"), hl.Var("y")


def windows(reach: int) -> hl.Func:
    """The difference of two filters of as many taps each, that are no product of rows' taps."""
    image, out = hl.ImageParam(F32, 2, "image"), hl.Func("out")
    r = hl.RDom([(-reach, 2 * reach + 1)] * 2, "r")
    means = hl.Func("here"), hl.Func("there")
    for k, mean in enumerate(means):
        mean[X, Y] += image[X + r.x + reach * (k + 1), Y + r.y + reach] * hl.f32(r.x * r.y)
    out[X, Y] = means[0][X, Y] - means[1][X, Y]
    return out


def report(outputs: hl.Func, **sizes: tuple[int, ...]) -> str:
    return hb.autoschedule(outputs, target="sm_90a", sizes=sizes or None).report


@pytest.mark.parametrize(("reach", "apart"), [(1, False), (4, True)])
def test_windows_of_many_terms_are_apart(reach: int, apart: bool) -> None:
    found = report(windows(reach), image=(2160, 3840))
    place = "in a kernel of its own" if apart else "in registers of the thread that reads it"
    assert f"here: {place}" in found, found
    assert f"there: {place}" in found, found


def test_one_product_is_stored_with_what_reads_both() -> None:
    case: Plain = power_spectrum()
    found = report(case.outputs, power=(2048, 2048))
    assert found.count("on tensor units by wgmma") == 2, found
    assert "power: in a kernel of its own, 640 threads a block" in found, found


def test_means_and_deviations() -> None:
    """Rows of the image stay in the registers of a thread, which adds up both."""
    found = report(PIPELINES["local_contrast"]().outputs, photo=(2160, 3840))
    assert found.count("in registers of the threads that go down the rows") == 5, found
