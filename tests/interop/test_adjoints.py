"""Gradients that are written by themselves, against torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import pytest

import halide_bridge as hb
from selector.diagnostics import ScheduleError

pytestmark = pytest.mark.verified

x, y, z = hl.Var("x"), hl.Var("y"), hl.Var("z")
F32, F16 = hl.Float(32), hl.Float(16)


def params(a: int, b: int, element: Any = F32) -> tuple[Any, Any, Any]:
    return hl.ImageParam(element, a, "a"), hl.ImageParam(element, b, "b"), hl.Func("out")


def product() -> Any:
    a, b, out = params(2, 2)
    k = hl.RDom([(0, a.width())])
    out[x, y] += a[k, y] * b[x, k]
    return out


def turned_and_rounded() -> Any:
    a, b, out = params(2, 2, F16)
    k, sums = hl.RDom([(0, b.width())]), hl.Func("sums")
    sums[x, y] += hl.f32(a[k, y]) * hl.f32(b[k, x])
    out[x, y] = hl.cast(F16, sums[x, y])
    return out


def batches() -> Any:
    a, b, out = params(3, 3)
    k = hl.RDom([(0, a.width())])
    out[x, y, z] += a[k, y, z] * b[x, k, z]
    return out


def outputs_in_another_order() -> Any:
    a, b, out = params(2, 2)
    k, sums = hl.RDom([(0, a.width())]), hl.Func("sums")
    sums[y, x] += a[k, y] * b[x, k]
    out[x, y] = sums[y, x]
    return out


def windows() -> Any:
    a, b, out = params(3, 2)
    r = hl.RDom([(0, 3), (0, 2)])
    out[x, y, z] += a[x + r.x, y + r.y, z] * b[r.x, r.y]
    return out


def windows_of_any_size() -> Any:
    a, b, out = params(2, 1)
    r = hl.RDom([(0, b.width())])
    out[x, y] += b[r] * a[x + r, y]
    return out


def some_terms() -> Any:
    a, b, out = params(2, 1)
    r = hl.RDom([(1, 3)])
    out[y] += a[r, y] * b[r]
    return out


CASES: list[tuple[Callable[[], Any], tuple[int, ...], tuple[int, ...], str, Any]] = [
    (product, (5, 7), (7, 4), "ik,kj->ij", None),
    (turned_and_rounded, (5, 7), (4, 7), "ik,jk->ij", lambda a, b: (a[0], b[0])),
    (batches, (2, 5, 7), (2, 7, 4), "zik,zkj->zij", lambda a, b: (a[0], a[1], b[2])),
    (outputs_in_another_order, (5, 7), (7, 4), "ik,kj->ij", None),
    (windows, (2, 6, 9), (2, 3), "conv", None),
    (windows_of_any_size, (5, 11), (4,), "rows", None),
    (some_terms, (5, 6), (6,), "some", lambda a, b: (a[0],)),
]


def truth(torch: Any, how: str, a: Any, b: Any) -> Any:
    if how == "conv":
        return torch.nn.functional.conv2d(a[:, None], b[None, None])[:, 0]
    if how == "rows":
        return torch.nn.functional.conv1d(a[:, None], b[None, None])[:, 0]
    if how == "some":
        return a[:, 1:4] @ b[1:4]
    return torch.einsum(how, a, b)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].__name__)
def test_gradients_are_torchs(case: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")
    from selector.interop.torch import torch_op

    make, of_a, of_b, how, shape = case
    op = torch_op(
        f"test_adjoints::{make.__name__}", make(), shape=shape, backward="adjoint",
        target="sm_90a", cpu="interpret",
    )  # fmt: skip
    torch.manual_seed(1)
    element = torch.float16 if make is turned_and_rounded else torch.float32
    a, b = (torch.randn(s).to(element).requires_grad_() for s in (of_a, of_b))
    wide = [v.detach().double().requires_grad_() for v in (a, b)]
    found, wanted = op(a, b), truth(torch, how, *wide)
    weights = torch.randn(wanted.shape).to(element)
    found.backward(weights)
    wanted.backward(weights.double())
    tolerance = 4e-3 if element is torch.float16 else 1e-5
    for ours, theirs in zip(
        (found, a.grad, b.grad), (wanted, wide[0].grad, wide[1].grad), strict=True
    ):
        assert ours.dtype == element
        torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance)


def test_what_a_tensor_unit_has_it_has_backwards_as_well() -> None:
    a, b, out = params(2, 2, F16)
    k, sums = hl.RDom([(0, a.width())]), hl.Func("sums")
    sums[x, y] += hl.f32(a[k, y]) * hl.f32(b[x, k])
    out[x, y] = hl.cast(F16, sums[x, y])
    report = hb.autoschedule(hb.adjoint(out), target="sm_90a").report
    assert report.count("on tensor units by wgmma") == 2


def squared() -> Any:
    a, _, out = params(2, 1)
    k = hl.RDom([(0, 4)])
    out[x, y] += a[k, y] * a[k, x]
    return out


def bounded() -> Any:
    a, b, out = params(2, 1)
    edge, r = hl.BoundaryConditions.repeat_edge(a), hl.RDom([(0, 3)])
    out[x, y] += edge[x + r, y] * b[r]
    return out


def strided() -> Any:
    a, b, out = params(2, 1)
    r = hl.RDom([(0, 3)])
    out[x, y] += a[2 * x + r, y] * b[r]
    return out


def integers() -> Any:
    a, b, out = params(2, 1, hl.UInt(8))
    r = hl.RDom([(0, 3)])
    out[x, y] += hl.f32(a[x + r, y]) * hl.f32(b[r])
    return out


def diagonal() -> Any:
    a, b, out = params(2, 1)
    r = hl.RDom([(0, 3)])
    out[x] += a[r, r] * b[x + r]
    return out


def no_sum() -> Any:
    a, b, out = params(2, 2)
    out[x, y] = a[x, y] * b[x, y]
    return out


def rounded() -> Any:
    a, b, out = params(2, 1)
    r = hl.RDom([(0, 3)])
    out[x, y] += hl.f32(hl.cast(F16, a[x + r, y])) * b[r]
    return out


def largest() -> Any:
    a, _, out = params(2, 1)
    out[y] = hl.f32(0)
    out[y] = hl.max(out[y], a[hl.RDom([(0, 3)])[0], y])
    return out


def of_each_pixel() -> Any:
    a, b, out = params(2, 3)
    r = hl.RDom([(0, 3)])
    out[x, y] += a[x + r, y] * b[x, y, r]
    return out


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (squared, "is multiplied by itself"),
    (bounded, "the factor `repeat_edge` is computed"),
    (strided, "read at multiples or products of variables"),
    (integers, "are no floats"),
    (diagonal, "read along a diagonal"),
    (no_sum, "it is no sum of products"),
    (rounded, "is rounded before it is multiplied"),
    (largest, "does not add products of two arguments"),
    (of_each_pixel, "read along the windows of `a` as well"),
    (lambda: [product(), product()], "it has several outputs"),
]


@pytest.mark.parametrize(("make", "why"), REFUSED)
def test_what_is_refused(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(ScheduleError, match="no gradient of") as caught:
        hb.adjoint(make())
    assert why in str(caught.value)
