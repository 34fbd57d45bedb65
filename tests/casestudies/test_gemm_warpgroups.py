"""The matrix product on warpgroups: right in the interpreter, wgmma and the copy engine in the
machine code, and what a schedule cannot have.
"""

from __future__ import annotations

import re
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.gemm import CASE
from casestudies.gemm.algorithm import multiply
from casestudies.gemm.problem import Problem
from casestudies.gemm.schedule import tensor
from selector.diagnostics import ScheduleError, SelectionError
from selector.families.contraction import Tiling, usual, worth_copying
from selector.families.contraction.usual import is_large, is_tall
from selector.machine import machine_for
from selector.runtime.nvrtc import resource_usage, sass
from selector.runtime.plan import MapArgument

pytestmark = pytest.mark.verified

H200 = machine_for("sm_90a")

TYPES = ("f16-f32", "f16-f16", "bf16-f32")
LARGE = (2048, 2048, 64)


def compiled(types: str = "f16-f32", **size: Any) -> Any:
    return hb.compile(tensor(multiply(types), Tiling(**size)), target="sm_90a")


@pytest.mark.parametrize("types", TYPES)
def test_the_selected_program_is_right_at_ragged_sizes(types: str) -> None:
    kernel = compiled(types, n=128, m=128, stages=3)
    assert not kernel.report.misses
    for size in ((129, 127, 65), (61, 67, 71), (1, 1, 1), (256, 128, 260)):
        problem = Problem(*size, types)
        inputs = case_inputs(CASE, problem, 3, np)
        result = kernel.interpret(**inputs, sizes=problem.output.shape)
        truth = CASE.reference(problem, decoded(problem, inputs, np), np)
        assert relative_error(result, truth, np) <= CASE.tolerance[problem.output.element]


def counts(kernel: Any, *names: str) -> tuple[int, ...]:
    (text,) = sass(kernel.cubin()).values()
    (usage,) = resource_usage(kernel.cubin()).values()
    assert not usage.local_accesses
    return tuple(len(re.findall(rf"\b{re.escape(n)}\b", text)) for n in names)


@pytest.mark.nvrtc
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("size", [(64, 64, 64), LARGE])
def test_machine_code(types: str, size: tuple[int, int, int]) -> None:
    """Four instructions for a run of 64, none waited for but by the ring: ptxas would put an
    ARRIVE and a DEPBAR around each if it could not keep the accumulators in flight."""
    problem = Problem(*size, types)
    product = multiply(problem.types, problem.layout, problem.epilogue)
    kernel = hb.compile(tensor(product, usual(problem.shape, H200)), target="sm_90a")
    columns = 256 if is_large(problem.shape) else 128
    found = counts(kernel, "HGMMA", "UTMALDG", "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR", "UTMASTG")
    panels = columns // 64  # of B, asked for ahead of the loop; and in it, by two blocks
    boxes = 1 + panels + 1 + (panels // 2 if is_large(problem.shape) else panels)
    stored = columns * (2 if types == "f16-f16" else 4) // 128  # rows of 128 bytes
    assert found == (4, boxes, 1, 2, stored)
    assert f"HGMMA.64x{columns}x16" in next(iter(sass_of(kernel)))


def sass_of(kernel: Any) -> list[str]:
    return list(sass(kernel.cubin()).values())


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("size", "instructions", "boxes"),
    [
        ({"n": 128, "m": 256}, 8, 3),  # two instructions' rows in a group
        ({"parts_n": 2, "parts_m": 1, "m": 64}, 4, 5),
        ({"n": 96, "m": 64, "parts_m": 1, "k": 32}, 2, 3),
        ({"stages": 1}, 4, 0),  # not staged ahead: copied by all threads
        ({"stages": 2}, 4, 5),
    ],
)
def test_other_tiles(size: dict[str, Any], instructions: int, boxes: int) -> None:
    assert counts(compiled(**size), "HGMMA", "UTMALDG") == (instructions, 2 * boxes)


def test_the_plan_takes_maps_bounded_by_what_the_sum_reads() -> None:
    (launch,) = compiled().plan.launches
    maps = [str(a) for a in launch.arguments if type(a).__name__ == "MapArgument"]
    assert len(maps) == 3
    assert "A.extent.0" in maps[1]


def test_another_target_says_what_is_missing() -> None:
    with pytest.raises(SelectionError, match="target sm_80 has no wgmma or tcgen05 instructions"):
        hb.compile(tensor(multiply("f16-f32"), Tiling()), target="sm_80")


BYTES: dict[str, Any] = {"k": 128, "depth": 32}


def bytes_kernel(layout: str, **size: Any) -> Any:
    groups = Tiling(**(BYTES | size))
    return hb.compile(tensor(multiply("s8-s32", layout), groups), target="sm_90a")


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("size", "instructions", "widest"),
    [
        ({}, 4, 256),
        ({"n": 40, "m": 64, "parts_m": 1}, 8, 32),  # 40 columns are 32 and 8
        ({"n": 24, "m": 64, "parts_m": 1}, 4, 24),
    ],
)
def test_bytes(size: dict[str, Any], instructions: int, widest: int) -> None:
    kernel = bytes_kernel("nt", **size)
    (text,) = sass_of(kernel)
    assert counts(kernel, "IGMMA", "WARPGROUP.ARRIVE") == (instructions, 1)
    assert f"IGMMA.64x{widest}x32.S8.S8" in text


@pytest.mark.parametrize("layout", ["nn", "tt", "tn"])
def test_bytes_lie_along_the_sum(layout: str) -> None:
    with pytest.raises(ScheduleError, match="cannot be an operand of wgmma") as caught:
        bytes_kernel(layout)
    assert "transposed in a Func of its own" in str(caught.value)


def agrees(kernel: Any, problem: Problem) -> bool:
    inputs = case_inputs(CASE, problem, 3, np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    return bool(relative_error(result, truth, np) <= CASE.tolerance[problem.output.element])


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("types", "layout", "copied"),
    [
        ("f16-f32", "nn", "AB"),
        ("bf16-f32", "tn", "B"),
        ("s8-s32", "nn", "B"),
        ("s8-s32", "tt", "A"),
    ],
)
def test_copies_ahead_of_the_product(types: str, layout: str, copied: str) -> None:
    """Rows of any length, and bytes across the sum: a kernel of their own copies them, 16 bytes a
    store; the copy engine brings what it left."""
    own: dict[str, Any] = BYTES if types == "s8-s32" else {}
    size = Tiling(n=64, m=64, parts_m=1, stages=3, copied=copied, **own)
    kernel = hb.compile(tensor(multiply(types, layout), size), target="sm_90a")
    for extents in ((129, 127, 65), (61, 67, 71), (1, 1, 1), (64, 128, 260)):
        assert agrees(kernel, Problem(*extents, types, layout))
    *copies, product = kernel.plan.launches
    assert len(copies) == len(kernel.plan.intermediates) == len(copied)
    maps = {a.name for a in product.arguments if isinstance(a, MapArgument)}
    assert maps == {"C", *(f"{x}_im_in_mm" if x in copied else x for x in "AB")}
    texts = sass(kernel.cubin())
    assert "UTMALDG" in texts.pop(product.entry)
    assert len(texts) == len(copied)
    assert all("STG.E.128" in text for text in texts.values())


def test_tiles_that_take_fewer_rounds() -> None:
    """32 x 17 blocks of 128 x 256 are five rounds on 132 multiprocessors, 16 x 33 are four."""
    assert is_tall(Problem(4095, 4097, 4093).shape, H200)
    assert not any(is_tall(Problem(n, n, 64).shape, H200) for n in (1024, 2048, 4096, 8192))
    assert not is_tall(Problem(4097, 4095, 4093).shape, H200)
    assert usual(Problem(4095, 4097, 64).shape, H200).m == 256


def test_what_is_worth_a_copy() -> None:
    assert worth_copying(Problem(4096, 4096, 4096).shape) == ""
    assert worth_copying(Problem(129, 127, 65).shape) == ""
    assert worth_copying(Problem(4095, 4097, 4093).shape) == "AB"
    assert worth_copying(Problem(4096, 4096, 4095).shape) == "A"
    assert worth_copying(Problem(64, 64, 64, "s8-s32").shape) == "B"
    assert worth_copying(Problem(64, 64, 64, "s8-s32", "tt").shape) == "A"
    assert worth_copying(Problem(4096, 4096, 4096, "s8-s32", "nt").shape) == ""
    assert len({Problem(2048, 2048, k).program for k in (2048, 2047)}) == 2


@pytest.mark.nvrtc
def test_an_epilogue_stays_in_registers() -> None:
    """Results leave by the copy engine; what is added comes from memory, once for a column."""
    problem = Problem(128, 128, 64, epilogue="scale-bias-relu")
    product = multiply(problem.types, problem.layout, problem.epilogue)
    kernel = hb.compile(tensor(product, usual(problem.shape, H200)), target="sm_90a")
    assert counts(kernel, "HGMMA", "UTMASTG") == (4, 4)
    assert not kernel.plan.intermediates


def test_operands_have_to_be_staged() -> None:
    p = multiply("f16-f32")
    no, mo, ni, mi = (hl.Var(name) for name in ("no", "mo", "ni", "mi"))
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    p.output.tile(p.n, p.m, no, mo, ni, mi, 32, 64).vectorize(ni).vectorize(mi).gpu_blocks(no, mo)
    p.mm.compute_at(p.output, no).vectorize(p.n).vectorize(p.m)
    update = p.mm.update().split(p.k.x, ko, ki, 16).reorder(ki, p.n, p.m, ko).atomic()
    update.vectorize(p.n).vectorize(p.m).vectorize(ki)
    hb.store_in(p.mm, hb.MemoryType.WGMMAAccumulator)
    with pytest.raises(ScheduleError, match="does not lie in shared memory") as caught:
        hb.compile(p.output, target="sm_90a")
    assert "in_(...)" in str(caught.value)


def test_windows_of_a_convolution_have_to_be_staged() -> None:
    x, y, xo, xi, yo, yi = (hl.Var(name) for name in ("x", "y", "xo", "xi", "yo", "yi"))
    image, taps = hl.ImageParam(hl.Float(16), 2, "I"), hl.ImageParam(hl.Float(16), 1, "K")
    conv, out = hl.Func("conv"), hl.Func("out")
    k = hl.RDom([(0, 16)], "k")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(image[x + k.x, y]) * hl.f32(taps[k.x])
    out[x, y] = conv[x, y]
    out.tile(x, y, xo, yo, xi, yi, 512, 1).vectorize(xi).gpu_blocks(xo, yo)
    conv.compute_at(out, xo).vectorize(x)
    conv.update().atomic().vectorize(x).vectorize(k.x)
    hb.store_in(conv, hb.MemoryType.WGMMAAccumulator)
    with pytest.raises(ScheduleError, match="`I` is an operand of wgmma and does not lie"):
        hb.compile(out, target="sm_90a")
