"""``lerp`` of integers, whose rounding is what Halide's own code generators say."""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb

pytestmark = pytest.mark.verified

Array = np.ndarray[Any, np.dtype[Any]]
TYPES = {
    "u8": (hl.UInt(8), np.uint8), "i8": (hl.Int(8), np.int8), "u16": (hl.UInt(16), np.uint16),
    "i16": (hl.Int(16), np.int16), "u32": (hl.UInt(32), np.uint32), "i32": (hl.Int(32), np.int32),
    "f32": (hl.Float(32), np.float32),
}  # fmt: skip
SHAPE = (9, 40)


def drawn(name: str, generator: np.random.Generator) -> Array:
    """Elements of the whole range, its ends among them; weights of floats are from 0 to 1."""
    dtype = TYPES[name][1]
    if name == "f32":
        return generator.random(SHAPE).astype(np.float32)
    ends = np.iinfo(np.dtype(dtype).name)
    found = generator.integers(ends.min, ends.max, SHAPE, dtype=dtype, endpoint=True)
    found[0, :2] = ends.min, ends.max
    return found


@pytest.mark.parametrize("weight", ["u8", "u16", "u32", "f32"])
@pytest.mark.parametrize("element", ["u8", "i8", "u16", "i16", "u32", "i32"])
def test_integers(element: str, weight: str) -> None:
    """The weight may have more bits than the elements, or fewer."""
    names = {"a": element, "b": element, "w": weight}
    a, b, w = (hl.ImageParam(TYPES[t][0], 2, name) for name, t in names.items())
    x, y, out = hl.Var("x"), hl.Var("y"), hl.Func("out")
    out[x, y] = hl.lerp(a[x, y], b[x, y], w[x, y])
    generator = np.random.default_rng(7)
    arrays = {name: drawn(t, generator) for name, t in names.items()}
    for param in (a, b, w):
        param.set(hl.Buffer(arrays[param.name()]))
    expected = np.array(out.realize(SHAPE[::-1]))
    kernel = hb.compile(out, target="sm_80", schedule="auto")
    assert np.array_equal(kernel.interpret(**arrays), expected)
