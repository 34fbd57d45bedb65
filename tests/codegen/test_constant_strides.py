"""Rows of a constant stride: an index that Halide merged into one ramp does not show where they
end, so guards go by what the stride says.
"""

from __future__ import annotations

import operator
import re

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb

TILE, TAPS, ROWS = 128, 8, 4
F16 = hl.Float(16)


def rows_of_stride(stride: int, width: int, staged: bool = True) -> hl.Func:
    """A convolution of rows that lie ``stride`` apart; blocks stage ``width`` elements of each."""
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    image.dim(1).set_stride(stride)
    x, y, xo, xi, yo, yi = (hl.Var(n) for n in ("x", "y", "xo", "xi", "yo", "yi"))
    t = hl.RDom([(0, TAPS)], "t")
    conv, out = hl.Func("conv"), hl.Func("output")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(image[x + t.x, y]) * hl.f32(weights[t.x])
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, TILE).split(y, yo, yi, ROWS).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.bound_extent(x, TILE).compute_at(out, yi).vectorize(x)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    conv.update().reorder(t.x, x).atomic().vectorize(x).vectorize(t.x)
    if staged:
        rows = image.in_(conv)
        a, b = rows.args()
        rows.compute_at(out, xo).store_in(hl.MemoryType.GPUShared)
        rows.bound_extent(a, width).bound_extent(b, ROWS).vectorize(a).vectorize(b)
    return out


class Unsigned:
    """A cast of C, before its operand as ``@``."""

    def __matmul__(self, a: int) -> int:
        return a % (1 << 32)


FUNCTIONS = {"floor_mod": operator.mod, "floor_div": operator.floordiv, "u32": Unsigned()}


def python(text: str) -> str:
    """A condition of C as Python."""
    return text.replace("(u32)", "u32 @ ").replace("&&", "and").replace("/", "//")


def staged_rows(source: str, image: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """What the elements of a border tile become: the emitted lines, line by line, in Python."""
    start = source.index("else {", source.index("I_im_in_conv = "))
    lines = source[start : source.index("copy_commit", start)]
    count = int(re.search(r"if \(i >= (\d+)\) break", lines)[1])  # type: ignore[index]
    names = re.findall(r"const int (x|row\d|c\d) = (.*);", lines)
    place = re.search(r" to = I_im_in_conv \+ (.*);", lines)
    origin = re.search(r" from = I \+ \((.*)\);", lines)
    whole = re.search(r"if \((.*)\) \{\n *copy16", lines)
    element = re.search(r"to\[e\] = (.*) \? from\[e\]", lines)
    assert place is not None
    assert origin is not None
    assert whole is not None
    assert element is not None
    flat = image.reshape(-1)
    staged = np.full(4096, np.nan, np.float16)
    for i in range(count):
        v = dict(FUNCTIONS, i=i, aligned_I_16=True)
        v |= {"output_s0_x_xo_block_id_x": block[0], "output_s0_y_yo_block_id_y": block[1]}
        v |= {"I_extent_0": EXTENT[1], "I_extent_1": EXTENT[0]}
        for name, text in names:
            v[name] = eval(python(text), v)
        to, source_at = (eval(python(m[1]), v) for m in (place, origin))
        for e in range(8):
            v["e"] = e
            inside = eval(python(whole[1]), v) or eval(python(element[1]), v)
            staged[to + e] = flat[source_at + e] if inside else 0
    return staged


EXTENT = (7, 132)


@pytest.mark.parametrize("stride", [136, 144, 160])
@pytest.mark.parametrize("block", [(0, 0), (0, 1)])
def test_border_tiles_hold_what_the_image_holds(stride: int, block: tuple[int, int]) -> None:
    source = hb.compile(rows_of_stride(stride, stride), target="sm_90a").source
    image = np.full((EXTENT[0], stride), np.nan, np.float16)
    image[:, : EXTENT[1]] = np.random.default_rng(3).uniform(-1, 1, EXTENT)
    padded = np.zeros((ROWS * 2, stride), np.float16)
    padded[: EXTENT[0]] = np.nan_to_num(image)
    staged = staged_rows(source, image, block)
    rows = padded[ROWS * block[1] :][:ROWS]
    pitch = int(re.search(r"I_im_in_conv \+ \(\(output_s0_y_yi_thread_id_x \* (\d+)\)", source)[1])  # type: ignore[index]
    for y, row in enumerate(rows):
        np.testing.assert_array_equal(staged[pitch * y :][:stride], row)
