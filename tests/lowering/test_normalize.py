"""Normalization keeps the meaning and leaves neither lets without loads nor register loops."""

from __future__ import annotations

import pytest

import selector.intrinsics  # noqa: F401  (meanings of calls)
from selector.diagnostics import ScheduleError
from selector.ir.module import Module
from selector.ir.nodes import Atomic, Block, For, IfThenElse, Let, LetStmt, Stmt, Store
from selector.ir.parser import parse_module
from selector.ir.printer import print_stmt
from selector.ir.traverse import walk_all_exprs, walk_stmt
from selector.lowering.kernels import split_kernels
from selector.lowering.normalize import LARGEST_UNROLL, holds_tensor, normalize

HEAD = """module t
input I: float32 [(0, I.extent.0, 1), (0, I.extent.1, I.stride.1)]
output out: float32 [(0, out.extent.0, 1)]
"""


def module(body: str) -> Module:
    return parse_module(f"{HEAD}body {{\n{body}\n}}\n", "t.vir")


def body(text: str) -> Stmt:
    return module(text).body


def loops(s: Stmt) -> list[str]:
    return [x.name for x in walk_stmt(s) if isinstance(x, For)]


def test_loops_over_threads_stand_together() -> None:
    """Else the threads of the inner one would be turns of one thread."""
    text = "out[i*32 + j*4 + k] = 1.0f"
    for kind, n in (("k", 4), ("j", 8)):
        text = f"gpu_thread<CUDA> ({kind}, 0, {n}) {{\n if (i <= I.extent.0) {{\n{text}\n}}\n}}"
    s = normalize(body(f"gpu_thread<CUDA> (i, 0, 4) {{\n{text}\n}}"))
    found = [type(x) for x in walk_stmt(s)]
    assert found == [For, For, For, IfThenElse, IfThenElse, Store]


def test_lets_without_loads_are_inlined() -> None:
    s = normalize(body("let a = 3\n let b = a + 4\n out[b] = (let c = a in float32(c * c))"))
    assert not any(isinstance(x, LetStmt) for x in walk_stmt(s))
    assert not any(isinstance(e, Let) for e in walk_all_exprs(s))
    assert print_stmt(s).strip() == "out[3 + 4] = float32(3*3)"


def test_a_let_with_a_load_stays() -> None:
    s = normalize(body("let a = I[0]\n out[0] = a * a"))
    assert any(isinstance(x, LetStmt) for x in walk_stmt(s))


def test_loops_of_one_iteration_and_atomics_go() -> None:
    s = normalize(body("for (i, 4, 1) {\n atomic (out) {\n out[i] = 1.0f\n }\n}"))
    assert loops(s) == []
    assert not any(isinstance(x, Atomic) for x in walk_stmt(s))


def test_blocks_are_flat() -> None:
    s = normalize(body("for (i, 0, 1) {\n out[0] = 1.0f\n out[1] = 2.0f\n}\nout[2] = 3.0f"))
    assert isinstance(s, Block)
    assert len(s.stmts) == 3
    assert not any(isinstance(x, Block) for x in s.stmts)


@pytest.mark.parametrize("kind", ["for", "unrolled"])
def test_loops_over_registers_are_unrolled(kind: str) -> None:
    text = f"""allocate acc[float32 * 512] in WMMAAccumulator
 {kind} (i, 0, 4) {{
  acc[ramp(i*128, 1, 128)] = (float32x128)tile.fill(x128(0.000000f))
 }}"""
    s = normalize(body(text))
    assert loops(s) == []
    assert holds_tensor(s)
    assert "acc[ramp(384, 1, 128)]" in print_stmt(s)


def test_long_register_loops_stay_for_the_emitter_to_refuse() -> None:
    text = f"""allocate acc[float32 * 512] in WMMAAccumulator
 for (i, 0, {LARGEST_UNROLL + 1}) {{
  acc[ramp(i*128, 1, 128)] = (float32x128)tile.fill(x128(0.000000f))
 }}"""
    assert loops(normalize(body(text))) == ["i"]


def test_other_loops_stay() -> None:
    assert loops(normalize(body("for (i, 0, 4) {\n out[i] = 1.0f\n}"))) == ["i"]


def test_empty_branches_go() -> None:
    s = normalize(body("if (out.extent.0 < 4) {\n out[0] = 1.0f\n}"))
    assert isinstance(s, IfThenElse)
    assert s.otherwise is None


def test_kernels_and_buffers_between_them() -> None:
    first = "gpu_block<CUDA> (out.s0.b, 0, 2) {\n mid[out.s0.b] = 1.0f\n}"
    second = "gpu_block<CUDA> (y, 0, 3) {\n gpu_block<CUDA> (x, 1, 2) {\n out[x] = mid[y]\n }\n}"
    program = split_kernels(module(f"allocate mid[float32 * 2 * out.extent.0]\n{first}\n{second}"))
    assert [b.name for b in program.buffers] == ["mid"]
    assert [[g.name for g in k.grid] for k in program.kernels] == [["out.s0.b"], ["y", "x"]]
    assert len({k.name for k in program.kernels}) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("out[0] = 1.0f", "computed on the host"),
        (
            "for (i, 0, 4) {\n gpu_block<CUDA> (b, 0, 2) {\n out[b] = 1.0f\n }\n}",
            "computed on the host",
        ),
        (
            "gpu_block<CUDA> (b, 0, 2) {\n for (i, 0, 2) {\n"
            " gpu_block<CUDA> (c, 0, 2) {\n out[c] = 1.0f\n"
            " }\n }\n}",
            "not nested directly",
        ),
        (
            "gpu_block<CUDA> (a, 0, 2) {\n gpu_block<CUDA> (b, 0, 2) {\n"
            " gpu_block<CUDA> (c, 0, 2) {\n"
            " gpu_block<CUDA> (d, 0, 2) {\n out[d] = 1.0f\n }\n }\n }\n}",
            "4 block loops",
        ),
    ],
)
def test_what_is_no_kernel_says_so(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        split_kernels(module(text))


def test_nothing_to_launch() -> None:
    with pytest.raises(ScheduleError, match="no GPU loops"):
        split_kernels(Module("empty", (), (), Block(())))


def gathered(fill: str) -> str:
    """Two accumulators, the second one's allocation after the first one's products."""
    product = "wmma.mma.m32n8k16.f16.f32(32, 8, 16, {0}[ramp(0, 1, 256)], I[ramp(ramp(0, 1, 16), "
    product += "x16(8), 32)], x128(K[0]))"
    body = (
        "allocate one[float32 * 256] in WMMAAccumulator\n"
        "one[ramp(0, 1, 256)] = (float32x256)tile.fill(x256(0.0f))\n"
        f"one[ramp(0, 1, 256)] = (float32x256){product.format('one')}\n"
        "allocate two[float32 * 256] in WMMAAccumulator\n"
        f"two[ramp(0, 1, 256)] = (float32x256)tile.fill({fill})\n"
        f"two[ramp(0, 1, 256)] = (float32x256){product.format('two')}\n"
        "out[ramp(0, 1, 256)] = (float32x256)tile.read(one[ramp(0, 1, 256)])"
        " + (float32x256)tile.read(two[ramp(0, 1, 256)])"
    )
    head = "module t\ninput I: float16 [(0, 300, 1)]\ninput K: float16 [(0, 8, 1)]\n"
    return f"{head}output out: float32 [(0, 256, 1)]\nbody {{\n{body}\n}}"


def order_of_stores(fill: str) -> list[str]:
    body = normalize(parse_module(gathered(fill)).body)
    return [s.buffer for s in walk_stmt(body) if isinstance(s, Store)]


def test_accumulators_one_after_the_other_are_computed_together():
    assert order_of_stores("x256(0.0f)") == ["one", "two", "one", "two", "out"]


def test_a_fill_that_reads_an_accumulator_waits_for_it():
    reads = "(float32x256)tile.read(one[ramp(0, 1, 256)])"
    assert order_of_stores(reads) == ["one", "one", "two", "two", "out"]


def test_a_store_has_a_condition_for_each_coordinate() -> None:
    """Of what is as high as it is wide Halide bounds the larger one."""
    text = "for (i, 0, 9) {\n for (j, 0, 9) {\n  out[i*9 + j] = 1.0f if max(i, j) < 7\n }\n}"
    assert "if (i < 7) && (j < 7)" in print_stmt(normalize(body(text)))
