"""Blocks that read nothing beyond an edge go another way than those that do: pictures with some of
both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import emulation
import halide as hl
import numpy as np
import pytest
from plain_pipelines import F32, U8, Plain, bytes_, floats
from test_plain_pipelines import by_halide, close

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

x, y, z = hl.Var("x"), hl.Var("y"), hl.Var("z")
AROUND = {
    "repeated": hl.BoundaryConditions.repeat_edge,
    "mirrored": hl.BoundaryConditions.mirror_image,
    "mirrored inside": hl.BoundaryConditions.mirror_interior,
    "again": hl.BoundaryConditions.repeat_image,
    "zeros": lambda image: hl.BoundaryConditions.constant_exterior(image, 0),
}
ROWS = (416, 403)  # that begin at vectors, and that do not


def crossed(around: str, columns: int, reach: int) -> Plain:
    """The sum of a cross of neighbours."""
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    at = AROUND[around](a)
    arms = [at[x, y]]
    for d in range(1, reach + 1):
        arms += [at[x + d, y], at[x - d, y], at[x, y + d], at[x, y - d]]
    out[x, y] = sum(arms[1:], arms[0])
    return Plain(out, [(a, floats(42, columns))], (42, columns))


def softened(around: str, columns: int, reach: int) -> Plain:
    """The mean of a square of bytes."""
    a, out, n = hl.ImageParam(U8, 2, "a"), hl.Func("out"), 2 * reach + 1
    at = AROUND[around](a)
    near = [
        hl.u16(at[x + d, y + e]) for e in range(-reach, n - reach) for d in range(-reach, n - reach)
    ]
    out[x, y] = hl.u8((sum(near[1:], near[0]) + n * n // 2) / (n * n))
    return Plain(out, [(a, bytes_(70, 3 * columns))], (70, 3 * columns))


def checked(make: Callable[[], Plain]) -> str:
    """The text of a kernel that computes what Halide does."""
    case = make()
    hb.autoschedule(case.outputs, target="sm_90a")
    kernel = hb.compile(case.outputs, target="sm_90a", cache=False)
    arrays = {p.name(): value for p, value in case.arguments}
    found = emulation.check(kernel, sizes=case.sizes, **arrays)
    (wanted,) = by_halide(make())
    assert close(np.asarray(found), wanted, case.tolerance)
    return kernel.source


@pytest.mark.parametrize("columns", ROWS)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("reach", [1, 3])
def test_crosses(around: str, columns: int, reach: int) -> None:
    checked(partial(crossed, around, columns, reach))


@pytest.mark.parametrize("columns", ROWS)
@pytest.mark.parametrize("around", AROUND)
def test_squares_of_bytes(around: str, columns: int) -> None:
    checked(partial(softened, around, columns, 1))


def test_a_block_inside_bends_no_place() -> None:
    """Nor does it ask whether a row is there."""
    text = checked(partial(crossed, "repeated", 416, 1))
    first = text.index("if (whole)")
    body = text[first : text.index("else", text.index("near", first))]
    assert "max(" not in body
    assert "? " not in body


def in_space(around: str) -> Plain:
    a, out = hl.ImageParam(F32, 3, "a"), hl.Func("out")
    at = AROUND[around](a)
    out[x, y, z] = at[x, y, z - 1] + at[x, y, z + 1] + at[x - 1, y, z] + at[x + 2, y - 1, z]
    return Plain(out, [(a, floats(4, 26, 416))], (4, 26, 416))


@pytest.mark.parametrize("around", ["repeated", "zeros"])
def test_three_dimensions(around: str) -> None:
    checked(partial(in_space, around))
