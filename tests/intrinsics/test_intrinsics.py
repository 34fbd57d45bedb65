"""The records check themselves, and their block semantics is the tile semantics, tile by tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from selector.intrinsics import (
    CALLS,
    INSTRUCTIONS,
    TensorInstruction,
    find,
    find_function,
    for_target,
    toeplitz,
    toeplitz_rows,
)
from selector.intrinsics.functions import pack_vnni, unpack_vnni
from selector.ir.evaluator import evaluate_expr, registered
from selector.ir.nodes import Call, IntImm, Load, Ramp
from selector.ir.types import FLOAT16, FLOAT32
from selector.targets import TARGETS, find_target

ARRAY = {"float16": np.float16, "bfloat16": np.float32, "float32": np.float32, "int8": np.int8,
         "uint8": np.uint8, "int32": np.int32, "e4m3": np.float32, "e5m2": np.float32}  # fmt: skip


def integers(generator: np.random.Generator, shape: tuple[int, ...], scalar: object) -> np.ndarray:
    low = 0 if str(scalar).startswith("u") else -3
    return generator.integers(low, 4, shape).astype(ARRAY[str(scalar)])


def test_every_promised_instruction_is_there():
    names = {i.name for i in INSTRUCTIONS}
    for shape in ("m16n16k16", "m32n8k16", "m8n32k16"):
        for types in ("f16.f32", "f16.f16", "bf16.f32", "s8.s32", "u8.s32"):
            assert f"wmma.mma.{shape}.{types}" in names
    for name in ("m16n8k16.f16.f32", "m16n8k16.f16.f16", "m16n8k16.bf16.f32", "m16n8k32.s8.s32",
                 "m16n8k32.u8.s32", "m16n8k32.s8.u8.s32", "m16n8k32.u8.s8.s32"):  # fmt: skip
        assert f"mma.{name}" in names
    for types in ("f16.f32", "bf16.f32"):
        assert f"wgmma.m64n256k16.{types}" in names
    for types in ("s8.s32", "u8.s32", "s8.u8.s32", "u8.s8.s32"):
        assert f"wgmma.m64n256k32.{types}" in names
    for types in ("e4m3", "e4m3.e5m2", "e5m2.e4m3", "e5m2"):
        assert f"wgmma.m64n256k32.{types}.f32" in names
        assert f"mma.m16n8k32.{types}.f32" in names
    for name in ("tdpbf16ps.m16n16k32", "tdpbssd.m16n16k64", "tdpbsud.m16n16k64",
                 "tdpbusd.m16n16k64", "tdpbuud.m16n16k64"):  # fmt: skip
        assert f"amx.{name}" in names


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.name)
def test_block_is_made_of_tiles(instruction: TensorInstruction):
    generator = np.random.default_rng(1)
    down, across = (1, 1) if instruction.apart else (2, 3)
    m, n, k = down * instruction.m, across * instruction.n, instruction.k + 3
    a = integers(generator, (m, k), instruction.a_type)
    b = integers(generator, (k, n), instruction.b_type)
    c = integers(generator, (m, n), instruction.c_type)
    block = instruction.block_semantics(c, a, b)
    pad = -k % instruction.k
    a, b = np.pad(a, ((0, 0), (0, pad))), np.pad(b, ((0, pad), (0, 0)))
    tiled = c.copy()
    for i in range(0, m, instruction.m):
        for j in range(0, n, instruction.n):
            part = np.s_[i : i + instruction.m, j : j + instruction.n]
            for r in range(0, k, instruction.k):
                deep = np.s_[r : r + instruction.k]
                tiled[part] = instruction.semantics(tiled[part], a[part[0], deep], b[deep, part[1]])
    np.testing.assert_array_equal(block, tiled)
    assert block.dtype == ARRAY[str(instruction.c_type)]
    assert instruction.count(m, n, k) == down * across * 2


def test_integer_sums_wrap():
    instruction = find("wmma.mma.m16n16k16.u8.s32")
    assert instruction is not None
    c = np.full((16, 16), 2**31 - 1, np.int32)
    one = np.ones((16, 16), np.uint8)
    assert instruction.semantics(c, one, one)[0, 0] == -(2**31) + 15


def test_a_shape_that_does_not_fit_is_refused():
    with pytest.raises(AssertionError, match="shape is in the name"):
        TensorInstruction("mma.m8n8k4", "mma", 16, 8, 16, FLOAT16, FLOAT16, FLOAT32, "mma", "-")
    assert not INSTRUCTIONS[0].fits(16, 8)


def test_groups_of_k_are_for_configured_tiles():
    """What the rule multiply-add-packed relies on: it asks for no whole tiles."""
    grouped = next(i for i in INSTRUCTIONS if i.packing > 1)
    with pytest.raises(AssertionError, match="whole tiles with groups of k"):
        replace(grouped, configurable=False)


def test_targets_see_what_they_have():
    assert set(for_target(find_target("sm_80"))) <= set(INSTRUCTIONS)
    assert for_target(TARGETS["amx"]) == tuple(i for i in INSTRUCTIONS if i.needs == "amx")
    assert find("wmma.mma.m1n1k1.f16.f32") is None


@pytest.mark.parametrize("taps", [1, 2, 5, 9])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 4])
def test_toeplitz_is_the_convolution(taps: int, stride: int, dilation: int):
    generator = np.random.default_rng(taps)
    n = 8
    rows = toeplitz_rows(taps, n, stride, dilation)
    kernel, signal = generator.integers(-3, 4, taps), generator.integers(-3, 4, rows)
    band = toeplitz(kernel, rows, n, stride, dilation)
    expected = [
        sum(kernel[r] * signal[stride * j + dilation * r] for r in range(taps)) for j in range(n)
    ]
    np.testing.assert_array_equal(signal @ band, expected)
    assert np.count_nonzero(band) <= taps * n


def test_every_call_has_a_meaning_in_the_interpreter():
    assert all(registered(name) for name in CALLS)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("sqrt_f32", (4.0,), 2.0),
        ("pow_f32", (2.0, 3.0), 8.0),
        ("floor_f32", (-1.5,), -2.0),
        ("round_f32", (2.5,), 2.0),
        ("exp_f16", (0.0,), 1.0),
        ("tanh_f64", (0.0,), 0.0),
        ("fast_inverse_sqrt_f32", (4.0,), 0.5),
    ],
)
def test_functions(name: str, arguments: tuple[float, ...], expected: float):
    function = find_function(name)
    assert function is not None
    kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[name.rsplit("_", 1)[1]]
    value = function.evaluate(*(np.array([x], kind) for x in arguments))
    assert value.dtype == kind
    assert value[0] == expected


def test_absolute_value_of_integers_is_unsigned():
    function = find_function("abs")
    assert function is not None
    assert function.evaluate(np.array([-128], np.int8)).tolist() == [128]


@pytest.mark.parametrize(("k", "packing"), [(8, 2), (8, 4), (7, 2), (5, 4), (1, 2)])
def test_vnni_order(k: int, packing: int):
    n = 3
    values = np.arange(1, 2 * k * n + 1).reshape(2, k, n)
    packed = pack_vnni(values, packing)
    assert packed.shape == (2, -(-k // packing), n, packing)
    for depth in range(packed.shape[1] * packing):
        expected = values[:, depth] if depth < k else np.zeros((2, n), values.dtype)
        np.testing.assert_array_equal(packed[:, depth // packing, :, depth % packing], expected)
    lanes = packed.reshape(2, -1)
    np.testing.assert_array_equal(unpack_vnni(lanes, k, n, packing), values)


def test_a_packed_operand_is_read_in_vnni_order():
    generator = np.random.default_rng(3)
    m, n, k = 5, 7, 6
    for instruction in (i for i in INSTRUCTIONS if i.packing > 1):
        a = integers(generator, (m, k), instruction.a_type)
        b = integers(generator, (k, n), instruction.b_type)
        c = integers(generator, (m, n), instruction.c_type)
        packed = pack_vnni(b, instruction.packing).reshape(-1)
        assert packed.size == instruction.packed_lanes(k, n)
        memory = {"C": c.reshape(-1), "A": a.reshape(-1), "B": packed}
        shapes = {"C": instruction.c_type, "A": instruction.a_type, "B": instruction.b_type}
        operands = tuple(
            Load(shapes[name].with_lanes(data.size), name, Ramp(IntImm(0), IntImm(1), data.size))
            for name, data in memory.items()
        )
        sizes = (IntImm(m), IntImm(n), IntImm(k))
        call = Call(instruction.c_type.with_lanes(m * n), instruction.name, (*sizes, *operands))
        result = evaluate_expr(call, {}, memory)
        np.testing.assert_array_equal(result, (c + a.astype(int) @ b.astype(int)).reshape(-1))


def test_configured_tiles_take_any_extent_and_cost_their_rows():
    instruction = find("amx.tdpbf16ps.m16n16k32")
    assert instruction is not None
    assert instruction.fits(3, 5)
    assert instruction.count(17, 16, 33) == 4
    assert instruction.issued_macs(3, 5, 7) == 3 * 16 * 32


def test_an_unknown_function_is_none():
    assert find_function("gamma_f32") is None
