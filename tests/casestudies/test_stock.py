"""The baseline: schedules for stock Halide, compiled ahead of time and called through ctypes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np
import pytest

from casestudies.attention.problem import Problem as Attention
from casestudies.common.data import random_inputs
from casestudies.common.launches import Launch
from casestudies.common.registry import find_case, gpu_cases, gpu_schedules, is_stock
from casestudies.common.runner import run
from casestudies.common.stock import CPU_TARGET, argument_order, compile_shared
from casestudies.common.stock_call import StockLibrary
from casestudies.conv1d.problem import Problem as Conv1d
from casestudies.conv2d.problem import Problem as Conv2d
from casestudies.conv_layer.problem import Problem as Layer
from casestudies.gemm.problem import Problem as Gemm
from selector.diagnostics import UserError

pytestmark = pytest.mark.verified

# One problem for each way the algorithms can go, odd sizes.
PLAIN = (
    ("conv1d", Conv1d(67, 3, 24)),
    ("conv2d", Conv2d(33, 9, 7)),
    ("gemm", Gemm(61, 67, 71, "f16-f16")),
    ("gemm", Gemm(5, 6, 7, "bf16-f32")),
    ("gemm", Gemm(31, 17, 40, "s8-s32")),
    ("conv_layer", Layer(2, 5, 9, 3, 16)),
    ("conv_layer", Layer(2, 5, 9, 3, 16, 2)),
    ("attention", Attention(2, 67, 32)),
    ("attention", Attention(2, 67, 32, causal=True, score="bias", scale=0.3)),
    ("attention", Attention(2, 67, 32, score="soft_cap")),
)


@pytest.mark.parametrize(("name", "problem"), PLAIN, ids=[p.name for _, p in PLAIN])
def test_the_algorithm_is_right_on_the_cpu(name: str, problem: Any) -> None:
    outcome = run(find_case(name), problem, random_inputs(problem, 3, np), "plain", "cpu", None)
    assert outcome.passed, f"relative error {outcome.error}"


@pytest.mark.slow
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


# The largest problem of each case.
BASELINES = [
    (case, problem, schedule)
    for case in gpu_cases()
    for schedule in gpu_schedules(case)
    if is_stock(schedule)
    for problem in case.benchmark[-1:]
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "problem", "schedule"), BASELINES, ids=[f"{p.name}-{s}" for _, p, s in BASELINES]
)
def test_a_baseline_can_be_launched(case: Any, problem: Any, schedule: str, tmp_path: Path) -> None:
    """``compile_shared`` refuses what a GPU could not run: see the tests below."""
    path = tmp_path / "stock.so"
    compile_shared(case.build(problem, schedule), path)
    assert StockLibrary(path).registers >= 128, "the baseline would spill"


X, Y, XO, XI = (hl.Var(name) for name in ("x", "y", "xo", "xi"))


def squares(size: int = 4096) -> tuple[hl.Func, hl.Func]:
    """A Func of ``size`` numbers and its output, not scheduled."""
    image = hl.ImageParam(hl.Float(32), 1, "I")
    image.dim(0).set_bounds(0, size)
    inner, output = hl.Func("inner"), hl.Func("output")
    inner[X] = image[X] * image[X]
    output[X] = inner[X] + inner[size - 1 - X]
    output.bound(X, 0, size)
    return inner, output


def test_too_many_threads_are_refused(tmp_path: Path) -> None:
    _, output = squares()
    output.gpu_tile(X, XO, XI, 2048)
    with pytest.raises(UserError, match="cannot be launched") as error:
        compile_shared(output, tmp_path / "stock.so")
    assert "2048 threads" in str(error.value)


@pytest.mark.parametrize(("size", "fits"), [(12 << 10, True), (13 << 10, False)])
def test_too_much_shared_memory_is_refused(size: int, fits: bool, tmp_path: Path) -> None:
    inner, output = squares(size)
    output.gpu_tile(X, XO, XI, 256)
    inner.compute_at(output, XO).store_in(hl.MemoryType.GPUShared).bound(X, 0, size)
    inner.split(X, X, XI, 256).gpu_threads(XI)
    if fits:
        compile_shared(output, tmp_path / "stock.so")
        return
    with pytest.raises(UserError, match="cannot be launched") as error:
        compile_shared(output, tmp_path / "stock.so")
    assert f"{4 * size} bytes of shared memory" in str(error.value)


def test_work_of_the_host_is_refused(tmp_path: Path) -> None:
    inner, output = squares()
    output.gpu_tile(X, XO, XI, 256)
    inner.compute_root()
    with pytest.raises(UserError, match="on the host"):
        compile_shared(output, tmp_path / "stock.so")


def test_a_definition_without_a_value_is_no_work_of_the_host(tmp_path: Path) -> None:
    for scheduled in (False, True):
        image, output = hl.ImageParam(hl.Float(32), 1, "I"), hl.Func("output")
        output[X] = hl.undef(hl.Float(32))
        output[X] = hl.select(image[X] > 0, image[X], output[X])
        output.update().gpu_tile(X, XO, XI, 256, hl.TailStrategy.GuardWithIf)
        if scheduled:
            output.gpu_tile(X, XO, XI, 256)
            compile_shared(output, tmp_path / "stock.so")
            continue
        with pytest.raises(UserError, match=r"Output buffer output.* on the host"):
            compile_shared(output, tmp_path / "stock.so")


def test_an_assertion_that_never_holds_is_refused(tmp_path: Path) -> None:
    inner, output = squares()
    output.gpu_tile(X, XO, XI, 256)
    inner.compute_root().bound(X, 0, 4095).gpu_tile(X, XO, XI, 256)
    with pytest.raises(UserError, match="fails whenever it is called"):
        compile_shared(output, tmp_path / "stock.so")


def test_a_block_whose_threads_are_known_only_to_the_call_is_refused(tmp_path: Path) -> None:
    image, output = hl.ImageParam(hl.Float(32), 2, "I"), hl.Func("output")
    output[X, Y] = image[X, Y]
    output.gpu_blocks(Y).gpu_threads(X)
    with pytest.raises(UserError, match="no fixed block"):
        compile_shared(output, tmp_path / "stock.so")


@pytest.mark.parametrize(
    ("threads", "registers"),
    [(32, 255), (256, 255), (288, 224), (512, 128), (520, 120), (1024, 64)],
)
def test_registers_of_a_block_are_at_most_those_that_there_are(
    threads: int, registers: int
) -> None:
    assert Launch("k", threads, 0).registers == registers
    warps = -(-threads // 32)
    assert warps * 32 * (-(-registers // 8) * 8) <= 65536


def test_a_library_tells_the_limit_of_its_largest_block(tmp_path: Path) -> None:
    inner, output = squares()
    output.gpu_tile(X, XO, XI, 256)
    inner.compute_root().gpu_tile(X, XO, XI, 512)
    compile_shared(output, tmp_path / "stock.so")
    assert StockLibrary(tmp_path / "stock.so").registers == 128


def test_every_library_sets_its_own_limit_before_its_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, problem = "HL_CUDA_JIT_MAX_REGISTERS", Conv1d(67, 3, 24)
    monkeypatch.setenv(name, "none")
    inputs = random_inputs(problem, 3, np)
    calls = []
    for registers in (128, 64):
        path = tmp_path / f"{registers}.so"
        output = find_case("conv1d").build(problem, "plain")
        compile_shared(output, path, CPU_TARGET)
        library = StockLibrary(path)
        library.registers = registers
        result = np.zeros(problem.output.shape, problem.output.dtype)
        calls.append(library.bind(argument_order(output)[:-1], problem, inputs, result))
    for call, expected in ((calls[0], "128"), (calls[1], "64"), (calls[0], "64")):
        call()
        assert os.environ[name] == expected


def test_stock_halide_has_no_bfloat16_on_cuda() -> None:
    with pytest.raises(UserError, match="bfloat16"):
        find_case("gemm").build(Gemm(64, 64, 64, "bf16-f32"), "cuda")
