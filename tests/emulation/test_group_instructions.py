"""wgmma, the copy engine and clusters do what NumPy does in the test, as the PTX ISA says; and what
is read too early, or changed too early, is poison.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

from emulation import Fault
from emulation.texts import run_text

pytestmark = pytest.mark.verified

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(6)
FENCE = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
BEGIN = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
COMMIT = 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");'
WAIT = 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");'
STAGE = """for (int i = thread; i < SIZE; i += 128) memory[i] = bytes[i];
"""
MODES = {0: 0, 128: 1, 64: 2, 32: 3}  # of a descriptor, by the bytes of a row


def swizzled(image: Array, row_bytes: int) -> Array:
    """Memory whose chunks of 16 bytes have changed places by bits 7 and up of their address."""
    if not row_bytes:
        return image
    at = np.arange(image.size)
    turned = at ^ (at >> 3 & (row_bytes - 16))
    found = np.empty_like(image)
    found[turned] = image
    return found


def in_depth(matrix: Array, row_bytes: int) -> tuple[Array, int, int]:
    """Bytes of an operand of 32 bytes of depth, rows (m or n) of it along the depth; and the two
    distances of its descriptor.
    """
    rows = matrix.view(np.uint8).reshape(len(matrix), 32)
    if not row_bytes:  # core matrices of 8 x 16 bytes: first along the rows, then along the depth
        cores = rows.reshape(-1, 8, 2, 16).transpose(2, 0, 1, 3)
        return cores.ravel(), cores[0].size, 128
    wide = np.zeros((len(rows), row_bytes), np.uint8)
    wide[:, :32] = rows
    return swizzled(wide.ravel(), row_bytes), 16, 8 * row_bytes


def in_rows(matrix: Array, row_bytes: int) -> tuple[Array, int, int]:
    """The same with m or n along memory: ``matrix`` is (rows, 16) of 2 bytes."""
    across = matrix.T.copy()  # (16, rows)
    if not row_bytes:
        cores = across.reshape(2, 8, -1, 8).transpose(0, 2, 1, 3)
        return cores.ravel().view(np.uint8), cores[0].nbytes, 128
    width = row_bytes // 2
    padded = np.zeros((16, -(-across.shape[1] // width) * width), across.dtype)
    padded[:, : across.shape[1]] = across
    panels = padded.reshape(16, -1, width).swapaxes(0, 1)  # panel, depth, column
    image = np.ascontiguousarray(panels).ravel().view(np.uint8)
    return swizzled(image, row_bytes), 16 * row_bytes, 8 * row_bytes


def descriptor(place: int, leading: int, stride: int, row_bytes: int) -> str:
    high = (leading >> 4) << 16 | (stride >> 4) << 32 | MODES[row_bytes] << 62
    return f"((u64)(at(memory + {place}) >> 4) | {high}ull)"


def multiply(n: int, k: int, types: str, a: str, b: str, modes: str, count: int) -> str:
    """An ``asm`` statement that multiplies into ``d``."""
    c = types.split(".")[0]
    way = "r" if c == "s32" else "f"
    places = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+{way}"(d[{i}])' for i in range(count))
    if a == "held":
        held = f"{{{', '.join(f'%{count + i}' for i in range(4))}}}, %{count + 4}"
        inputs = ", ".join(f'"r"(a[{i}])' for i in range(4)) + f', "l"({b})'
    else:
        held, inputs = f"%{count}, %{count + 1}", f'"l"({a}), "l"({b})'
    return (
        f'asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k{k}.{types} {{{places}}}, {held}, '
        f'{modes};" : {outputs} : {inputs});'
    )


def stores(n: int, count: int) -> str:
    return (
        f"for (int i = 0; i < {count}; ++i) "
        f"out[((thread >> 5) * 16 + g + (i & 2) * 4) * {n} + i / 4 * 8 + 2 * q + i % 2] = d[i];"
    )


@pytest.mark.parametrize("across", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("row_bytes", [0, 32, 64, 128])
def test_wgmma_of_halves(row_bytes: int, across: str) -> None:
    """All layouts of both operands in shared memory; sums are added to what is there."""
    n = 64
    a, b = (rng.uniform(-2, 2, (rows, 16)).astype(np.float16) for rows in (64, n))
    images = [
        (in_rows if way == "t" else in_depth)(m, row_bytes)
        for m, way in zip((a, b), across, strict=True)
    ]
    second = -(-images[0][0].size // 1024) * 1024
    size = second + images[1][0].size
    memory = np.zeros(size, np.uint8)
    for (image, _, _), at in zip(images, (0, second), strict=True):
        memory[at : at + image.size] = image
    left, right = (
        descriptor(at, leading, stride, row_bytes)
        for (_, leading, stride), at in zip(images, (0, second), strict=True)
    )
    ways = ", ".join("1" if way == "t" else "0" for way in across)
    count = n // 2
    product = multiply(n, 16, "f32.f16.f16", left, right, f"1, 1, 1, {ways}", count)
    body = f"""{STAGE.replace("SIZE", str(size))}{FENCE}
    __syncthreads();
    float d[{count}];
    for (int i = 0; i < {count}; ++i) d[i] = 1.0f;
    {BEGIN} {product} {COMMIT} {WAIT}
    {stores(n, count)}"""
    output = np.zeros((64, n), np.float32)
    found = run_text(body, {"bytes": memory}, output, threads=128, shared=size)
    expected = 1 + a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_wgmma_of_bytes() -> None:
    n = 16
    a, b = (rng.integers(-128, 127, (rows, 32)).astype(np.int8) for rows in (64, n))
    images = [in_depth(m, 32) for m in (a, b)]
    memory = np.concatenate([image for image, _, _ in images])
    left, right = (descriptor(at, 16, 256, 32) for at in (0, 2048))
    body = f"""{STAGE.replace("SIZE", str(memory.size))}{FENCE}
    __syncthreads();
    int d[8] = {{}};
    {BEGIN} {multiply(n, 32, "s32.s8.s8", left, right, "0", 8)} {COMMIT} {WAIT}
    {stores(n, 8)}"""
    output = np.zeros((64, n), np.int32)
    found = run_text(body, {"bytes": memory}, output, threads=128, shared=memory.size)
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32).T)


HELD = """u32 a[4];
    for (int i = 0; i < 4; ++i)
      a[i] = *(const u32*)(left + ((thread >> 5) * 16 + g + i % 2 * 8) * 16 + i / 2 * 8 + 2 * q);
"""


def held_product(early: str = "", late: str = "", fence: str = FENCE, begin: str = BEGIN) -> Any:
    """(result, what it should be) of a product with A in registers; what is done before the wait,
    and between the product and the wait.
    """
    n = 8
    a, b = (rng.uniform(1, 2, (rows, 16)).astype(np.float16) for rows in (64, n))
    image, leading, stride = in_depth(b, 0)
    right = descriptor(0, leading, stride, 0)
    product = multiply(n, 16, "f32.f16.f16", "held", right, "1, 1, 1, 0", 4)
    body = f"""{STAGE.replace("SIZE", str(image.size))}{fence}
    __syncthreads();
    {HELD}float d[4] = {{}};
    {begin} {product} {COMMIT} {early} {WAIT} {late}
    {stores(n, 4)}"""
    output = np.zeros((64, n), np.float32)
    given = {"bytes": image, "left": a}
    found = run_text(body, given, output, threads=128, shared=image.size)
    return found, a.astype(np.float64) @ b.astype(np.float64).T


def test_wgmma_with_an_operand_in_registers() -> None:
    found, expected = held_product()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_accumulators_are_lost_until_the_wait() -> None:
    found, _ = held_product("const float seen = d[0];", "d[0] = seen;")
    assert np.isnan(found[:8, ::2]).all()
    assert np.isfinite(found[:8, 1::2]).all()


def test_an_operand_must_not_change_before_the_wait() -> None:
    found, expected = held_product("*(f16*)memory = f16{0x4000};")
    assert np.isnan(found[:, 0]).all()
    np.testing.assert_allclose(found[:, 1:], expected[:, 1:], rtol=1e-6)


def test_stores_without_a_fence_are_not_seen() -> None:
    found, _ = held_product(fence="")
    assert np.isnan(found).all()


def test_registers_need_a_fence() -> None:
    with pytest.raises(Fault, match=r"wgmma before any wgmma\.fence"):
        held_product(begin="")


MAKE = """const u32 barrier = at(memory + BARRIER);
    if (thread == 0) {
      asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(barrier), "r"(1) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
"""
EXPECT = """asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
      :: "r"(barrier), "r"(BYTES) : "memory");
"""
AWAIT = """{ u32 done;
    do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
      " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(barrier), "r"(0) : "memory");
    while (!done); }
"""


def box_copy(rank: int, places: tuple[int, ...], to: str = "memory", blocks: str = "") -> str:
    given = ", ".join(f'"r"({p})' for p in places)
    names = ", ".join(f"%{i + 2}" for i in range(rank))
    form = ".multicast::cluster" if blocks else ""
    mask = (f", %{rank + 3}", f', "h"({blocks})') if blocks else ("", "")
    return (
        f'asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx'
        f'::bytes{form} [%0], [%1, {{{names}}}], [%{rank + 2}]{mask[0]};" :: "r"(at({to})), '
        f'"l"(&map_data), {given}, "r"(barrier){mask[1]} : "memory");'
    )


def box_of(data: Array, places: tuple[int, ...], box: tuple[int, ...]) -> Array:
    """A box with zeros outside of the array; places and extents innermost first."""
    index = [p + np.arange(n) for p, n in zip(places[::-1], box[::-1], strict=True)]
    inside = [(i >= 0) & (i < n) for i, n in zip(index, data.shape, strict=True)]
    clipped = np.ix_(*[i.clip(0, n - 1) for i, n in zip(index, data.shape, strict=True)])
    mask = reduce(np.multiply.outer, inside)
    return np.where(mask, data[clipped], 0).astype(data.dtype)


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_boxes_of_tensors(rank: int, width: int) -> None:
    """Rows of 16 (not swizzled), 32, 64 and 128 bytes, over both ends of the tensor."""
    data = rng.integers(1, 999, (3, 4, 3, 5, 80)[5 - rank :]).astype(np.float16)
    box = (width, 4, 2, 2, 2)[:rank]
    places = (80 - width + 3, -1, 2, 1, -1)[:rank]
    expected = box_of(data, places, box)
    size = expected.nbytes
    body = f"""{MAKE.replace("BARRIER", str(size))}
    if (thread == 0) {{ {EXPECT.replace("BYTES", str(size))} {box_copy(rank, places)} }}
    __syncthreads();
    {AWAIT}
    for (int i = thread; i < {size}; i += 32) out[i] = memory[i];"""
    output = np.zeros(size, np.uint8)
    given = {"data": data}
    found = run_text(body, given, output, shared=size + 8, boxes={"data": box})
    row = width * 2
    image = swizzled(expected.ravel().view(np.uint8), row if row > 16 else 0)
    np.testing.assert_array_equal(found, image)


def test_a_box_lands_no_sooner_than_it_is_waited_for() -> None:
    data = rng.integers(1, 99, (8, 32)).astype(np.int32)
    body = f"""{MAKE.replace("BARRIER", "1024")}
    __syncthreads();
    if (thread == 0) {{ {EXPECT.replace("BYTES", "1024")} {box_copy(2, (0, 0))} }}
    __syncthreads();
    out[thread] = ((int*)memory)[thread];
    {AWAIT}
    out[32 + thread] = ((int*)memory)[thread];"""
    output = np.zeros((2, 32), np.int32)
    given = {"data": data}
    early, late = run_text(body, given, output, shared=1032, boxes={"data": (32, 8)})
    assert (early == -1).all()
    np.testing.assert_array_equal(late, data[0])


JOIN = """asm volatile("barrier.cluster.arrive.relaxed.aligned;"
      " barrier.cluster.wait.acquire.aligned;" ::: "memory");
"""
STORE = """asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
      " [%1, {%2, %3}], [%0];" :: "r"(at(memory)), "l"(&map_out), "r"(4), "r"(-1) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
"""
READ = 'asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");'


@pytest.mark.parametrize("fault", ["", "fence", "early"])
def test_boxes_are_stored(fault: str) -> None:
    """What is inside of the tensor; poison where a fence is missing, and where shared memory is
    written again before it was read.
    """
    fence = "" if fault == "fence" else FENCE
    early = "if (thread == 0) ((int*)memory)[8] = 5;" if fault == "early" else ""
    body = f"""for (int i = thread; i < 32; i += 32) ((int*)memory)[i] = 100 + i;
    {fence} __syncwarp();
    if (thread == 0) {{ {STORE} {early} {READ} }}"""
    output = np.zeros((4, 8), np.int32)
    found = run_text(body, {}, output, shared=128, boxes={"out": (4, 8)})
    stored = 100 + np.arange(32).reshape(8, 4)[1:5]
    assert (found[:, :4] == -1).all()  # not written
    if fault == "fence":
        assert (found[:, 4:] == -1).all()
    else:
        assert (found[1, 4] == -1) == (fault == "early")
        np.testing.assert_array_equal(found[2:, 4:], stored[2:])


def test_a_box_for_all_blocks_of_a_cluster() -> None:
    data = rng.integers(1, 99, (32, 4)).astype(np.int32)
    body = f"""int rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    {MAKE.replace("BARRIER", "512")}
    {JOIN}
    if (thread == 0) {{ {EXPECT.replace("BYTES", "512")} }}
    if (thread == 0 && rank == 1) {{ {box_copy(2, (0, 0), blocks="3")} }}
    {AWAIT}
    for (int i = thread; i < 128; i += 32) out[blockIdx.x * 128 + i] = ((int*)memory)[i] + rank;
    {JOIN}"""
    output = np.zeros((4, 32, 4), np.int32)
    options: dict[str, Any] = {"blocks": 4, "cluster": 2, "boxes": {"data": (4, 32)}}
    found = run_text(body, {"data": data}, output, shared=520, **options)
    np.testing.assert_array_equal(found, [data, data + 1, data, data + 1])


def test_arrivals_at_another_block() -> None:
    """Block 1 says when block 0 may go on; without the barrier at the end it may have ended."""
    body = f"""int rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    {MAKE.replace("BARRIER", "0")}
    {JOIN}
    if (rank == 1 && thread == 0)
      asm volatile("{{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
        " mbarrier.arrive.shared::cluster.b64 _, [there]; }}" :: "r"(barrier), "r"(0) : "memory");
    if (rank == 0) {AWAIT}
    out[blockIdx.x * 32 + thread] = rank;
    {JOIN}"""
    found = run_text(body, {}, np.zeros((2, 32), np.int32), shared=8, blocks=2, cluster=2)
    np.testing.assert_array_equal(found, [[0] * 32, [1] * 32])
