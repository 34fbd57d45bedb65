"""Products that are wrong are told, each kind of mistake; those of the corpus in
``codegen/test_corpus``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from registers import registers

from selector.gpu.codegen.warpgroups.panels import Panels
from selector.gpu.ir.descriptors import byte_read, steps_of
from selector.gpu.ir.expressions import (
    given,
    times,
)
from selector.gpu.ir.lane_maps import ACCUMULATOR, BLOCK, RIGHT
from selector.gpu.ir.layouts import core_matrices, parse_layout, places
from selector.gpu.ir.nodes import Body, Kernel, Memory, Node
from selector.gpu.ir.products import (
    Descriptor,
    Fragment,
    InMemory,
    InRegisters,
    LoadFragment,
    MatrixRows,
    Mma,
    Record,
)
from selector.gpu.ir.verify_products import product_faults
from selector.gpu.ir.views import View
from selector.ir.nodes import IntImm, Var
from selector.ir.types import INT32


def faults(*body: Node) -> tuple[str, ...]:
    return product_faults(Kernel("k", 128, 1, (), (), body))


def only(found: tuple[str, ...]) -> str:
    (fault,) = found
    return fault.partition(": mma")[0].partition(": rows")[0].partition(": load")[0]


# ------------------------------------------------------------------ of a warp

MEMORY = Memory("a", "f16", 0, 2, 5120, (2560,), parse_layout("strided(2)"))
ROW = given(times("row", 40))
ROWS = MatrixRows("a0", View("a", times("slot", 2560)), ROW, IntImm(40), (320, 8))
LOAD = LoadFragment(registers("r0", "r1", "r2", "r3"), "ldmatrix", "a0", 32)
WARP = Mma(
    "add",
    Record(16, 8, 16, "f32", "f16", "f16"),
    "acc",
    1,
    InRegisters(registers("r0", "r1", "r2", "r3")),
    InRegisters(registers("r0", "kept[1]")),
)
WHOLE: dict[str, Node] = {
    "acc": Fragment("acc", "float", (2, 4), ACCUMULATOR),
    "kept": Fragment("kept", "u32", (2,), BLOCK),
    "a": MEMORY,
    "a0": ROWS,
    "r0": LOAD,
    "mma": WARP,
}


def warp(**other: Node) -> Body:
    return tuple((WHOLE | other).values())


def test_a_product_of_a_warp_has_no_faults() -> None:
    assert faults(*warp()) == ()


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        (warp(mma=replace(WARP, piece=2)), "`acc` has 2 tiles"),
        (warp(mma=replace(WARP, to="kept")), "`kept` is no accumulator"),
        (warp(acc=Fragment("acc", "int", (2, 4), ACCUMULATOR)), "`acc` does not hold f32"),
        (warp(acc=Fragment("acc", "float", (2, 4), RIGHT)), "`acc` is no accumulator"),
        (warp(kept=Fragment("kept", "u32", (1,), BLOCK)), "`kept[1]` is no block"),
        (warp(kept=Fragment("kept", "u32", (2,), RIGHT)), "`kept[1]` is no block"),
        (warp(mma=replace(WARP, b=InRegisters(registers("r0", "r9")))), "`r9` is no block"),
        (
            warp(mma=replace(WARP, a=InRegisters(registers("r0", "r1")))),
            "2 blocks where the instruction takes 4",
        ),
        (warp(r0=replace(LOAD, at=24)), "rows do not start at multiples of 16 bytes"),
        (warp(r0=replace(LOAD, base="a")), "rows do not start at multiples of 16 bytes"),
        (warp(a0=replace(ROWS, step=IntImm(36))), "rows do not start at multiples of 16 bytes"),
        (warp(a0=replace(ROWS, apart=(4,))), "rows do not start at multiples of 16 bytes"),
        (
            warp(a0=replace(ROWS, first=Var("slot", INT32))),
            "rows do not start at multiples of 16 bytes",
        ),
        (warp(a0=replace(ROWS, view=View("b"))), "`b` is no memory"),
    ],
)
def test_a_mistake_of_a_warp_is_told(changed: Body, fault: str) -> None:
    assert only(faults(*changed)) == fault


# ------------------------------------------------------------------ of a group

PANELS = {  # of (rows of the operand, depth) or (depth, rows); by whether these run across
    False: (Panels(72, 64, 128, 2), Panels(136, 128, 128, 2), Panels(40, 32, 128, 2)),
    True: (Panels(264, 256, 64, 2), Panels(72, 64, 64, 2)),
}
CASES = [(p, across) for across, panels in PANELS.items() for p in panels]


def group(p: Panels, at: int, *, across: bool, **changes: int) -> tuple[str, ...]:
    """What is wrong with a first operand of 64 rows in panels, ``at`` bytes from their begin."""
    memory = Memory("a", "f16", 1024, 1, p.size, (p.rows, p.columns), p.layout)
    names = ("leading", "stride", "swizzle")
    steps = dict(zip(names, steps_of(p.layout, across=across), strict=True)) | changes
    mma = Mma(
        "fresh",
        Record(64, 64, 16, "f32", "f16", "f16"),
        "acc",
        0,
        InMemory("d0", at, across),
        InRegisters(registers("kept[0]")),
    )
    declared = Fragment("acc", "float", (8, 4), ACCUMULATOR), Fragment("kept", "u32", (1,), BLOCK)
    found = faults(*declared, memory, Descriptor("d0", View("a"), **steps), mma)
    return tuple(f for f in found if "blocks where" not in f)


@pytest.mark.parametrize(("p", "across"), CASES, ids=str)
def test_an_operand_in_panels_is_read_as_it_lies(p: Panels, across: bool) -> None:
    step = p.byte(16, 0) if across else 32  # 16 numbers of the depth further
    assert group(p, 0, across=across) == ()
    assert group(p, step, across=across) == ()


def test_an_operand_may_go_on_behind_the_last_column() -> None:
    """Zeros are there, to the end of the swizzled row."""
    p = Panels(40, 40, 64, 2)
    assert p.row_bytes == 128
    assert [group(p, 32 * step, across=False) for step in range(4)] == [()] * 4


@pytest.mark.parametrize(("p", "across"), CASES, ids=str)
def test_an_operand_that_lies_otherwise_is_told(p: Panels, across: bool) -> None:
    lies = "`a` lies otherwise"
    other = {32: 64, 64: 128, 128: 64}[p.row_bytes]
    assert group(p, 0, across=across, swizzle=other)[0].startswith("`a` ")
    wrong = group(p, 0, across=across, stride=p.row_bytes * 8 + 16)
    assert lies in only(wrong)
    assert "`d0` is no multiple of 16 bytes" in group(p, 8, across=across)[0]
    assert "is read past its" in only(group(p, p.size - 16, across=across))


def test_a_wide_operand_goes_on_in_the_next_panel() -> None:
    p = Panels(72, 64, 64, 4)
    steps = steps_of(p.layout, across=True)
    row, byte = np.indices((16, 64 * 4))
    assert steps == (p.panel_bytes, 8 * 128, 128)
    inner = places(p.layout.inner, p.rows, p.columns)["byte"]
    assert (byte_read(steps, row, byte)[:, ::4] == inner[:16]).all()


def test_core_matrices_are_read_as_they_lie() -> None:
    row, depth = np.indices((64, 32))
    layout = core_matrices(128, 512)
    assert (byte_read((128, 512, 0), row, depth) == layout(row, depth)["byte"]).all()
