"""Results by the copy engine: the widest boxes that their swizzles allow, whatever the statements
that they come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.conv_layer.algorithm import layer
from casestudies.gemm.algorithm import multiply
from casestudies.gemm.schedule import tensor
from selector.families import layers
from selector.families.contraction import Tiling
from selector.gpu.codegen.warpgroups.box_stores import BoxStore, box_stores, merged
from selector.gpu.codegen.warpgroups.boxes import in_order
from selector.gpu.codegen.warpgroups.left_boxes import LeftBox
from selector.gpu.codegen.warpgroups.left_rows import step_of, steps_of
from selector.gpu.ir.expressions import number, times
from selector.gpu.ir.memory import Map, StorePair
from selector.gpu.ir.nodes import Body, Let, children
from selector.gpu.ir.values import value_of, values_of
from selector.ir.nodes import Expr, IntImm, Select, Var
from selector.ir.types import FLOAT16, FLOAT32
from selector.runtime.plan import MapArgument

pytestmark = pytest.mark.verified


@pytest.mark.parametrize(
    ("types", "columns", "boxes"), [("f16-f16", 64, 4), ("bf16-bf16", 64, 4), ("f16-f32", 32, 8)]
)
@pytest.mark.parametrize("persistent", [0, 1])
def test_rows_of_128_bytes(types: str, columns: int, boxes: int, persistent: int) -> None:
    """Statements are 32 columns wide."""
    size = replace(Tiling(), persistent=persistent)
    kernel = hb.compile(tensor(multiply(types), size), target="sm_90a")
    (launch,) = kernel.plan.launches
    found = [a for a in launch.arguments if isinstance(a, MapArgument) and a.name == "C"]
    assert [a.box for a in found] == [(columns, 16)]
    assert len(re.findall(r"^ +tensor_store2\(", kernel.source, re.MULTILINE)) == boxes


def box(x: Expr, columns: int = 32, name: str = "C") -> BoxStore:
    extents = (Var("C.extent.0"), Var("C.extent.1"))
    argument = Map("", name, FLOAT16, extents, (Var("C.stride.1"),), (columns, 16))
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


LANES = {"lane": np.arange(32), "q": np.arange(32) % 4}


def stored(body: Body, lets: dict[str, Expr]) -> Iterator[tuple[StorePair, dict[str, Expr]]]:
    """The stores of a body, with the constants that each has."""
    for node in body:
        match node:
            case Let(_, names, values):
                lets |= zip(names, values, strict=True)
            case StorePair():
                yield node, lets
            case _:
                yield from stored(children(node), dict(lets))


def of_lane(value: Expr, lane: int, lets: dict[str, Expr]) -> Expr:
    """What a lane stores."""
    match value:
        case Select(condition, then, otherwise):
            return of_lane(then if values_of(condition)(LANES)[lane] else otherwise, lane, lets)
        case Var(name):
            return lets.get(name, value)
        case _:
            raise AssertionError(value)


@pytest.mark.parametrize("columns", [16, 32, 64])
@pytest.mark.parametrize("element", [2, 4])
def test_pairs_lie_where_the_swizzle_wants_them_and_meet_in_no_bank(
    element: int, columns: int
) -> None:
    if columns * element not in (64, 128):
        return
    t = {2: FLOAT16, 4: FLOAT32}[element]
    boxed = replace(box(IntImm(0), columns), element_bytes=element)
    boxed = replace(boxed, map=replace(boxed.map, type=t))
    pairs = [(Var(f"v{n}_0", t), Var(f"v{n}_1", t)) for n in range(columns // 4)]
    stores = [*stored(tuple(box_stores(boxed, "box", pairs)), {})]
    assert len(stores) == len(pairs)
    found: dict[int, tuple[int, Expr]] = {}
    for store, lets in stores:
        assert store.to.index is not None
        places = values_of(store.to.index)(LANES).tolist()
        lanes = 32 if element == 2 else 16  # of one access to all banks
        for first in range(0, 32, lanes):
            banks = [
                (places[lane] + 4 * i) // 4 % 32
                for lane in range(first, first + lanes)
                for i in range(element // 2)
            ]
            assert len(set(banks)) == 32
        for lane, place in enumerate(places):
            found[place] = lane, of_lane(store.values[0], lane, lets)
    assert len(found) == 32 * len(stores)
    rows = columns * element
    for place, (lane, value) in found.items():
        row, byte = place // rows, place % rows
        turn = row & 7 if rows == 128 else row >> 1 & 3
        column = ((byte >> 4) ^ turn) * 16 // element + byte % 16 // element
        assert lane == (row & 7) * 4 + column % 8 // 2
        assert boxed.layout(row, column)["byte"] == place
        assert value == Var(f"v{column // 8 * 2 + row // 8}_0", t)


def test_a_map_names_dimensions_in_the_order_of_its_rows() -> None:
    assert in_order([1, 2, 3], 4) == [0, 1, 2, 3]
    assert in_order([3, 1, 2], 4) == [0, 3, 1, 2]
    assert in_order([3, 1], 4) == [0, 3, 2, 1]
    assert in_order([2], 5) == [0, 1, 2, 3, 4]


def of_layer(filters: int, images: int, rows: int = 2) -> Any:
    """Groups with rows of 64 pixels, of so many images side by side."""
    output, box = layer(32, filters).output, (64 // images, 1, images)
    size = layers.Tiling(box, 2, 1, filters, 16, 4, boxes=rows, taps=9, reach=(2, 2, 0))
    hb.autoschedule(output, target="sm_90a", tilings={"conv": size})
    return hb.compile(output, target="sm_90a")


@pytest.mark.parametrize(("images", "inner"), [(2, 2), (4, 4), (8, 8), (16, 16), (32, 16)])
def test_rows_that_two_dimensions_number(images: int, inner: int) -> None:
    """A warp has 16 of 64 rows: whole runs of images, or half of one, which leave as one box."""
    kernel = of_layer(32, images, rows=1)
    (launch,) = kernel.plan.launches
    boxes = {a.name: a for a in launch.arguments if isinstance(a, MapArgument)}
    assert boxes["I"].box == (16, images, 64 // images + 2, 4)
    assert boxes["I"].strides == tuple(Var(f"I.stride.{d}") for d in (3, 1, 2))
    assert boxes["output"].box == (32, inner, 1, 16 // inner)
    assert f"store_rows<128, {inner}>(" in kernel.source
    half = "* 16 % 32" in kernel.source
    assert half == (images == 32)


@pytest.mark.parametrize(
    "values",
    [
        [0],
        [0, 0, 0, 0],
        [0, 32, 64],
        [0, 32, 64, 96, 0, 32, 64, 96],
        [0, 0, 0, 0, 1, 1, 1, 1],
        [0, 0, 7, 7, 14, 14],
    ],
)
def test_what_each_box_adds_to_the_first_one(values: list[int]) -> None:
    step = step_of(values)
    assert step is not None
    assert [value_of(step)({"part": i}) for i in range(len(values))] == values


@pytest.mark.parametrize("values", [[0, 1, 3], [0, 1, 2, 0], [0, 1, 0, 2]])
def test_boxes_that_follow_no_step(values: list[int]) -> None:
    assert step_of(values) is None


def left(x: int, offset: int, columns: int = 32) -> LeftBox:
    return LeftBox(box(IntImm(x), columns), offset, 4096, 0)


def test_boxes_are_alike_but_for_steps() -> None:
    assert steps_of([left(0, 0), left(32, 1024)]) == (
        times("part", 1024), times("part", 32), number(0),
    )  # fmt: skip
    assert steps_of([left(0, 0), left(32, 1024, 16)]) is None
    far = LeftBox(box(Var("x")), 1024, 4096, 0)
    assert steps_of([left(0, 0), far]) is None


@pytest.mark.parametrize("filters", [32, 128])
def test_one_loop_stores_the_rows_that_no_map_describes(filters: int) -> None:
    """Its body is as large as the rest of an epilogue: once a kernel, not once a box."""
    source = of_layer(filters, 8).source
    body = source[source.index("__global__") :]
    assert body.count("store_rows<") == 1
    assert body.count("tensor_store4(") == filters // 32 * 2
    loop = f"for (int part = 0; part < {filters // 32 * 2}; ++part)"
    assert body.count(loop) == 1


def test_a_bias_is_loaded_once_for_all_rows_of_a_group() -> None:
    """Rows of pixels have one bias: two places a lane for each eight filters."""
    source = of_layer(64, 8).source
    body = source[source.index("__global__") :]
    assert len(re.findall(r"= to_f32\(.*bias\[", body)) == 64 // 8 * 2
