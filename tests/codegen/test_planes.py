"""Pixels dealt out: a copy of every s-th element of a dimension as boxes of a map for each plane,
and what keeps a copy from being that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

import corpus_layers as layers
import halide as hl
from corpus_layers import Windows
from emulation import check

import halide_bridge as hb
from selector.diagnostics import ScheduleError
from selector.gpu.codegen.warpgroups.planes import Walk, dealt
from selector.gpu.ir.memory import Map
from selector.ir.affine import Affine
from selector.ir.interpreter import evaluate_scalar
from selector.ir.nodes import IntImm, Var
from selector.ir.types import FLOAT16
from selector.runtime.plan import MapArgument

pytestmark = pytest.mark.verified

SMALL = Windows((16, 16), strips=2, groups=1, stride=2)
BOX = "tensor_copy"


def compiled(p: Windows, change: Callable[[hl.Func], object] = lambda planes: None) -> Any:
    return hb.compile(layers.convolution(p, change), target="sm_90a", cache=False)


def maps_of(kernel: Any) -> list[MapArgument]:
    (launch,) = kernel.plan.launches
    return [a for a in launch.arguments if isinstance(a, MapArgument) and a.name == "I"]


def truth(p: Windows, image: Any, weights: Any, width: int, height: int) -> Any:
    """Of an image with its border, in float64, NumPy's order of axes."""
    b = p.border
    image = np.pad(image.astype(np.float64), ((b, b), (b, b), (0, 0)))
    result = np.zeros((height, width, p.channels[1]))
    for t in range(p.taps[1]):
        for s in range(p.taps[0]):
            rows = image[t * p.dilation :: p.stride, s * p.dilation :: p.stride]
            result += rows[:height, :width] @ weights[t, s].astype(np.float64)
    return np.maximum(result, 0)


SIZES = {
    "wide": (SMALL, 66, 7),
    "single": (SMALL, 1, 1),
    "panels": (Windows((64, 16), groups=1, rows=2, strips=2, stride=2), 5, 11),
    "border": (Windows((16, 16), groups=1, stride=2, border=1), 67, 3),
    "apart": (Windows((16, 16), groups=1, stride=2, dilation=3), 13, 2),
    "thirds": (Windows((16, 16), (5, 3), groups=1, stride=3), 23, 5),
    "points": (Windows((16, 16), (1, 1), stride=2), 65, 3),
    "row": (Windows((80, 24), (3, 1), groups=1, stride=2), 31, 3),
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("mapped", [True, False], ids=["maps", "threads"])
def test_any_size_is_right(name: str, mapped: bool) -> None:
    """Images are as wide and high as the outputs need, odd where these say so, and end where a page
    does: what reads a pixel more fails.
    """
    p, width, height = SIZES[name]
    kernel = compiled(p)
    assert BOX in kernel.source
    rng = np.random.default_rng(width)
    wide, high = p.reach(width, p.taps[0]), p.reach(height, p.taps[1])
    image = rng.uniform(-1, 1, (high, wide, p.channels[0])).astype(np.float16)
    weights = rng.uniform(-1, 1, (*p.taps[::-1], *p.channels)).astype(np.float16)
    arrays, sizes = {"I": image, "K": weights}, (height, width, p.channels[1])
    expected = truth(p, image, weights, width, height)
    bound = 3e-6 * float(np.linalg.norm(expected))
    assert np.linalg.norm(kernel.interpret(**arrays, sizes=sizes) - expected) <= bound
    found = check(kernel, **arrays, sizes=sizes, maps_ready=mapped)
    assert np.linalg.norm(found - expected) <= bound


def test_each_plane_ends_where_the_array_does() -> None:
    first, second = maps_of(compiled(SMALL))
    for width in range(1, 12):
        names = {f"I.extent.{d}": n for d, n in enumerate((16, width, 5))}
        sizes = [[evaluate_scalar(e, names) for e in m.extents] for m in (first, second)]
        assert sizes == [[16, (width + 1) // 2, 5], [16, width // 2, 5, 2]]
    steps = {"I.stride.1": 16, "I.stride.2": 1600}
    assert [evaluate_scalar(e, steps) for e in first.strides] == [32, 1600]
    assert [evaluate_scalar(e, steps) for e in second.strides] == [32, 1600, 16]
    assert (first.box, second.box) == ((16, 72, 3), (16, 72, 3, 1))


@pytest.mark.parametrize("every", [2, 3, 4])
@pytest.mark.parametrize("start", range(-4, 5))
def test_a_map_of_every_so_many_has_these_and_no_others(start: int, every: int) -> None:
    for width in range(1, 20):
        sizes = IntImm(8), IntImm(width), IntImm(3)
        whole = Map("", "I", FLOAT16, sizes, (IntImm(8), IntImm(800)), (8, 4, 1))
        walk = Walk("i", 1, every, 4, 1)
        plane = dealt(whole, [Affine.of(0), Affine.of(start), Affine.of(2)], [walk])
        assert plane is not None
        extents, strides, at = (
            [evaluate_scalar(e, {}) for e in part]
            for part in (plane[0].extents, plane[0].strides, plane[1])
        )
        for i in range(-6, 26):
            place = [at[0], at[1] + i, *at[2:]]
            inside = all(0 <= a < n for a, n in zip(place, extents, strict=True))
            assert inside == (0 <= start + every * i < width)
            address = sum(a * s for a, s in zip(place, (1, *strides), strict=True))
            assert not inside or address == (start + every * i) * 8 + 1600


def test_what_may_be_of_any_plane_is_skipped_in_boxes_of_all() -> None:
    """A box of the array as it is, with the elements between; none that reaches too far."""
    whole = Map("", "I", FLOAT16, (IntImm(8), Var("w")), (IntImm(8),), (8, 4))
    walk, at = Walk("i", 1, 2, 4, 1), [Affine.of(0), Affine.of(Var("x"))]
    assert dealt(whole, [at[0], at[1] * 2 + 1], [walk]) != dealt(whole, at, [walk])
    assert dealt(whole, at, [walk]) == (replace(whole, steps=(1, 2)), (IntImm(0), Var("x")))
    assert dealt(whole, at, [replace(walk, every=8)]) is not None
    assert dealt(whole, at, [replace(walk, every=9)]) is None
    assert dealt(replace(whole, box=(8, 128)), at, [walk]) is not None
    assert dealt(replace(whole, box=(8, 129)), at, [walk]) is None


def inner(planes: hl.Func) -> None:
    """Both pixels beside each other: rows of a box are not."""
    c, x, y, q = planes.args()
    planes.reorder_storage(c, q, x, y)


def below(planes: hl.Func) -> None:
    """A row of each plane after the other."""
    c, x, y, q = planes.args()
    planes.reorder_storage(c, x, q, y)


PLANES = {
    "below": (SMALL, below),
    "inside a swizzle": (replace(SMALL, whole=2), None),
    "too many": (Windows((16, 16), (9, 3), strips=2, groups=1, stages=2, stride=9), None),
}


@pytest.mark.parametrize("name", PLANES)
def test_what_is_no_box_is_copied_by_threads(name: str) -> None:
    """Planes are rows of a panel from a multiple of eight on, where swizzles begin again. Still the
    same numbers.
    """
    p, change = PLANES[name]
    kernel = compiled(p, change or (lambda planes: None))
    assert not maps_of(kernel)
    rng = np.random.default_rng(1)
    wide, high = p.reach(6, p.taps[0]), p.reach(3, p.taps[1])
    image = rng.uniform(-1, 1, (high, wide, 16)).astype(np.float16)
    weights = rng.uniform(-1, 1, (*p.taps[::-1], 16, 16)).astype(np.float16)
    found = check(kernel, I=image, K=weights, sizes=(3, 6, 16))
    expected = truth(p, image, weights, 6, 3)
    assert np.linalg.norm(found - expected) <= 3e-6 * float(np.linalg.norm(expected))


def test_pixels_that_are_not_dealt_out_are_refused() -> None:
    """Neighbouring rows of an operand are neighbours: the hint says how they become that."""
    with pytest.raises(ScheduleError, match="cannot be an operand of wgmma") as caught:
        compiled(SMALL, inner)
    assert "`f(u, v, p) = a(u, 2*v + p)`" in caught.value.hint


def test_where_a_map_has_no_more_dimensions_boxes_skip_elements() -> None:
    whole = Map("", "I", FLOAT16, tuple(map(Var, "abcd")), tuple(map(Var, "xyz")), (8, 4, 4, 1))
    at = [Affine.of(n) for n in (0, 1, 1, 0)]
    plane = dealt(whole, at, [Walk("i", 1, 2, 4, 1), Walk("j", 2, 2, 4, 4)])
    assert plane is not None
    assert (plane[0].box, plane[0].steps) == ((8, 4, 4, 1, 1), (1, 1, 2, 1, 1))
    assert plane[1] == tuple(map(IntImm, (0, 0, 1, 0, 1)))
