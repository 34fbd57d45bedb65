"""Elements of accumulators that go wrong are told, each kind of mistake; those of the corpus in
``codegen/test_corpus``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from selector.gpu.codegen.warpgroups.box_stores import box_stores
from selector.gpu.codegen.warpgroups.left_boxes import BoxStore
from selector.gpu.ir.expressions import element, number, plus, pointer, register, times
from selector.gpu.ir.lane_maps import ACCUMULATOR
from selector.gpu.ir.memory import (
    EngineStore,
    Map,
    Point,
    Store,
    StoreEight,
    StorePair,
    StoreQuad,
    StoreRun,
)
from selector.gpu.ir.nodes import Body, Kernel, Let, Local, Memory, Node
from selector.gpu.ir.products import Fragment, SetTile
from selector.gpu.ir.verify_elements import element_faults
from selector.gpu.ir.views import View
from selector.ir.nodes import Expr, FloatImm, IntImm, Var
from selector.ir.types import FLOAT16, FLOAT32, Type

ZERO = FloatImm(0.0, FLOAT32)
TILES = Fragment("acc", "float", (2, 4), ACCUMULATOR)
PLACED = Let("int", ("row",), (number("lane"),))


def faults(*body: Node) -> list[str]:
    return [x.partition(": ")[0] for x in element_faults(Kernel("k", 32, 1, (), (PLACED,), body))]


def held(tile: int, n: int) -> Expr:
    return element(FLOAT32, register("acc", tile), n)


def test_registers_that_there_are() -> None:
    assert faults(TILES, SetTile("acc", 1, (ZERO,) * 4), Store(held(0, 1), held(1, 3))) == []


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (SetTile("acc", 2, (ZERO,) * 4), "`acc` has 2 tiles of 4 registers"),
        (SetTile("acc", 1, (ZERO,) * 2), "`acc` has 2 tiles of 4 registers"),
        (SetTile("sum", 0, (ZERO,) * 4), "`sum` has no tiles"),
        (Store(held(0, 0), held(2, 0)), "`acc` has (2, 4) registers"),
        (Store(held(0, 4), ZERO), "`acc` has (2, 4) registers"),
        (Store(element(FLOAT32, pointer("acc"), 5), ZERO), "`acc` has (2, 4) registers"),
    ],
)
def test_registers_that_there_are_not(node: Node, fault: str) -> None:
    assert faults(TILES, node) == [fault]


def stored(index: Expr, apart: int, *, quad: bool = False) -> list[str]:
    """Neighbours from a pointer to an array on."""
    to = View("p0", index=number(apart))
    node = StoreQuad(to, (ZERO,) * 4) if quad else StorePair(to, (ZERO, ZERO))
    return faults(Point("p0", "float", View("output", index=index)), node)


def test_neighbours_begin_at_even_elements() -> None:
    strided = plus(times("row", "output_stride_1"), times("q", 2))
    assert stored(strided, 8) == stored(strided, -6, quad=True) == []
    odd = ["no multiple of two elements"]
    assert stored(strided, 7) == stored(strided, 5, quad=True) == odd
    assert stored(plus(strided, "row"), 8) == odd
    assert stored(number("q"), 8) == odd
    assert faults(StorePair(View("output"), (ZERO, ZERO))) == ["`output` is no pointer"]


def test_eights_begin_at_even_elements() -> None:
    row = plus(times("row", "output_stride_1"), times("q", 2))
    points = [Point(n, "f16", View("output", index=row)) for n in ("p0", "p1")]

    def found(to: int, below: int) -> list[str]:
        views = (View(n, index=number(at)) for n, at in (("p0", to), ("p1", below)))
        return faults(*points, StoreEight(*views, (ZERO,) * 4))

    assert found(8, 0) == []
    assert found(8, 3) == ["no multiple of two elements"]


def test_runs_begin_anywhere() -> None:
    at, to = Point("p0", "f16", View("C", index=number("q"))), View("p0", index=number(7))
    assert faults(at, StoreRun(to, (ZERO,), 4)) == faults(at, StoreRun(to, (ZERO,), 32)) == []
    assert faults(at, StoreRun(to, (ZERO,), 8)) == ["8 lanes have no row of a tile"]
    assert faults(StoreRun(View("C"), (ZERO,), 4)) == ["`C` is no pointer"]


def box(t: Type, columns: int, change: Callable[[Body], Body] = tuple) -> list[str]:
    """One of 16 rows that a warp writes and the engine takes."""
    extents = (Var("C_extent_0"), Var("C_extent_1"))
    argument = Map("m", "C", t, extents, (Var("C_stride_1"),), (columns, 16))
    of = BoxStore(argument, (IntImm(0), IntImm(0)), 1, t.bytes)
    memory = Memory("box", "unsigned char", 0, 1, of.bytes, (16, columns), of.layout)
    pairs = [(FloatImm(0.0, t), FloatImm(0.0, t))] * (columns // 4)
    body = change(tuple(box_stores(of, "box", pairs)))
    return faults(memory, *body, EngineStore(View("box"), "m", of.first))


@pytest.mark.parametrize(
    ("t", "columns"), [(FLOAT16, 32), (FLOAT16, 64), (FLOAT32, 16), (FLOAT32, 32)]
)
def test_boxes_are_written_once_and_as_a_whole(t: Type, columns: int) -> None:
    assert box(t, columns) == []
    lanes = 32 * (2 if t is FLOAT32 else 1)
    assert box(t, columns, lambda body: body[1:]) == [f"{lanes} pairs of `box` are not written"]
    assert "pairs of `box` are written twice" in box(t, columns, lambda body: (*body, body[0]))


def test_pairs_of_a_box_are_neighbours_of_its_rows() -> None:
    def further(body: Body) -> Body:
        first = body[0]
        assert isinstance(first, StorePair)
        index = plus(first.to.index or 0, 2)
        return (replace(first, to=replace(first.to, index=index)), *body[1:])

    def wider(body: Body) -> Body:
        return tuple(replace(x, kind="float") for x in body if isinstance(x, StorePair))

    assert "no pairs of `box`" in box(FLOAT16, 32, further)
    assert "no pairs of `box`" in box(FLOAT16, 32, wider)
    assert box(FLOAT16, 32, lambda body: (Local(body),)) == []
