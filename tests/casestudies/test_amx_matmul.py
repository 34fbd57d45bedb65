"""Table I of the paper, every cell in both layouts: selected, and right against float64.

The emitted C runs with tile registers in software where the CPU has none, so these tests are the
same on every machine.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from known_code import assert_known
from verified import IN_C, INTERPRETED, Verified, files_digest, text_of

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.amx_matmul.algorithm import multiply
from casestudies.amx_matmul.bench import check, operands
from casestudies.amx_matmul.problem import LAYOUTS, Cell, cells
from casestudies.amx_matmul.schedule import Tiles, schedule
from selector.api import Kernel
from selector.diagnostics import UserError
from selector.ir.nodes import Allocate, ForKind
from selector.ir.traverse import walk_stmt

TABLE = ("reference", "reordered", "preload_a", "preload_b", "pipelined")
INSTRUCTION = {
    ("bf16", "bf16"): "amx.tdpbf16ps.m16n16k32",
    ("s8", "s8"): "amx.tdpbssd.m16n16k64",
    ("s8", "u8"): "amx.tdpbsud.m16n16k64",
    ("u8", "s8"): "amx.tdpbusd.m16n16k64",
    ("u8", "u8"): "amx.tdpbuud.m16n16k64",
}
COMPILED = (("bf16", "bf16"), ("s8", "s8"))
SIZES = ((64, 64, 128), (70, 50, 132), (33, 17, 64), (1, 1, 4))


@cache
def kernel(cell: Cell) -> Kernel:
    return hb.compile(schedule(multiply(cell.types, cell.layout), cell.schedule), target="amx")


def limit(cell: Cell) -> float:
    return 1e-6 if cell.types[0] == "bf16" else 0.0


def inputs_digest() -> str:
    """What operands and products follow from."""
    return files_digest("casestudies/amx_matmul", "casestudies/common/data.py")


@INTERPRETED
@pytest.mark.parametrize("cell", list(cells()), ids=lambda c: c.name)
def test_selected_and_right_in_the_interpreter(cell: Cell, verified: Verified) -> None:
    program = f"amx_matmul-{'-'.join(cell.types)}-{cell.layout}-amx-{cell.schedule}"
    assert_known(program, "amx", kernel(cell).source)
    (block,) = {u.block for u in kernel(cell).report.updates}
    assert block is not None
    assert block.instruction == INSTRUCTION[cell.types]
    if verified(str(kernel(cell).module), inputs_digest()):
        return
    m, n, k = 70, 50, 132
    arrays, expected = operands(cell.problem(m, n, k), seed=7)
    result = kernel(cell).interpret(**arrays, sizes=(m, n))
    error = np.linalg.norm(result - expected) / np.linalg.norm(expected)
    assert error <= limit(cell)


@IN_C
@pytest.mark.parametrize("types", COMPILED, ids="-".join)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "name", [*TABLE, "parallel", "blocked_parallel", "blocked_parallel_pipelined"]
)
def test_the_emitted_c_is_right(
    types: tuple[str, str], layout: str, name: str, verified: Verified
) -> None:
    cell = Cell(types, layout, name)
    if verified(text_of(kernel(cell)), inputs_digest()):
        return
    for m, n, k in SIZES:
        assert check(kernel(cell), cell.problem(m, n, k)) <= limit(cell), (m, n, k)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiles_of_the_next_step_are_loaded_among_products(layout: str) -> None:
    """Before it each register is loaded; then as soon as the last product has read it."""
    source = kernel(Cell(("bf16", "bf16"), layout, "pipelined")).source
    steady = source[source.index("inside - 1; ++") :]
    lines = [line.strip() for line in steady.splitlines()[1:9]]
    order = [line[: line.index(",")] for line in lines]
    assert order == [
        "tile_dpbf16ps(0", "tile_dpbf16ps(1", "tile_load(5", "tile_dpbf16ps(2", "tile_load(4",
        "tile_dpbf16ps(3", "tile_load(6", "tile_load(7",
    ]  # fmt: skip


def test_with_two_registers_for_operands_loads_are_ahead_within_a_step_too() -> None:
    """Six hold sums; what is multiplied next is loaded as soon as one of the others is free."""
    types = ("bf16", "bf16")
    output = schedule(multiply(types, "vnni"), "pipelined", Tiles(m=48))
    found = hb.compile(output, target="amx", cache=False)
    steady = found.source[found.source.index("inside - 1; ++") :]
    lines = [line.strip().split("(")[0] for line in steady.splitlines()[1:]]
    body = lines[: lines.index("}")]
    assert body.count("tile_dpbf16ps") == 6
    assert body[-1] == "tile_load"
    for m, n, k in SIZES:
        problem = Cell(types, "vnni", "pipelined").problem(m, n, k)
        assert check(found, problem) <= 1e-6, (m, n, k)


def test_the_swizzle_is_made_once_for_all_rows() -> None:
    """Hoisted out of the loop over rows, filled in parallel where that loop is."""
    cell = Cell(("bf16", "bf16"), "standard", "parallel")
    (temporary,) = temporaries(kernel(cell))
    assert temporary.name.startswith("B")
    loops = [s for s in walk_stmt(temporary.body) if getattr(s, "kind", None) is ForKind.PARALLEL]
    assert len(loops) == 2


@pytest.mark.parametrize("types", COMPILED, ids="-".join)
def test_a_preloaded_b_is_swizzled_itself(types: tuple[str, str]) -> None:
    """The paper gives this cell up. The copy is laid out as tiles read it; there is no second
    one."""
    assert not temporaries(kernel(Cell(types, "standard", "preload_b")))


@pytest.mark.parametrize("types", COMPILED, ids="-".join)
def test_vnni_operands_are_read_as_they_are(types: tuple[str, str]) -> None:
    for name in (*TABLE, "parallel"):
        assert not temporaries(kernel(Cell(types, "vnni", name)))


def temporaries(k: Kernel) -> list[Any]:
    """Allocations of swizzled operands, outermost first."""
    allocations = (s for s in walk_stmt(k.module.body) if isinstance(s, Allocate))
    return [s for s in allocations if ".packed" in s.name]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="no layout 'blocked'") as caught:
        multiply(layout="blocked")
    assert "standard, vnni" in caught.value.hint
    with pytest.raises(UserError, match="no schedule 'fastest'"):
        schedule(multiply(), "fastest")
