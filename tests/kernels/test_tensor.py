"""Accumulators in tensor memory: a kernel by hand, with a thread that brings operands, one that
multiplies and four warps that read the sums; and what is wrong with it where something is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from changed import mutants

import halide_bridge as hb
from casestudies.common.registry import find_case
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.cuda.preamble import preamble
from selector.gpu.cuda.printer import print_body, print_kernel
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.descriptors import instruction_descriptor
from selector.gpu.ir.expressions import (
    BLOCK,
    BLOCKS,
    FIRST_LANE,
    POINTER,
    THREAD,
    WARP_OF_GROUP,
    barrier,
    element,
    equal,
    flag,
    given,
    greater,
    masked,
    minus,
    number,
    plus,
    pointer,
    quotient,
    remainder,
    shared_address,
    shifted,
    times,
)
from selector.gpu.ir.lane_maps import ACCUMULATOR
from selector.gpu.ir.layouts import parse_layout
from selector.gpu.ir.memory import EngineCopy, Map
from selector.gpu.ir.nodes import (
    Advance,
    Arrive,
    Assign,
    Await,
    Body,
    Drain,
    Fence,
    If,
    Init,
    Kernel,
    Leave,
    Let,
    Memory,
    Node,
    State,
    Sync,
    children,
    walk,
)
from selector.gpu.ir.parameters import Parameter
from selector.gpu.ir.products import (
    Descriptor,
    Fragment,
    InMemory,
    LoadFragment,
    Mma,
    Pin,
    Record,
    Register,
)
from selector.gpu.ir.tensor import (
    LANE,
    WARP_LANES,
    TensorAlloc,
    TensorFree,
    TensorMemory,
    TensorTile,
)
from selector.gpu.ir.text import parse_kernels, print_kernels
from selector.gpu.ir.verify import memory_faults
from selector.gpu.ir.views import View
from selector.gpu.simulator.meeting import meeting_only
from selector.gpu.simulator.protocol import first_fault, protocol_faults
from selector.ir.nodes import Var
from selector.ir.types import FLOAT16, FLOAT32, INT32
from selector.runtime import nvrtc
from selector.targets import find_target

pytestmark = pytest.mark.verified

M, N, K, STAGES, TILES = 128, 64, 64, 3, 2
BYTES = 2 * K * (M + N)  # of a stage
EVERY = 9  # of so many mutants of an emitted kernel one is tried
ADDRESS, BARRIERS, SHARED = 73728, 73744, 73872
RECORD = Record(M, N, 16, "f32", "f16", "f16", tensor=True)
SUMS = barrier("sums", "stage")
READ = barrier("read", "stage")
STAGE = Let("int", ("stage", "before"), (remainder("tile", TILES), quotient("tile", TILES)))

STEPS = given(Var("steps"))


def kernel() -> Kernel:
    """Sums of 128 x 64, two of them in tensor memory, one after the other."""
    w = Builder()
    rows = parse_layout("swizzle(128) . strided(128, 2)")
    w.add(Memory("a", "f16", 0, STAGES, 2 * K * M, (M, K), rows))
    w.add(Memory("b", "f16", STAGES * 2 * K * M, STAGES, 2 * K * N, (N, K), rows))
    for i, name in enumerate(("full", "free_", "sums", "read")):
        w.add(Let("u32", (name,), (shared_address(BARRIERS + 32 * i),)))
    with w.when(equal(THREAD, 128)):
        for i in range(STAGES):
            w.add(Init(barrier("full", i), number(1)))
            w.add(Init(barrier("free_", i), number(1)))
        for i in range(TILES):
            w.add(Init(barrier("sums", i), number(1)))
            w.add(Init(barrier("read", i), number(4)))
        w.add(Fence("barriers"))
    with w.when(equal("warp", 5)):
        w.add(TensorAlloc(ADDRESS, TILES * N))
        w.add(Fence("tensor_before"))
    w.add(Sync("block"))
    w.add(Fence("tensor_after"))
    w.add(TensorMemory("tensor", ADDRESS, TILES * N))
    with w.when(equal("warp", 4)):
        _bring(w)
        w.add(Leave("kernel"))
    with w.when(equal("warp", 5)):
        _multiply(w)
        w.add(Leave("kernel"))
    _read(w)
    box = (Var("columns"), Var("rows"))
    maps = tuple(Map(f"map_{x}", x, FLOAT16, box, box[:1], (K, n)) for x, n in (("a", M), ("b", N)))
    places = Let("int", ("lane", "warp"), (masked(THREAD, 31), shifted(THREAD, 5)))
    parameters = (
        Parameter("map", FLOAT16, "map_a"),
        Parameter("map", FLOAT16, "map_b"),
        Parameter("write", FLOAT32, "out"),
        Parameter("value", INT32, "count"),
        Parameter("value", INT32, "steps"),
    )
    return Kernel(
        "sums", 192, 1, parameters, (*maps, places), w.body(), shared=SHARED,
        alignment=1024,
    )  # fmt: skip


def _turns(w: Builder):
    return w.loop("turn", BLOCK, given(Var("count")), "rolled", BLOCKS)


def _bring(w: Builder) -> None:
    with w.when(FIRST_LANE):
        w.add(State("int", ("slot", "round"), (number(0), number(0))))
        with _turns(w), w.loop("k", number(0), STEPS, "rolled"):
            with w.when(flag("round")):
                w.add(Await("asleep", barrier("free_", "slot"), minus("round", 1)))
            full = barrier("full", "slot")
            w.add(Arrive(full, number(BYTES)))
            for x, rows in (("a", M), ("b", N)):
                at = View(x, times("slot", K * rows))
                place = times("k", K), times("turn", rows)
                w.add(EngineCopy(at, f"map_{x}", place, full, 2 * K * rows))
            w.add(Advance("branch", "round", STAGES))


def _multiply(w: Builder) -> None:
    with w.when(FIRST_LANE):
        w.add(State("int", ("slot", "round", "tile"), (number(0), number(0), number(0))))
        with _turns(w):
            w.add(
                Let("int", ("stage", "before"), (remainder("tile", TILES), quotient("tile", TILES)))
            )
            with w.when(flag("before")):
                w.add(Await("asleep", READ, minus("before", 1)))
            w.add(TensorTile("acc", "tensor", times("stage", N), N))
            w.add(State("int", ("more",), (number(0),)))
            with w.loop("k", number(0), STEPS, "rolled"):
                w.add(Await("asleep", barrier("full", "slot"), number("round")))
                w.add(Fence("tensor_after"))
                for x, rows in (("a", M), ("b", N)):
                    w.add(Descriptor(f"d{x}", View(x, times("slot", K * rows)), 16, 1024, 128, 1))
                for step in range(K // 16):
                    how = "add" if step else "more"
                    a, b = (InMemory(f"d{x}", 32 * step, across=False) for x in "ab")
                    w.add(Mma(how, RECORD, "acc", 0, a, b))
                w.add(Arrive(barrier("free_", "slot"), after="matrix"))
                w.add(Advance("branch", "round", STAGES))
                w.add(Assign("more", number(1)))
            w.add(Arrive(SUMS, after="matrix"))
            w.add(Assign("tile", plus("tile", 1)))
        with w.loop("stage", number(0), number(TILES)):
            uses = quotient(minus(plus("tile", TILES - 1), "stage"), TILES)
            w.add(Let("int", ("uses",), (uses,)))
            with w.when(flag("uses")):
                w.add(Await("asleep", READ, minus("uses", 1)))
        w.add(Fence("tensor_after"))
    w.add(Sync("warp"))
    w.add(TensorFree("tensor", TILES * N))


def _read(w: Builder) -> None:
    w.add(State("int", ("tile",), (number(0),)))
    with _turns(w):
        w.add(STAGE)
        w.add(Fragment("d", "float", (2 * N // 8, 4), ACCUMULATOR))
        w.add(Await("asleep", SUMS, number("before")))
        w.add(Fence("tensor_after"))
        start = plus(times("stage", N), times(WARP_OF_GROUP, WARP_LANES * LANE))
        w.add(TensorTile("own", "tensor", start, N))
        with w.when(greater(STEPS, 0)):  # else nobody has written anything
            for half in (0, 1):
                tiles = tuple(Register("d", 8 * half + i) for i in range(8))
                w.add(LoadFragment(tiles, "tensor", "own", 16 * half * LANE))
            w.add(Drain("tensor", 0))
        w.add(Pin("d"))
        w.add(Fence("tensor_before"))
        w.add(Sync("warp"))
        with w.when(FIRST_LANE):
            w.add(Arrive(READ))
        w.add(Assign("tile", plus("tile", 1)))
        with w.loop("i", number(0), number(64)):
            tile = element(POINTER, pointer("d"), quotient("i", 4))
            to = element(FLOAT32, pointer("out"), plus(times(THREAD, 64), "i"))
            w.store(to, element(FLOAT32, tile, remainder("i", 4)))


def changed(body: Body, change: Callable[[Node], Body | None]) -> Body:
    """A body in which a node is replaced wherever ``change`` says by what."""
    found: list[Node] = []
    for node in body:
        other = change(node)
        if other is not None:
            found += other
            continue
        match node:
            case If(condition, then, otherwise):
                node = If(condition, changed(then, change), changed(otherwise, change))
            case _ if children(node):
                node = replace(node, body=changed(children(node), change))  # type: ignore[call-arg]
            case _:
                pass
        found.append(node)
    return tuple(found)


def faults_without(change: Callable[[Node], Body | None]) -> tuple[str, ...]:
    whole = kernel()
    other = replace(whole, body=changed(whole.body, change))
    assert other != whole
    return protocol_faults(other)


def test_nothing_is_wrong_and_the_text_says_all() -> None:
    whole = kernel()
    assert memory_faults(whole) == ()
    assert protocol_faults(whole) == ()
    assert parse_kernels(print_kernels([whole])) == (whole,)
    reduced = meeting_only(whole)
    assert meeting_only(reduced) == reduced


@pytest.mark.nvrtc
def test_machine_code() -> None:
    whole, wrappers = kernel(), dict[str, str]()
    print_body((*whole.declarations, *whole.body), "  ", wrappers)
    text = print_kernel(whole)
    source = preamble(text, wrappers, own=True) + text
    assert nvrtc.compile_to_cubin(source, "sm_100a")


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (Arrive(SUMS, after="matrix"), "waits forever"),
        (Arrive(barrier("free_", "slot"), after="matrix"), "waits forever"),
        (TensorFree("tensor", TILES * N), "still allocated"),
        (TensorAlloc(ADDRESS, TILES * N), "no such tensor memory is allocated"),
        (Drain("tensor", 0), "`d` is touched while instructions have it"),
        (Await("asleep", SUMS, number("before")), "nobody waited for the one before"),
        (Await("asleep", READ, minus("before", 1)), "tensor memory may still be read"),
        (Await("asleep", READ, minus("uses", 1)), "is being written by others: tensor_free"),
        (Await("asleep", barrier("full", "slot"), number("round")), "is still being written"),
    ],
)
def test_what_is_missing_is_found(what: Node, told: str) -> None:
    found = faults_without(lambda node: () if node == what else None)
    assert any(told in fault for fault in found), found


@pytest.mark.parametrize("number_", range(4))
def test_every_fence_is_missed(number_: int) -> None:
    """Before products, before memory is freed, before and after sums are read."""
    whole = kernel()
    fences = [n for n in walk(whole.body) if isinstance(n, Fence) and "tensor" in n.what]
    assert len(fences) == 6
    wanted = (2, 3, 4, 5)[number_]
    left = iter(range(len(fences)))

    def change(node: Node) -> Body | None:
        gone = isinstance(node, Fence) and "tensor" in node.what and next(left) == wanted
        return () if gone else None

    found = faults_without_once(change)
    assert any("tensor memory" in fault for fault in found), (wanted, found)


def faults_without_once(change: Callable[[Node], Body | None]) -> tuple[str, ...]:
    whole = kernel()
    return protocol_faults(replace(whole, body=changed(whole.body, change)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Arrive(SUMS, after="matrix"), Arrive(barrier("full", "slot"), after="matrix")),
        (Arrive(SUMS, after="matrix"), Arrive(SUMS)),
        (Arrive(barrier("free_", "slot"), after="matrix"), Arrive(barrier("free_", "slot"))),
        (TensorFree("tensor", TILES * N), TensorFree("tensor", N)),
    ],
)
def test_what_is_otherwise_is_found(before: Node, after: Node) -> None:
    assert faults_without(lambda node: (after,) if node == before else None)


def test_mutants_are_found() -> None:
    whole = meeting_only(kernel())
    missed = [what for what, mutant in mutants(whole) if first_fault(mutant) is None]
    assert not missed


def test_some_mistakes_of_an_emitted_kernel_are_found() -> None:
    case = find_case("conv_layer")
    problem = next(p for p in case.small if p.program == "conv_layer-c64-64-1x6x35")
    target = find_target("sm_100a")
    emitted = hb.compile(case.scheduled(problem, "tensor", target.name), target=target.name)
    kernel = meeting_only(emit_kernels(emitted.module, target)[0][-1])
    tried = [m for i, m in enumerate(mutants(kernel)) if i % EVERY == 0]
    assert tried
    assert not [what for what, mutant in tried if first_fault(mutant) is None]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda n: replace(n, record=replace(RECORD, n=72)), "no such instruction"),
        (lambda n: replace(n, piece=1), "`acc` has 64 columns"),
        (lambda n: replace(n, to="tensors"), "no tensor memory"),
    ],
)
def test_products_that_there_are_not(change: Callable[[Mma], Mma], told: str) -> None:
    whole = kernel()
    body = changed(whole.body, lambda n: (change(n),) if isinstance(n, Mma) else None)
    assert any(told in fault for fault in memory_faults(replace(whole, body=body)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda n: replace(n, at=8 * LANE), "a warp loads lanes 0 or 16"),
        (lambda n: replace(n, registers=n.registers[:4] * 2), "these are not 8 of the 16 tiles"),
        (lambda n: replace(n, at=8), "`own` has 64 columns"),
        (lambda n: replace(n, registers=n.registers[:3]), "no load has 3 times"),
        (lambda n: replace(n, registers=n.registers[:7] * 2), "no load has 14 times"),
    ],
)
def test_loads_that_there_are_not(
    change: Callable[[LoadFragment], LoadFragment], told: str
) -> None:
    whole = kernel()
    body = changed(whole.body, lambda n: (change(n),) if isinstance(n, LoadFragment) else None)
    assert any(told in fault for fault in memory_faults(replace(whole, body=body)))


def test_operands_of_wgmma_are_described_otherwise() -> None:
    whole = kernel()
    old = changed(
        whole.body, lambda n: (replace(n, version=0),) if isinstance(n, Descriptor) else None
    )
    assert any("another instruction" in fault for fault in memory_faults(replace(whole, body=old)))


def test_the_descriptor_of_an_instruction() -> None:
    """As the table of the PTX ISA has it: f32 sums, bf16, B across, 256 columns, 128 rows."""
    r = Record(128, 256, 16, "f32", "bf16", "bf16", tensor=True)
    told = instruction_descriptor(r, a_across=False, b_across=True)
    assert told == 0b01000_0_100000_1_0_0_0_001_001_0_01_0000
