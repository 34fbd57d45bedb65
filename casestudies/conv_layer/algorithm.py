"""A convolution layer, in plain Halide: 3 x 3 taps over all channels, bias, ReLU.

Channels are innermost (NHWC in NumPy's order of axes): with bias where the sum starts,
``conv(c, x, y, n) += f32(I(ci, x + rx, y + ry, n)) * f32(K(c, ci, rx, ry))`` and
``output = max(conv, 0)`` (paper section IV).

With a stride, taps read every second pixel, say. ``planes(c, x, y, n, p) = I(c, 2*x + p, y, n)``
deals a row's pixels out, so that a tap reads neighbours of one plane, as tensor units want them.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from casestudies.conv_layer.tiles import TAPS


@dataclass(frozen=True, slots=True)
class Layer:
    """The Funcs that a schedule talks about. ``r.x`` runs over the input channels, ``r.y`` and
    ``r.z`` over the taps of a row and the rows of taps. ``planes`` where pixels are dealt out.
    """

    inputs: int
    outputs: int
    stride: int
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
    planes: hl.Func | None = None

    @property
    def reader(self) -> hl.Func:
        """What reads the image."""
        return self.planes or self.conv

    def staged(self, image: hl.ImageParam | hl.Func) -> hl.Func:
        """What a block copies of the image, or of a copy of it: ``(c, x, y, n)``, of planes
        ``(c, x, y, n, p)``.
        """
        return self.planes or image.in_(self.conv)


def layer(inputs: int, outputs: int, stride: int = 1, *, dealt: bool = True) -> Layer:
    """The unscheduled pipeline; the numbers of channels are constants of the compiled kernel, the
    number and size of the images are not. ``dealt``: with a stride pixels are dealt out.
    """
    image = hl.ImageParam(hl.Float(16), 4, "I")
    weights = hl.ImageParam(hl.Float(16), 4, "K")
    bias = hl.ImageParam(hl.Float(16), 1, "bias")
    conv, output = hl.Func("conv"), hl.Func("output")
    c, x, y, n = hl.Var("c"), hl.Var("x"), hl.Var("y"), hl.Var("n")
    r = hl.RDom([(0, inputs), (0, TAPS), (0, TAPS)], "r")
    conv[c, x, y, n] = hl.f32(bias[c])
    planes = None
    if stride == 1 or not dealt:
        pixel = image[r.x, stride * x + r.y, stride * y + r.z, n]
    else:
        planes, p = hl.Func("planes"), hl.Var("p")
        planes[c, x, y, n, p] = image[c, stride * x + p, y, n]
        pixel = planes[r.x, x + r.y // stride, stride * y + r.z, n, r.y % stride]
    conv[c, x, y, n] += hl.f32(pixel) * hl.f32(weights[c, r.x, r.y, r.z])
    output[c, x, y, n] = hl.max(conv[c, x, y, n], 0.0)
    return Layer(inputs, outputs, stride, image, weights, bias, conv, output, c, x, y, n, r, planes)
