"""Emitted CUDA: machine instructions, launch geometry, determinism."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import CORPUS
from corpus_programs import compiled
from verified import MACHINE_CODE, Verified, nvrtc_inputs

from selector.ir.interpreter import evaluate_scalar
from selector.runtime import nvrtc
from selector.runtime.plan import Plan

HERE = Path(__file__).resolve().parent
SEVERAL = (
    "blur_shared",
    "chain",
    "math_fast_log",
    "tuple_output",
    "row_staged",
    "row_direct",
    "row_epilogue_gelu",
    "plane_some",
    "loop_3_4",
    "post_blur",
    "product_stages_3_75",
    "product_m8n32",
    "product_s8_nn",
    "two_accumulators",
)


def plan(name: str, target: str = "sm_90a") -> Plan:
    return compiled(name, target).kernel.plan


INSTRUCTIONS: dict[str, tuple[str, ...]] = {
    "row_staged": ("HMMA", "LDSM", "LDGSTS"),
    "row_direct": ("HMMA",),
    "row_bf16": ("HMMA", "LDSM", "LDGSTS"),
    "row_s8": ("IMMA", "LDGSTS"),  # windows lie 8 bytes apart, ldmatrix wants 16
    "row_f16_accumulator": ("HMMA", "LDSM"),
    "row_epilogue_gelu": ("HMMA", "MUFU"),
    "plane_some": ("HMMA", "LDSM", "LDGSTS"),
    "window_edge_centred": ("HMMA", "LDSM", "LDGSTS"),
    "window_zero_centred": ("HMMA", "LDSM", "LDGSTS"),
    "loop_3_4": ("HMMA", "LDSM", "LDGSTS"),
    "product_nn": ("HMMA", "LDSM", "LDGSTS"),
    "product_tt": ("HMMA", "LDSM", "LDGSTS"),
    "product_stages_3_75": ("HMMA", "LDSM", "LDGSTS"),
    "product_s8_nt": ("IMMA", "LDSM", "LDGSTS"),
    "product_m8n32": ("HMMA", "LDSM", "LDGSTS"),
    "product_half_nn": ("HMMA", "LDSM"),
    "blur_shared": ("BAR", "STS", "LDS"),
}
OLDER = ("row_staged", "loop_3_4", "product_s8_nt")
ENGINE = {"loop_3_4": {"LDGSTS": "UBLKCP"}}  # what the copy engine of sm_90 does instead


@pytest.mark.slow
@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize(
    ("name", "target"), [*((n, "sm_90a") for n in INSTRUCTIONS), *((n, "sm_80") for n in OLDER)]
)
def test_instructions_are_there_and_spills_are_not(
    name: str, target: str, verified: Verified
) -> None:
    kernel = compiled(name, target).kernel
    if verified(*nvrtc_inputs(kernel)):
        return
    cubin = kernel.cubin()
    code = "\n".join(nvrtc.sass(cubin).values())
    instead = ENGINE.get(name, {}) if target == "sm_90a" else {}
    wanted = tuple(instead.get(i, i) for i in INSTRUCTIONS[name])
    counts = nvrtc.count_instructions(code, wanted)
    assert all(counts.values()), counts
    for usage in nvrtc.resource_usage(cubin).values():
        assert usage.local_accesses == 0
        assert usage.stack_bytes == 0


def digest(name: str) -> str:
    return hashlib.sha256(plan(name).source.encode()).hexdigest()


@pytest.mark.slow
def test_emitting_twice_gives_the_same_text() -> None:
    """Whatever was built before, which Halide has counted names for."""
    first = {name: compiled(name, "sm_90a") for name in SEVERAL}
    compiled.cache_clear()
    for name in reversed(SEVERAL):
        again = compiled(name, "sm_90a")
        assert str(again.lowered) == str(first[name].lowered), name
        assert again.kernel.plan == first[name].kernel.plan, name


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_gives_the_same_text(seed: str) -> None:
    """Whatever ran before, and however strings are hashed."""
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from test_emit import SEVERAL, digest\n"
        "print('\\n'.join(digest(n) for n in reversed(SEVERAL)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [
        sys.executable,
        "-c",
        program,
        *(str(HERE.parent / x) for x in ("codegen", "gpu", "")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [digest(n) for n in reversed(SEVERAL)]


def geometry(name: str, sizes: dict[str, int]) -> list[tuple[tuple[int, ...], int]]:
    """(grid, threads) of every launch."""
    return [
        (tuple(evaluate_scalar(e, sizes) for e in launch.grid), launch.threads)
        for launch in plan(name).launches
    ]


def test_launches_follow_the_schedule() -> None:
    out = {"out.extent.0": 513, "out.extent.1": 5, "out.extent.2": 7}
    assert geometry("row_staged", out) == [((3, 3, 1), 64)]
    assert geometry("one_warp", out) == [((5, 5, 1), 32)]
    assert geometry("three_dimensions", out) == [((65, 2, 4), 64)]
    assert geometry("blur_shared", out) == [((17, 1, 1), 320)]
    assert [threads for _, threads in geometry("blur_kernels", out)] == [256, 256]


def test_more_warps_than_a_stage_uses() -> None:
    """The block has the warps of its largest stage; the others sit a stage out."""
    p = plan("warps_of_two_kinds")
    assert p.launches[0].threads == 128
    assert "if (warp < 3)" in p.source


def test_kernels_take_only_what_they_use() -> None:
    p = plan("chain")
    assert len(p.launches) == 4
    assert len(p.intermediates) == 3
    assert all(len(launch.arguments) < 12 for launch in p.launches)
    assert len({launch.entry for launch in p.launches}) == 4


def test_plain_kernels_have_no_shared_memory_unless_asked() -> None:
    assert plan("blur_inline").launches[0].shared_bytes == 0
    assert plan("blur_shared").launches[0].shared_bytes > 0


def test_shared_memory_holds_every_stage_of_a_ring() -> None:
    """A block of 64 x 32 and 32 x 32 of 16 bits, rows of 40 elements, three times."""
    one = 2 * 40 * (64 + 32)
    assert plan("product_stages_3_75").launches[0].shared_bytes >= 3 * one


def test_sources_name_the_program_and_its_target() -> None:
    assert plan("row_staged").source.startswith("// row_staged for sm_90a")
    assert set(CORPUS) >= set(SEVERAL)
