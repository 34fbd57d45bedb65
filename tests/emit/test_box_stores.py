"""Results by the copy engine: the widest boxes that their swizzles allow, whatever the statements
that they come from.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.gemm.algorithm import multiply
from casestudies.gemm.warpgroups import Groups, warpgroups
from selector.emit.warpgroups.box_stores import BoxStore, merged
from selector.ir.nodes import Expr, IntImm, Var
from selector.ir.types import FLOAT16
from selector.runtime.plan import MapArgument


@pytest.mark.parametrize(
    ("types", "columns", "boxes"), [("f16-f16", 64, 4), ("bf16-bf16", 64, 4), ("f16-f32", 32, 8)]
)
@pytest.mark.parametrize("persistent", [0, 1])
def test_rows_of_128_bytes(types: str, columns: int, boxes: int, persistent: int) -> None:
    """Statements are 32 columns wide."""
    size = replace(Groups(), persistent=persistent)
    kernel = hb.compile(warpgroups(multiply(types), size), target="sm_90a")
    (launch,) = kernel.plan.launches
    found = [a for a in launch.arguments if isinstance(a, MapArgument) and a.name == "C"]
    assert [a.box for a in found] == [(columns, 16)]
    assert len(re.findall(r"^ +tensor_store2\(", kernel.source, re.MULTILINE)) == boxes


def box(x: Expr, columns: int = 32, name: str = "C") -> BoxStore:
    extents = (Var("C.extent.0"), Var("C.extent.1"))
    argument = MapArgument(name, FLOAT16, extents, (Var("C.stride.1"),), (columns, 16))
    return BoxStore(argument, (x, IntImm(0)), 1, 2)


def test_what_continues_is_merged() -> None:
    wide = merged([box(IntImm(64)), box(IntImm(96))])
    assert wide is not None
    assert (wide.map.box, wide.first[0], wide.row_bytes) == ((64, 16), IntImm(64), 128)


@pytest.mark.parametrize(
    "second", [box(IntImm(64)), box(IntImm(128)), box(IntImm(96), 16), box(IntImm(96), 32, "D")]
)
def test_what_does_not_continue_is_not(second: BoxStore) -> None:
    assert merged([box(IntImm(64)), second]) is None


def test_swizzles_go_with_some_widths_only() -> None:
    assert merged([box(IntImm(64 * i), 64) for i in range(2)]) is None
    assert merged([box(IntImm(8 * i), 8) for i in range(3)]) is None
