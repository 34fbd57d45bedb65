"""The case studies that have accumulators in tensor memory (sm_100a), of which no GPU is at hand:
verified, followed without data, emulated and compiled; and what cannot have them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import Fault, run

import halide_bridge as hb
from casestudies.common.case import Case
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.common.registry import find_case
from casestudies.gemm.algorithm import Product, multiply
from casestudies.gemm.schedule import tensor
from casestudies.upsample import CASE
from selector.diagnostics import ScheduleError, TargetError
from selector.families import windows
from selector.families.contraction import Tiling
from selector.families.windows.tiling import group_outputs
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.nodes import Kernel, walk
from selector.gpu.ir.products import Mma
from selector.gpu.ir.text import parse_kernels, print_kernels
from selector.gpu.ir.verify import memory_faults
from selector.gpu.simulator.protocol import protocol_faults
from selector.runtime.nvrtc import compile_to_cubin, resource_usage, sass
from selector.simulate import simulate
from selector.targets import COMPILE_ONLY, find_target

pytestmark = pytest.mark.verified

TARGET = "sm_100a"
CASES = [find_case(name) for name in ("gemm", "conv_layer")]
SMALL_TILES = Tiling(n=128, parts_n=2, parts_m=1, stages=3, tall=True)
BY_DAY = {
    "gemm-f16-f32-256x128x96",
    "gemm-s8-s32-tt-129x127x65",  # instructions of 64 rows
    "conv_layer-c64-64-1x6x35",  # a bias, and sums of many iterations
    "conv_layer-c48-24-1x7x33",  # sums of one iteration each
}
SMALL = [
    pytest.param(c, p, id=p.name, marks=() if p.name in BY_DAY else pytest.mark.nightly)
    for c in CASES
    for p in c.small
]
PROGRAMS = {p.program: (c, p) for c in CASES for p in reversed((*c.benchmark, *c.small))}
FEW = {p.program for c in CASES for p in c.small if p.name in BY_DAY}
NAMES = [
    pytest.param(name, marks=() if name in FEW else pytest.mark.nightly)
    for name in sorted(PROGRAMS)
]


@cache
def compiled(program: str) -> Any:
    case, problem = PROGRAMS[program]
    return hb.compile(case.scheduled(problem, "tensor", TARGET), target=TARGET)


@cache
def kernels_of(program: str) -> tuple[Kernel, ...]:
    return emit_kernels(compiled(program).module, find_target(TARGET))[0]


@pytest.mark.gcc
@pytest.mark.parametrize(("case", "problem"), SMALL)
def test_text_computes_what_the_reference_does(case: Case, problem: Any) -> None:
    """With the maps that its arrays have, and without."""
    kernel = compiled(problem.program)
    inputs = case_inputs(case, problem, 11, np)
    truth = case.reference(problem, decoded(problem, inputs, np), np)
    for ready in (True, False):
        found = run(kernel, maps_ready=ready, **inputs, sizes=problem.output.shape)
        assert relative_error(found, truth, np) <= case.tolerance[problem.output.element]


@pytest.mark.parametrize("program", NAMES)
def test_kernels_have_no_faults(program: str) -> None:
    kernels = kernels_of(program)
    assert parse_kernels(print_kernels(kernels)) == kernels
    for kernel in kernels:
        assert memory_faults(kernel) == ()
        assert protocol_faults(kernel) == ()


@pytest.mark.nvrtc
@pytest.mark.parametrize("program", NAMES)
def test_machine_code(program: str) -> None:
    """Products of tensor memory and loads of it, and nothing spills."""
    kernel = compiled(program)
    cubin = compile_to_cubin(kernel.source, TARGET)
    code = "\n".join(sass(cubin).values())
    assert ("UTCIMMA" if "s8" in program else "UTCHMMA") in code
    assert "LDTM" in code
    assert not any(u.local_accesses for u in resource_usage(cubin).values())


@pytest.mark.gcc
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tensor_loaded();", ";"),
        ("tensor_free<256>(tensor);", ";"),
        ("barrier_await(sums + 8 * stage, before & 1);", ";"),
        ("1ull << 46", "0ull"),
    ],
)
def test_mistakes_of_the_text_are_found(before: str, after: str) -> None:
    """By the emulation, which ends in an error or in other numbers."""
    case = find_case("gemm")
    problem = next(p for p in case.small if p.name == "gemm-f16-f32-256x128x96")
    kernel = compiled(problem.program)
    assert before in kernel.source
    inputs = case_inputs(case, problem, 11, np)
    truth = case.reference(problem, decoded(problem, inputs, np), np)
    try:
        text = kernel.source.replace(before, after)
        found = run(kernel, source=text, **inputs, sizes=problem.output.shape)
    except Fault:
        return
    assert not relative_error(found, truth, np) <= case.tolerance[problem.output.element]


def test_simulation_with_numbers_is_refused() -> None:
    kernels, plan = emit_kernels(compiled("gemm-f16-f32").module, find_target(TARGET))
    with pytest.raises(TargetError, match="cannot be simulated"):
        simulate(kernels, plan, {})


def test_instructions_have_128_rows_where_statements_do() -> None:
    records = {n.record for n in walk(kernels_of("gemm-f16-f32-large")[-1].body)
               if isinstance(n, Mma)}  # fmt: skip
    assert {(r.m, r.n, r.tensor) for r in records} == {(128, 128, True)}


def test_the_report_says_that_nobody_has_run_it() -> None:
    assert f"{TARGET}: {COMPILE_ONLY}" in str(compiled("gemm-f16-f32").report).splitlines()


@pytest.mark.gcc
def test_funcs_may_be_called_as_what_kernels_declare() -> None:
    a, b = hl.ImageParam(hl.Float(16), 2, "A"), hl.ImageParam(hl.Float(16), 2, "B")
    sums, read = hl.Func("sums"), hl.Func("read")
    n, m, k = hl.Var("own"), hl.Var("tile"), hl.RDom([(0, a.width())], "stage")
    sums[n, m] = hl.f32(0.0)
    sums[n, m] += hl.f32(a[k.x, m]) * hl.f32(b[n, k.x])
    read[n, m] = sums[n, m]
    output = tensor(Product(a, b, sums, read, n, m, k), SMALL_TILES)
    numbers = np.random.default_rng(3)
    left, right = (numbers.random(shape).astype(np.float16) for shape in ((130, 72), (72, 136)))
    found = run(hb.compile(output, target=TARGET), A=left, B=right, sizes=(130, 136))
    truth = left.astype(np.float64) @ right.astype(np.float64)
    assert relative_error(found, truth, np) <= 1e-6


@pytest.mark.parametrize(
    ("tiling", "why", "hint"),
    [
        (Tiling(cluster=2), "clusters of 2", "drop cluster(...)"),
        (Tiling(teams=2, parts_m=1, persistent=1), "2 teams", "drop teams(...)"),
        (Tiling(self_fed=True), "one thread asks for all products", "drop self_fed(...)"),
        (Tiling(stages=1), "nothing stages ahead", "pipeline_stages(...)"),
        (Tiling(n=256, m=256, stages=2), "1024 columns", "use smaller tiles"),
    ],
)
def test_what_is_asked_for_in_vain(tiling: Tiling, why: str, hint: str) -> None:
    with pytest.raises(ScheduleError) as error:
        hb.compile(tensor(multiply("f16-f32"), tiling), target=TARGET)
    assert why in str(error.value)
    assert hint in str(error.value)


def test_windows_are_refused_with_the_way_out() -> None:
    case = find_case("upsample")
    problem = next(p for p in case.small if p.name == "upsample-k16-512x64")
    tiling = windows.Tiling("group", group_outputs(problem.shape.x), rows=4)
    output = CASE.tuning.schedule(problem, tiling)
    with pytest.raises(ScheduleError) as error:
        hb.compile(output, target=TARGET)
    assert "whose windows overlap in memory" in str(error.value)
    assert "MemoryType.WMMAAccumulator, or compile for sm_90a" in str(error.value)
