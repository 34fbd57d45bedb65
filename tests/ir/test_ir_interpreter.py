"""The interpreter against NumPy, node by node, and batches against one iteration after the
other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from selector.diagnostics import ArgumentError, InternalError
from selector.ir import interpreter
from selector.ir.bfloat16 import from_bits, round_values, to_bits
from selector.ir.interpreter import evaluate_expr, evaluate_scalar, interpret, register
from selector.ir.module import Module
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    CompareOp,
    FloatImm,
    For,
    ForKind,
    Let,
    Select,
    Stmt,
    Var,
)
from selector.ir.parser import parse_expr, parse_module
from selector.ir.traverse import map_stmt
from selector.ir.types import BFLOAT16, FLOAT16, FLOAT32, INT32

RNG = np.random.default_rng(1)
A = RNG.standard_normal(64).astype(np.float16)
B = RNG.standard_normal(64).astype(np.float32)
T = RNG.integers(-9, 9, 64).astype(np.int32)
MEMORY = {"A": A, "B": B, "T": T, "W": to_bits(B)}
TYPES = {"A": FLOAT16, "B": FLOAT32, "T": INT32, "W": BFLOAT16, "i": INT32}
AF, K4 = A.astype(np.float32), np.arange(4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + 3", [8]),
        ("ramp(x, 2, 3)", [5, 7, 9]),
        ("ramp(ramp(0, 1, 2), x2(10), 3)", [0, 1, 10, 11, 20, 21]),
        ("x2(ramp(0, 1, 2))", [0, 1, 0, 1]),
        ("x3(ramp(0, 1, 2)) + ramp(x2(0), x2(4), 3)", [0, 1, 4, 5, 8, 9]),
        ("-7/2", [-4]),
        ("-7 % 2", [1]),
        ("7/-2", [-3]),
        ("-7/-2", [4]),
        ("-7 % -2", [1]),
        ("7/0", [0]),
        ("7 % 0", [0]),
        ("2147483647 + x", [-2147483644]),
        ("(uint8)200 + (uint8)100", [44]),
        ("(int8)-128 - (int8)1", [127]),
        ("(uint8)3/(uint8)2", [1]),
        ("int8(300)", [44]),
        ("int32(-2.7f)", [-2]),
        ("uint1(x)", [True]),
        ("min(x, 3) + max(x, 3)*10", [53]),
        ("x < 6 && !(x == 4) || false", [True]),
        (
            "select(ramp(0, 1, 4) % x4(2) == x4(0), ramp(0, 1, 4), x4(-1))",
            [0, -1, 2, -1],
        ),
        ("select(x > 5, ramp(0, 1, 2), x2(9))", [9, 9]),
        ("(let t = x*2 in t*t)", [100]),
        ("shuffle(ramp(0, 1, 4), x2(7), 5, 0, 3)", [7, 0, 3]),
        ("vector_reduce_add(ramp(0, 1, 6), 3)", [3, 12]),
        ("vector_reduce_mul(ramp(1, 1, 6), 3)", [6, 120]),
        ("vector_reduce_min(ramp(0, 1, 6), 3)", [0, 3]),
        ("vector_reduce_max(ramp(0, 1, 6), 3)", [2, 5]),
        ("vector_reduce_and(ramp(0, 1, 4) < x4(3), 2)", [True, False]),
        ("vector_reduce_or(ramp(0, 1, 4) > x4(2), 2)", [False, True]),
        ("vector_reduce_add(int8x4(ramp(100, 1, 4)), 4)", [-106]),
        ("T[ramp(3, 2, 4)]", T[3:11:2]),
        ("T[ramp(62, 1, 4)]", [T[62], T[63], 0, 0]),
        ("T[-1]", [0]),
        ("T[ramp(0, 1, 4) if ramp(0, 1, 4) < x4(2)]", [T[0], T[1], 0, 0]),
        ("mem_to_wmma(ExprVar(T[1]))", [T[1]]),
        ("float32x4(A[ramp(0, 1, 4)])*B[ramp(4, 1, 4)]", AF[:4] * B[4:8]),
        ("A[ramp(0, 1, 4)]*A[ramp(4, 1, 4)]", A[:4] * A[4:8]),
        ("B[ramp(0, 1, 4)]/B[ramp(4, 1, 4)]", B[:4] / B[4:8]),
        ("B[ramp(0, 1, 4)] % B[ramp(4, 1, 4)]", np.mod(B[:4], B[4:8])),
        ("W[ramp(0, 1, 4)]", round_values(B[:4])),
        (
            "W[ramp(0, 1, 4)]*W[ramp(4, 1, 4)]",
            round_values(round_values(B[:4]) * round_values(B[4:8])),
        ),
        ("bfloat16x4(B[ramp(0, 1, 4)])", round_values(B[:4])),
        ("float16x4(B[ramp(0, 1, 4)])", B[:4].astype(np.float16)),
        (
            "bitwise_and(x, 4) + bitwise_or(8, 3) + bitwise_xor(6, 3) + bitwise_not(0)",
            [4 + 11 + 5 - 1],
        ),
        ("shift_left(x, 2) + shift_right(-16, 2)", [20 - 4]),
        ("(uint8)shift_left((uint8)1, (uint8)9)", [0]),
        ("(uint8)shift_right((uint8)200, (uint8)3)", [25]),
        ("shift_left(-16, -2)", [-4]),
        ("(uint32)absd(3, x)", [2]),
        ("reinterpret<uint32>(1.0f)", [0x3F800000]),
        ("reinterpret<bfloat16>((uint16)16256)", [1.0]),
    ],
)
def test_expressions(text: str, expected: Any) -> None:
    value = evaluate_expr(parse_expr(text, TYPES), {"x": 5}, MEMORY)
    np.testing.assert_array_equal(value, np.asarray(expected))


def test_reductions_add_in_float32() -> None:
    e = parse_expr("vector_reduce_add(float32x64(A[ramp(0, 1, 64)]), 64)", TYPES)
    value = evaluate_expr(e, {}, MEMORY)
    assert value.dtype == np.float32
    np.testing.assert_allclose(value[0], AF.astype(np.float64).sum(), rtol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "x/y + x % y",
        "min(x, y)*max(x, y)",
        "int8(x*1000)",
        "int32(x < y) - 1",
        "select(x == y, 1, 2)",
        "(let t = x + y in t*t)",
    ],
)
def test_scalars_agree(text: str) -> None:
    e = parse_expr(text)
    for x in (-7, 0, 5):
        for y in (-2, 0, 3):
            assert evaluate_scalar(e, {"x": x, "y": y}) == int(
                evaluate_expr(e, {"x": x, "y": y})[0]
            )


def test_scalars_refuse_what_has_no_integer() -> None:
    for text in ("z", "T[0]", "f(x)", "1.0f"):
        with pytest.raises(InternalError):
            evaluate_scalar(parse_expr(text, TYPES), {"x": 1})


def test_unknown_names_are_named() -> None:
    for text, name in (("z", "`z`"), ("Q[x]", "`Q`"), ("mystery(x)", "`mystery`")):
        with pytest.raises(InternalError, match=name):
            evaluate_expr(parse_expr(text, {"Q": INT32}), {"x": 1})


def test_registered_calls() -> None:
    register("test.double", lambda call, values: values[0] * len(call.args) * 2)
    assert evaluate_expr(parse_expr("test.double(x)"), {"x": 4}).tolist() == [8]
    register("test.wrong", lambda call, values: np.zeros((1, 7), np.int32))
    with pytest.raises(InternalError, match=r"`test.wrong` gave \(7,\) lanes"):
        evaluate_expr(Call(INT32, "test.wrong", ()))


def test_bfloat16_rounds_to_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -0.0, np.inf, 3.4e38], np.float32)
    assert from_bits(to_bits(values)).tolist() == [1.0, 1.0, 1.015625, -0.0, np.inf, np.inf]
    assert np.isnan(from_bits(to_bits(np.array([np.nan], np.float32)))[0])
    every = np.arange(1 << 16, dtype=np.uint16)
    finite = every[~np.isnan(from_bits(every))]
    assert np.array_equal(to_bits(from_bits(finite)), finite)


def run(text: str, arrays: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return interpret(parse_module(text), arrays or {}, **options)


def one(body: str, header: str = "", **options: Any) -> Any:
    text = f"module m\noutput out: int32 [(0, 8, 1)]\n{header}\nbody {{\n{body}\n}}"
    return run(text, **options)["out"]


POISON = int(np.full(4, 0xA5, np.uint8).view(np.int32)[0])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("out[ramp(0, 1, 8)] = ramp(0, 3, 8)", range(0, 24, 3)),
        ("for (x, 2, 3) {\n out[x] = x\n}", [POISON, POISON, 2, 3, 4, POISON, POISON, POISON]),
        ("out[ramp(0, 1, 8)] = x8(1) if ramp(0, 1, 8) < x8(3)", [1] * 3 + [POISON] * 5),
        ("out[ramp(6, 1, 8)] = x8(1) if ramp(0, 1, 8) < x8(2)", [POISON] * 6 + [1] * 2),
        ("for (x, 0, 8) {\n if (x % 2 == 0) {\n out[x] = 0\n } else {\n out[x] = 1\n"
     " }\n}", [0, 1] * 4),
        ("for (x, 0, 8) {\n let y = x*x\n out[x] = y\n}", [x * x for x in range(8)]),
        ("out[ramp(0, 1, 8)] = x8(0)\nfor (x, 1, 7) {\n out[x] = out[x - 1] + x\n}",
         [0, 1, 3, 6, 10, 15, 21, 28]),
        ("out[ramp(0, 1, 8)] = x8(0)\nfor (x, 0, 4) {\n for (y, 0, x) {\n"
     " out[y] = out[y] + 1\n }\n}",
         [3, 2, 1, 0, 0, 0, 0, 0]),
        ("gpu_thread<CUDA> (x, 0, 4) {\n for (y, x, x) {\n out[y] = x\n }\n}",
         [POISON, 1, 2, 3, 3, 3, POISON, POISON]),
        ("for (x, 0, 8) {\n out[x/2] = x\n}", [1, 3, 5, 7] + [POISON] * 4),
        ("gpu_block<CUDA> (b, 0, 2) {\n allocate s[int32 * 4] in GPUShared\n"
     " gpu_thread<CUDA> (t, 0, 4) {\n"
         " s[t] = b*4 + t\n }\n gpu_thread<CUDA> (t, 0, 4) {\n out[b*4 + t] = s[3 - t]\n }\n}",
         [3, 2, 1, 0, 7, 6, 5, 4]),
        ("gpu_thread<CUDA> (t, 0, 8) {\n allocate r[int32 * 2] in Register\n r[0] = t\n r[1] = 10\n"
         " out[t] = r[0] + r[1] + r[2]\n}", range(10, 18)),
        ("gpu_thread<CUDA> (t, 0, 8) {\n allocate r[int32 * 2] in Register\n r[t % 2] = t\n"
     " if (t > 5) {\n"
         " r[0] = 0\n r[1] = 0\n }\n out[t] = r[t % 2]\n}", [0, 1, 2, 3, 4, 5, 0, 0]),
        ("out[ramp(0, 1, 8)] = x8(0)\ngpu_thread<CUDA> (t, 0, 8) {\n atomic (out) {\n"
         " out[t % 2] = out[t % 2] + t\n }\n}", [12, 16, 0, 0, 0, 0, 0, 0]),
        ("out[ramp(0, 1, 8)] = x8(5)\ngpu_thread_barrier(2)", [5] * 8),
        ("allocate a[int32 * 2]\nout[ramp(0, 1, 8)] = x8(a[0])", [POISON] * 8),
    ],
)  # fmt: skip
def test_statements(body: str, expected: Any) -> None:
    assert one(body).tolist() == list(expected)


@pytest.mark.parametrize(
    "body",
    [
        "out[8] = 1",
        "out[ramp(1, 1, 8)] = x8(1)",
        "out[-1] = 1",
        "for (x, 0, 9) {\n out[x] = 1\n}",
        "allocate a[int32 * 4]\na[ramp(4, 1, 2)] = x2(0)",
        "gpu_thread<CUDA> (t, 0, 2) {\n allocate a[int32 * 4]\n a[t + 3] = 0\n}",
        "out[ramp(6, 1, 8)] = x8(1) if ramp(0, 1, 8) < x8(3)",
    ],
)
def test_a_store_outside_is_refused(body: str) -> None:
    with pytest.raises(InternalError, match=r"a store to `\w+`\[-?\d+\], which has \d elements"):
        one(body)


def test_poison_is_seen_in_floats() -> None:
    text = "module m\noutput out: float32 [(0, 2, 1)]\nbody {\nout[1] = 2.0f\n}"
    out = run(text)["out"]
    assert np.isnan(out[0])
    assert out[1] == 2


COPY = """
module copy
input I: float16 [(0, I.extent.0, 1), (0, I.extent.1, I.stride.1)]
output O: float32 [(0, O.extent.0, 1), (0, O.extent.1, O.stride.1)]
scalar gain: float32
body {
 parallel (y, 0, O.extent.1) {
  for (x, 0, O.extent.0) {
   O[y*O.stride.1 + x] = float32(I[y*I.stride.1 + x])*gain
  }
 }
}"""


@pytest.mark.parametrize(
    "view", [lambda a: a, lambda a: a[::2, ::3], lambda a: a[::-1], lambda a: np.asfortranarray(a)]
)
def test_any_strides(view: Callable[[Any], Any]) -> None:
    image = view(RNG.standard_normal((6, 9)).astype(np.float16))
    expected = image.astype(np.float32) * np.float32(2.5)
    out = run(COPY, {"I": image}, scalars={"gain": 2.5}, sizes={"O": image.shape})["O"]
    assert np.array_equal(out, expected)
    target = view(np.full((6, 9), 7, np.float32))
    again = run(COPY, {"I": image}, scalars={"gain": 2.5}, outputs={"O": target})["O"]
    assert again is target
    assert np.array_equal(target, expected)


def test_constant_strides_pad_the_rows() -> None:
    text = """
module m
input I: int32 [(0, 3, 1), (0, 2, 8)]
output O: int32 [(0, 3, 1), (0, 2, 5)]
body {
 for (y, 0, 2) {
  O[ramp(y*5, 1, 3)] = I[ramp(y*8, 1, 3)]
 }
}"""
    image = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert np.array_equal(run(text, {"I": image})["O"], image)


def test_bfloat16_parameters_are_bits() -> None:
    text = """
module m
input I: bfloat16 [(0, 4, 1)]
output O: bfloat16 [(0, 4, 1)]
body {
 O[ramp(0, 1, 4)] = I[ramp(0, 1, 4)]*I[ramp(0, 1, 4)]
}"""
    out = run(text, {"I": to_bits(B[:4])})["O"]
    assert out.dtype == np.uint16
    assert np.array_equal(from_bits(out), round_values(round_values(B[:4]) ** 2))


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({}, {}, "the input `I` is missing"),
        ({"I": np.zeros((2, 2), np.float16)}, {}, "the size of the output `O` is not fixed"),
        ({"I": np.zeros((2, 2), np.float32)}, {}, "`I` wants elements of float16, found float32"),
        ({"I": np.zeros(2, np.float16)}, {}, "`I` has 2 dimensions, found 1"),
        ({"I": np.zeros((2, 2), np.float16)}, {"sizes": {"O": (2,)}}, "`O` has 2 dimensions"),
        (
            {"I": np.zeros((2, 2), np.float16)},
            {"sizes": {"O": (2, 2)}},
            "the scalar `gain` is missing",
        ),
        ({"J": np.zeros((2, 2), np.float16)}, {}, "`J` is no buffer of `copy`"),
    ],
)
def test_wrong_arguments(arrays: Any, options: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        run(COPY, arrays, **options)


def test_a_wrong_extent_is_an_argument_error() -> None:
    text = "module m\ninput I: int32 [(0, 3, 1)]\nbody {\n}"
    with pytest.raises(ArgumentError, match="dimension 0 of `I` has 4 elements, not 3"):
        run(text, {"I": np.zeros(4, np.int32)})


TILED = """
module conv
input I: float16 [(0, I.extent.0, 1), (0, I.extent.1, I.stride.1)]
input K: float16 [(0, 5, 1)]
output O: float32 [(0, O.extent.0, 1), (0, O.extent.1, O.stride.1)]
body {
 gpu_block<CUDA> (by, 0, (O.extent.1 + 1)/2) {
  gpu_block<CUDA> (bx, 0, (O.extent.0 + 15)/16) {
   let x0 = bx*16
   allocate S[float16 * 20 * 2] in GPUShared
   for (y, by*2, 2) {
    for (x, x0, 20) {
     S[((y - by*2)*20) + (x - x0)] = I[y*I.stride.1 + x if (x < I.extent.0) && (y < I.extent.1)]
    }
   }
   gpu_thread<CUDA> (ty, 0, 2) {
    if (by*2 + ty < O.extent.1) {
     gpu_thread<CUDA> (tx, 0, 2) {
      allocate acc[float32 * 8] in WMMAAccumulator
      acc[ramp(0, 1, 8)] = x8(0.0f)
      for (r, 0, 5) {
       acc[ramp(0, 1, 8)] = float32x8(
          S[ramp(ty*20 + tx*8 + r, 1, 8)])*x8(float32(K[r])) + acc[ramp(0, 1, 8)]
      }
      O[ramp((by*2 + ty)*O.stride.1 + x0 + tx*8, 1, 8)] =
       acc[ramp(0, 1, 8)] if ramp(x0 + tx*8, 1, 8) < x8(O.extent.0)
     }
    }
   }
  }
 }
}"""


def serial(s: Stmt) -> Stmt:
    """The same program with every loop run one iteration after the other."""
    s = map_stmt(s, serial, lambda e: e)
    return replace(s, kind=ForKind.UNROLLED) if isinstance(s, For) else s


@pytest.mark.parametrize("size", [(2, 16), (1, 1), (5, 37), (7, 16), (2, 31)])
@pytest.mark.parametrize("chunk", [1, 4000, 64 << 20])
def test_batches_equal_serial_loops(
    size: tuple[int, int], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "CHUNK_BYTES", chunk)
    image = RNG.standard_normal((size[0], size[1] + 4)).astype(np.float16)
    arrays = {"I": image, "K": A[:5]}
    module = parse_module(TILED)
    batched = interpret(module, arrays, sizes={"O": size})["O"]
    one_by_one = interpret(replace(module, body=serial(module.body)), arrays, sizes={"O": size})[
        "O"
    ]
    assert np.array_equal(batched, one_by_one)
    expected = sum(AF[k] * image[:, k : k + size[1]].astype(np.float64) for k in range(5))
    np.testing.assert_allclose(batched, expected, rtol=1e-5, atol=1e-5)


def test_modules_are_data() -> None:
    module = parse_module(COPY)
    assert isinstance(module, Module)
    assert module == parse_module(str(module))


def test_sizes_of_positions_in_floats_are_rounded_as_written() -> None:
    x = Var("x", INT32)
    scaled = Binary(BinaryOp.MUL, Cast(FLOAT32, x), FloatImm(0.37, FLOAT32))
    floor = Cast(INT32, Call(FLOAT32, "floor_f32", (scaled,)))
    assert evaluate_scalar(floor, {"x": 199}) == int(np.float32(199) * np.float32(0.37))
    beyond = Compare(CompareOp.LT, scaled, FloatImm(2.0, FLOAT32))
    assert [evaluate_scalar(beyond, {"x": n}) for n in (5, 6)] == [1, 0]
    with pytest.raises(InternalError, match="`x` has no value"):
        evaluate_scalar(floor, {})


def test_sizes_name_positions_in_floats() -> None:
    """As Halide names what it bounds once: floats stay floats, and floats of a choice."""
    x, far = Var("x", INT32), Var("far", FLOAT32)
    scaled = Binary(BinaryOp.MUL, Cast(FLOAT32, x), FloatImm(0.37, FLOAT32))
    larger = Select(Compare(CompareOp.LT, far, FloatImm(2.0, FLOAT32)), FloatImm(0.0, FLOAT32), far)
    whole = Let("far", scaled, Let("more", larger, Cast(INT32, Var("more", FLOAT32))))
    assert [evaluate_scalar(whole, {"x": n}) for n in (5, 6, 199)] == [0, 2, 73]
