"""Barriers stand where threads exchange values, also around loops and branches that may not run."""

from __future__ import annotations

import re

from test_emit import plan
from test_refusals import block, emit_text

BARRIER = "__syncthreads();"
SHARED = "allocate one[float32 * 8] in GPUShared\nallocate two[float32 * 8] in GPUShared\n"


def threads(text: str, name: str = "t") -> str:
    return f"gpu_thread<CUDA> ({name}, 0, 8) {{\n{text}\n}}"


WRITE = threads("one[t] = float32(K[t])", "t")
EXCHANGE = threads("out[u] = one[7 - u]", "u")
OTHER = threads("two[v] = float32(K[v])", "v")


def kernel(*stmts: str) -> str:
    """The body of the one kernel, without what is between barriers and stores."""
    source = emit_text(block(SHARED + "\n".join(stmts)))
    return source[source.index("smem[]") :]


def skeleton(source: str) -> list[str]:
    """Barriers, stores, and openings of loops and branches, in order."""
    found = re.findall(
        r"__syncthreads\(\);|\b(?:one|two)\[[^=;]*\] =|out\[[^=;]*\] =|#pragma unroll 1|if \(",
        source,
    )
    return ["barrier" if f == BARRIER else f.split("[")[0] for f in found]


def test_a_value_of_another_thread_waits() -> None:
    assert skeleton(kernel(WRITE, EXCHANGE)) == ["one", "barrier", "out"]


def test_nothing_waits_for_nothing() -> None:
    """``two`` is not read in this kernel."""
    assert skeleton(kernel(WRITE, OTHER, EXCHANGE)) == ["one", "two", "barrier", "out"]


def test_overwriting_waits_for_readers() -> None:
    assert skeleton(kernel(WRITE, EXCHANGE, WRITE)) == ["one", "barrier", "out", "barrier", "one"]


def test_iterations_wait_for_each_other() -> None:
    loop = f"for (i, 0, 4) {{\n{WRITE}\n{EXCHANGE}\n}}"
    assert skeleton(kernel(loop)) == ["#pragma unroll 1", "barrier", "one", "barrier", "out"]


def test_iterations_wait_for_stages_that_are_no_ring() -> None:
    """A loop fills ahead what it begins with; this one begins with a condition."""
    write, exchange = (x.replace("one", "two") for x in (WRITE, EXCHANGE))
    staged = f"allocate two[float32 * 8] in GPUShared stages(2)\n{write}\n{exchange}"
    loop = f"for (i, 0, 4) {{\nif (out.extent.0 < i) {{\n{staged}\n}}\n}}"
    source = emit_text(block(loop))
    found = skeleton(source[source.index("smem[]") :])
    assert found == ["#pragma unroll 1", "if (", "barrier", "two", "barrier", "out"]


def test_a_loop_that_may_not_run_is_no_barrier() -> None:
    loop = f"for (i, 0, out.extent.0) {{\n{EXCHANGE}\n}}"
    assert skeleton(kernel(WRITE, loop, EXCHANGE))[-2:] == ["barrier", "out"]
    always = f"for (i, 0, 3) {{\n{EXCHANGE}\n}}"
    assert skeleton(kernel(WRITE, always, EXCHANGE))[-2:] == ["out", "out"]


def test_a_branch_that_may_not_run_is_no_barrier() -> None:
    branch = f"if (out.extent.0 < 4) {{\n{EXCHANGE}\n{OTHER}\n}}"
    assert skeleton(kernel(WRITE, branch, EXCHANGE)) == [
        *("one", "if (", "barrier", "out", "two", "barrier", "out"),
    ]


def test_both_branches_start_from_the_same_state() -> None:
    branch = f"if (out.extent.0 < 4) {{\n{EXCHANGE}\n{OTHER}\n}} else {{\n{EXCHANGE}\n{OTHER}\n}}"
    found = skeleton(kernel(WRITE, branch))
    assert found == ["one", "if (", "barrier", "out", "two", "barrier", "out", "two"]


COPY = "copied[ramp(0, 1, 64)] = I[ramp(b*64, 1, 64)]"
USE = threads("out[w + 8] = float32(copied[63 - w])", "w")


def flight(*stmts: str) -> list[str]:
    """Copies, their arrival, barriers and stores, in order."""
    source = kernel("allocate copied[float16 * 64] in GPUShared", *stmts)
    pattern = r"copy16\(|copy_wait<0>|__syncthreads|\bone\[[^=;]*\] =|out\[[^=;]*\] ="
    found = re.findall(pattern, source)
    return [f.split("[")[0].split("(")[0] for f in found]


def test_copies_stay_in_flight_at_barriers_for_other_memory() -> None:
    inside, border = "copy16", "copy16"
    assert flight(COPY, WRITE, EXCHANGE, USE) == [
        *(inside, border, "one", "__syncthreads", "out", "copy_wait<0>", "__syncthreads", "out"),
    ]


def test_copies_arrive_where_their_target_is_overwritten() -> None:
    over = threads("copied[v] = K[v]", "v")
    found = flight(COPY, over, USE)
    assert found[2:4] == ["copy_wait<0>", "__syncthreads"]


def plan_source(name: str) -> str:
    source = plan(name).source
    return source[source.index("smem[]") :]


def test_slots_of_warps_do_not_overlap() -> None:
    """A warp's ring of 3 slots of 152 elements of 16 bits: the next warp's begins after all."""
    assert f"warp * {3 * 152 * 2})" in plan_source("ring_rows_3")


def test_slots_start_at_multiples_of_16_bytes() -> None:
    """53 floats of a tile make a slot of 56."""
    assert "slot * 56)" in plan_source("ring_plain_3_50")


def test_an_iteration_ahead_waits_for_readers_of_the_last() -> None:
    """What the iterations themselves exchange needs the barrier, so that copies need no signals."""
    source = plan_source("ring_through_3")
    loop = source[source.index("copy_wait<1>") : source.index("slot = slot ==")]
    assert loop.count(BARRIER) == 2
    assert "barrier_" not in source


def test_products_in_a_ring_have_no_barrier_for_the_block() -> None:
    source = plan_source("product_stages_3_75")
    loop = source[source.index("barrier_wait(full + 8 * slot") : source.index("slot = slot ==")]
    assert BARRIER not in loop
