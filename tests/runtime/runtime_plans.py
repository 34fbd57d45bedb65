"""Hand-written plans and a device that records, for tests of the runtime without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from selector.diagnostics import InternalError
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    BufferParam,
    Dim,
    Expr,
    IntImm,
    Role,
    ScalarParam,
    Var,
)
from selector.ir.remarks import Requirement
from selector.ir.types import FLOAT16, FLOAT32, INT32, Type
from selector.runtime.arrays import Library
from selector.runtime.driver import Grid, Making, StreamKey
from selector.runtime.plan import (
    BufferArgument,
    Intermediate,
    Launch,
    Plan,
    ValueArgument,
)
from selector.runtime.tensor_map import TensorMap

Array = np.ndarray[Any, Any]
CONV_SOURCE = r"""
#include <cuda_fp16.h>
extern "C" __global__ void conv_kernel(const __half *I, const __half *K, float *output, int width,
                                       int height, int taps, int I_stride, int output_stride) {
    int x = blockIdx.x * 64 + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    float sum = 0;
    for (int r = 0; r < taps; r++)
        sum += __half2float(I[y * I_stride + x + r]) * __half2float(K[r]);
    output[y * output_stride + x] = sum;
}
"""


def add(a: Expr, b: Expr | int) -> Expr:
    return Binary(BinaryOp.ADD, a, b if not isinstance(b, int) else IntImm(b))


def ceil_div(a: Expr, b: int) -> Expr:
    return Binary(BinaryOp.DIV, add(a, b - 1), IntImm(b))


def buffer(
    name: str, rank: int, element: Type = FLOAT16, role: Role = Role.INPUT, **fixed: int
) -> BufferParam:
    """A buffer with symbolic extents; ``e0=64`` fixes the extent of dimension 0."""
    dims = tuple(
        Dim(
            IntImm(0),
            IntImm(fixed[f"e{d}"]) if f"e{d}" in fixed else Var(f"{name}.extent.{d}"),
            IntImm(1) if d == 0 else Var(f"{name}.stride.{d}"),
        )
        for d in range(rank)
    )
    return BufferParam(name, element, dims, role)


def zero_to(buffer: str, dim: int, maximum: Expr) -> Requirement:
    return Requirement(buffer, dim, IntImm(0), maximum)


def conv_plan(target: str = "sm_90a") -> Plan:
    """output(x, y) = sum over r of I(x + r, y) K(r), with any number of taps, in plain CUDA."""
    width, height = Var("output.extent.0"), Var("output.extent.1")
    taps = Var("K.extent.0")
    values = (width, height, taps, Var("I.stride.1"), Var("output.stride.1"))
    return Plan(
        "conv",
        target,
        CONV_SOURCE,
        (buffer("I", 2), buffer("K", 1), buffer("output", 2, FLOAT32, Role.OUTPUT)),
        (),
        (
            zero_to("I", 0, add(add(width, taps), -2)),
            zero_to("I", 1, add(height, -1)),
            zero_to("K", 0, add(taps, -1)),
        ),
        (),
        (
            Launch(
                "conv_kernel",
                (ceil_div(width, 64), height, IntImm(1)),
                64,
                0,
                (
                    *(BufferArgument(n) for n in ("I", "K", "output")),
                    *(ValueArgument(v, INT32) for v in values),
                ),
            ),
        ),
    )


def conv(image: Array, taps: Array) -> Array:
    """What ``conv_plan`` computes, over the valid region."""
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.float32), len(taps), axis=1)
    return windows @ taps.astype(np.float32)


def scale_plan(element: Type = FLOAT32, scalar: Type = FLOAT32, target: str = "sm_90a") -> Plan:
    """output = factor * input by way of an intermediate buffer, in two launches."""
    width = Var("output.extent.0")
    grid = (ceil_div(width, 32), IntImm(1), IntImm(1))
    source = r"""
extern "C" __global__ void first(const float *input, float *middle, float factor, int n) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) middle[i] = factor * input[i];
}
extern "C" __global__ void second(const float *middle, float *output, int n) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) output[i] = middle[i];
}
"""
    return Plan(
        "scale",
        target,
        source,
        (buffer("input", 1, element), buffer("output", 1, element, Role.OUTPUT)),
        (ScalarParam("factor", scalar),),
        (zero_to("input", 0, add(width, -1)),),
        (Intermediate("middle", element, width),),
        (
            Launch(
                "first",
                grid,
                32,
                0,
                (
                    BufferArgument("input"),
                    BufferArgument("middle"),
                    ValueArgument(Var("factor", scalar), scalar),
                    ValueArgument(width, INT32),
                ),
            ),
            Launch(
                "second",
                grid,
                32,
                0,
                (BufferArgument("middle"), BufferArgument("output"), ValueArgument(width, INT32)),
            ),
        ),
    )


class DeviceArray:
    """An array that says it is on a GPU; its memory is the host's."""

    def __init__(self, values: np.ndarray[Any, Any], device: int = 0) -> None:
        self.values = values
        self.index = device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.values.__array_interface__, "version": 3}

    @property
    def device(self) -> Any:
        return type("Device", (), {"id": self.index})


class Recorder:
    """A ``Driver`` that notes launches instead of running them.

    ``effects``: by entry point, what a launch does to the arrays at the addresses it was given.
    """

    def __init__(self, capability: int = 90) -> None:
        self.launches: list[tuple[str, Grid, Grid, tuple[Any, ...], int, Any]] = []
        self.allocations = 0
        self.loads = 0
        self.shared: dict[str, int] = {}
        self.effects: dict[str, Callable[..., None]] = {}
        self.memory: dict[int, np.ndarray[Any, Any]] = {}
        self.captured: set[Any] = set()
        self.held: list[tuple[Any, object]] = []
        self.maps: list[tuple[TensorMap, int]] = []
        self.early_launches: list[str] = []
        self.recording: list[tuple[Any, ...]] | None = None
        self.ends_in = ""
        self._capability = capability

    def capability(self, device: int) -> int:
        return self._capability

    def multiprocessors(self, device: int) -> int:
        return 4

    def current_device(self) -> int:
        return 0

    def signature(self, value: Any) -> Hashable:
        if not isinstance(value, DeviceArray):
            return None
        v = value.values
        return (v.shape, v.strides, v.dtype, v.flags.writeable, value.index)

    def pointer(self, value: Any) -> int:
        address = value.values.__array_interface__["data"][0]
        self.memory[address] = value.values
        return address

    def stream(self, given: Any, arrays: Sequence[Any]) -> Any:
        return 0 if given is None else given

    def stream_key(self, stream: Any) -> StreamKey:
        return (stream, 0)

    def capturing(self, stream: Any) -> bool:
        return stream in self.captured

    def relaxed(self) -> AbstractContextManager[None]:
        return nullcontext()

    def hold(self, stream: Any, owner: object) -> None:
        self.held.append((stream, owner))

    def active(self, device: int, stream: Any) -> AbstractContextManager[Any]:
        return nullcontext()

    def allocation(
        self, shape: tuple[int, ...], dtype: str, library: Library, device: int
    ) -> Making:
        return self.empty, (shape, dtype), {}

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        self.allocations += 1
        return DeviceArray(np.empty(shape, dtype))

    def zeros(self, size: int, library: Library, device: int) -> Any:
        self.allocations += 1
        return DeviceArray(np.zeros(size, np.uint8))

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        return DeviceArray(array.copy())

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        return value.values.copy()

    def apart(self, device: int, work: Any) -> Any:
        return work("apart")

    def capture_key(self, stream: Any) -> Hashable:
        return stream

    def capture(self, device: int, record: Any) -> Any:
        """The launches of ``record`` are noted when they are replayed."""
        noted, self.recording = self.recording, []
        try:
            record("capture")
            launches = self.recording
        finally:
            self.recording = noted

        def replay(stream: Any) -> None:
            for function, grid, block, args, shared, _ in launches:
                function(grid, block, args, shared, stream)

        return type("Recorded", (), {"launch": staticmethod(replay)})

    def tensor_map(self, shape: TensorMap, address: int) -> Any | None:
        """What a map would be made of; None where none can be made."""
        self.maps.append((shape, address))
        return ("map", shape, address) if shape.possible(address) else None

    def native(self) -> None:
        return None

    def failed(self, status: int) -> Exception:
        return InternalError(f"status {status}")

    def failure(self, stream: Any) -> str:
        return self.ends_in

    def load(self, cubin: bytes) -> Any:
        self.loads += 1
        return cubin

    def function(self, module: Any, entry: str, shared_bytes: int) -> Any:
        self.shared[entry] = shared_bytes

        def launch(grid: Grid, block: Grid, args: Sequence[Any], shared: int, stream: Any) -> None:
            if self.recording is not None:
                self.recording.append((launch, grid, block, args, shared, stream))
                return
            self.launches.append((entry, grid, block, tuple(args), shared, stream))
            if entry in self.effects:
                self.effects[entry](self.memory, *args)

        return launch

    def early(self, function: Any) -> Any:
        def launch(*launched: Any) -> None:
            function(*launched)
            if self.recording is not None:
                self.recording[-1] = (launch, *launched)
            else:
                self.early_launches.append(self.launches[-1][0])

        return launch
