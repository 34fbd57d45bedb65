"""Long sums of few results: blocks add up parts of them, and others what those have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from plain_pipelines import F32, U8, Plain, bytes_, floats
from test_plain_pipelines import by_halide, close

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

i, j, k = hl.Var("i"), hl.Var("j"), hl.Var("k")
Shape = tuple[int, ...]


def autocorrelation(terms: int) -> Plain:
    signal, out = hl.ImageParam(F32, 2, "signal"), hl.Func("out")
    s = hl.RDom([(0, signal.width() - 24)], "s")
    out[k, i] += signal[s, i] * signal[s + k, i]
    return Plain(out, [(signal, floats(3, terms + 24))], (3, 24), 1e-5)


def covariance(terms: int) -> Plain:
    """Read by another Func, which is stored the other way round."""
    a, mean = hl.ImageParam(F32, 2, "a"), hl.ImageParam(F32, 1, "mean")
    both, out = hl.Func("both"), hl.Func("out")
    r = hl.RDom([(0, a.height())], "r")
    both[i, j] += a[i, r] * a[j, r]
    out[j, i] = both[i, j] / a.height() - mean[i] * mean[j]
    return Plain(out, [(a, floats(terms, 21)), (mean, floats(21))], (21, 21), 1e-5)


def rows_from_a_number(terms: int) -> Plain:
    """Does not begin at zero, and sums over two variables."""
    a, b, out = hl.ImageParam(F32, 3, "a"), hl.ImageParam(F32, 2, "b"), hl.Func("out")
    r = hl.RDom([(0, a.width()), (0, 3)], "r")
    out[i, j] = 0.5
    out[i, j] += a[r.x, r.y, j] * b[r.x, i]
    return Plain(out, [(a, floats(10, 3, terms)), (b, floats(17, terms))], (10, 17), 1e-5)


def differences(terms: int) -> Plain:
    """Of bytes, as integers; for each of several pairs."""
    a, b, out = hl.ImageParam(U8, 3, "a"), hl.ImageParam(U8, 3, "b"), hl.Func("out")
    r = hl.RDom([(0, a.width())], "r")
    out[i, j, k] += hl.u32(hl.absd(a[r, i, k], b[r, j, k]))
    arguments = [(a, bytes_(2, 9, terms)), (b, bytes_(2, 19, terms, seed=3))]
    return Plain(out, arguments, (2, 19, 9))


def furthest(terms: int) -> Plain:
    """No sum, but as associative."""
    a, b, out = hl.ImageParam(F32, 2, "a"), hl.ImageParam(F32, 2, "b"), hl.Func("out")
    r = hl.RDom([(0, a.width())], "r")
    out[i, j] = hl.f32(0)
    out[i, j] = hl.max(out[i, j], hl.abs(a[r, i] - b[r, j]))
    return Plain(out, [(a, floats(20, terms)), (b, floats(12, terms))], (12, 20))


LONG: dict[Callable[[int], Plain], dict[str, Shape]] = {
    autocorrelation: {"signal": (3, 1 << 20), "out": (3, 24)},
    covariance: {"a": (1 << 18, 21), "mean": (21,), "out": (21, 21)},
    rows_from_a_number: {"a": (10, 3, 1 << 18), "b": (17, 1 << 18), "out": (10, 17)},
    differences: {"a": (2, 9, 1 << 18), "b": (2, 19, 1 << 18), "out": (2, 19, 9)},
    furthest: {"a": (20, 1 << 18), "b": (12, 1 << 18), "out": (12, 20)},
}


def scheduled(make: Callable[[int], Plain], sizes: dict[str, Shape]) -> tuple[str, Any]:
    case = make(5)
    schedule = hb.autoschedule(case.outputs, target="sm_90a", sizes=sizes)
    return schedule.source, hb.compile(case.outputs, target="sm_90a", cache=False)


@pytest.mark.parametrize("make", LONG)
def test_right_at_any_length(make: Callable[[int], Plain]) -> None:
    source, kernel = scheduled(make, LONG[make])
    assert ".rfactor(rv, v)" in source
    part = int(source.split(", rv, rl, ")[1].split(")")[0])
    assert part < max(n for shape in LONG[make].values() for n in shape) / 8
    for terms in (7, part, 2 * part + 16, 3 * part - 5):
        case = make(terms)
        arrays = {p.name(): value for p, value in case.arguments}
        found = emulation.check(kernel, sizes=case.sizes, **arrays)
        (wanted,) = by_halide(case)
        assert close(np.asarray(found), wanted, case.tolerance)


def test_short_sums_stay_whole() -> None:
    source, _ = scheduled(covariance, {"a": (200, 3000), "mean": (3000,), "out": (3000, 3000)})
    assert "rfactor" not in source
