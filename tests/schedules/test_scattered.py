"""Sums of which data choose the element along some dimensions, and variables of the domain along
others; and blocks that begin at other elements than vectors do.
"""

from __future__ import annotations

from collections.abc import Callable

import halide as hl
import numpy as np
import pytest
from plain_emulated import emulated
from plain_pipelines import I32, U8, Plain, bytes_

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

x, y, i, j, t, c = (hl.Var(name) for name in ("x", "y", "i", "j", "t", "c"))
ANGLES = 36


def lines_of_an_image() -> Plain:
    """Hough's transform: pixels vote for the distance of the line at each angle."""
    image, votes = hl.ImageParam(U8, 2, "image"), hl.Func("votes")
    r = hl.RDom([(0, image.width()), (0, image.height()), (0, ANGLES)])
    angle = r.z * np.float32(np.pi / ANGLES).item()
    far = hl.i32(hl.round(r.x * hl.cos(angle) + r.y * hl.sin(angle))) + 64
    votes[i, t] = hl.i32(0)
    votes[hl.clamp(far, 0, 127), r.z] += hl.select(image[r.x, r.y] > 200, 1, 0)
    return Plain(votes, [(image, bytes_(40, 45))], (ANGLES, 128))


def histograms_of_rows() -> Plain:
    """Two free dimensions beside one of the domain's."""
    image, counts = hl.ImageParam(U8, 4, "image"), hl.Func("counts")
    r = hl.RDom([(0, image.dim(0).extent()), (0, image.dim(1).extent())])
    counts[i, x, y, t] = hl.i32(0)
    counts[hl.i32(image[r.x, r.y, x, y]) / 16, x, y, r.y] += 1
    return Plain(counts, [(image, bytes_(3, 5, 7, 67))], (7, 3, 5, 16))


def all_of_a_domain() -> Plain:
    """No two updates of one element."""
    a, out = hl.ImageParam(I32, 2, "a"), hl.Func("out")
    r = hl.RDom([(0, a.width()), (0, a.height())])
    out[x, y] = x + y
    out[r.x, r.y] += a[r.x, r.y]
    return Plain(out, [(a, bytes_(23, 45).astype(np.int32))], (23, 45))


def motion_of_blocks() -> Plain:
    """Tiles of bytes that begin at every eighth."""
    now, before = hl.ImageParam(U8, 2, "now"), hl.ImageParam(U8, 2, "before")
    edge, apart = hl.BoundaryConditions.repeat_edge(before), hl.Func("apart")
    r, s = hl.RDom([(0, 8), (0, 8)]), hl.RDom([(0, 9), (0, 9)])
    here = now[8 * x + r.x, 8 * y + r.y]
    there = edge[8 * x + r.x + i - 4, 8 * y + r.y + j - 4]
    apart[i, j, x, y] = hl.i32(0)
    apart[i, j, x, y] += hl.i32(hl.absd(here, there))
    best, out = hl.argmin(apart[s.x, s.y, x, y]), hl.Func("out")
    out[c, x, y] = hl.select(c == 0, best[0], best[1]) - 4
    return Plain(out, [(now, bytes_(32, 48)), (before, bytes_(32, 48, seed=1))], (4, 6, 2))


def transposed_convolution() -> Plain:
    """By where each pixel goes."""
    image, taps = hl.ImageParam(I32, 3, "image"), hl.ImageParam(I32, 3, "taps")
    out = hl.Func("out")
    r = hl.RDom([(0, 3), (0, 3), (0, image.width()), (0, image.height())])
    out[x, y, c] = hl.i32(0)
    place = 2 * r[2] + r[0], 2 * r[3] + r[1], c
    out[*place] += image[r[2], r[3], c] * taps[r[0], r[1], c]
    pixels, weights = (bytes_(*s).astype(np.int32) for s in ((3, 7, 70), (3, 3, 3)))
    return Plain(out, [(image, pixels), (taps, weights)], (3, 15, 141))


MADE = [
    lines_of_an_image,
    histograms_of_rows,
    all_of_a_domain,
    motion_of_blocks,
    transposed_convolution,
]


@pytest.mark.parametrize("make", MADE)
def test_they_are_what_halide_computes(make: Callable[[], Plain]) -> None:
    emulated(make, tolerance=0)


def test_updates_that_share_no_element_have_no_copies() -> None:
    assert "copy" not in hb.autoschedule(all_of_a_domain().outputs, target="sm_90a").report
    report = hb.autoschedule(lines_of_an_image().outputs, target="sm_90a").report
    assert "a copy of it for each line of" in report
