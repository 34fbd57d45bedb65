"""Compile one problem of a case, run it on the GPU or in the interpreter, and compare with the
reference.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from casestudies.common.case import Arrays, Case, Problem
from casestudies.common.data import decoded, poisoned, relative_error
from casestudies.common.progress import step
from casestudies.common.registry import is_amx, is_stock
from selector.diagnostics import UserError
from selector.machine.device import device_name

DEVICES = ("auto", "gpu", "cpu")
PLAIN = "plain"  # Halide's default schedule, on the CPU


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run and its check. ``seconds`` is the time of the run itself, ``where`` what it ran on."""

    case: str
    problem: str
    schedule: str
    target: str
    where: str
    error: float
    tolerance: float
    compile_seconds: float
    seconds: float
    report: str
    report_data: Mapping[str, object]
    output: np.ndarray

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance

    def as_dict(self) -> dict[str, object]:
        """The outcome as data, without the output array."""
        names = ("case", "problem", "schedule", "target", "where", "error", "tolerance", "passed")
        times = ("compile_seconds", "seconds")
        data: dict[str, object] = {n: getattr(self, n) for n in (*names, *times)}
        return data | {"report": self.report_data}


def gpu_available() -> bool:
    """Whether CuPy sees a GPU."""
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # no CuPy, no driver, no device: each raises something else
        return False


def choose_device(wanted: str) -> str:
    """``gpu`` or ``cpu``; ``UserError`` if a GPU was asked for and is not there."""
    if wanted == "auto":
        return "gpu" if gpu_available() else "cpu"
    if wanted == "gpu" and not gpu_available():
        raise UserError(
            "there is no GPU that CuPy can use",
            hint="--device cpu runs the selected program in the interpreter",
        )
    return wanted


def run(
    case: Case, problem: Problem, inputs: Arrays, schedule: str, device: str, target: str | None
) -> Outcome:
    """Compile and run once, and compare with float64. ``inputs`` are NumPy arrays, ``device`` is
    gpu or cpu.
    """
    if schedule not in (*case.schedules, PLAIN):
        names = ", ".join((*case.schedules, PLAIN))
        raise UserError(f"{case.name} has no schedule {schedule!r}", hint=f"schedules: {names}")
    runner = _run_amx if is_amx(schedule) else _run_tensor
    if is_stock(schedule):
        runner = _run_plain if schedule == PLAIN else _run_stock
    found = runner(case, problem, schedule, inputs, device, target)
    with step("float64 reference"):
        truth = case.reference(problem, decoded(problem, inputs, np), np)
    return Outcome(
        case=case.name,
        problem=problem.name,
        schedule=schedule,
        error=relative_error(found.output, truth, np),
        tolerance=case.tolerance[problem.output.element],
        **{field.name: getattr(found, field.name) for field in fields(found)},
    )


@dataclass(frozen=True, slots=True)
class _Found:
    output: np.ndarray
    where: str
    target: str
    compile_seconds: float
    seconds: float
    report: str = "stock Halide: no tensor instructions"
    report_data: Mapping[str, object] = ()  # type: ignore[assignment]


def _run_tensor(
    case: Case, problem: Problem, schedule: str, inputs: Arrays, device: str, target: str | None
) -> _Found:
    import halide_bridge as hb

    chosen = target or ("cuda" if device == "gpu" else "sm_90a")
    begin = time.perf_counter()
    with step(f"compile {problem.program} for {chosen}"):
        kernel = hb.compile(case.scheduled(problem, schedule, chosen), target=chosen)
    compiled = time.perf_counter() - begin
    if device == "gpu":
        output, seconds, where = _on_gpu(lambda i, o: kernel(**i, out=o), problem, inputs)
    else:
        begin = time.perf_counter()
        with step(f"interpret {problem.name}"):
            output = kernel.interpret(**inputs, sizes=problem.output.shape)
        seconds, where = time.perf_counter() - begin, "interpreter (NumPy)"
    report = kernel.report
    return _Found(
        output, where, kernel.target.name, compiled, seconds, str(report), report.as_dict()
    )


def _run_amx(
    case: Case, problem: Problem, schedule: str, inputs: Arrays, device: str, target: str | None
) -> _Found:
    """On this CPU: tile registers in software where it has none."""
    import halide_bridge as hb

    begin = time.perf_counter()
    with step(f"compile {problem.program} for amx"):
        kernel = hb.compile(case.build(problem, schedule), target=target or "amx")
        kernel.library()
    compiled = time.perf_counter() - begin
    result = poisoned(problem.output, np)
    kernel(**inputs, out=result)
    begin = time.perf_counter()
    with step(f"run {problem.name}"):
        kernel(**inputs, out=result)
    seconds, report = time.perf_counter() - begin, kernel.report
    name = kernel.target.name
    return _Found(result, "the CPU", name, compiled, seconds, str(report), report.as_dict())


def _run_stock(
    case: Case, problem: Problem, schedule: str, inputs: Arrays, device: str, target: str | None
) -> _Found:
    if device != "gpu":
        raise UserError(
            f"the schedule `{schedule}` of stock Halide runs on a GPU only",
            hint="--schedule plain runs the same algorithm by Halide on the CPU",
        )
    from casestudies.common.stock import argument_order, compile_shared
    from casestudies.common.stock_call import StockLibrary

    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, step("compile with stock Halide"):
        output = case.build(problem, schedule)
        path = Path(folder, "stock.so")
        compile_shared(output, path)
        library = StockLibrary(path)
    library.use_cupy()
    compiled = time.perf_counter() - begin
    order = argument_order(output)[:-1]
    result, seconds, where = _on_gpu(
        lambda i, o: library.bind(order, problem, i, o)(), problem, inputs
    )
    return _Found(result, where, "stock Halide, CUDA", compiled, seconds)


def _run_plain(
    case: Case, problem: Problem, schedule: str, inputs: Arrays, device: str, target: str | None
) -> _Found:
    from casestudies.common.stock import CPU_TARGET, argument_order, compile_shared
    from casestudies.common.stock_call import StockLibrary

    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, step("compile with stock Halide for the CPU"):
        output = case.build(problem, schedule)
        path = Path(folder, "stock.so")
        compile_shared(output, path, CPU_TARGET)
        library = StockLibrary(path)
    compiled = time.perf_counter() - begin
    result = poisoned(problem.output, np)
    call = library.bind(argument_order(output)[:-1], problem, inputs, result)
    begin = time.perf_counter()
    call()
    seconds = time.perf_counter() - begin
    return _Found(result, "CPU (stock Halide)", CPU_TARGET, compiled, seconds)


def _on_gpu(call: Any, problem: Problem, inputs: Arrays) -> tuple[np.ndarray, float, str]:
    """Output, seconds of one call (a warm graph replay) and the GPU's name."""
    import cupy

    from selector.tuning.timing import time_calls

    on_device = {name: cupy.asarray(array) for name, array in inputs.items()}
    output = poisoned(problem.output, cupy)
    cupy.cuda.Device().synchronize()
    with step("run on the GPU"):
        call(on_device, output)
        cupy.cuda.Device().synchronize()
        result = cupy.asnumpy(output)
        timing = time_calls([lambda: call(on_device, output)])
    return result, timing.median * 1e-6, device_name()
