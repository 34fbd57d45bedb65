"""A convolution layer, in plain Halide: 3 x 3 taps (or others) over all channels, bias, ReLU.

Channels are innermost (NHWC in NumPy's order of axes): with bias where the sum starts,
``conv(c, x, y, n) += f32(I(ci, x + rx, y + ry, n)) * f32(K(c, ci, rx, ry))`` and
``output = max(conv, 0)`` (paper section IV).

A padded image has zeros around it, here a pixel of them: taps read ``I(ci, x + rx - 1, y + ry - 1,
n)``. With a dilation they read every second pixel, say: ``I(ci, x + 2*rx, y + 2*ry, n)``. With a
stride windows do: ``I(ci, 2*x + rx, 2*y + ry, n)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from casestudies.conv_layer.problem import USUAL, Window


@dataclass(frozen=True, slots=True)
class Layer:
    """The Funcs that a schedule talks about. ``arrays`` are the inputs, ``image`` is what taps
    read. ``r.x`` runs over the input channels, ``r.y`` and ``r.z`` over the taps of a row and the
    rows of taps.
    """

    inputs: int
    outputs: int
    stride: int
    arrays: tuple[hl.ImageParam, ...]
    image: hl.ImageParam | hl.Func
    weights: hl.ImageParam
    conv: hl.Func
    output: hl.Func
    c: hl.Var
    x: hl.Var
    y: hl.Var
    n: hl.Var
    r: hl.RDom


def layer(
    inputs: int,
    outputs: int,
    stride: int = 1,
    *,
    padded: bool = False,
    residual: bool = False,
    result: str = "f32",
    window: Window = USUAL,
) -> Layer:
    """The unscheduled pipeline; the numbers of channels are constants of the compiled kernel, the
    number and size of the images are not. ``padded``, ``residual`` and ``result``: see ``problem``.
    """
    image = hl.ImageParam(hl.Float(16), 4, "I")
    weights = hl.ImageParam(hl.Float(16), 4, "K")
    bias = hl.ImageParam(hl.Float(16), 1, "bias")
    conv, output = hl.Func("conv"), hl.Func("output")
    c, x, y, n = hl.Var("c"), hl.Var("x"), hl.Var("y"), hl.Var("n")
    r = hl.RDom([(0, inputs), (0, window.taps), (0, window.taps)], "r")
    across, down = (v if window.dilation == 1 else window.dilation * v for v in (r.y, r.z))
    conv[c, x, y, n] = hl.f32(bias[c])
    source = zeros_around(image, window) if padded else image
    pixel = source[r.x, stride * x + across, stride * y + down, n]
    conv[c, x, y, n] += hl.f32(pixel) * hl.f32(weights[c, r.x, r.y, r.z])
    arrays, value = (image, weights, bias), conv[c, x, y, n]
    if residual:
        added = hl.ImageParam(hl.Float(16), 4, "residual")
        arrays, value = (*arrays, added), value + hl.f32(added[c, x, y, n])
    value = hl.max(value, 0.0)
    output[c, x, y, n] = value if result == "f32" else hl.cast(hl.Float(16), value)
    output.bound(c, 0, outputs)
    sizes = inputs, outputs, stride
    return Layer(*sizes, arrays, source, weights, conv, output, c, x, y, n, r)


def zeros_around(image: hl.ImageParam, window: Window) -> hl.Func:
    """The image with rows and columns of zeros on each side, as many as let a window be centred on
    each of its pixels; the first of these is where the zeros end.
    """
    before = window.reach // 2
    padded = hl.Func("padded")
    c, x, y, n = (hl.Var(name) for name in "cxyn")
    wide, high = image.dim(1).extent(), image.dim(2).extent()
    across = (x >= before) & (x < wide + before)
    inside = across & (y >= before) & (y < high + before)
    column, row = hl.clamp(x - before, 0, wide - 1), hl.clamp(y - before, 0, high - 1)
    pixel = image[c, column, row, n]
    padded[c, x, y, n] = hl.select(inside, pixel, hl.cast(hl.Float(16), 0))
    return padded
