"""Passes over the kernel IR: what each makes of a kernel, and how they run one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from registers import registers

from selector.diagnostics import InternalError, ScheduleError
from selector.gpu import passes
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import (
    FIRST_LANE,
    FIRST_OF_GROUP,
    THREAD,
    barrier,
    both,
    element,
    equal,
    flag,
    given,
    number,
    pointer,
    shifted,
)
from selector.gpu.ir.lane_maps import ACCUMULATOR, ROWS
from selector.gpu.ir.layouts import in_bytes
from selector.gpu.ir.memory import (
    EngineStore,
    Evaluate,
    Map,
    Point,
    Prefetch,
    Store,
    StoreRows,
)
from selector.gpu.ir.mentioned import mentioned
from selector.gpu.ir.nodes import (
    Arrive,
    Await,
    Body,
    Commit,
    Drain,
    Fence,
    For,
    Fused,
    If,
    Kernel,
    Leave,
    Let,
    Local,
    Memory,
    Node,
    Registers,
    ResetArrivals,
    Sync,
)
from selector.gpu.ir.parameters import Parameter
from selector.gpu.ir.products import Fragment, InMemory, InRegisters, LoadFragment, Mma, Record
from selector.gpu.ir.views import View
from selector.gpu.passes.bound_waits import ARRIVALS_BYTES, bound_waits
from selector.gpu.passes.budget_registers import REGISTERS, budget_registers, shares
from selector.gpu.passes.drain_stores import drain_stores
from selector.gpu.passes.insert_fences import insert_fences
from selector.gpu.passes.keep_used import keep_used
from selector.gpu.passes.start_early import ALLOW_NEXT, AWAIT_EARLIER, start_early
from selector.gpu.passes.start_early import crowd as crowding
from selector.ir.nodes import (
    Call,
    Var,
)
from selector.ir.types import (
    FLOAT16,
    FLOAT32,
    INT32,
)
from selector.targets import find_target

ROOM = 1 << 16
OTHER = Arrive(number("b"))


def kernel(*body: Node, declarations: Body = (), parameters: tuple[str, ...] = ()) -> Kernel:
    w = Builder()
    for node in body:
        w.add(node)
    given = tuple(Parameter("value", INT32, name) for name in parameters)
    return Kernel("k", 256, 1, given, declarations, w.body(), shared=1024, alignment=128)


# ------------------------------------------------------------------ names


def test_names_are_found_wherever_a_node_has_them() -> None:
    called = Call(INT32, "f", (number("argument"),))
    loop = Builder()
    with loop.loop("i", number("start"), number("stop"), step=number("step"), also=flag("also")):
        loop.add(Point("p", "float", View("array", number("first"), index=number("further"))))
    assert mentioned((Evaluate(called), *loop.body())) == {
        "argument", "start", "stop", "step", "also", "array", "first", "further",
    }  # fmt: skip
    rows = StoreRows(View("to"), View("box"), 128, number(1), number("rows"), number(3))
    assert mentioned((rows, Prefetch("map"))) == {"lane", "to", "box", "rows", "map"}
    assert {"base", "x"} <= mentioned(
        (LoadFragment(registers("r"), "elements", "base", 0, (number("x"),)),)
    )


# ------------------------------------------------------------------ keep_used


def test_what_nobody_mentions_goes() -> None:
    declarations = (
        Let("int", ("lane", "q"), (THREAD, number("lane"))),
        Let("int", ("warp",), (THREAD,)),
        Let("int", ("quotient",), (number("size"),)),
        Let("bool", ("aligned",), (equal("stride", 0),)),
        If(flag("ready"), (Prefetch("map"),)),
    )
    before = kernel(
        If(flag("aligned"), (Arrive(number("q")),)),
        declarations=declarations,
        parameters=("size", "stride", "other", "ready", "map"),
    )
    after = keep_used(before)
    assert after.declarations == (declarations[0], *declarations[3:])
    assert [p.name for p in after.parameters] == ["stride", "ready", "map"]
    assert after.body == before.body
    assert keep_used(after) == after


def test_what_is_given_keeps_what_it_is_made_of() -> None:
    declared = (Let("int", ("quotient",), (number("size"),)),)
    used, unused = (
        keep_used(kernel(Arrive(given(Var(name))), declarations=declared, parameters=("size",)))
        for name in ("quotient", "other")
    )
    assert used.declarations == declared
    assert [p.name for p in used.parameters] == ["size"]
    assert unused.declarations == ()
    assert unused.parameters == ()


# ------------------------------------------------------------------ bound_waits


def bounded(before: Kernel, patience: float | None = 0.5, room: int = ROOM) -> Kernel:
    return bound_waits(before, name="conv", shared_memory=room, patience=patience)


def test_without_patience_a_kernel_stays() -> None:
    before = kernel(Sync("block"), Await("asleep", number("full"), number("round")))
    assert bounded(before, None) is before


def test_each_wait_for_threads_has_a_bound() -> None:
    wait = Await("asleep", number("full"), number("round"))
    inner = Sync("named", number(1), 128, "those")
    after = bounded(kernel(Sync("block", note="all"), If(flag("a"), (wait,), (inner,))))
    limit = 500_000_000
    assert after.body == (
        Sync("named", number(0), 256, "all", limit),
        If(
            flag("a"),
            (Await("asleep", number("full"), number("round"), limit),),
            (Sync("named", number(1), 128, "those", limit),),
        ),
    )
    assert after.declarations == (ResetArrivals(),)
    assert after.shared == 1024 + ARRIVALS_BYTES


def test_other_waits_are_not_counted() -> None:
    before = kernel(Sync("warp"), Sync("cluster"), Await("asleep", number("full"), number(0)))
    after = bounded(before)
    assert after.body[:2] == before.body[:2]
    assert after.declarations == ()
    assert after.shared == before.shared


def test_what_a_statement_waits_for_is_awaited_before_it() -> None:
    waits = tuple(Await("asleep", barrier("ready", n), number("round")) for n in range(2))
    told = If(FIRST_OF_GROUP, (Arrive(number("passed")),))
    fused = Fused((waits[0], told, waits[1]))
    after = bounded(kernel(fused))
    before = tuple(Await("asleep", x.barrier, x.phase, 500_000_000) for x in waits)
    assert after.body == (*before, fused)


def test_no_room_for_counts_is_refused() -> None:
    assert bounded(kernel(Sync("block")), room=1024 + ARRIVALS_BYTES).shared == 1152
    with pytest.raises(ScheduleError, match="the kernel of `conv` has no room to count"):
        bounded(kernel(Sync("block")), room=1024 + ARRIVALS_BYTES - 1)


# ------------------------------------------------------------------ insert_fences

GROUP = Let("int", ("group",), (number("warp"),))


def test_each_group_of_instructions_begins_with_a_fence() -> None:
    operand = InMemory("d", 0, False)
    first, second = (
        Mma("add", Record(64, 8, 16, "f32", "f16", "f16"), "sums", n, operand, operand)
        for n in (0, 1)
    )
    fence, commit = Fence("matrix"), Commit("matrix")
    group = (first, second, commit)
    body = (OTHER, *group, *group, Fused((OTHER, *group)), If(flag("a"), (first, commit)))
    fenced = (fence, *group)
    assert insert_fences(kernel(*body, declarations=(GROUP,))).body == (
        OTHER,
        *fenced,
        *fenced,
        Fused((OTHER, *fenced)),
        If(flag("a"), (fence, first, commit)),
    )


def test_instructions_of_warps_have_no_fence() -> None:
    block = InRegisters(registers("r0"))
    record = Record(16, 8, 16, "f32", "f16", "f16")
    before = kernel(Mma("add", record, "sums", 0, block, block))
    assert insert_fences(before) is before
    grouped = replace(before, declarations=(GROUP,))
    assert insert_fences(grouped).body == before.body


def test_the_proxies_are_fenced_once_for_what_was_stored() -> None:
    fence, noted = Fence("proxy"), Fence("proxy", "for others")
    waited = (Commit("copies"), Drain("copies", 0))
    body = (noted, *waited, fence, OTHER, noted, OTHER, fence, If(flag("a"), (noted, fence)))
    assert insert_fences(kernel(*body, declarations=(GROUP,))).body == (
        *(*waited, fence, OTHER, noted, OTHER, fence),
        If(flag("a"), (fence,)),
    )


# ------------------------------------------------------------------ drain_stores


def test_who_stores_boxes_waits_for_them_at_the_end() -> None:
    box = Map("map", "out", FLOAT16, (number("n"),) * 2, (number("stride"),), (64, 8))
    who, other = both(flag("ready"), FIRST_LANE), both(flag("also"), FIRST_LANE)
    store, drain = EngineStore(View("box"), "map", (number(0),) * 2), Drain("stores", 0, "read")
    commit = Commit("stores")
    loop = For("rolled", "i", number(0), number(3), None, (If(who, (store, store, commit)),))
    body = (loop, If(who, (store, commit)), If(other, (store, commit)), OTHER)
    after = drain_stores(kernel(*body, declarations=(box,)))
    assert after.body == (*body, If(who, (drain,)), If(other, (drain,)))
    loads = kernel(OTHER, If(who, (Commit("copies"),)), declarations=(box,))
    assert drain_stores(loads) is loads


# ------------------------------------------------------------------ start_early


def started(*body: Node, earlier: frozenset[str] | None = frozenset({"a"})) -> Body:
    return start_early(kernel(*body), earlier=earlier, last=True).body


SHARED = Point("from", "float", View("a", index=number("i")))


def test_a_kernel_waits_where_it_first_mentions_what_others_write() -> None:
    assert started(OTHER, SHARED, SHARED) == (OTHER, AWAIT_EARLIER, SHARED, SHARED)
    assert started(OTHER, Prefetch("a")) == (OTHER, AWAIT_EARLIER, Prefetch("a"))
    load = Store(Var("x"), element(FLOAT32, pointer("a"), 1))
    assert started(load) == (AWAIT_EARLIER, load)
    assert started(OTHER) == (OTHER, AWAIT_EARLIER)


def test_it_waits_outside_of_loops_and_branches_but_inside_of_blocks() -> None:
    branch, block = If(flag("b"), (OTHER, SHARED)), Local((OTHER, SHARED))
    assert started(OTHER, branch) == (OTHER, AWAIT_EARLIER, branch)
    assert started(OTHER, block, SHARED) == (
        OTHER,
        Local((OTHER, AWAIT_EARLIER, SHARED)),
        SHARED,
    )


def test_who_starts_nobody_early_and_waits_for_nobody_stays() -> None:
    before = kernel(SHARED)
    assert start_early(before, earlier=None, last=True) is before
    assert start_early(before, earlier=None, last=False).body == (ALLOW_NEXT, SHARED)


def grouped(threads: int, resident: int = 1, shared: int = 100 << 10) -> Kernel:
    """Of groups of four warps."""
    group = Let("int", ("group",), (shifted("threadIdx.x", 7),))
    return replace(
        kernel(OTHER, declarations=(group,)), threads=threads, resident=resident, shared=shared
    )


@pytest.mark.parametrize(
    ("earlier", "threads", "shared", "crowd"),
    [
        (grouped(256), 128, 0, 16),  # groups have all registers
        (grouped(256), 1024, 0, 2),
        (grouped(128), 128, 0, 0),  # 255 of each of 128 threads
        (grouped(256, resident=2), 128, 0, 16),
        (grouped(128, shared=220 << 10), 128, 16 << 10, 16),  # shared memory has no room
        (kernel(OTHER), 128, 0, 0),  # nobody knows how many registers it has
    ],
)
def test_blocks_crowd_where_those_before_leave_no_room(
    earlier: Kernel, threads: int, shared: int, crowd: int
) -> None:
    room = find_target("sm_90a").multiprocessor
    assert room is not None
    later = replace(kernel(OTHER), threads=threads, shared=shared)
    assert crowding(earlier, later, room) == crowd


# ------------------------------------------------------------------ budget_registers


def budgeted(before: Kernel, resident: int = 1, room: int = 227 << 10) -> Kernel:
    return budget_registers(before, resident=resident, shared_memory=room)


@pytest.mark.parametrize(
    ("shared", "alignment", "asked", "told"),
    [
        (0, 0, 1, 0),
        (16 << 10, 128, 3, 3),
        (100 << 10, 128, 3, 2),
        (200 << 10, 128, 3, 0),
        (16 << 10, 1024, 1, 1),
        (200 << 10, 1024, 4, 1),
    ],
)
def test_blocks_are_told_that_shared_memory_holds(
    shared: int, alignment: int, asked: int, told: int
) -> None:
    room = replace(kernel(), shared=shared + alignment, alignment=alignment)
    assert budgeted(room, asked).resident == told


def test_shares_of_registers_are_what_the_block_has() -> None:
    assert shares(96, 3) is None
    assert shares(97, 3) == (32, 160)
    assert shares(137, 2) == (40, 232)
    assert shares(240, 1) is None
    for groups in (2, 3, 4, 5):
        fewer, more = shares(240, groups) or (0, 0)
        assert 24 <= fewer < more <= 240
        assert fewer % 8 == more % 8 == 0
        assert fewer + groups * more <= REGISTERS


def parted(pieces: int, *, ends: bool = True, otherwise: bool = True) -> Kernel:
    record = Record(64, 8, 16, "f32", "f16", "f16")
    operand = InMemory("d", 0, False)
    sums = Fragment("sums", "float", (pieces, 4), ACCUMULATOR)
    rows = Fragment("rows", "float", (2,), ROWS[64])
    multiply = (sums, rows, Mma("add", record, "sums", 0, operand, operand))
    feed = (OTHER, Leave("kernel")) if ends else (OTHER,)
    way = If(equal("group", 3), feed, multiply if otherwise else ())
    return kernel(way, *multiply[:2], declarations=(GROUP,))


def test_groups_that_hold_more_than_their_share_get_it_from_the_one_that_feeds() -> None:
    before = parted(24)
    (way, *_) = before.body
    assert isinstance(way, If)
    after = budgeted(before)
    assert after.resident == 1
    fewer, more = Registers("fewer", 32), Registers("more", 160)
    changed = replace(way, then=(fewer, *way.then), otherwise=(more, *way.otherwise))
    assert after.body == (changed, *before.body[1:])


def test_where_blocks_stay_they_get_it_behind_the_condition() -> None:
    before = parted(24, otherwise=False)
    (way, *rest) = before.body
    assert isinstance(way, If)
    fed = replace(way, then=(Registers("fewer", 32), *way.then))
    assert budgeted(before).body == (fed, Registers("more", 160), *rest)


@pytest.mark.parametrize(
    ("pieces", "shared", "asked", "told"),
    [
        (7, 0, 2, 2),  # 64 registers of a thread are half of what 512 have
        (8, 0, 2, 1),  # sums and what stands beside them need more
        (2, 0, 4, 2),
        (7, 113 << 10, 2, 2),
        (7, 114 << 10, 2, 1),
        (0, 0, 2, 2),
    ],
)
def test_groups_have_as_many_blocks_beside_as_leave_them_their_sums(
    pieces: int, shared: int, asked: int, told: int
) -> None:
    before = replace(parted(pieces), threads=512, shared=shared)
    after = budgeted(before, asked)
    assert after == replace(before, resident=told)


@pytest.mark.parametrize("before", [parted(23), parted(24, ends=False)])
def test_other_groups_keep_equal_shares(before: Kernel) -> None:
    assert budgeted(before).body == before.body


# ------------------------------------------------------------------ the list


def test_passes_run_in_order_each_over_all_kernels() -> None:
    told: list[tuple[str, int, set[str]]] = []

    def watch(name: str, kernels: tuple[Kernel, ...]) -> None:
        told.append((name, len(kernels), {p.name for k in kernels for p in k.parameters}))

    written = [kernel(Arrive(pointer("a")), parameters=(n, "b")) for n in ("a", "c")]
    options = passes.Options("f", ROOM)
    after = passes.run_passes([(k, options) for k in written], watch)
    assert [name for name, _, _ in told] == ["written", *(p.name for p in passes.PASSES)]
    assert told[0][1:] == (2, {"a", "b", "c"})
    assert told[-1][1:] == (2, {"a"})
    assert [len(k.parameters) for k in after] == [1, 0]


def test_a_pass_that_breaks_a_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(before: Kernel) -> Kernel:
        memory = Memory("m", "float", 0, 1, 16, (8,), in_bytes((4,)))
        return Kernel(before.name, 32, 1, (), (), (memory,))

    monkeypatch.setenv("SELECTOR_CHECK", "1")
    monkeypatch.setattr(passes, "PASSES", (passes.Pass("broken", broken),))
    with pytest.raises(InternalError, match="after broken, k: `m`: an element lies at byte"):
        passes.run_passes([(kernel(), passes.Options("f", ROOM))])
