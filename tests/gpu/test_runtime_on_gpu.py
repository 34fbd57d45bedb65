"""The runtime on a real GPU, with hand-written plain CUDA: arrays of every kind, streams, graphs.

What the recording device of ``tests/runtime`` cannot show: that CuPy takes the arguments,
that memory belongs to the right stream, that a call can be captured, and what a call costs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_kernels import early_plan, kernel
from runtime_plans import buffer, conv, conv_plan, scale_plan

import selector
from selector.api import Kernel
from selector.diagnostics import ArgumentError, TargetError
from selector.gpu.cuda.preamble import preamble
from selector.gpu.passes.bound_waits import ARRIVALS_BYTES
from selector.ir.nodes import IntImm, Role, Var
from selector.ir.types import BFLOAT16, FLOAT16, FLOAT32
from selector.pipeline import Clock
from selector.runtime.plan import BufferArgument, Intermediate, Launch, Plan

pytestmark = pytest.mark.gpu
Array = np.ndarray[Any, Any]


@pytest.fixture
def inputs() -> tuple[Array, Array]:
    generator = np.random.default_rng(0)
    return tuple(generator.standard_normal(s).astype(np.float16) for s in ((37, 1001), (17,)))  # type: ignore[return-value]


def close(result: Any, inputs: tuple[Array, Array]) -> None:
    np.testing.assert_allclose(result, conv(*inputs), rtol=2e-3, atol=2e-3)


def test_numpy(inputs: tuple[Array, Array]) -> None:
    result = kernel(conv_plan())(*inputs)
    assert type(result) is np.ndarray
    close(result, inputs)


def test_numpy_out_with_strides(inputs: tuple[Array, Array]) -> None:
    out = np.full((37, 2 * 985), np.nan, np.float32)[:, ::2]
    assert kernel(conv_plan())(*inputs, out=out) is out
    close(out, inputs)


def test_cupy(cupy: Any, inputs: tuple[Array, Array]) -> None:
    image, taps = map(cupy.asarray, inputs)
    result = kernel(conv_plan())(I=image, K=taps)
    assert type(result) is cupy.ndarray
    close(result.get(), inputs)


def test_cupy_rows_may_lie_apart(cupy: Any, inputs: tuple[Array, Array]) -> None:
    room = cupy.full((37, 1100), cupy.nan, cupy.float16)
    image = room[:, 50:1051]
    image[...] = cupy.asarray(inputs[0])
    out = cupy.full((37, 1000), cupy.nan, cupy.float32)
    kernel(conv_plan())(image, cupy.asarray(inputs[1]), out=out[:, 7:992])
    close(out[:, 7:992].get(), inputs)
    assert cupy.isnan(out[:, :7]).all()
    assert cupy.isnan(out[:, 992:]).all()


def test_mixed_numpy_and_cupy_stays_on_the_gpu(cupy: Any, inputs: tuple[Array, Array]) -> None:
    result = kernel(conv_plan())(cupy.asarray(inputs[0]), inputs[1])
    assert type(result) is cupy.ndarray
    close(result.get(), inputs)


def test_a_launch_that_starts_early_reads_what_the_one_before_leaves(cupy: Any) -> None:
    if int(cupy.cuda.Device().compute_capability) < 90:
        pytest.skip("griddepcontrol needs compute capability 9.0")
    run, late = kernel(early_plan()), early_plan()
    late = kernel(
        replace(late, launches=(late.launches[0], replace(late.launches[1], early=False)))
    )
    x = cupy.zeros(1000, cupy.float32)
    out = cupy.empty_like(x)
    for number in range(20):
        x[...] = cupy.random.standard_normal(1000)
        out.fill(cupy.nan)
        run(x, float(number), out=out)
        np.testing.assert_array_equal(out.get(), np.float32(number) * x.get())
    seconds: list[float] = []
    for graph in (run.graph(x, 3.0, out=out), late.graph(x, 3.0, out=out)):
        out.fill(cupy.nan)
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        graph.launch()
        begin.record()
        for _ in range(20):
            graph.launch()
        end.record()
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(begin, end))
        np.testing.assert_array_equal(out.get(), 3 * x.get())
    assert seconds[0] < 0.8 * seconds[1], seconds


def test_torch(torch: Any, inputs: tuple[Array, Array]) -> None:
    image, taps = (torch.from_numpy(a).cuda() for a in inputs)
    result = kernel(conv_plan())(image, taps)
    assert isinstance(result, torch.Tensor)
    assert result.is_cuda
    close(result.cpu().numpy(), inputs)


def test_torch_on_the_cpu(torch: Any, inputs: tuple[Array, Array]) -> None:
    result = kernel(conv_plan())(*map(torch.from_numpy, inputs))
    assert isinstance(result, torch.Tensor)
    assert not result.is_cuda
    close(result.numpy(), inputs)


def test_torch_runs_on_its_current_stream(torch: Any, inputs: tuple[Array, Array]) -> None:
    run = kernel(conv_plan())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        image, taps = (torch.from_numpy(a).cuda(non_blocking=True) for a in inputs)
        torch.cuda._sleep(20_000_000)
        image = image + 1
        result = run(image, taps)
    stream.synchronize()
    close(result.cpu().numpy(), (inputs[0] + np.float16(1), inputs[1]))


def test_cupy_on_a_stream(cupy: Any, inputs: tuple[Array, Array]) -> None:
    run, stream = kernel(conv_plan()), cupy.cuda.Stream(non_blocking=True)
    image, taps = map(cupy.asarray, inputs)
    cupy.cuda.Device().synchronize()
    for given in (stream, stream.ptr):
        result = run(image, taps, stream=given)
        stream.synchronize()
        close(result.get(), inputs)


def test_wrong_arrays_are_refused_on_the_gpu(cupy: Any, inputs: tuple[Array, Array]) -> None:
    image, taps = map(cupy.asarray, inputs)
    run = kernel(conv_plan())
    with pytest.raises(ArgumentError, match="axis 1 must have stride 1, has 2"):
        run(image[:, ::2], taps)
    with pytest.raises(ArgumentError, match="shares memory with I"):
        run(image, taps, out=image.ravel()[: 2 * 985 * 10].view(cupy.float32).reshape(10, 985))
    with pytest.raises(ArgumentError, match="I: expected float16, got float32"):
        run(image.astype(cupy.float32), taps)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 100_003])
def test_intermediates_and_scalars(cupy: Any, count: int) -> None:
    x = cupy.random.standard_normal(count).astype(cupy.float32)
    run = kernel(scale_plan())
    for factor in (2.0, -0.5):
        cupy.testing.assert_array_equal(run(x, factor), x * cupy.float32(factor))


def test_half_precision_scalars(cupy: Any) -> None:
    plan = scale_plan(scalar=FLOAT16)
    source = plan.source.replace("float factor", "__half factor").replace(
        "factor * input[i]", "__half2float(factor) * input[i]"
    )
    run = kernel(replace(plan, source="#include <cuda_fp16.h>\n" + source))
    x = cupy.arange(100, dtype=cupy.float32)
    cupy.testing.assert_array_equal(run(x, 0.5), x * 0.5)


def test_the_native_launcher_is_here(cupy: Any) -> None:
    from selector.runtime.cuda import driver

    assert driver().native() is not None, "selector/runtime/_launch is not built"


def test_both_ways_give_the_same(cupy: Any, inputs: tuple[Array, Array]) -> None:
    run = kernel(conv_plan())
    image, taps = map(cupy.asarray, inputs)
    results = [run(image, taps) for _ in range(3)]
    assert run._executable._known is not None
    assert len(run._executable._known.launcher) == 1
    for result in results:
        cupy.testing.assert_array_equal(result, results[0])
    close(results[-1].get(), inputs)


def test_threads_call_one_kernel(cupy: Any) -> None:
    """On one stream, where calls share the intermediate array, and on streams of their own."""
    run = kernel(scale_plan())
    inputs = [cupy.full(100_000, n, cupy.float32) for n in range(4)]
    outs = [cupy.empty(100_000, cupy.float32) for _ in inputs]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in inputs]
    wrong: list[int] = []

    def work(number: int, stream: Any) -> None:
        cupy.cuda.Device(0).use()
        for _ in range(50):
            run(inputs[number], 2.0, out=outs[number], stream=stream)
            stream.synchronize()
            if not (outs[number] == 2 * number).all():
                wrong.append(number)

    for chosen in (streams, streams[:1] * 4):
        cupy.cuda.Device().synchronize()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4), chosen))
    assert wrong == []


def test_large_shared_memory_is_asked_for(cupy: Any) -> None:
    plan = scale_plan()
    wide = tuple(replace(launch, shared_bytes=96 * 1024) for launch in plan.launches)
    x = cupy.ones(100, cupy.float32)
    assert (kernel(replace(plan, launches=wide))(x, 2.0) == 2).all()


IN_VAIN = """
from gpu_kernels import kernel
from test_runtime_on_gpu import WAITS, waits_in_vain
kernel(waits_in_vain(0.2, WAITS[{name!r}]))(sizes=(4,))
"""

# Kernels of two warps: one arrival of two comes to a barrier in shared memory; one warp of two to a
# named barrier, and to the block's own.
WAITS = {
    "arrivals": """
  __shared__ __align__(8) u64 room;
  const u32 barrier = shared_address(&room);
  if (threadIdx.x == 0) { barrier_init(barrier, 2); barrier_arrive(barrier); }
  __syncthreads();
  barrier_wait_within(barrier, 0, LIMIT);
""",
    "named": "  if (threadIdx.x < 32) group_sync_within(1, 64, LIMIT);\n",
    "block": "  if (threadIdx.x < 32) group_sync_within(0, 64, LIMIT);\n",
}


def waits_in_vain(seconds: float, wait: str) -> Plan:
    """A kernel that waits for what never comes."""
    body = f"""extern "C" __global__ void kernel_waits(float* output) {{
  arrivals_reset();
{wait.replace("LIMIT", f"{round(seconds * 1e9)}ull")}  output[threadIdx.x & 3] = 1;
}}
"""
    one = IntImm(1)
    shared = ARRIVALS_BYTES
    launch = Launch("kernel_waits", (one, one, one), 64, shared, (BufferArgument("output"),))
    source, output = preamble(body, {}) + body, buffer("output", 1, FLOAT32, Role.OUTPUT)
    return Plan("waits", "sm_90", source, (output,), (), (), (), (launch,), seconds)


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_in_vain_ends(cupy: Any, name: str) -> None:
    """In a process of its own: the error takes the GPU's context with it."""
    folder = Path(__file__).resolve().parent
    paths = [str(folder), str(folder.parent / "runtime"), str(folder.parents[1])]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    script = IN_VAIN.format(name=name)
    done = subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "InternalError: waits: a launch ended in" in done.stderr
    assert "threads that never came" in done.stderr


def test_empty_arrays(cupy: Any) -> None:
    x, out = cupy.empty(0, cupy.float32), cupy.empty(0, cupy.float32)
    assert kernel(scale_plan())(x, 2.0, out=out).shape == (0,)


def test_bfloat16_comes_back_as_torch_knows_it(torch: Any) -> None:
    source = r"""
extern "C" __global__ void first(const short *input, short *middle, float factor, int n) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) middle[i] = input[i];
}
extern "C" __global__ void second(const short *middle, short *output, int n) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) output[i] = middle[i];
}
"""
    plan = replace(
        scale_plan(BFLOAT16),
        source=source,
        intermediates=(Intermediate("middle", BFLOAT16, Var("output.extent.0")),),
    )
    x = torch.randn(100, dtype=torch.bfloat16)
    for given in (x, x.cuda()):
        result = kernel(plan)(given, 1.0)
        assert result.dtype is torch.bfloat16
        assert (result == given).all()


def test_a_saved_kernel_runs(cupy: Any, tmp_path: Path, inputs: tuple[Array, Array]) -> None:
    kernel(conv_plan()).save(tmp_path / "conv.kernel")
    close(selector.load(tmp_path / "conv.kernel")(*inputs), inputs)


def test_code_for_another_gpu_is_refused(inputs: tuple[Array, Array]) -> None:
    run = kernel(conv_plan())
    other = "sm_80" if run.plan.target.startswith("sm_9") else "sm_90a"
    foreign = Kernel(replace(run._artifact, plan=replace(run.plan, target=other)), Clock(), None)
    with pytest.raises(TargetError, match=f"compiled for {other}; GPU 0 has compute capability"):
        foreign(*inputs)


def test_a_repeated_call_costs_little(cupy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The host's share of a call with device arrays and ``out=``: the aim is 5 us."""
    run = kernel(conv_plan())
    image, taps = cupy.zeros((8, 64), cupy.float16), cupy.zeros(9, cupy.float16)
    out = cupy.empty((8, 56), cupy.float32)
    run(image, taps, out=out)
    times: list[float] = []
    for _ in range(20):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(200):
            run(image, taps, out=out)
        times.append((time.perf_counter() - start) / 200)
    best = 1e6 * min(times)
    with capsys.disabled():
        print(f"\na repeated call: {best:.1f} us")
    assert best < 12
