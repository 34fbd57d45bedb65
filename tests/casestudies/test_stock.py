"""The baseline: schedules for stock Halide, compiled ahead of time and called through ctypes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casestudies.attention.problem import Problem as Attention
from casestudies.common.data import random_inputs
from casestudies.common.registry import find_case, gpu_cases
from casestudies.common.runner import run
from casestudies.common.stock import argument_order, compile_shared
from casestudies.conv1d.problem import Problem as Conv1d
from casestudies.conv2d.problem import Problem as Conv2d
from casestudies.conv_layer.problem import Problem as Layer
from casestudies.gemm.problem import Problem as Gemm
from selector.diagnostics import UserError

# One problem for each way the algorithms can go, odd sizes.
PLAIN = (
    ("conv1d", Conv1d(67, 3, 24)),
    ("conv2d", Conv2d(33, 9, 7)),
    ("gemm", Gemm(61, 67, 71, "f16-f16")),
    ("gemm", Gemm(5, 6, 7, "bf16-f32")),
    ("gemm", Gemm(31, 17, 40, "s8-s32")),
    ("conv_layer", Layer(2, 5, 9, 3, 16)),
    ("attention", Attention(2, 67, 32)),
)


@pytest.mark.parametrize(("name", "problem"), PLAIN, ids=[p.name for _, p in PLAIN])
def test_the_algorithm_is_right_on_the_cpu(name: str, problem: Any) -> None:
    outcome = run(find_case(name), problem, random_inputs(problem, 3, np), "plain", "cpu", None)
    assert outcome.passed, f"relative error {outcome.error}"


@pytest.mark.parametrize("case", gpu_cases(), ids=lambda c: c.name)
def test_the_cuda_baseline_keeps_its_sums_in_registers(case: Any, tmp_path: Path) -> None:
    output = case.build(case.benchmark[0], "cuda")
    path = tmp_path / "stock.so"
    compile_shared(output, path)
    assert argument_order(output)[-1] == case.output_name
    ptx = path.read_bytes()
    start = ptx.index(b".version")
    text = ptx[start : ptx.index(b"\0", start)].decode()
    assert "fma.rn.f32" in text or "mul.f32" in text
    assert not re.search(r"\b(ld|st)\.local", text), "the baseline spills, which would flatter us"
    assert re.search(r"ld\.global\.nc\.v[24]", text), "the baseline does not load vectors"


def test_stock_halide_has_no_bfloat16_on_cuda() -> None:
    with pytest.raises(UserError, match="bfloat16"):
        find_case("gemm").build(Gemm(64, 64, 64, "bf16-f32"), "cuda")
