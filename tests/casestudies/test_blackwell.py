"""The case studies for sm_100 and sm_120, of which no GPU is at hand: verified, followed without
data, emulated and compiled. By day a few of them, at night all.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from emulation import check, run

import halide_bridge as hb
from casestudies.common.case import Case
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.common.registry import find_case, gpu_cases
from selector.diagnostics import ScheduleError, SelectionError
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.verify import memory_faults
from selector.gpu.simulator.protocol import protocol_faults
from selector.runtime.nvrtc import compile_to_cubin, resource_usage, sass
from selector.targets import COMPILE_ONLY, find_target

pytestmark = pytest.mark.verified

TARGETS = ("sm_100", "sm_120")
BY_DAY = {
    "gemm-f16-f32-256x128x96",
    "gemm-f16-f32-nt-129x127x65",  # rows that no map describes
    "attention-d64-2x257",
    "conv_layer-c64-64-1x6x35",
    "upsample-k16-514x66",  # rows by the copy engine, as on sm_90
}
SMALL = [
    pytest.param(c, p, id=p.name, marks=() if p.name in BY_DAY else pytest.mark.nightly)
    for c in gpu_cases()
    for p in c.small
]
PROGRAMS = {p.program: (c, p) for c in gpu_cases() for p in reversed((*c.benchmark, *c.small))}
FEW = {p.program for c in gpu_cases() for p in c.small if p.name in BY_DAY}
NAMES = [
    pytest.param(name, t, marks=() if name in FEW and t == "sm_120" else pytest.mark.nightly)
    for name in sorted(PROGRAMS)
    for t in TARGETS
]
# ptxas (13.2) has all of its fragments at once in registers, and spills a few; on sm_90 it has not,
# and of the layer on sm_80 and sm_120 neither.
SPILLED = {
    ("downsample-k16", "sm_100"),
    ("downsample-k16", "sm_120"),
    ("conv_layer-c64-64-1x6x35", "sm_100"),
    ("conv_layer-c64-64-32x56x56", "sm_100"),
}
# Scans are no products of warps, and tiles of so small layers would be mostly empty.
CORES = {
    "conv_layer-c16-16-1x1x1",
    "conv_layer-c24-20-s3-2x5x3",
    "conv_layer-c3-16-2x5x9",
    *(name for name in PROGRAMS if name.startswith("recursive_filter")),
}
BROUGHT = (
    "gemm-f16-f32",
    "gemm-s8-s32-nt",
    "attention-d64",
    "conv_layer-c64-64-1x6x35",
)


@cache
def compiled(program: str, target: str) -> Any:
    case, problem = PROGRAMS[program]
    return hb.compile(case.scheduled(problem, "tensor", target), target=target)


@pytest.mark.gcc
@pytest.mark.parametrize(("case", "problem"), SMALL)
def test_text_computes_what_the_reference_does(case: Case, problem: Any) -> None:
    """With the maps that its arrays have, and without."""
    target = "sm_120"
    kernel = hb.compile(case.scheduled(problem, "tensor", target), target=target)
    inputs = case_inputs(case, problem, 11, np)
    truth = case.reference(problem, decoded(problem, inputs, np), np)
    found = [check(kernel, **inputs, sizes=problem.output.shape)]
    if "maps_ready" in kernel.source:
        found.append(run(kernel, maps_ready=False, **inputs, sizes=problem.output.shape))
    for result in found:
        assert relative_error(result, truth, np) <= case.tolerance[problem.output.element]


@pytest.mark.parametrize(("program", "target"), NAMES)
def test_kernels_have_no_faults(program: str, target: str) -> None:
    kernels, _ = emit_kernels(compiled(program, target).module, find_target(target))
    for kernel in kernels:
        assert memory_faults(kernel) == ()
        assert protocol_faults(kernel) == ()


@pytest.mark.nvrtc
@pytest.mark.parametrize(("program", "target"), NAMES)
def test_machine_code(program: str, target: str) -> None:
    """Boxes come by the tensor copy where the text says so; nothing spills, and there are products
    of warps, but of what is for CUDA cores.
    """
    kernel = compiled(program, target)
    cubin = compile_to_cubin(kernel.source, target)
    code = "\n".join(sass(cubin).values())
    assert ("UTMALDG" in code) == ("tensor_copy" in kernel.source)
    assert (("IMMA" if "s8" in program else "HMMA") in code) == (program not in CORES)
    spilled = any(u.local_accesses for u in resource_usage(cubin).values())
    assert spilled == ((program, target) in SPILLED)


@pytest.mark.parametrize("program", BROUGHT)
def test_operands_come_by_tensor_maps(program: str) -> None:
    assert "tensor_copy" in compiled(program, "sm_120").source


def test_nothing_of_that_on_sm_90_without_being_asked_for() -> None:
    case = find_case("gemm")
    output = case.build(case.small[0], "tensor")
    assert "tensor_copy" not in hb.compile(output, target="sm_90").source
    assert "tensor_copy" in hb.compile(hb.self_fed(output), target="sm_90").source


def test_the_report_says_that_nobody_has_run_it() -> None:
    assert f"sm_120: {COMPILE_ONLY}" in str(compiled("gemm-f16-f32", "sm_120").report).splitlines()
    case = find_case("gemm")
    output = case.scheduled(case.small[0], "tensor", "sm_90a")
    assert COMPILE_ONLY not in str(hb.compile(output, target="sm_90a").report)


def test_warpgroups_are_refused_with_the_way_out() -> None:
    case = find_case("gemm")
    with pytest.raises(SelectionError) as error:
        hb.compile(case.build(case.small[0], "wgmma"), target="sm_120")
    assert "compile for sm_90a, sm_100a, or place the Func in MemoryType.WMMAAccumulator" in str(
        error.value
    )


@pytest.mark.parametrize(
    ("target", "problem", "why"),
    [
        ("sm_80", "gemm-f16-f32-128x128x64", "sm_80 has no copy engine"),
        ("sm_90", "gemm-s8-s32-128x128x64", "no matrix of a product that ldmatrix reads"),
    ],
)
def test_maps_that_are_asked_for_in_vain(target: str, problem: str, why: str) -> None:
    case = find_case("gemm")
    small = next(p for p in case.small if p.name == problem)
    with pytest.raises(ScheduleError) as error:
        hb.compile(hb.self_fed(case.build(small, "tensor")), target=target)
    assert why in str(error.value)
