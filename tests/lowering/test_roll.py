"""Unrolled statements that fill shared memory are loops again, and mean what they meant."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from selector.gpu.codegen.program import emit
from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.ir.nodes import For, ForKind, Stmt, Store
from selector.ir.parser import parse_module
from selector.ir.printer import print_stmt
from selector.ir.traverse import walk_stmt
from selector.ir.verify import verify
from selector.lowering.roll import roll_stages
from selector.targets import find_target

ROWS, COLUMNS, HIGH = 12, 8, 9
MODULE = """module t
input I: float32 [(0, I.extent.0, 1), (0, I.extent.1, I.stride.1)]
output out: float32 [(0, 8, 1), (0, 12, 8)]
body {{
gpu_block<CUDA> (y, 0, 3) {{
 allocate s[float32 * 96] in {memory}
{rows}
 for (i, 0, 12) {{
  out[ramp(i*8, 1, 8)] = s[ramp(i*8, 1, 8)]
 }}
}}
}}
"""


def module(rows: list[str], memory: str = "GPUShared") -> Module:
    return parse_module(MODULE.format(memory=memory, rows="\n".join(rows)), "t.vir")


def rows(value: Callable[[int], str], count: int = ROWS, first: int = 0) -> list[str]:
    return [f" s[ramp({8 * k}, 1, 8)] = {value(k)}" for k in range(first, first + count)]


def plus(base: str, number: int) -> str:
    """As Halide writes it: a sum with 0 is no sum."""
    return f"({base} + {number})" if number else base


def copied(k: int) -> str:
    return f"I[ramp({plus('y', k)}*I.stride.1, 1, 8)]"


def held(k: int) -> str:
    return f"I[ramp(max(min({plus('y', k)}, I.extent.1 + -1), 0)*I.stride.1, 1, 8)]"


def chosen(k: int) -> str:
    inside = f"{plus('I.extent.1', -k)} <= y"
    return f"select(x8({inside}), x8(3.000000f), {held(k)}*x8(float32({plus('y', k)})))"


def every_second(k: int) -> str:
    return f"I[ramp({plus('y', k // 2)}*I.stride.1, 1, 8)]"


def rolled(before: Module) -> Stmt:
    after = replace(before, body=roll_stages(before.body))
    verify(after)
    image = np.random.default_rng(3).random((HIGH + 12, COLUMNS), np.float32)
    want = interpret(before, {"I": image})["out"]
    np.testing.assert_array_equal(interpret(after, {"I": image})["out"], want)
    return after.body


def stores(s: Stmt) -> int:
    return sum(isinstance(x, Store) and x.buffer == "s" for x in walk_stmt(s))


def loops(s: Stmt) -> list[int]:
    found = (x for x in walk_stmt(s) if isinstance(x, For) and x.kind is ForKind.UNROLLED)
    return [int(print_stmt(x).split("(")[1].split(",")[2].split(")")[0]) for x in found]


@pytest.mark.parametrize("value", [copied, held, chosen])
def test_rows_are_one_loop(value: Callable[[int], str]) -> None:
    body = rolled(module(rows(value)))
    assert (stores(body), loops(body)) == (1, [ROWS])


def test_loops_are_rolled_up_themselves() -> None:
    body = rolled(module(rows(every_second)))
    assert (stores(body), loops(body)) == (1, [ROWS // 2, 2])


def test_a_row_of_another_form_stands_alone() -> None:
    first = [f" s[ramp(0, 1, 8)] = {held(0)}"]
    body = rolled(module([*first, *rows(copied, ROWS - 1, 1)]))
    assert (stores(body), loops(body)) == (2, [ROWS - 1])


def test_a_mask_of_a_row_and_what_rows_hand_on() -> None:
    masked = [f" if ({plus('y', k)} < 5) {{\n {s}\n }}" for k, s in enumerate(rows(copied))]
    filled = rows(lambda _: "x8(2.000000f)")
    added = rows(lambda k: f"s[ramp({8 * k - 8}, 1, 8)] + x8(1.000000f)", ROWS - 1, 1)
    body = rolled(module([*filled, *masked, *added]))
    assert (stores(body), loops(body)) == (3, [ROWS, ROWS, ROWS - 1])


def squares(k: int) -> str:
    return f"x8({k * k}.000000f)"


def strides(k: int) -> str:
    return f"I[ramp({plus('y', k)}*I.stride.1, {k % 2 + 1}, 8)]"


def sources(k: int) -> str:
    return f"x8(float32(int32(I[{k}])))" if k % 2 else "x8(float32(y))"


@pytest.mark.parametrize("value", [squares, strides, sources])
def test_what_no_number_tells_apart_stays(value: Callable[[int], str]) -> None:
    before = module(rows(value, 4))
    assert roll_stages(before.body) == before.body


def test_only_shared_memory() -> None:
    before = module(rows(copied), "Stack")
    assert roll_stages(before.body) == before.body


def test_terms_of_a_sum_stay() -> None:
    terms = [f" s[ramp(0, 1, 8)] = s[ramp(0, 1, 8)] + {copied(k)}" for k in range(4)]
    before = module([*rows(lambda _: "x8(0.000000f)"), *terms])
    body = rolled(before)
    assert (stores(body), loops(body)) == (1 + len(terms), [ROWS])


def test_what_is_made_of_accumulators_stays() -> None:
    """It may be kept in registers, and so may what it is made together with."""
    tile = """ allocate acc[float32 * 128] in WMMAAccumulator
 acc[ramp(0, 1, 128)] = (float32x128)tile.fill(x128(0.000000f))
 allocate low[float32 * 96] in GPUShared"""
    low = [f" low[ramp({8 * k}, 1, 8)] = x8(1.000000f)" for k in range(4)]
    own = [
        f" low[ramp({8 * k}, 1, 8)] = max(low[ramp({8 * k}, 1, 8)], acc[ramp({8 * k}, 1, 8)])"
        for k in range(4)
    ]
    body = roll_stages(module([*rows(copied), tile, *low, *own]).body)
    assert (stores(body), loops(body)) == (1, [ROWS])


def test_one_barrier_for_all_rows() -> None:
    source = emit(module(rows(chosen)), find_target("sm_80")).source
    kernel = source.partition("__global__")[2]
    assert kernel.count("__syncthreads") == 1
    assert kernel.count("3.0f") == 5  # four vectors of a thread, and element by element


def test_many_terms_of_a_sum_take_no_time() -> None:
    terms = [f" s[ramp(0, 1, 8)] = s[ramp(0, 1, 8)] + {copied(k)}" for k in range(2000)]
    before = module(terms)
    start = time.process_time()
    assert roll_stages(before.body) == before.body
    assert time.process_time() - start < 2


def test_distances_that_a_block_decides() -> None:
    apart = [" s[ramp(0, 1, 8)] = I[ramp(7, 1, 8)]", " s[ramp(8, 1, 8)] = I[ramp(y*y, 1, 8)]"]
    before = module(apart)
    assert roll_stages(before.body) == before.body
