"""Compiling CUDA without a GPU, and reading back what came out."""

from __future__ import annotations

import pytest
from runtime_plans import CONV_SOURCE

from selector.diagnostics import InternalError, ScheduleError
from selector.runtime import nvrtc

pytestmark = pytest.mark.nvrtc

TENSOR = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void multiply(const unsigned *a, const unsigned *b, float *c) {
    float d[4] = {0, 0, 0, 0};
    int t = threadIdx.x;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[t]), "r"(a[t + 32]), "r"(a[t + 64]), "r"(a[t + 96]),
                   "r"(b[t]), "r"(b[t + 32]));
    for (int i = 0; i < 4; i++) c[4 * t + i] = d[i];
}
"""
WGMMA = r"""
extern "C" __global__ void fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
"""
SPILL = r"""
extern "C" __global__ void spill(const float *x, float *y, int n) {
    float kept[64];
    for (int i = 0; i < 64; i++) kept[i] = x[i * n];
    for (int i = 0; i < n; i++) kept[(i * n) & 63] += kept[(i + n) & 63];
    y[threadIdx.x] = kept[(threadIdx.x * n) & 63];
}
"""


@pytest.mark.parametrize(
    "arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120"]
)
def test_a_kernel_compiles_for_every_target(arch: str) -> None:
    cubin = nvrtc.compile_to_cubin(CONV_SOURCE, arch)
    assert cubin[:4] == b"\x7fELF"
    assert set(nvrtc.resource_usage(cubin)) == {"conv_kernel"}


def test_equal_source_gives_equal_code() -> None:
    assert nvrtc.compile_to_cubin(CONV_SOURCE, "sm_90a") == nvrtc.compile_to_cubin(
        CONV_SOURCE, "sm_90a"
    )


def test_tensor_instructions_show_in_the_disassembly() -> None:
    cubin = nvrtc.compile_to_cubin(TENSOR, "sm_80")
    counts = nvrtc.count_instructions(nvrtc.sass(cubin)["multiply"], ("HMMA", "LDL", "STL"))
    assert counts == {"HMMA": 1, "LDL": 0, "STL": 0}
    assert nvrtc.resource_usage(cubin)["multiply"].local_accesses == 0


def test_registers_indexed_by_a_variable_show_as_local_memory() -> None:
    usage = nvrtc.resource_usage(nvrtc.compile_to_cubin(SPILL, "sm_80"))["spill"]
    assert usage.stack_bytes >= 256
    assert usage.local_accesses > 0


def test_wgmma_wants_the_a_target() -> None:
    nvrtc.compile_to_cubin(WGMMA, "sm_90a")
    with pytest.raises(InternalError, match=r"wgmma.fence' not supported on .target 'sm_90'"):
        nvrtc.compile_to_cubin(WGMMA, "sm_90")


def test_subnormals_are_kept() -> None:
    source = 'extern "C" __global__ void k(float *x) { x[0] = x[0] * x[1]; }'
    assert ".FTZ" not in nvrtc.sass(nvrtc.compile_to_cubin(source, "sm_80"))["k"]


def test_an_accumulator_that_no_thread_has_room_for_is_the_schedules() -> None:
    """m64n256 keeps 128 registers of each thread; blocks of 512 threads leave it 128 for all."""
    names = ", ".join(f"%{i}" for i in range(128))
    constraints = ", ".join(f'"+f"(d[{i}])' for i in range(128))
    source = (
        'extern "C" __global__ void __launch_bounds__(512) wide(float *c, unsigned long long x) {\n'
        "float d[128]; for (int i = 0; i < 128; i++) d[i] = c[i * threadIdx.x];\n"
        'asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 '
        f'{{{names}}}, %128, %128, 1, 1, 1, 0, 0;" : {constraints} : "l"(x));\n'
        "for (int i = 0; i < 128; i++) c[i * threadIdx.x] = d[i];}\n"
    )
    with pytest.raises(ScheduleError, match=r"needs 1\d\d registers or more.*leaves it 128"):
        nvrtc.compile_to_cubin(source, "sm_90a")
    assert nvrtc.compile_to_cubin(source.replace("(512)", "(256)"), "sm_90a")
