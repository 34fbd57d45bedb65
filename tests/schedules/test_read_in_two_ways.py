"""An array that a sum reads in two ways, of which one has a name in its definition (found by the
random graphs).
"""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from plain_emulated import emulated
from plain_pipelines import U8, Plain, bytes_

pytestmark = pytest.mark.verified("tests/emulation")

x, y = hl.Var("x"), hl.Var("y")
I16 = hl.Int(16)


def a_table_in_two_ways() -> Plain:
    """By rows where it begins, and by columns, at a place that has a name."""
    table, image = hl.ImageParam(U8, 1, "table"), hl.ImageParam(I16, 2, "image")
    around, edge = hl.BoundaryConditions.constant_exterior(table, 0), hl.Func("edge")
    inside = hl.BoundaryConditions.repeat_edge(image)
    edge[x, y] = (inside[x / 2, y] % 3) / 7
    f, out, r = hl.Func("f"), hl.Func("out"), hl.RDom([(-2, 5), (-1, 4)])
    f[x, y] = hl.i32(hl.absd(hl.i32(inside[(x + 1) / 2, y]), hl.i32(around[y + 1])))
    terms = hl.i32(edge[x + r.x, y + r.y]) + hl.i32(around[x + r.x - 3])
    f[x, y] = hl.min(f[x, y], terms)
    out[x, y] = hl.cast(I16, f[x, y])
    pixels = bytes_(21, 45).astype(np.int16) - 99
    return Plain(out, [(table, bytes_(40)), (image, pixels)], (21, 45))


def test_it_is_what_halide_computes() -> None:
    emulated(a_table_in_two_ways, tolerance=0)
