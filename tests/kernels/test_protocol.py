"""The protocol of kernels, run without data: what is right stays unmentioned, and each mistake of
the seeded ones is found.
"""

from __future__ import annotations

import pytest
from changed import misplaced, mutants
from corpus import CORPUS

import halide_bridge as hb
from selector.eqsat.select import select
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import (
    THREAD,
    barrier,
    element,
    equal,
    flag,
    number,
    pointer,
    register,
    shared_address,
    times,
)
from selector.gpu.ir.lane_maps import ACCUMULATOR
from selector.gpu.ir.layouts import parse_layout
from selector.gpu.ir.memory import (
    EngineCopy,
    Store,
)
from selector.gpu.ir.nodes import (
    Arrive,
    Await,
    Comment,
    Commit,
    Drain,
    Fence,
    If,
    Init,
    Kernel,
    Let,
    Memory,
    Node,
    Sync,
    walk,
)
from selector.gpu.ir.products import Busy, Descriptor, Fragment, InMemory, Mma, Pin, Record
from selector.gpu.ir.verify import memory_faults
from selector.gpu.ir.views import View
from selector.gpu.simulator.meeting import meeting_only
from selector.gpu.simulator.protocol import first_fault, protocol_faults
from selector.ir.types import FLOAT32
from selector.targets import find_target

pytestmark = pytest.mark.verified

FORMS = (  # of pipelines, by a program of the corpus and its target
    ("product_stages_3_75", "sm_80"),
    ("groups_layout_nn_mapped", "sm_90a"),
    ("groups_narrowed_mapped", "sm_90a"),
    ("groups_self_fed_two_mapped", "sm_90a"),
    ("groups_teams_three_mapped", "sm_90a"),
    ("groups_cluster_lasting_mapped", "sm_90a"),
    ("groups_teams_cluster_mapped", "sm_90a"),
    ("boxes_nn", "sm_90a"),
    ("boxes_deep", "sm_90a"),
)
SMALL = (  # of which all are tried: copies by threads and in runs, with and without stages
    ("product_mma", "sm_80"),
    ("window_rows_in_turn", "sm_80"),
    ("table_96_by_32_stages_3", "sm_80"),
    ("loop_3_4", "sm_80"),
    ("ring_plain_2_64", "sm_90a"),
)
EVERY = 9  # of so many mutants of the others one is tried, but at night


def kernel_of(name: str, target: str) -> Kernel:
    """A program's last kernel."""
    case = CORPUS[name]
    module = hb.lower(case.build(), target=target, name=name)
    selected = select(module, find_target(target), True, case.only).module
    return emit_kernels(selected, find_target(target))[0][-1]


def found(kernel: Kernel, seed: int, every: int) -> tuple[list[str], int]:
    """The mutants that are not found, and how many were tried."""
    chosen = [m for i, m in enumerate(mutants(kernel)) if i % every == seed % every]
    return [what for what, mutant in chosen if first_fault(mutant) is None], len(chosen)


@pytest.mark.parametrize(("name", "target"), FORMS)
def test_mistakes_are_found(name: str, target: str) -> None:
    kernel = meeting_only(kernel_of(name, target))
    assert not protocol_faults(kernel)
    missed, tried = found(kernel, len(name), EVERY)
    assert tried
    assert not missed


def test_all_mistakes_are_found_in_small_kernels() -> None:
    kernels = [meeting_only(kernel_of(*form)) for form in SMALL]
    assert not [fault for kernel in kernels for fault in protocol_faults(kernel)]
    results = [found(kernel, 0, 1) for kernel in kernels]
    assert not [what for missed, _ in results for what in missed]
    assert sum(tried for _, tried in results) >= 50


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "target"), FORMS)
def test_all_mistakes_are_found(name: str, target: str) -> None:
    missed, _ = found(meeting_only(kernel_of(name, target)), 0, 1)
    assert not missed


def test_what_threads_store_element_by_element_is_followed() -> None:
    """Bands of taps, which wgmma reads behind a fence and a barrier of a group."""
    kernel = meeting_only(kernel_of("group_windows_halves_of_edges_unaligned", "sm_90a"))
    assert not protocol_faults(kernel)
    after = "was stored without a fence for the asynchronous proxy", "is still being written"
    wrong = [first_fault(mutant) or "" for what, mutant in mutants(kernel) if "missing" in what]
    assert [sum(fault.startswith(text) for fault in wrong) for text in after] == [2, 1]


@pytest.mark.parametrize(("name", "target"), FORMS)
def test_boxes_at_the_wrong_place_are_found(name: str, target: str) -> None:
    kernel = kernel_of(name, target)
    assert not memory_faults(kernel)
    assert not [what for what, mutant in misplaced(kernel) if not memory_faults(mutant)]


# ------------------------------------------------------------------ by hand


def hand_over(*after: Node, sync: bool = True, phase: int = 0) -> tuple[str, ...]:
    """What is wrong where thread 0 makes a barrier, the second warp arrives and the first waits."""
    w = Builder()
    w.add(Let("u32", ("full",), (shared_address(64),)))
    with w.when(equal(THREAD, 0)):
        w.add(Init(number("full"), number(32)))
    if sync:
        w.add(Sync("block"))
    with w.when(equal("warp", 1)):
        w.add(Arrive(number("full")))
    with w.otherwise():
        w.add(Await("spinning", barrier("full"), number(phase)))
    for node in after:
        w.add(node)
    return protocol_faults(Kernel("k", 64, 1, (), (), w.body()))


def test_nothing_is_wrong() -> None:
    assert hand_over() == ()


def test_a_barrier_that_nobody_told_of() -> None:
    assert any("nobody told this thread" in fault for fault in hand_over(sync=False))


def test_a_phase_that_never_comes() -> None:
    (fault, *_) = hand_over(phase=2)
    assert fault.startswith("phase 2 is taken for another, 1 are over")


def test_waiting_forever_says_for_whom() -> None:
    late = Await("spinning", barrier("full"), number(1))
    assert any("waits forever" in f and "(1): 0 of 32 have arrived" in f for f in hand_over(late))


def test_more_than_a_phase_takes() -> None:
    again = Arrive(number("full"))
    twice = (If(equal(THREAD, 0), (again,)), Sync("block"), If(equal("warp", 1), (again,)))
    assert any("more arrive than the 32" in fault for fault in hand_over(*twice))


def test_arrivals_that_are_left_over() -> None:
    left = If(equal(THREAD, 0), (Arrive(number("full")),))
    assert hand_over(left) == ("at the end 1 of 32 arrivals of a phase",)


# ------------------------------------------------------------------ instructions under way


def multiplied(*after: Node, stage: int = 0) -> tuple[str, ...]:
    """What is wrong where a group multiplies what lies in a stage and then does something, and
    another one copies over the first stage once all have met.
    """
    left, right = Descriptor("d0", AT_SLOT, 16, 1024, 128), Descriptor("d1", AT_SLOT, 16, 1024, 128)
    operands = InMemory("d0", 0, across=False), InMemory("d1", 8192, across=False)
    w = Builder()
    w.add(Memory("a", "f16", 1024, 2, 16384, (128, 64), parse_layout(SWIZZLED)))
    w.add(Fragment("acc", "float", (8, 4), ACCUMULATOR))
    w.add(Let("u32", ("full",), (shared_address(64),)))
    with w.when(equal(THREAD, 128)):
        w.add(Init(number("full"), number(1)))
        w.add(Fence("barriers"))
    with w.when(equal("group", 0)):
        w.add(Let("int", ("slot",), (number(stage),)))
        for node in (left, right, Mma("add", RECORD, "acc", 0, *operands), *after):
            w.add(node)
    w.add(Sync("block"))
    with w.when(equal(THREAD, 128)):
        w.add(Arrive(number("full"), number(16384)))
        w.add(EngineCopy(View("a"), "map", ("x", "y"), number("full"), 16384))
    w.add(Await("spinning", number("full"), number(0)))
    return protocol_faults(Kernel("k", 256, 1, (), (), w.body()))


SWIZZLED = "swizzle(128) . strided(128, 2)"
AT_SLOT = View("a", times("slot", 8192))
RECORD = Record(64, 64, 16, "f32", "f16", "f16")
COMPLETE = (Commit("matrix"), Drain("matrix", 0))
STORE = Store(element(FLOAT32, pointer("out"), 0), element(FLOAT32, register("acc", 0), 0))


def test_complete_instructions_have_nothing() -> None:
    assert multiplied(*COMPLETE, Pin("acc"), STORE) == ()


def test_a_store_that_mentions_a_fragment_touches_it() -> None:
    told = ("`acc` is touched while instructions have it",)
    assert multiplied(STORE, *COMPLETE) == told
    assert multiplied(Commit("matrix"), If(flag("a"), (STORE,)), Drain("matrix", 0)) == told
    assert multiplied(Commit("matrix"), Drain("matrix", 1), Pin("acc"), Drain("matrix", 0)) == told
    assert multiplied(Comment("acc: one instruction"), *COMPLETE) == ()


def test_what_instructions_read_stays_until_they_are_complete() -> None:
    (told,) = multiplied(Commit("matrix"))
    assert told.startswith("instructions may still read what is there: engine to a")
    assert multiplied(Commit("matrix"), stage=1) == ()


def test_a_reduced_kernel_stays_as_it_is() -> None:
    kernel = meeting_only(kernel_of("groups_layout_nn_mapped", "sm_90a"))
    assert meeting_only(kernel) == kernel
    assert any(isinstance(node, Busy) for node in walk(kernel.body))
