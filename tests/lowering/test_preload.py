"""A preloaded operand is laid out as its readers want it, or not touched at all."""

from __future__ import annotations

import numpy as np
import pytest

import selector.intrinsics  # noqa: F401  (meanings of calls)
from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.ir.nodes import ExprVar
from selector.ir.parser import parse_module
from selector.ir.traverse import walk_all_exprs
from selector.ir.verify import verify
from selector.lowering.preload import swizzle_preloaded


def program(
    copy: str = "T[ramp(k*16 + x*8, 1, 8)] = B[ramp(k*16 + x*8, 1, 8)]",
    read: str = "ramp(ramp(g*64 + x*8, 1, 8), x8(16), 4)",
    extents: str = "16 * 12",
    extra: str = "",
    group: int = 2,
) -> Module:
    """B is copied to T row by row; the result is T in VNNI order, a block of 4 x 8 at a time."""
    text = f"""module t
input B: int32 [(0, B.extent.0, 1)]
output out: int32 [(0, out.extent.0, 1)]
body {{
 allocate T[int32 * {extents}] in Heap
 for (k, 0, 12) {{
  for (x, 0, 2) {{
   {copy}
  }}
 }}
 for (g, 0, 3) {{
  for (x, 0, 2) {{
   out[ramp(g*64 + x*32, 1, 32)] = ExprVar((int32x32)vnni(4, 8, {group}, T[{read}]))
  }}
 }}
 {extra}
}}
"""
    module = parse_module(text, "t.vir")
    verify(module)
    return module


def swizzled(module: Module) -> bool:
    """Whether the buffer was laid out anew; its numbers are compared."""
    after = swizzle_preloaded(module)
    verify(after)
    data = np.random.default_rng(5).integers(-99, 99, 512).astype(np.int32)
    results = [interpret(m, {"B": data}, sizes={"out": (512,)})["out"] for m in (module, after)]
    assert np.array_equal(*results)
    return not any(isinstance(e, ExprVar) for e in walk_all_exprs(after.body))


@pytest.mark.parametrize("group", [2, 4])
def test_rows_that_are_copied_one_by_one(group: int) -> None:
    assert swizzled(program(group=group))


def test_rows_that_are_copied_together() -> None:
    copy = "T[ramp(ramp(k*64 + x*8, 1, 8), x8(16), 4)] = B[ramp(ramp(k*64 + x*8, 1, 8), x8(16), 4)]"
    assert swizzled(program(copy=copy.replace("k*64", "(k % 3)*64")))


def test_elements_that_are_copied_with_a_stride() -> None:
    assert swizzled(program(copy="T[ramp(k*16 + x, 2, 8)] = B[ramp(k*16 + x, 2, 8)]"))


def test_rows_that_are_looked_up() -> None:
    assert swizzled(program(copy="T[ramp((B[k] % 8)*16 + x*8, 1, 8)] = B[ramp(k*16, 1, 8)]"))


UNTOUCHED = {
    "another reader": program(extra="out[400] = T[3]"),
    "a row of unknown length": program(extents="B.extent.0 * 12"),
    "rows that are no whole groups": program(extents="16 * B.extent.0"),
    "a block that starts within a group": program(read="ramp(ramp(g*48 + x*8, 1, 8), x8(16), 4)"),
    "a block that crosses rows": program(read="ramp(ramp(g*64 + x*9, 1, 8), x8(16), 4)"),
    "a block with gaps": program(read="ramp(ramp(g*64 + x, 2, 8), x8(16), 4)"),
    "a block of another pitch": program(read="ramp(ramp(g*64 + x*8, 1, 8), x8(8), 4)"),
    "a store that crosses rows": program(copy="T[ramp(k*15 + x*8, 1, 8)] = B[ramp(k*16, 1, 8)]"),
    "a store of every other row": program(
        copy="T[ramp(ramp(k*4 + x*8, 1, 4), x4(32), 2)] = B[ramp(ramp(k*16, 1, 4), x4(32), 2)]"
    ),
    "a store at a column that depends on data": program(
        copy="T[ramp(k*8 + B[k] % 8, 1, 8)] = B[ramp(k*16, 1, 8)]"
    ),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_left_alone(name: str) -> None:
    assert not swizzled(UNTOUCHED[name])
