"""Updates that were refused, or stored anywhere: places that a stored Func holds, and domains whose
elements are independent though they read others of the same Func.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from plain_pipelines import F32, Plain, bytes_, floats
from test_plain_pipelines import by_halide, close

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

x, y, i = (hl.Var(name) for name in ["x", "y", "i"])
SHAPES = [(33, 47), (1, 130), (5, 7), (64, 128)]


def checked(case: Plain, again: Plain) -> str:
    """The report of a kernel that computes what Halide does."""
    found = hb.autoschedule(case.outputs, target="sm_90a")
    kernel = hb.compile(case.outputs, target="sm_90a", cache=False)
    arrays = {p.name(): value for p, value in case.arguments}
    for got in (
        kernel.interpret(sizes=case.sizes, **arrays),
        emulation.check(kernel, sizes=case.sizes, **arrays),
    ):
        for result, wanted in zip(_listed(got), by_halide(again), strict=True):
            assert close(np.asarray(result), wanted, case.tolerance)
    return found.report


def _listed(results: Any) -> list[Any]:
    return [*results.values()] if isinstance(results, dict) else [results]


def cells(height: int, width: int) -> Plain:
    """Histograms of directions in cells of 8 x 8; those are stored."""
    rows, columns = -(-height // 8), -(-width // 8)
    a, bins, out = hl.ImageParam(F32, 2, "a"), hl.Func("bins"), hl.Func("out")
    bins[x, y] = hl.clamp(hl.i32(hl.atan2(a[x, y], a[x + 1, y]) * 9), 0, 8)
    r, total = hl.RDom([(0, 8), (0, 8)]), hl.Func("total")
    total[i, x, y] = 0.0
    total[bins[8 * x + r.x, 8 * y + r.y], x, y] += a[8 * x + r.x, 8 * y + r.y]
    out[i, x, y] = total[i, x, y] * 2
    return Plain(out, [(a, floats(8 * rows, 8 * columns + 1))], (rows, columns, 9))


@pytest.mark.parametrize("shape", SHAPES)
def test_places_that_a_func_holds(shape: tuple[int, int]) -> None:
    """Beyond the last cell nobody has computed them."""
    assert "bins: in a kernel of its own" in checked(cells(*shape), cells(*shape))


def moved(height: int, width: int) -> Plain:
    """Columns go to places that a Func computes."""
    a, place, out = hl.ImageParam(F32, 2, "a"), hl.Func("place"), hl.Func("out")
    place[x] = hl.clamp((x * 7) % width, 0, width - 1)
    r = hl.RDom([(0, width)])
    out[x, y] = 0.0
    out[place[r], y] = a[r, y]
    return Plain(out, [(a, floats(height, width))], (height, width))


def test_places_have_the_bounds_of_their_func() -> None:
    for shape in SHAPES[:3]:
        checked(moved(*shape), moved(*shape))


def mapped(height: int, width: int) -> Plain:
    """Every second pixel and the one before it, and back; Halide stores no Func without bounds."""
    a, place, out = hl.ImageParam(F32, 2, "a"), hl.Func("place"), hl.Func("out")
    place[x] = 2 * x + 1
    r = hl.RDom([(0, width)])
    out[x, y] = 0.0
    out[place[r], y] += a[place[r], y] - a[place[r] - 1, y]
    return Plain(out, [(a, floats(height, 2 * width))], (height, 2 * width))


@pytest.mark.parametrize("shape", SHAPES[:3])
def test_places_without_bounds(shape: tuple[int, int]) -> None:
    case = mapped(*shape)
    kernel = hb.compile(case.outputs, target="sm_90a", schedule="auto", cache=False)
    (a,) = (value for _, value in case.arguments)
    wanted = np.zeros_like(a)
    wanted[:, 1::2] = a[:, 1::2] - a[:, ::2]
    for found in (
        kernel.interpret(a=a, sizes=case.sizes),
        emulation.check(kernel, a=a, sizes=case.sizes),
    ):
        assert np.array_equal(found, wanted)


def levels(height: int, width: int) -> Plain:
    """A histogram of which a Func says how many bins there are."""
    a, level, out = hl.ImageParam(hl.UInt(8), 2, "a"), hl.Func("level"), hl.Func("out")
    level[x, y] = hl.clamp(hl.i32(a[x, y]) - 100, 0, 15)
    r = hl.RDom([(0, a.width()), (0, a.height())])
    out[i] = 0
    out[level[r.x, r.y]] += 1
    return Plain(out, [(a, bytes_(height, width))], (16,), 0)


def test_bins_of_a_func_are_counted() -> None:
    assert "a copy of its 16 elements" in checked(levels(33, 47), levels(33, 47))


def borders(height: int, width: int) -> Plain:
    """The outermost rows and columns are those beside them."""
    height, width = max(height, 3), max(width, 3)
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    w, h = a.width(), a.height()
    r, q = hl.RDom([(0, w)]), hl.RDom([(0, h)])
    out[x, y] = a[x, y]
    out[r, 0] = out[r, 1]
    out[r, h - 1] = out[r, h - 2]
    out[0, q] = out[1, q]
    out[w - 1, q] = out[w - 2, q]
    return Plain(out, [(a, floats(height, width))], (height, width))


def first_column_taken_away(height: int, width: int) -> Plain:
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    r = hl.RDom([(1, a.width() - 1)])
    out[x, y] = a[x, y]
    out[r, y] -= out[0, y]
    return Plain(out, [(a, floats(height, width))], (height, width))


def folded(height: int, width: int) -> Plain:
    """Halves of a row are added, and halves of those."""
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    out[x, y] = a[x, y]
    for half in (24, 12, 6, 3):
        r = hl.RDom([(0, half)])
        out[r, y] += out[r + half, y]
    return Plain(out, [(a, floats(height, 48 + width))], (height, 48 + width))


INDEPENDENT = (borders, first_column_taken_away, folded)


@pytest.mark.parametrize("shape", SHAPES[:3])
@pytest.mark.parametrize("make", INDEPENDENT)
def test_elements_that_read_others(make: Callable[..., Plain], shape: tuple[int, int]) -> None:
    """Where Halide proves that no element reads what another one stores they are no recurrence."""
    checked(make(*shape), make(*shape))


def named_alike(height: int, width: int) -> Plain:
    """The second Func of a name, which reads other rows of itself."""
    a, first, second = hl.ImageParam(F32, 2, "a"), hl.Func("f"), hl.Func("f")
    height = max(height, 2)
    r = hl.RDom([(0, a.width())])
    first[y] += a[r, y]
    second[x, y] = a[x, y] / (1 + first[y])
    second[x, 0] = second[x, 1]
    return Plain(second, [(a, floats(height, width))], (height, width))


@pytest.mark.parametrize("shape", SHAPES[:2])
def test_funcs_of_one_name(shape: tuple[int, int]) -> None:
    """Halide's `f$1` is no loop along a domain."""
    checked(named_alike(*shape), named_alike(*shape))
