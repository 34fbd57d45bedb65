"""What no program may do is seen: each text has one fault, and works without it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from emulation import Fault, Unsupported, check, run
from emulation.launch import ORDERS
from emulation.texts import run_text, text_kernel

pytestmark = pytest.mark.verified

OUT = np.zeros(32, np.int32)
DATA = np.arange(64, dtype=np.int32)
SHARED = "int* const smem = (int*)memory;\n"
INIT = """if (thread == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;"
  :: "r"(at(memory)), "r"(COUNT) : "memory");
__syncthreads();
"""
ARRIVE = """asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }"
  :: "r"(at(memory)) : "memory");
"""
AWAIT = """asm volatile("{ .reg .pred done; again:"
  " mbarrier.test_wait.parity.shared.b64 done, [%0], %1; @done bra out; bra again;"
  " out: }" :: "r"(at(memory)), "r"(0) : "memory");"""

FAULTS = {
    "load-behind-an-array": (
        "out[thread] = data[thread + 4096];",
        r"memory fault at byte 16\d+ of the 256 of data",
    ),
    "load-through-no-pointer": (
        "out[thread] = *(int*)0x5a5a5a5a5a5a5a5aull;",
        "an access that the processor refuses",
    ),
    "store-behind-an-array": ("out[thread + 1] = 1;", r"beside an array: byte 128 .* of out"),
    "store-before-an-array": ("out[thread - 1] = 1;", r"beside an array: byte -4 .* of out"),
    "load-behind-shared-memory": (
        SHARED + "out[thread] = smem[thread + 33];",
        r"4 bytes at 256 of 256 bytes of shared memory",
    ),
    "misaligned-store": (
        "*(u64*)(out + thread % 31) = 1;",
        r"misaligned access of 8 bytes at byte \d+ of the 128 of out",
    ),
    "misaligned-row-of-a-matrix": (
        'u32 r; asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r)'
        ' : "r"(at(memory + lane % 8 * 24))); out[thread] = r;',
        "ldmatrix: shared address 24 is misaligned",
    ),
    "lanes-part": (
        "if (thread < 16) out[thread] = __shfl_xor_sync(0xffffffffu, thread, 1);"
        " else __syncwarp();",
        "lanes of a warp are at (a shuffle and at __syncwarp|__syncwarp and at a shuffle)",
    ),
    "some-lanes-leave": (
        "if (thread < 5) return; out[thread] = __shfl_xor_sync(0xffffffffu, thread, 1);",
        "in a warp of 27 threads|a thread ends while others of its warp are at a shuffle",
    ),
    "some-threads-wait": (
        "if (thread < 31) asm volatile(\"bar.sync 1, 64;\" ::: \"memory\");",
        "all threads wait, this one at a named barrier",
    ),
    "no-barrier": (AWAIT, "there is no mbarrier at 0"),
    "an-arrival-too-few": (
        INIT.replace("COUNT", "33") + ARRIVE + AWAIT,
        "all threads wait, this one at an mbarrier",
    ),
    "an-arrival-too-many": (
        INIT.replace("COUNT", "1") + "if (thread == 0) asm volatile("
        '"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(at(memory)), "r"(16));'
        + "__syncthreads();" + ARRIVE,
        "more than 1 arrivals at the mbarrier at 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("order", [0, *ORDERS])
def test_a_fault_is_seen(name: str, order: int) -> None:
    body, message = FAULTS[name]
    with pytest.raises(Fault, match=message):
        run_text(body, {"data": DATA}, OUT, shared=256, order=order)


def test_a_loop_without_end_is_seen() -> None:
    kernel = text_kernel("for (volatile int i = 0; i < 2; ) ;", {}, {"out": OUT})
    with pytest.raises(Fault, match=r"not done in 0\.5 s"):
        run(kernel, timeout=0.5)


RACE = SHARED + "smem[thread] = thread; BARRIER out[thread] = smem[63 - thread];"


@pytest.mark.parametrize("element", [np.int32, np.float32])
def test_a_race_is_seen_by_two_orders_and_two_poisons(element: Any) -> None:
    """Two warps, and no barrier between what one stores and the other loads."""
    options: dict[str, Any] = {"threads": 64, "shared": 256}
    outputs = {"out": np.zeros(64, element)}
    kernel = text_kernel(RACE.replace("BARRIER", ""), {}, outputs, **options)
    with pytest.raises(Fault, match=r"depends on memory that nobody wrote, or on the order"):
        check(kernel)
    mended = text_kernel(RACE.replace("BARRIER", "__syncthreads();"), {}, outputs, **options)
    np.testing.assert_array_equal(check(mended), np.arange(63, -1, -1))
    np.testing.assert_array_equal(check(kernel, source=mended.source), check(mended))


@pytest.mark.parametrize("writer", [0, 1])
def test_a_warp_that_does_not_wait_for_another_is_seen(writer: int) -> None:
    """Whichever of the two is ahead of the other, though lanes of each meet."""
    body = (
        f"{SHARED}if (thread / 32 == {writer}) smem[lane] = lane; __syncwarp();"
        "out[thread] = smem[lane];"
    )
    with pytest.raises(Fault, match="or on the order"):
        check(text_kernel(body, {}, {"out": np.zeros(64, np.int32)}, threads=64, shared=128))


def test_memory_that_nobody_wrote_is_seen_in_integers() -> None:
    body = (
        SHARED + "if (thread < 31) smem[thread] = 0; __syncthreads(); out[thread] = smem[thread];"
    )
    with pytest.raises(Fault, match=r"out.*\[31\] is -1 or 1515870810"):
        check(text_kernel(body, {}, {"out": OUT}, shared=128))


def test_strided_inputs_have_poison_between_rows() -> None:
    data = np.arange(64, dtype=np.float32).reshape(4, 16)[:, :8]
    body = (
        "for (int i = 0; i < 4; ++i) if (thread < 9) out[i * 9 + thread] = data[i * 16 + thread];"
    )
    found = run_text(body.replace("9) out", "8) out"), {"data": data}, np.zeros((4, 9), np.float32))
    np.testing.assert_array_equal(found[:, :8], data)
    found = run_text(body, {"data": data}, np.zeros((4, 9), np.float32))
    assert np.isnan(found[:3, 8]).all()


def test_arguments_are_aligned_as_their_types() -> None:
    """Maps too that a call does not have; there are many, as memory is often aligned by chance."""
    inputs = {f"data{i}": DATA.reshape(8, 8) for i in range(16)}
    boxes = dict.fromkeys(inputs, (8, 8))
    kernel = text_kernel("out[thread] = data3[thread];", inputs, {"out": OUT}, boxes=boxes)
    for ready in (True, False):
        found = run(kernel, maps_ready=ready, **inputs)
        np.testing.assert_array_equal(found, DATA[:32])


def test_what_is_not_there_is_said() -> None:
    body = 'asm volatile("nanosleep.u32 20;" ::: "memory");'
    with pytest.raises(Unsupported, match=r"the instruction nanosleep\.u32"):
        run_text(body, {}, OUT)


def test_a_text_of_its_own_is_run_on_the_plan_of_a_kernel() -> None:
    kernel = text_kernel("out[thread] = 1;", {}, {"out": OUT})
    other = dataclasses.replace(kernel.plan, source=kernel.source.replace("= 1;", "= 2;"))
    assert (run(kernel) == 1).all()
    assert (run(kernel, source=other.source) == 2).all()
