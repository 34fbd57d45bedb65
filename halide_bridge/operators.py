"""Pipelines of ready-made operators, with those of their gradients: plain algorithms, for any size.

Elements are of type ``dtype``, sums and what is computed of them float32. Axes in NumPy's order, as
torch has them: the last one is Halide's dimension 0. Gradients follow the names that
``selector.interop.torch.torch_op`` reads.
"""

from __future__ import annotations

from typing import Any

import halide

from selector.diagnostics import ArgumentError
from selector.interop.operator import Operator, ready

hl: Any = halide
BOUNDARIES = ("zero", "edge", "reflect")


def softmax(dtype: str = "float32") -> Operator:
    """``scores`` (rows, n) to their softmax along the last axis."""
    x, y = hl.Var("x"), hl.Var("y")
    t = _type(dtype)
    scores, result = hl.ImageParam(t, 2, "scores"), hl.Func("result")
    r = hl.RDom([(0, scores.width())], "r")
    top, total = hl.Func("top"), hl.Func("total")
    top[y] = hl.maximum(hl.f32(scores[r, y]))
    total[y] = hl.sum(hl.exp(hl.f32(scores[r, y]) - top[y]))
    result[x, y] = hl.cast(t, hl.exp(hl.f32(scores[x, y]) - top[y]) / total[y])
    return ready("softmax", result, _softmax_gradient(t))


def _softmax_gradient(t: Any) -> Any:
    x, y = hl.Var("x"), hl.Var("y")
    result, grad = hl.ImageParam(t, 2, "result"), hl.ImageParam(t, 2, "grad_result")
    found, dot = hl.Func("grad_scores"), hl.Func("dot")
    r = hl.RDom([(0, result.width())], "r")
    dot[y] = hl.sum(hl.f32(result[r, y]) * hl.f32(grad[r, y]))
    found[x, y] = hl.cast(t, hl.f32(result[x, y]) * (hl.f32(grad[x, y]) - dot[y]))
    return found


def rms_norm(dtype: str = "float32") -> Operator:
    """``a`` (rows, n) over the root of the mean of its squares and ``eps``, times ``weight`` (n),
    along the last axis.
    """
    x, y = hl.Var("x"), hl.Var("y")
    t = _type(dtype)
    a, weight = hl.ImageParam(t, 2, "a"), hl.ImageParam(t, 1, "weight")
    eps, result = hl.Param(hl.Float(32), "eps"), hl.Func("result")
    r = hl.RDom([(0, a.width())], "r")
    square = hl.Func("square")
    square[y] = hl.sum(hl.f32(a[r, y]) * hl.f32(a[r, y]))
    scale = 1 / hl.sqrt(square[y] / hl.f32(a.width()) + eps)
    result[x, y] = hl.cast(t, hl.f32(a[x, y]) * scale * hl.f32(weight[x]))
    return ready("rms_norm", result, _rms_norm_gradient(t))


def _rms_norm_gradient(t: Any) -> Any:
    x, y = hl.Var("x"), hl.Var("y")
    a, weight = hl.ImageParam(t, 2, "a"), hl.ImageParam(t, 1, "weight")
    eps, grad = hl.Param(hl.Float(32), "eps"), hl.ImageParam(t, 2, "grad_result")
    r, rows = hl.RDom([(0, a.width())], "r"), hl.RDom([(0, a.height())], "rows")
    square, dot, scale = hl.Func("square"), hl.Func("dot"), hl.Func("scale")
    of_a, of_weight = hl.Func("grad_a"), hl.Func("grad_weight")
    square[y] = hl.sum(hl.f32(a[r, y]) * hl.f32(a[r, y]))
    dot[y] = hl.sum(hl.f32(a[r, y]) * hl.f32(weight[r]) * hl.f32(grad[r, y]))
    count = hl.f32(a.width())
    scale[y] = 1 / hl.sqrt(square[y] / count + eps)
    own = hl.f32(weight[x]) * hl.f32(grad[x, y])
    pull = hl.f32(a[x, y]) * scale[y] * scale[y] * dot[y] / count
    of_a[x, y] = hl.cast(t, scale[y] * (own - pull))
    terms = hl.f32(a[x, rows]) * hl.f32(grad[x, rows]) * scale[rows]
    of_weight[x] = hl.cast(t, hl.sum(terms))
    return [of_a, of_weight]


def filter_2d(
    height: int, width: int, dtype: str = "float32", boundary: str = "reflect"
) -> Operator:
    """``image`` (planes, rows, columns) with the window ``taps`` (height, width), around each
    pixel: its correlation, as torch's ``conv2d`` computes it, in each plane.
    """
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    t = _type(dtype)
    image, taps = hl.ImageParam(t, 3, "image"), _taps(t, "taps", width, height)
    sums, result = hl.Func("sums"), hl.Func("result")
    edge, r = _around(image, boundary), hl.RDom([(0, width), (0, height)], "r")
    across, down = width // 2, height // 2
    sums[x, y, c] += hl.f32(edge[x + r.x - across, y + r.y - down, c]) * hl.f32(taps[r.x, r.y])
    result[x, y, c] = hl.cast(t, sums[x, y, c])
    backward = _filter_gradient(t, height, width) if boundary == "zero" else None
    return ready("filter_2d", result, backward)


def _filter_gradient(t: Any, height: int, width: int) -> Any:
    """The filter turned round, on the gradient with zeros around it."""
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    grad, taps = hl.ImageParam(t, 3, "grad_result"), _taps(t, "taps", width, height)
    sums, found = hl.Func("sums"), hl.Func("grad_image")
    edge, r = _around(grad, "zero"), hl.RDom([(0, width), (0, height)], "r")
    across, down = width - 1 - width // 2, height - 1 - height // 2
    turned = hl.f32(taps[width - 1 - r.x, height - 1 - r.y])
    sums[x, y, c] += hl.f32(edge[x + r.x - across, y + r.y - down, c]) * turned
    found[x, y, c] = hl.cast(t, sums[x, y, c])
    return found


def separable_filter(
    height: int, width: int, dtype: str = "float32", boundary: str = "reflect"
) -> Operator:
    """``image`` (planes, rows, columns) with ``taps_x`` (width) along rows, then with ``taps_y``
    (height) along columns, around each pixel.
    """
    t = _type(dtype)
    image = hl.ImageParam(t, 3, "image")
    result = _separable(image, height, width, t, boundary)
    return ready("separable_filter", result)


def unsharp(height: int, width: int, dtype: str = "float32", boundary: str = "reflect") -> Operator:
    """``image`` and ``amount`` times what it differs from itself filtered as ``separable_filter``
    does.
    """
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    t = _type(dtype)
    image, amount = hl.ImageParam(t, 3, "image"), hl.Param(hl.Float(32), "amount")
    blur, result = _separable(image, height, width, t, boundary), hl.Func("sharp")
    own = hl.f32(image[x, y, c])
    result[x, y, c] = hl.cast(t, own + amount * (own - hl.f32(blur[x, y, c])))
    return ready("unsharp", result)


def _separable(image: Any, height: int, width: int, t: Any, boundary: str) -> Any:
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    across, down = _taps(t, "taps_x", width), _taps(t, "taps_y", height)
    edge = _around(image, boundary)
    rx, ry = hl.RDom([(0, width)], "rx"), hl.RDom([(0, height)], "ry")
    sums, rows, both, result = (hl.Func(n) for n in ("sums", "rows", "both", "result"))
    sums[x, y, c] += hl.f32(edge[x + rx - width // 2, y, c]) * hl.f32(across[rx])
    rows[x, y, c] = hl.cast(t, sums[x, y, c])
    both[x, y, c] += hl.f32(rows[x, y + ry - height // 2, c]) * hl.f32(down[ry])
    result[x, y, c] = hl.cast(t, both[x, y, c])
    return result


def matmul(dtype: str = "float16") -> Operator:
    """``a`` (m, k) times ``b`` (k, n)."""
    t = _type(dtype)

    def product(left: str, right: str, result: str, turned: str = "") -> Any:
        x, y = hl.Var("x"), hl.Var("y")
        a, b = hl.ImageParam(t, 2, left), hl.ImageParam(t, 2, right)
        count = a.height() if turned == left else a.width()
        k, sums, found = hl.RDom([(0, count)], "k"), hl.Func("sums"), hl.Func(result)
        first = a[y, k] if turned == left else a[k, y]
        second = b[k, x] if turned == right else b[x, k]
        sums[x, y] += hl.f32(first) * hl.f32(second)
        found[x, y] = hl.cast(t, sums[x, y])
        return found

    backward = [
        product("grad_result", "b", "grad_a", "b"),
        product("a", "grad_result", "grad_b", "a"),
    ]
    return ready("matmul", product("a", "b", "result"), backward)


def _type(dtype: str) -> Any:
    match dtype:
        case "float32":
            return hl.Float(32)
        case "float16":
            return hl.Float(16)
        case "bfloat16":
            return hl.BFloat(16)
        case _:
            raise ArgumentError(
                f"{dtype!r} is no type of elements of an operator",
                hint="'float32', 'float16' or 'bfloat16'",
            )


def _taps(t: Any, name: str, *extents: int) -> Any:
    """A window of these extents, the innermost first, and no others."""
    taps = hl.ImageParam(t, len(extents), name)
    for d, extent in enumerate(extents):
        taps.dim(d).set_bounds(0, extent)
    return taps


def _around(image: Any, boundary: str) -> Any:
    """An image that goes on beyond its edges, planes apart."""
    area = [(0, image.width()), (0, image.height())]
    match boundary:
        case "zero":
            return hl.BoundaryConditions.constant_exterior(image, 0, area)
        case "edge":
            return hl.BoundaryConditions.repeat_edge(image, area)
        case "reflect":
            return hl.BoundaryConditions.mirror_interior(image, area)
        case _:
            raise ArgumentError(
                f"{boundary!r} is no boundary", hint=f"one of {', '.join(BOUNDARIES)}"
            )
