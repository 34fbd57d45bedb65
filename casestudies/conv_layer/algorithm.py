"""A convolution layer, in plain Halide: 3 x 3 taps over all channels, bias, ReLU.

Channels are innermost (NHWC in NumPy's order of axes): with bias where the sum starts,
``conv(c, x, y, n) += f32(I(ci, x + rx, y + ry, n)) * f32(K(c, ci, rx, ry))`` and
``output = max(conv, 0)`` (paper section IV).
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from casestudies.conv_layer.tiles import TAPS


@dataclass(frozen=True, slots=True)
class Layer:
    """The Funcs that a schedule talks about. ``r.x`` runs over the input channels, ``r.y`` and
    ``r.z`` over the taps of a row and the rows of taps.
    """

    inputs: int
    outputs: int
    image: hl.ImageParam
    weights: hl.ImageParam
    bias: hl.ImageParam
    conv: hl.Func
    output: hl.Func
    c: hl.Var
    x: hl.Var
    y: hl.Var
    n: hl.Var
    r: hl.RDom


def layer(inputs: int, outputs: int) -> Layer:
    """The unscheduled pipeline; the numbers of channels are constants of the compiled kernel, the
    number and size of the images are not.
    """
    image = hl.ImageParam(hl.Float(16), 4, "I")
    weights = hl.ImageParam(hl.Float(16), 4, "K")
    bias = hl.ImageParam(hl.Float(16), 1, "bias")
    conv, output = hl.Func("conv"), hl.Func("output")
    c, x, y, n = hl.Var("c"), hl.Var("x"), hl.Var("y"), hl.Var("n")
    r = hl.RDom([(0, inputs), (0, TAPS), (0, TAPS)], "r")
    conv[c, x, y, n] = hl.f32(bias[c])
    conv[c, x, y, n] += hl.f32(image[r.x, x + r.y, y + r.z, n]) * hl.f32(weights[c, r.x, r.y, r.z])
    output[c, x, y, n] = hl.max(conv[c, x, y, n], 0.0)
    return Layer(inputs, outputs, image, weights, bias, conv, output, c, x, y, n, r)
