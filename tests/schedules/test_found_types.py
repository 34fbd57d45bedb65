"""Values and shapes that were refused: arithmetic in fixed point, rows of booleans, strict floats,
many dimensions.
"""

from __future__ import annotations

import emulation
import halide as hl
import numpy as np
import pytest
from plain_pipelines import F16, F32, Plain, bytes_, floats
from test_found_updates import checked
from test_plain_pipelines import by_halide

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

x, y, z, c, n = (hl.Var(name) for name in ["x", "y", "z", "c", "n"])
KINDS = {
    "int8": hl.Int(8),
    "uint8": hl.UInt(8),
    "int16": hl.Int(16),
    "uint16": hl.UInt(16),
    "int32": hl.Int(32),
}


def fixed_point(name: str) -> Plain:
    """What Halide has of it, of values to both ends of a type."""
    kind, dtype = KINDS[name], np.dtype(name)
    a, b = hl.ImageParam(kind, 1, "a"), hl.ImageParam(kind, 1, "b")
    shift, amount = hl.cast(hl.UInt(kind.bits()), kind.bits() - 1), hl.cast(kind, 3)
    values = [
        hl.saturating_add(a[x], b[x]),
        hl.saturating_sub(a[x], b[x]),
        hl.halving_add(a[x], b[x]),
        hl.halving_sub(a[x], b[x]),
        hl.rounding_halving_add(a[x], b[x]),
        hl.mul_shift_right(a[x], b[x], shift),
        hl.rounding_mul_shift_right(a[x], b[x], shift),
        hl.rounding_shift_right(a[x], amount),
        hl.rounding_shift_left(a[x], amount),
        hl.absd(a[x], b[x]),
    ]
    outputs = [hl.Func(f"out{k}") for k in range(len(values))]
    for output, value in zip(outputs, values, strict=True):
        output[x] = value
    limits, random = np.iinfo(dtype), np.random.default_rng(0)
    ends = [limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max]
    pairs = np.array([(p, q) for p in ends for q in ends], dtype)
    more = random.integers(limits.min, limits.max, (201, 2), dtype, endpoint=True)
    left, right = np.concatenate([pairs, more]).T.copy()
    return Plain(outputs, [(a, left), (b, right)], {f.name(): left.shape for f in outputs}, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_fixed_point(kind: str) -> None:
    case = fixed_point(kind)
    names = [f.name().split("$")[0] for f in case.outputs]
    sizes = dict(zip(names, case.sizes.values(), strict=True))
    arrays = {p.name(): value for p, value in case.arguments}
    kernel = hb.compile(case.outputs, target="sm_90a", schedule="auto", cache=False)
    wanted = by_halide(fixed_point(kind))
    for found in (
        kernel.interpret(sizes=sizes, **arrays),
        emulation.check(kernel, sizes=sizes, **arrays),
    ):
        for name, value in zip(names, wanted, strict=True):
            assert np.array_equal(found[name], value), name


def counted(shape: tuple[int, int], columns: bool) -> Plain:
    """How many of a row, or of a column, are set."""
    mask, out = hl.ImageParam(hl.Bool(), 2, "mask"), hl.Func("out")
    r = hl.RDom([(0, mask.height() if columns else mask.width())])
    out[x] += hl.i32(mask[x, r] if columns else mask[r, x])
    return Plain(out, [(mask, floats(*shape) > 0.4)], (shape[columns],), 0)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("shape", [(19, 52), (3, 1), (1, 640), (40, 129)])
def test_sums_of_booleans(shape: tuple[int, int], columns: bool) -> None:
    checked(counted(shape, columns), counted(shape, columns))


def compared(columns: int) -> Plain:
    """Booleans are stored as vectors are."""
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    out[x, y] = a[x, y] > 0.5
    return Plain(out, [(a, floats(9, columns))], (9, columns), 0)


@pytest.mark.parametrize("columns", [416, 403, 5])
def test_booleans_that_are_stored(columns: int) -> None:
    checked(compared(columns), compared(columns))


def strict() -> Plain:
    """What `hl.is_nan` and `hl.strict_float` make of sums, products and comparisons."""
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    value = hl.log(a[x, y] - 0.5) * 3
    apart = hl.strict_float(hl.max(a[x, y] * 3 / 2, 0.7) - hl.min(a[x, y], 0.2) + 1)
    out[x, y] = hl.select(hl.is_nan(value), apart, hl.is_finite(value), value, 9.0)
    return Plain(out, [(a, floats(33, 47))], (33, 47))


def test_strict_floats() -> None:
    checked(strict(), strict())


def turned() -> Plain:
    a, out = hl.ImageParam(F16, 5, "a"), hl.Func("out")
    out[x, y, z, c, n] = a[n, y, z, c, x]
    return Plain(out, [(a, floats(40, 2, 4, 5, 33, type_=np.float16))], (33, 2, 4, 5, 40), 0)


def test_five_dimensions_turned() -> None:
    """As many blocks as a grid has dimensions for."""
    checked(turned(), turned())


def test_bytes_of_a_few_bits() -> None:
    """Ten bits a pixel, four pixels in five bytes."""

    def unpacked() -> Plain:
        a, out = hl.ImageParam(hl.UInt(8), 2, "a"), hl.Func("out")
        low = hl.u16(a[5 * (x / 4) + 4, y]) >> hl.u16(2 * (x % 4))
        out[x, y] = (hl.u16(a[5 * (x / 4) + x % 4, y]) << 2) | (low & 3)
        return Plain(out, [(a, bytes_(17, 65))], (17, 52), 0)

    checked(unpacked(), unpacked())
