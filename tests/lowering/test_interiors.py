"""What fills shared memory is a plain copy in blocks that lie inside an image, under every boundary
condition, and at the image's edges what the condition says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from selector.ir.nodes import IntImm, Not, Var
from selector.ir.types import BOOL
from selector.lowering.predicates import denied

pytestmark = pytest.mark.verified

EDGES = hl.BoundaryConditions
X, Y = hl.Var("x"), hl.Var("y")
ROWS, COLUMNS, REACH = 121, 407, 3
PADDED: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "repeat edge": (EDGES.repeat_edge, {"mode": "edge"}),
    "mirror": (EDGES.mirror_image, {"mode": "symmetric"}),
    "mirror without the edge": (EDGES.mirror_interior, {"mode": "reflect"}),
    "wrap": (EDGES.repeat_image, {"mode": "wrap"}),
    "constant": (lambda a: EDGES.constant_exterior(a, 7), {"constant_values": 7}),
}


@pytest.mark.parametrize("kind", [hl.Float(32), hl.UInt(8)], ids=["f32", "u8"])
@pytest.mark.parametrize("name", PADDED)
def test_sums_of_neighbours(name: str, kind: Any) -> None:
    condition, padding = PADDED[name]
    image, r = hl.ImageParam(kind, 2, "image"), hl.RDom([(-REACH, 2 * REACH + 1)] * 2, "r")
    at, total, out = condition(image), hl.Func("total"), hl.Func("out")
    wide = hl.f32 if kind == hl.Float(32) else hl.i32
    total[X, Y] += wide(at[X + r.x, Y + r.y]) * wide(r.x * r.y + 10)  # not by rows
    out[X, Y] = total[X, Y]
    hb.autoschedule(out, target="sm_80", sizes={"image": (2160, 3840)})
    kernel = hb.compile(out, target="sm_80", cache=False)
    assert "copy16(" in kernel.source
    rng = np.random.default_rng(0)
    data = rng.integers(0, 100, (ROWS, COLUMNS))
    around = np.pad(data, REACH, **padding)
    wanted = sum(
        around[dy : dy + ROWS, dx : dx + COLUMNS] * ((dx - REACH) * (dy - REACH) + 10)
        for dy in range(2 * REACH + 1)
        for dx in range(2 * REACH + 1)
    )
    values = data.astype(np.float32 if kind == hl.Float(32) else np.uint8)
    np.testing.assert_array_equal(emulation.check(kernel, image=values, sizes=data.shape), wanted)


def test_what_no_ordering_says_is_left() -> None:
    assert denied(Not(Var("c", BOOL))) == Var("c", BOOL)
    assert denied(IntImm(1, BOOL)) is None
