"""Nodes run with numbers, in kernels by hand: what nobody wrote, chunks, boxes, products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from registers import registers

from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import (
    THREAD,
    address,
    barrier,
    element,
    equal,
    less,
    masked,
    number,
    packed,
    plus,
    pointer,
    register,
    remainder,
    shared_address,
    shifted,
    times,
)
from selector.gpu.ir.lane_maps import ACCUMULATOR
from selector.gpu.ir.layouts import parse_layout, places
from selector.gpu.ir.memory import CopyAsync, CopyRun, EngineCopy, EngineStore, Map, Point, Store
from selector.gpu.ir.nodes import (
    Arrive,
    Await,
    Body,
    Fence,
    If,
    Init,
    Kernel,
    Let,
    Memory,
    Node,
    Sync,
)
from selector.gpu.ir.products import (
    Descriptor,
    Fragment,
    InMemory,
    InRegisters,
    LoadFragment,
    MatrixRows,
    Mma,
    Record,
    SetTile,
)
from selector.gpu.ir.views import View
from selector.gpu.simulator.data.launch import Launched, run_launch
from selector.gpu.simulator.data.values import Pointer, Space
from selector.ir.nodes import Cast, Expr, FloatImm, IntImm, Select, Var
from selector.ir.types import FLOAT16, FLOAT32, INT32, UINT64

SHARED = 4096
PLAIN = parse_layout("strided(4)")


def array(name: str, data: np.ndarray[Any, Any], *, written: bool = True) -> Pointer:
    bytes_ = data.reshape(-1).view(np.uint8)
    marks = None if written else np.full(bytes_.size, 0xFF, np.uint8)
    return Pointer(Space(name, bytes_, marks, bytes_.size), data.dtype, np.int64(0))


def launched(
    body: Body, threads: int, given: dict[str, Any], maps: dict[str, Any], *declared: Node
) -> tuple[str, ...]:
    kernel = Kernel("k", threads, 1, (), declared, body)
    return run_launch(Launched(kernel, (1, 1, 1), SHARED * 16, given, maps))[0]


# ------------------------------------------------------------------ what nobody wrote

MEMORY = Memory("m", "float", 0, 1, 256, (64,), PLAIN)
THERE = element(FLOAT32, pointer("m"), THREAD)
OUT = element(FLOAT32, pointer("out"), THREAD)


def stored(value: Expr, *before: Node) -> tuple[tuple[str, ...], np.ndarray[Any, Any]]:
    """What 32 threads make of memory of which those below 16 have written their element."""
    out = np.zeros(32, np.float32)
    write = If(less(THREAD, 16), (Store(THERE, FloatImm(2.0, FLOAT32)),))
    body = (MEMORY, write, *before, Store(OUT, value))
    return launched(body, 32, {"out": array("out", out, written=False)}, {}), out


def test_what_is_written_is_there() -> None:
    inside = Select(less(THREAD, 16), THERE, FloatImm(1.0, FLOAT32))
    faults, out = stored(inside)
    assert faults == ()
    assert out.tolist() == [2.0] * 16 + [1.0] * 16


def test_zero_times_what_nobody_wrote_is_told_where_it_is_stored() -> None:
    (fault,), _ = stored(times(THERE, FloatImm(0.0, FLOAT32)))
    assert fault.startswith("`out` gets what nobody wrote, first read by {store")


def test_a_variable_carries_it() -> None:
    faults, _ = stored(Var("x", FLOAT32), Let("float", ("x",), (THERE,)))
    assert any("first read by {let float x" in fault for fault in faults)
    inside = Select(less(THREAD, 16), Var("x", FLOAT32), FloatImm(0.0, FLOAT32))
    assert stored(inside, Let("float", ("x",), (THERE,)))[0] == ()


def test_a_branch_and_an_address_of_it_are_told() -> None:
    branch = If(less(THERE, FloatImm(0.0, FLOAT32)), ())
    assert any("is branched on" in fault for fault in stored(FloatImm(0.0, FLOAT32), branch)[0])
    place = element(INT32, pointer("whole"), THREAD)
    whole = Memory("whole", "int", 0, 1, 256, (64,), PLAIN)
    at = element(FLOAT32, pointer("out"), remainder(place, 8))
    told, _ = stored(FloatImm(0.0, FLOAT32), whole, Store(at, FloatImm(0.0, FLOAT32)))
    assert any("is an address" in fault for fault in told)


def test_bytes_outside_are_told_for_those_who_come_there() -> None:
    far = element(FLOAT32, pointer("out"), times(THREAD, 4))
    zero = FloatImm(0.0, FLOAT32)
    assert any("outside of `out`" in f for f in stored(zero, Store(far, zero))[0])
    near = If(less(THREAD, 8), (Store(far, zero),))
    assert not any("outside" in f for f in stored(zero, near)[0])


# ------------------------------------------------------------------ a warp's product

RECORD = Record(16, 8, 16, "f32", "f16", "f16")


def warp_product(*changed: Node, pitch: int = 24) -> tuple[tuple[str, ...], Any, Any]:
    """16 x 16 times 16 x 8 by one instruction, from rows that threads copy; what is stored, and
    what it is.
    """
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 4, (16, 16)).astype(np.float16)
    b = rng.integers(-4, 4, (8, 16)).astype(np.float16)
    out = np.zeros((32, 4), np.float32)
    w = Builder()
    w.add(Memory("a", "f16", 0, 1, 16 * 2 * pitch, (16 * pitch,), parse_layout("strided(2)")))
    w.add(Memory("b", "f16", 2048, 1, 8 * 2 * pitch, (8 * pitch,), parse_layout("strided(2)")))
    for name, rows in (("a", 16), ("b", 8)):
        row, half = Var("row", INT32), Var("half", INT32)
        with w.when(less(THREAD, 2 * rows)):
            w.add(Let("int", ("row", "half"), (shifted(THREAD, 1), remainder(THREAD, 2))))
            at = times(row, pitch), times(half, 8)
            w.add(
                CopyAsync(
                    address(name, *at),
                    plus(f"A{name}", plus(times(row, 16), times(half, 8))),
                    "past",
                )
            )
    w.add(Fragment("acc", "float", (1, 4), ACCUMULATOR))
    w.add(SetTile("acc", 0, (FloatImm(0.0, FLOAT32),) * 4))
    w.add(MatrixRows("ra", View("a"), number(0), number(pitch), (8 * pitch, 8)))
    w.add(MatrixRows("rb", View("b"), number(0), number(pitch), (8,)))
    w.add(LoadFragment(registers("a0", "a1", "a2", "a3"), "ldmatrix", "ra"))
    w.add(LoadFragment(registers("b0", "b1"), "ldmatrix", "rb"))
    for node in changed:
        w.add(node)
    operands = InRegisters(registers("a0", "a1", "a2", "a3")), InRegisters(registers("b0", "b1"))
    w.add(Mma("add", RECORD, "acc", 0, *operands))
    for i in range(4):
        place = element(FLOAT32, pointer("out"), i, times(THREAD, 4))
        w.add(Store(place, element(FLOAT32, register("acc", 0), i)))
    given = {"Aa": array("a", a), "Ab": array("b", b), "out": array("out", out, written=False)}
    faults = launched(w.body(), 32, given, {})
    at = places(ACCUMULATOR, 16, 8)
    want = a.astype(np.float32) @ b.astype(np.float32).T
    return faults, out[at["lane"], at["register"]], want


def test_a_warp_multiplies() -> None:
    faults, found, want = warp_product()
    assert faults == ()
    assert np.array_equal(found, want)


def test_registers_of_another_lane_and_order_are_other_numbers() -> None:
    turned = LoadFragment(registers("b1", "b0"), "ldmatrix", "rb")
    faults, found, want = warp_product(turned)
    assert faults == ()
    assert not np.array_equal(found, want)


def test_padding_that_is_multiplied_is_told() -> None:
    further = LoadFragment(registers("b0", "b1"), "ldmatrix", "rb", 16)
    faults, _, _ = warp_product(further)
    assert any(
        "gets what nobody wrote, first read by {load b0; b1 by ldmatrix" in f for f in faults
    )


def test_a_part_of_a_warp_cannot_multiply() -> None:
    lanes = If(less("lane", 16), (LoadFragment(registers("b0", "b1"), "ldmatrix", "rb"),))
    assert any("some lanes of a warp" in f for f in warp_product(lanes)[0])


# ------------------------------------------------------------------ a group's product, by boxes


@pytest.mark.parametrize("width", [16, 32, 64])
def test_a_group_multiplies_boxes(width: int) -> None:
    """A of 64 x width and B of 16 x width, in swizzled rows, ragged ones read as zeros."""
    rng = np.random.default_rng(1)
    a = rng.integers(-4, 4, (61, 64)).astype(np.float16)
    b = rng.integers(-4, 4, (16, 64)).astype(np.float16)
    out = np.zeros((128, 8), np.float32)
    layout = parse_layout(f"swizzle({2 * width}) . strided({2 * width}, 2)")
    maps = {n: Map(n, n, FLOAT16, (), (), (width, r)) for n, r in (("ma", 64), ("mb", 16))}
    w = Builder()
    w.add(Memory("a", "f16", 0, 1, 128 * width, (64, width), layout))
    w.add(Memory("b", "f16", 8192, 1, 32 * width, (16, width), layout))
    w.add(Let("u32", ("full",), (shared_address(16384),)))
    with w.when(equal(THREAD, 0)):
        w.add(Init(barrier("full"), number(1)))
        w.add(Arrive(barrier("full"), IntImm(160 * width)))
        for to, m, rows in (("a", "ma", 64), ("b", "mb", 16)):
            at = number(0), number(0)
            w.add(EngineCopy(View(to), m, at, barrier("full"), 2 * rows * width))
    w.add(Sync("block"))
    w.add(Await("spinning", barrier("full"), number(0)))
    w.add(Fragment("acc", "float", (2, 4), ACCUMULATOR))
    for n in "ab":
        w.add(Descriptor(f"d{n}", View(n), 16, 16 * width, 2 * width))
    for k in range(width // 16):
        record = Record(64, 16, 16, "f32", "f16", "f16")
        operands = (InMemory(f"d{n}", 32 * k, across=False) for n in "ab")
        w.add(Mma("add" if k else "fresh", record, "acc", 0, *operands))
    for i in range(8):
        place = element(FLOAT32, pointer("out"), i, times(THREAD, 8))
        w.add(Store(place, element(FLOAT32, register("acc", i // 4), i % 4)))
    given = {"out": array("out", out, written=False)}
    boxes = {
        "ma": (array("a", a), (width, 61), (64,)),
        "mb": (array("b", b), (width, 16), (64,)),
    }
    assert launched(w.body(), 128, given, boxes, *maps.values()) == ()
    at = places(ACCUMULATOR, 64, 16)
    want = np.zeros((64, 16), np.float32)
    want[:61] = a[:, :width].astype(np.float32) @ b[:, :width].astype(np.float32).T
    assert np.array_equal(out[at["lane"] + 32 * at["warp"], at["register"]], want)


# ------------------------------------------------------------------ boxes out


def boxed_out(*nodes: Node) -> tuple[tuple[str, ...], np.ndarray[Any, Any]]:
    """A warp writes 8 rows of 16 floats, and the engine stores what lies in an array of 7 x 15."""
    out = np.zeros((7, 15), np.float32)
    m = Map("m", "out", FLOAT32, (), (), (16, 8))
    layout = parse_layout("swizzle(64) . strided(64, 4)")
    w = Builder()
    w.add(Memory("box", "float", 0, 1, 512, (8, 16), layout))
    at = places(layout, 8, 16)["byte"].reshape(-1)
    order = np.argsort(at).astype(np.int32)
    for i in range(4):
        place = element(FLOAT32, pointer("box"), i, times(THREAD, 4))
        value = element(FLOAT32, pointer("values"), i, times(THREAD, 4))
        w.add(Store(place, value))
    for node in nodes:
        w.add(node)
    w.add(Sync("warp"))
    with w.when(equal("lane", 0)):
        w.add(EngineStore(View("box"), "m", (number(0), number(0))))
    given = {"values": array("values", order.astype(np.float32))}
    boxes = {"m": (array("out", out, written=False), (15, 7), (15,))}
    return launched(w.body(), 32, given, boxes, m), out


def test_the_engine_stores_what_lies_inside() -> None:
    faults, out = boxed_out(Fence("proxy"))
    assert faults == ()
    assert np.array_equal(out, np.arange(128).reshape(8, 16)[:7, :15])


def test_the_engine_does_not_see_what_is_not_fenced() -> None:
    assert any("without a fence" in fault for fault in boxed_out()[0])


def copied_over(*between: Node) -> tuple[str, ...]:
    """A thread stores zeros where the engine then copies a run of 16 bytes to."""
    run = CopyRun(address("m"), number("in"), IntImm(16), barrier("full"))
    body = (
        MEMORY,
        Let("u32", ("full",), (shared_address(1024),)),
        If(equal(THREAD, 0), (Init(barrier("full"), number(1)),)),
        If(less(THREAD, 4), (Store(THERE, FloatImm(0.0, FLOAT32)),)),
        *between,
        Sync("block"),
        If(equal(THREAD, 0), (run, Arrive(barrier("full")))),
        Await("spinning", barrier("full"), number(0)),
        If(less(THREAD, 4), (Store(OUT, THERE),)),
    )
    out = np.zeros(32, np.float32)
    given = {"in": array("in", np.arange(4, dtype=np.float32)), "out": array("out", out)}
    faults = launched(body, 32, given, {})
    assert out[:4].tolist() == [0.0, 1.0, 2.0, 3.0]
    return faults


def test_a_run_over_what_is_stored_needs_a_fence() -> None:
    assert copied_over(Fence("proxy")) == ()
    (fault,) = copied_over()
    assert fault.startswith("was stored without a fence for the asynchronous proxy: copy_run")


def test_a_wait_for_nothing_is_told() -> None:
    body = (
        Let("u32", ("full",), (shared_address(64),)),
        If(equal(THREAD, 0), (Init(barrier("full"), number(1)),)),
        Sync("block"),
        Await("spinning", barrier("full"), number(0)),
    )
    assert launched(body, 32, {}, {}) == ("waits forever: await spinning full + (8*0) phase 0",)


def test_pairs_are_packed_as_they_lie() -> None:
    out = np.zeros(32, np.uint32)
    halves = np.arange(64).astype(np.float16)
    pair = packed(*(element(FLOAT16, pointer("in"), i, times(THREAD, 2)) for i in (0, 1)))
    body = (Point("to", "u32", View("out")), Store(element(pair.type, pointer("to"), THREAD), pair))
    given = {"in": array("in", halves), "out": array("out", out, written=False)}
    assert launched(body, 32, given, {}) == ()
    assert np.array_equal(out.view(np.float16), halves)


def test_a_flag_says_how_an_array_lies() -> None:
    out = np.zeros(33, np.float32)
    where = masked(Cast(UINT64, pointer("out")), 15)
    value = Select(equal(where, 0), FloatImm(1.0, FLOAT32), FloatImm(2.0, FLOAT32))
    for offset, told in ((0, 1.0), (4, 2.0)):
        to = array("out", out, written=False).moved(np.int64(offset))
        assert launched((Store(OUT, value),), 32, {"out": to}, {}) == ()
        assert (out[offset // 4 :][:32] == told).all()
