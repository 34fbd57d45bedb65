"""Printer and parser are inverse, on random programs, the paper's figures and Halide's debug
print."""

from __future__ import annotations

import pytest
from clock import assert_quick
from hypothesis import HealthCheck, given, settings
from ir_strategies import exprs, modules, stmts

from selector.diagnostics import ParseError
from selector.ir import nodes as ir
from selector.ir.module import Module
from selector.ir.nodes import Memory, Role
from selector.ir.parser import parse_expr, parse_module, parse_stmt
from selector.ir.printer import print_expr, print_stmt
from selector.ir.traverse import walk_all_exprs
from selector.ir.types import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT8, INT32, Type

pytestmark = pytest.mark.verified

relaxed = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    max_examples=150,
)


def types_of(s: ir.Stmt) -> dict[str, Type]:
    """The types of the names that a reader of the short form must be told."""
    exprs = list(walk_all_exprs(s))
    found = {e.buffer: e.type.element for e in exprs if isinstance(e, ir.Load)}
    return found | {e.name: e.type for e in exprs if isinstance(e, ir.Var) and e.type != INT32}


@relaxed
@given(exprs())
def test_expressions_read_back(e: ir.Expr) -> None:
    assert parse_expr(print_expr(e, types={})) == e


@relaxed
@given(stmts())
def test_statements_read_back(s: ir.Stmt) -> None:
    assert parse_stmt(print_stmt(s, types={})) == s


@relaxed
@given(modules())
def test_modules_read_back(module: Module) -> None:
    assert parse_module(str(module)) == module


CONV1D = """\
conv[ramp(0, 1, 256)] =
 (float32x256)vector_reduce_add(
 float32x2048(I[
 ramp(ramp(rx, 1, 8), x8(1), 256)
 ]) *
 x256(float32x8(K[ramp(rx, 1, 8)]))
 ) + conv[ramp(0, 1, 256)]"""

ONE_LINE = (
    "conv[ramp(0, 1, 256)] = (float32x256)vector_reduce_add(float32x2048(I[ramp(ramp(rx, 1, 8), "
    "x8(1), 256)])*x256(float32x8(K[ramp(rx, 1, 8)]))) + conv[ramp(0, 1, 256)]"
)
TYPES = {"I": FLOAT16, "K": FLOAT16, "conv": FLOAT32}


def test_short_form_is_halides() -> None:
    s = parse_stmt(CONV1D, TYPES)
    assert print_stmt(s) == ONE_LINE
    assert parse_stmt(print_stmt(s), types_of(s)) == s


@pytest.mark.parametrize(
    ("text", "lanes", "printed"),
    [
        ("A[ramp(ramp(0, 8, 4), x4(1), 8)]", 32, "A[ramp(ramp(0, 8, 4), x4(1), 8)]"),
        (
            "vector_reduce_add(\n A[x8(ramp(0, 1, 3))]\n * B[ramp(ramp(0, 1, 3), x3(1), 8)],\n 3)",
            8,
            "(float32x8)vector_reduce_add(A[x8(ramp(0, 1, 3))]*B[ramp(ramp(0, 1, 3), x3(1), 8)])",
        ),
        (
            "vector_reduce_add(\n A[ramp(x6(ramp(0, 1, 3)), x18(3), 4)]\n"
            " * B[x4(ramp(ramp(0, 6, 3), x3(1), 6))],\n 3)",
            24,
            "(float32x24)vector_reduce_add(A[ramp(x6(ramp(0, 1, 3)), x18(3), 4)]"
            "*B[x4(ramp(ramp(0, 6, 3), x3(1), 6))])",
        ),
    ],
)
def test_figure_2(text: str, lanes: int, printed: str) -> None:
    """A transpose, a convolution of 3 taps, a 4x3 by 3x6 product (without the `)` that is too many
    in the paper)."""
    e = parse_expr(text, {"A": FLOAT32, "B": FLOAT32})
    assert e.type == FLOAT32.with_lanes(lanes)
    assert print_expr(e) == printed


def test_a_scalar_is_no_vector() -> None:
    with pytest.raises(ParseError, match="between"):
        parse_expr("x4(0) + 1")


def test_figure_3() -> None:
    """With the types of calls and the 512 lanes of B, for which the paper has 256."""
    text = """
matmul[ramp(0, 1, 512)] = (float32x512)mem_to_amx( x512(0.f) );
matmul[ramp(0, 1, 512)] = (float32x512)mem_to_amx(
 (float32x512)vector_reduce_add(
 (cast<float32x8192>(A[ramp(x512(0), x512(32), 16) + x256(ramp(0, 1, 32))])
 * x16(cast<float32x512>(B[ramp(ramp(0, 16, 32), x32(1), 16)])))
 ) + matmul[ramp(0, 1, 512)] );
matmul_wrapper[ramp(0, 1, 512)] = (float32x512)amx_to_mem( matmul[ramp(0, 1, 512)] );"""
    s = parse_stmt(text, {"A": BFLOAT16, "B": BFLOAT16, "matmul": FLOAT32})
    assert isinstance(s, ir.Block)
    assert [type(x) for x in s.stmts] == [ir.Store] * 3
    assert parse_stmt(print_stmt(s, {})) == s


def test_conv1d_after_selection() -> None:
    text = """
allocate tempbuf[float16 * 128]
tempbuf[ramp(0, 1, 128)] =
 (float16x128)ConvolutionShuffle(K, rx, 16, 8)
conv[ramp(0, 1, 8)] =
 (float32x8)wmma.mma.sync.aligned.row.row.m32n8k16.f32.f32(
 wmma.load.a.sync.aligned.row.m32n8k16.f16(
 I, rx, 8),
 wmma.load.b.sync.aligned.row.m32n8k16.f16(
 tempbuf, 0, 8),
 conv[ramp(0, 1, 8)])"""
    s = parse_stmt(text, {"conv": FLOAT32})
    assert isinstance(s, ir.Allocate)
    assert s.memory is Memory.AUTO
    assert "(float16x128)ConvolutionShuffle(K, rx, 16, 8)" in print_stmt(s)


HALIDE = """\
assert(reinterpret<uint64>((struct halide_buffer_t *)A.buffer) != (uint64)0, fail("A (is null"))
let A = (void *)_halide_buffer_get_host((struct halide_buffer_t *)A.buffer)
let A.extent.0 = _halide_buffer_get_extent((struct halide_buffer_t *)A.buffer, 0)
produce C {
 let r = halide_copy_to_device((struct halide_buffer_t *)A.buffer, (struct x const *)cuda())
 assert(r == 0, r)
 gpu_block<CUDA> (by, 0, (C.extent.1 + 127)/128) {
  let base = min(likely_if_innermost((by*128) + C.min.1), C.extent.1 + -128)
  allocate mm[float32 * 4 * 2] in Register
  produce mm {
   mm[ramp(0, 1, 8) aligned(8, 0)] = x8(0.000000f)
   if ((uint1)likely(((by*16) + 16) <= A.extent.0)) {
    mm[0] = A[base]
   } else if (by < 3) {
    predicate (by < 2)
     mm[1] = (A[base] if base < 5)
   } else {
    mm[2] = A[base + 1] if !(by == 4)
   }
  }
  consume mm {
   C[0] = mm[ramp(0, 1, 8)]
  }
  free mm
  allocate mm[float32 * 4] in GPUShared
  mm[0] = A[base + 1]
 }
 _halide_buffer_set_device_dirty((struct halide_buffer_t *)C.buffer, (uint1)1)
}
"""

OURS = """\
gpu_block<CUDA> (by, 0, (C.extent.1 + 127)/128) {
 let base = min((by*128) + C.min.1, C.extent.1 + -128)
 {
  allocate mm[float32 * 4 * 2] in Register
  mm[ramp(0, 1, 8)] = x8(0.000000f)
  if (((by*16) + 16) <= A.extent.0) {
   mm[0] = A[base]
  } else if (by < 3) {
   mm[1] = A[base if base < 5] if by < 2
  } else {
   mm[2] = A[base + 1] if !(by == 4)
  }
  C[0] = mm[0]
 }
 allocate mm[float32 * 4] in GPUShared
 mm[0] = A[base + 1]
}"""


def test_halides_debug_print() -> None:
    text = HALIDE.replace("C[0] = mm[ramp(0, 1, 8)]", "C[0] = mm[0]")
    assert print_stmt(parse_stmt(text, {"A": FLOAT32, "C": FLOAT32})) == OURS


def test_predicated_scalar_if_on_the_next_line_is_a_statement() -> None:
    s = parse_stmt("a[0] = b\nif (c == 1) {\n a[1] = 2\n}")
    assert isinstance(s, ir.Block)
    assert isinstance(s.stmts[1], ir.IfThenElse)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("-x*2", "(0 - x)*2"),
        ("a - b - c", "(a - b) - c"),
        ("a + b*c < 3 && d == 1 || e > 2", "(((a + (b*c)) < 3) && (d == 1)) || (e > 2)"),
        ("x - -5", "x - -5"),
        ("min(a, b, c)", "min(min(a, b), c)"),
        ("(let t = 2 in t*t)", "(let t = 2 in t*t)"),
        ("concat_vectors(x2(1), x2(2))", "shuffle(x2(1), x2(2), 0, 1, 2, 3)"),
        ("interleave_vectors(x2(1), x2(2))", "shuffle(x2(1), x2(2), 0, 2, 1, 3)"),
        ("slice_vectors(ramp(0, 1, 8), 1, 2, 3)", "shuffle(ramp(0, 1, 8), 1, 3, 5)"),
        ("(float16)2.5h + 1.h", "2.500000h + 1.000000h"),
        ("reinterpret<float32>(x)", "(float32)reinterpret(x)"),
        ("`let` + `a b`", "`let` + `a b`"),
        ("true", "(uint1)1"),
    ],
)
def test_spellings(text: str, printed: str) -> None:
    assert print_expr(parse_expr(text)) == printed


@pytest.mark.parametrize(
    "value", [0.1, 1 / 3, 1e-30, 1e30, 65504.0, -0.0, float("inf"), float("nan")]
)
@pytest.mark.parametrize("t", [FLOAT16, BFLOAT16, FLOAT32])
def test_literals_are_exact(value: float, t: ir.Type) -> None:
    e = ir.FloatImm(value, t)
    back = parse_expr(print_expr(e))
    assert back == e
    assert isinstance(back, ir.FloatImm)
    assert str(back.value) == str(e.value)


def test_module_header() -> None:
    text = """\
module conv
input I: float16 [(0, I.extent.0, 1), (0, I.extent.1, I.stride.1)]
output output: float32 [(0, output.extent.0, 1)]
scalar gain: float32
require I dim 0 from 0 to output.extent.0 + 62
origin output: func "output" at "a.py:3"
resident output: 2
persistent output: 1
teams output: 2
cluster output: 4
body {
 for (x, 0, output.extent.0) {
  output[x] = float32(I[x + 1])*gain
 }
}
"""
    module = parse_module(text)
    assert str(module) == text
    assert module.buffer("I") == module.buffers[0]
    assert INT8 != module.scalars[0].type == FLOAT32


def test_a_dimension_knows_no_scalar_that_stands_below_it() -> None:
    flag = ir.Var("flag", BOOL)
    extent = ir.Select(flag, ir.IntImm(1), ir.IntImm(2))
    dim = ir.Dim(ir.IntImm(0), extent, ir.IntImm(1))
    buffer = ir.BufferParam("I", FLOAT32, (dim,), Role.INPUT)
    scalar = ir.ScalarParam("flag", BOOL)
    module = Module("m", (buffer,), (scalar,), ir.Evaluate(ir.IntImm(0)))
    assert parse_module(str(module)) == module


def test_a_long_text_is_quick() -> None:
    text = "\n".join([ONE_LINE] * (200_000 // len(ONE_LINE)))
    assert_quick(lambda: parse_stmt(text, TYPES), 2.0, 3)
