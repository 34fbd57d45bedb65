"""Each emulated instruction does what NumPy does in the test, as the PTX ISA says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulation.texts import run_text
from selector.ir.float8 import from_bytes
from selector.ir.types import Type

pytestmark = pytest.mark.verified

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(5)


def bf16_bits(values: Array) -> Array:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def bf16_values(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def operand(kind: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Random numbers as an operand has them, and their values."""
    if kind == "f16":
        found = rng.uniform(-2, 2, shape).astype(np.float16)
        return found, found.astype(np.float64)
    if kind == "bf16":
        bits = bf16_bits(rng.uniform(-2, 2, shape))
        return bits, bf16_values(bits).astype(np.float64)
    if kind == "tf32":
        found = rng.uniform(-2, 2, shape).astype(np.float32)
        found = (found.view(np.uint32) & 0xFFFFE000).view(np.float32)
        return found, found.astype(np.float64)
    if kind in ("e4m3", "e5m2"):
        found = rng.integers(0, 2, shape, np.uint8) << 7 | rng.integers(0, 0x78, shape, np.uint8)
        return found, from_bytes(found, Type.parse(kind)).astype(np.float64)
    low, high = (-128, 127) if kind == "s8" else (0, 255)
    found = rng.integers(low, high, shape, endpoint=True)
    return found.astype("int8" if kind == "s8" else "uint8"), found.astype(np.float64)


MMA = [
    *(("f16", "f16", c, k) for c in ("f32", "f16") for k in (8, 16)),
    *(("bf16", "bf16", "f32", k) for k in (8, 16)),
    *(("tf32", "tf32", "f32", k) for k in (4, 8)),
    *((a, b, "f32", 32) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    *((a, b, "s32", k) for a in ("s8", "u8") for b in ("s8", "u8") for k in (16, 32)),
]


@pytest.mark.parametrize(("a", "b", "c", "k"), MMA)
def test_mma_is_a_product(a: str, b: str, c: str, k: int) -> None:
    left, x = operand(a, (16, k))
    right, y = operand(b, (8, k))  # columns
    each = 4 // left.itemsize
    blocks = k // (4 * each)
    names = [f"a{i}" for i in range(2 * blocks)] + [f"b{i}" for i in range(blocks)]
    count = 2 if c == "f16" else 4
    places = ", ".join(f"%{i}" for i in range(count))
    lists = [", ".join(f"%{count + names.index(n)}" for n in names if n[0] == s) for s in "ab"]
    ctype, way = {"f32": ("float", "f"), "f16": ("u32", "r"), "s32": ("int", "r")}[c]
    loads = "".join(
        f"u32 a{2 * i + h} = *(const u32*)(a + (g + {8 * h}) * {k} + ({4 * i} + q) * {each});\n"
        for i in range(blocks)
        for h in (0, 1)
    )
    loads += "".join(
        f"u32 b{i} = *(const u32*)(b + g * {k} + ({4 * i} + q) * {each});\n" for i in range(blocks)
    )
    stores = (
        "*(u32*)(out + g * 8 + 2 * q) = d[0]; *(u32*)(out + (g + 8) * 8 + 2 * q) = d[1];"
        if c == "f16"
        else "for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * q + i % 2] = d[i];"
    )
    outputs = ", ".join(f'"+{way}"(d[{i}])' for i in range(count))
    inputs = ", ".join(f'"r"({n})' for n in names)
    body = f"""{loads}{ctype} d[{count}] = {{}};
    asm volatile("mma.sync.aligned.m16n8k{k}.row.col.{c}.{a}.{b}.{c} "
      "{{{places}}}, {{{lists[0]}}}, {{{lists[1]}}}, {{{places}}};" : {outputs} : {inputs});
    {stores}"""
    dtype = {"f32": "float32", "f16": "float16", "s32": "int32"}[c]
    found = run_text(body, {"a": left, "b": right}, np.zeros((16, 8), dtype))
    np.testing.assert_array_equal(found, (x @ y.T).astype(dtype))


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix(count: int, across: bool) -> None:
    """What a lane holds of each matrix, and that stmatrix is the inverse."""
    rows = rng.integers(0, 1 << 16, (8 * count, 8)).astype(np.uint16)
    form = f"m8n8.x{count}{'.trans' * across}.shared.b16"
    places = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
    inputs = ", ".join(f'"r"(r[{i}])' for i in range(count))
    shifted = ", ".join(f"%{i + 1}" for i in range(count))
    body = f"""u16* const smem = (u16*)memory;
    for (int i = lane; i < {64 * count}; i += 32) smem[i] = rows[i];
    __syncwarp();
    const u32 row = at(smem + lane % {8 * count} * 8);
    u32 r[4];
    asm volatile("ldmatrix.sync.aligned.{form} {{{places}}}, [%{count}];" : {outputs} : "r"(row));
    for (int i = 0; i < {count}; ++i) ((u32*)out)[i * 32 + lane] = r[i];
    asm volatile("stmatrix.sync.aligned.{form} [%0], {{{shifted}}};"
      :: "r"(row + {128 * count}), {inputs} : "memory");
    __syncwarp();
    for (int i = lane; i < {64 * count}; i += 32) out[{64 * count} + i] = smem[{64 * count} + i];"""
    output = np.zeros((2, 8 * count, 8), np.uint16)
    held, back = run_text(body, {"rows": rows}, output, shared=256 * count)
    matrices = rows.reshape(count, 8, 8)
    expected = matrices.swapaxes(1, 2) if across else matrices
    np.testing.assert_array_equal(held.reshape(count, 8, 8), expected)
    np.testing.assert_array_equal(back, rows)


def test_cp_async_lands_when_it_is_waited_for() -> None:
    """Two groups: the wait for all but one lands the first; the second is not there yet."""
    data = rng.integers(1, 99, (2, 32, 4)).astype(np.int32)
    body = """int* const smem = (int*)memory;
    for (int i = 0; i < 2; ++i) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
        :: "r"(at(smem + (i * 32 + lane) * 4)), "l"(data + (i * 32 + lane) * 4) : "memory");
      asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (int i = 0; i < 3; ++i) {
      if (i == 1) asm volatile("cp.async.wait_group %0;" :: "n"(1) : "memory");
      if (i == 2) asm volatile("cp.async.wait_group %0;" :: "n"(0) : "memory");
      for (int j = 0; j < 2; ++j) for (int e = 0; e < 4; ++e)
        out[((i * 2 + j) * 32 + lane) * 4 + e] = smem[(j * 32 + lane) * 4 + e];
    }"""
    found = run_text(body, {"data": data}, np.zeros((3, 2, 32, 4), np.int32), shared=1024)
    poison = np.full((32, 4), -1, np.int32)
    expected = [[poison, poison], [data[0], poison], [data[0], data[1]]]
    np.testing.assert_array_equal(found, expected)


def test_cp_async_fills_with_zeros() -> None:
    data = rng.integers(1, 99, (32, 4)).astype(np.int32)
    body = """int* const smem = (int*)memory;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;"
      :: "r"(at(smem + lane * 4)), "l"(data + lane * 4), "r"(lane % 5 * 4) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    for (int e = 0; e < 4; ++e) out[lane * 4 + e] = smem[lane * 4 + e];"""
    found = run_text(body, {"data": data}, np.zeros((32, 4), np.int32), shared=512)
    there = np.arange(4) < np.arange(32)[:, None] % 5
    np.testing.assert_array_equal(found, np.where(there, data, 0))


def test_shuffles_and_votes() -> None:
    data = rng.integers(0, 99, 32).astype(np.int32)
    body = """const int v = data[lane];
    out[lane] = __shfl_sync(0xffffffffu, v, lane * 7 % 32);
    out[32 + lane] = __shfl_xor_sync(0xffffffffu, v, 5);
    out[64 + lane] = __shfl_down_sync(0xffffffffu, v, 3);
    out[96 + lane] = __shfl_up_sync(0xffffffffu, v, 2, 8);
    const bool own = lane == 3;
    out[128 + lane] = __any_sync(0xffffffffu, own) + 2 * __all_sync(0xffffffffu, own);"""
    found = run_text(body, {"data": data}, np.zeros((5, 32), np.int32))
    lanes = np.arange(32)
    expected = [
        data[lanes * 7 % 32],
        data[lanes ^ 5],
        np.where(lanes + 3 < 32, data[np.minimum(lanes + 3, 31)], data),
        np.where(lanes % 8 >= 2, data[np.maximum(lanes - 2, 0)], data),
        np.ones(32),
    ]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("barrier", ["__syncthreads();", 'asm volatile("bar.sync 3, 128;");'])
def test_block_barriers_bring_threads_together(barrier: str, order: int) -> None:
    body = f"""int* const smem = (int*)memory;
    smem[thread] = thread * thread;
    {barrier}
    out[thread] = smem[127 - thread];"""
    found = run_text(body, {}, np.zeros(128, np.int32), threads=128, shared=512, order=order)
    np.testing.assert_array_equal(found, np.arange(127, -1, -1) ** 2)


@pytest.mark.parametrize("order", [0, 1])
def test_mbarriers_and_bulk_copies(order: int) -> None:
    """Two phases of a barrier that each wait for an arrival and the bytes of a copy."""
    data = rng.integers(1, 99, (2, 64)).astype(np.int32)
    body = """int* const smem = (int*)memory;
    const u32 barrier = at(memory + 256);
    if (thread == 0) {
      asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(barrier), "r"(1) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    for (u32 i = 0; i < 2; ++i) {
      if (thread == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
          :: "r"(barrier), "r"(256) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
          " [%0], [%1], %2, [%3];" :: "r"(at(smem)), "l"(data + i * 64), "r"(256), "r"(barrier)
          : "memory");
      }
      u32 done;
      do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
        " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(barrier), "r"(i) : "memory");
      while (!done);
      out[i * 64 + thread] = smem[thread];
      __syncthreads();
    }"""
    output = np.zeros((2, 64), np.int32)
    found = run_text(body, {"data": data}, output, threads=64, shared=264, order=order)
    np.testing.assert_array_equal(found, data)


def test_conversions_of_halves() -> None:
    """Every float16 there and back, but for the bits of NaN."""
    halves = np.arange(1 << 16).astype(np.uint16)
    body = """for (int i = lane; i < 65536; i += 32) {
      float v; asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(data[i]));
      u16 back; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(back) : "f"(v));
      out[i] = back;
    }"""
    found = run_text(body, {"data": halves}, np.zeros(1 << 16, np.uint16))
    numbers = ~np.isnan(halves.view(np.float16))
    np.testing.assert_array_equal(found[numbers], halves[numbers])
    assert np.isnan(found[~numbers].view(np.float16)).all()


def test_pairs_of_halves() -> None:
    a, b = rng.uniform(-2, 2, (2, 64)).astype(np.float16)
    operations = ("add.rn", "sub.rn", "mul.rn", "min", "max", "set.lt.u32", "set.ge.u32")
    lines = "".join(
        f'asm("{name}.f16x2 %0, %1, %2;" : "=r"(r) : "r"(((u32*)a)[lane]), "r"(((u32*)b)[lane])); '
        f"((u32*)out)[{i * 32} + lane] = r;\n"
        for i, name in enumerate(operations)
    )
    lines += """asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(1.0f + lane), "f"(0.5f));
    ((u32*)out)[224 + lane] = r;"""
    found = run_text(f"u32 r;\n{lines}", {"a": a, "b": b}, np.zeros((8, 64), np.float16))
    numbers = [a + b, a - b, a * b, np.minimum(a, b), np.maximum(a, b)]
    np.testing.assert_array_equal(found[:5], numbers)
    masks = found[5:7].view(np.uint16)
    np.testing.assert_array_equal(masks, np.where([a < b, a >= b], 0xFFFF, 0))
    np.testing.assert_array_equal(
        found[7], np.stack([np.full(32, 0.5), np.arange(32) + 1], 1).ravel()
    )
