"""Sums that a schedule leaves on CUDA cores and that a tensor unit would take are told, with the
directive; nothing goes there unasked.
"""

from __future__ import annotations

from collections.abc import Callable

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb

F16 = hl.Float(16)
x, y, xo, yo, xi, yi = (hl.Var(n) for n in ("x", "y", "xo", "yo", "xi", "yi"))


def product(a: hl.ImageParam, b: hl.ImageParam) -> hl.Expr:
    k = hl.RDom([(0, 64)], "k")
    return hl.f32(a[k, y]) * hl.f32(b[x, k])


def windows(a: hl.ImageParam, b: hl.ImageParam) -> hl.Expr:
    r = hl.RDom([(0, 5), (0, 5)], "r")
    return hl.f32(a[x + r.x, y + r.y]) * hl.f32(b[r.x, r.y])


def layered() -> hl.Func:
    c = hl.Var("c")
    image, weights = hl.ImageParam(F16, 3, "image"), hl.ImageParam(F16, 4, "weights")
    r = hl.RDom([(0, 3), (0, 3), (0, 32)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[c, x, y] = hl.f32(0)
    total[c, x, y] += hl.f32(image[r.z, x + r.x, y + r.y]) * hl.f32(weights[r.z, r.x, r.y, c])
    out[c, x, y] = total[c, x, y]
    out.reorder(c, x, y).gpu_tile(x, y, xo, yo, xi, yi, 16, 8)
    return out


def made(term: Callable[[hl.ImageParam, hl.ImageParam], hl.Expr]) -> tuple[hl.Func, hl.Func]:
    a, b = (hl.ImageParam(F16, 2, name) for name in "AB")
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = hl.f32(0)
    total[x, y] += term(a, b)
    out[x, y] = total[x, y]
    return total, out


def on_cores(term: Callable[[hl.ImageParam, hl.ImageParam], hl.Expr]) -> hl.Func:
    _, out = made(term)
    out.gpu_tile(x, y, xo, yo, xi, yi, 16, 8)
    return out


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: on_cores(product), "a matrix product"),
        (lambda: on_cores(windows), "windows of an image times taps"),
        (layered, "a layer"),
    ],
)
def test_what_could_go_to_a_tensor_unit_is_told(make: Callable[[], hl.Func], what: str) -> None:
    report = hb.compile(make(), target="sm_90a", cache=False).report
    assert not report.statements  # nothing is taken unasked
    (found,) = report.opportunities
    directive = "hb.store_in(total, hb.MemoryType.WMMAAccumulator)"
    assert (found.func, found.what, found.directive) == ("total", what, directive)
    assert str(found) == f"total is {what}: {directive}"
    assert "opportunit" not in str(report)


def test_the_directive_is_what_is_missing() -> None:
    """With it, and vectors of a tile, the sum is there."""
    total, out = made(windows)
    t = total.rvars(0)
    out.split(x, xo, xi, 256).vectorize(xi).gpu_blocks(xo, y)
    total.compute_at(out, xo).bound_extent(x, 256).vectorize(x)
    total.update().reorder(t[0], x, t[1]).atomic().vectorize(t[0]).vectorize(x)
    (found,) = hb.compile(on_cores(windows), target="sm_90a").report.opportunities
    exec(found.directive, {"hb": hb, "total": total})
    report = hb.compile(out, target="sm_90a", cache=False).report
    assert report.updates
    assert report.opportunities == ()


def root(a: hl.ImageParam, b: hl.ImageParam) -> hl.Expr:
    k = hl.RDom([(0, 64)], "k")
    return hl.sqrt(hl.f32(a[k, y])) * hl.f32(b[x, k])


def rounded(a: hl.ImageParam, b: hl.ImageParam) -> hl.Expr:
    k = hl.RDom([(0, 64)], "k")
    return hl.f32(a[k, y] * b[x, k])


@pytest.mark.parametrize("term", [root, rounded])
def test_what_could_not_is_not_told(
    term: Callable[[hl.ImageParam, hl.ImageParam], hl.Expr],
) -> None:
    kernel = hb.compile(on_cores(term), target="sm_90a", cache=False)
    assert kernel.report.opportunities == ()
    arrays = {n: np.ones((64, 64), np.float16) for n in "AB"}
    assert np.all(kernel.interpret(**arrays, sizes=(64, 64)) == 64)


def test_a_cpu_has_none_and_a_loaded_kernel_tells_none(tmp_path) -> None:  # type: ignore[no-untyped-def]
    import selector

    _, out = made(product)
    assert hb.compile(out, target="amx", cache=False).report.opportunities == ()
    kernel = hb.compile(on_cores(product), target="sm_90a", cache=False)
    kernel.save(tmp_path / "a.kernel")
    assert selector.load(tmp_path / "a.kernel").report.opportunities == ()
