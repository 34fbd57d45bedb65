"""Regions of staged buffers: what is written, what is read beside zeros, and what is neither."""

from __future__ import annotations

import numpy as np
import pytest

from selector.intrinsics.regions import Reach, Runs, places, runs_of
from selector.intrinsics.unwritten import contents, reads_of
from selector.intrinsics.windows import with_zeros
from selector.ir.affine import to_affine
from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.ir.nodes import Allocate, Var
from selector.ir.parser import parse_expr, parse_module
from selector.ir.traverse import walk_stmt

PROGRAM = """module test
input A: float16 [(0, 640, 1)]
input K: float16 [(0, 5, 1)]
output C: float32 [(0, 128, 1)]
body {
 gpu_block<CUDA> (b, 0, 1) {
  allocate rows[float16 * 24 * 20] in GPUShared
  FILL
  allocate acc[float32 * 128] in WMMAAccumulator
  acc[ramp(0, 1, 128)] = (float32x128)tile.fill(x128(0.0f))
  acc[ramp(0, 1, 128)] = (float32x128)mma.m16n8k16.f16.f32(16, 8, DEPTH, acc[ramp(0, 1, 128)], \
LEFT, RIGHT)
  C[ramp(0, 1, 128)] = (float32x128)tile.read(acc[ramp(0, 1, 128)])
 }
}"""
WINDOWS = "rows[ramp(ramp(0, 1, 12), x12(24), 16)]"
BAND = "ExprVar((float16x96)toeplitz(12, 8, 1, 1, 1, K[ramp(0, 1, 5)]))"
DENSE = "A[ramp(ramp(0, 1, 8), x8(8), 12)]"
MASKED = "A[ramp(ramp(0, 1, 8), x8(8), 12) if ramp(ramp(0, 1, 8), x8(8), 12) < x96(72)]"
ROWS = "for (r, b, 20)"
PADDING = (Runs(10, 2, 24, 16),)
FULL = "rows[ramp(0, 1, 480)] = A[ramp(0, 1, 480)]"


READS = reads_of(frozenset())


def program(fill: str, right: str = BAND, left: str = WINDOWS) -> Module:
    text = PROGRAM.replace("FILL", fill).replace("RIGHT", right).replace("LEFT", left)
    return parse_module(text.replace("DEPTH", "12"))


def rows_of(module: Module) -> Allocate:
    return next(s for s in walk_stmt(module.body) if isinstance(s, Allocate))


def unwritten(fill: str, right: str = BAND) -> tuple[Runs, ...] | None:
    found = contents(rows_of(program(fill, right)), READS)
    return None if found is None else found.runs


def test_places_of_an_index() -> None:
    index = to_affine(parse_expr("x*24 + y + 3"))
    found = places(index, {"x": (1, 2), "y": (0, 3)})
    assert found is not None
    assert sorted(found.tolist()) == [27, 28, 29, 51, 52, 53]
    assert places(index, {"x": (0, 2)}) is None
    folded = places(to_affine(parse_expr("(z % 4)*8")), {})
    assert folded is not None
    assert folded.tolist() == [0, 8, 16, 24]
    assert places(to_affine(Var("x")) * Var("y"), {"x": (0, 2), "y": (0, 2)}) is None


def test_covered_is_known_inside_and_marked() -> None:
    marks = np.array([True, True, False])
    for start, inside in ((0, True), (1, False), (-1, False), (2, False)):
        reach = Reach.of(np.array([1, 0]))
        assert reach is not None
        assert reach.covered(start, marks) == inside
    apart = Reach.of(np.array([3, 1]))
    assert apart is not None
    assert apart.covered(0, np.array([False, True, False, True]))
    assert apart.missing(1, np.array([True, True, False, True]))[1].tolist() == [True, False]
    assert Reach.of(None) is None


def test_runs_join_what_is_alike() -> None:
    marks = np.zeros(100, np.bool_)
    for start in (3, 27, 51):
        marks[start : start + 2] = True
    marks[90:95] = True
    assert runs_of(marks) == (Runs(3, 2, 24, 3), Runs(90, 5, 5, 1))


ALL = (Runs(0, 12, 24, 16),)  # what the windows read


@pytest.mark.parametrize(
    ("fill", "right", "expected"),
    [
        (FULL, BAND, ()),
        ("rows[ramp(0, 1, 371)] = A[ramp(0, 1, 371)]", BAND, (Runs(371, 1, 1, 1),)),
        (f"{ROWS} {{\n rows[ramp((r - b)*24, 1, 10)] = A[ramp(r*24, 1, 10)]\n}}", BAND, PADDING),
        (f"{ROWS} {{\n rows[ramp((r - b)*24, 1, 10)] = A[ramp(r*24, 1, 10)]\n}}", MASKED, PADDING),
        # perhaps: a condition, an unknown number of rows, a predicate
        (f"if (b < 1) {{\n {FULL}\n}}", BAND, ALL),
        ("for (r, 0, b) {\n rows[ramp(r*24, 1, 24)] = A[ramp(r*24, 1, 24)]\n}", BAND, ALL),
        (f"{FULL} if ramp(0, 1, 480) < x480(b)", BAND, ALL),
        # places that are not known
        ("rows[ramp(b*24, 1, 480)] = A[ramp(0, 1, 480)]", BAND, ALL),
        ("rows[ramp(b/3, 1, 480)] = A[ramp(0, 1, 480)]", BAND, ALL),
    ],
)
def test_what_windows_read_and_nobody_writes(
    fill: str, right: str, expected: tuple[Runs, ...]
) -> None:
    assert unwritten(fill, right) == expected


def test_what_is_read_at_places_unknown_is_everything() -> None:
    moved = WINDOWS.replace("ramp(0, 1, 12)", "ramp(b/3, 1, 12)")
    assert contents(rows_of(program(FULL, left=moved)), READS).runs == ()  # type: ignore[union-attr]
    short = program("rows[ramp(0, 1, 400)] = A[ramp(0, 1, 400)]", left=moved)
    assert contents(rows_of(short), READS).runs == (Runs(400, 80, 80, 1),)  # type: ignore[union-attr]


def test_products_without_zeros_need_none() -> None:
    assert unwritten("C[0] = 0.0f", DENSE) is None


def test_what_is_written_in_the_same_iteration_counts() -> None:
    """What is written before a product of a loop; that of other iterations does not count."""
    one = f"for (i, 0, 4) {{\n {FULL}\n}}"
    assert unwritten(one) == ()
    text = str(program(FULL))
    store = next(line for line in text.splitlines() if "mma." in line)
    around = text.replace(f"  {FULL}\n", "").replace(
        store, f"  for (i, 0, 2) {{\n   PART\n {store}\n  }}"
    )
    whole, half = FULL, "rows[ramp(i*240, 1, 240)] = A[ramp(i*240, 1, 240)]"
    for part, expected in ((whole, ()), (half, ALL)):
        found = contents(rows_of(parse_module(around.replace("PART", part))), READS)
        assert found is not None
        assert found.runs == expected


def test_the_interpreter_gets_zeros() -> None:
    module = program("rows[ramp(0, 1, 371)] = A[ramp(0, 1, 371)]")
    arrays = {"A": np.ones(640, np.float16), "K": np.ones(5, np.float16)}
    bare, zeroed = (interpret(m, arrays)["C"] for m in (module, with_zeros(module)))
    assert np.isnan(bare).any()
    assert zeroed.tolist() == [5.0] * 127 + [4.0]
