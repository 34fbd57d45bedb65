"""CuPy, torch and the CUDA driver without a GPU: what they are asked for is noted."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ARGUMENTS = 40
CONTEXTS = {0: 0x100, 1: 0x200}  # by device
SIZES = {  # bytes of the arguments of each kernel of the plans of ``runtime_plans``
    "conv_kernel": (8, 8, 8, 4, 4, 4, 4, 4),
    "first": (8, 8, 4, 4),
    "second": (8, 8, 4),
    "mapped": (128, 8, 8, 4),
}


def build(folder: Path, source: Path, name: str, *flags: str) -> Path:
    """A shared object."""
    path = folder / name
    command = ["g++" if source.suffix == ".cpp" else "gcc", "-shared", "-fPIC", "-O1", "-Wall"]
    subprocess.run([*command, *flags, str(source), "-o", str(path)], check=True)
    return path


class Kernel(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int), ("sizes", ctypes.c_int * ARGUMENTS))


class Record(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("early", ctypes.c_uint32),
        ("arguments", ctypes.c_uint8 * 128 * ARGUMENTS),
    )


class Array:
    """An array of CuPy, or with ``__cuda_array_interface__`` alone; its memory is the host's."""

    def __init__(self, shape: Any, dtype: Any = np.float32, device: int = 0) -> None:
        self.values = np.zeros(shape, dtype) if isinstance(shape, tuple) else shape
        self.data = SimpleNamespace(
            ptr=self.values.__array_interface__["data"][0], device_id=device
        )
        self.device = SimpleNamespace(id=device)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.values.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.values.__array_interface__, "version": 3}


class Foreign:
    """Neither CuPy's nor torch's."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.values.__array_interface__, "version": 3}


class Tensor:
    """One of torch's on a GPU."""

    def __init__(self, shape: Any, dtype: str = "float32", device: int = 0) -> None:
        self.values = np.zeros(shape, dtype) if isinstance(shape, tuple) else shape
        self.dtype = sys.intern(f"torch.{self.values.dtype.name}")  # one object for each type
        self.device = SimpleNamespace(index=device, type="cuda")
        self.is_cuda = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.values.itemsize for s in self.values.strides)

    def get_device(self) -> int:
        return self.device.index

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.values.__array_interface__, "version": 3}

    def data_ptr(self) -> int:
        return self.values.__array_interface__["data"][0]


class OwnStream:
    """A new stream."""

    ptr = 60

    def __init__(self, non_blocking: bool) -> None:
        assert non_blocking

    def synchronize(self) -> None:
        pass


class Function:
    """An entry point, as CuPy launches it: arguments are addresses and NumPy scalars."""

    def __init__(self, cuda: FakeCuda, kernel: Kernel) -> None:
        self.ptr = ctypes.addressof(kernel)
        self._cuda = cuda

    def __call__(self, grid: Any, block: Any, args: Any, shared_bytes: int, stream: Any) -> None:
        from selector.runtime.early import _Config

        held = [np.uint64(a) if isinstance(a, int) else a for a in args]
        rooms = [ctypes.create_string_buffer(a.tobytes(), a.nbytes) for a in held]
        pointers = (ctypes.c_void_p * len(rooms))(*map(ctypes.addressof, rooms))
        triple = ctypes.c_uint32 * 3
        config = _Config(triple(*grid), triple(*block), shared_bytes, stream.ptr, None, 0)
        launch = self._cuda.library.cuLaunchKernelEx
        status = launch(ctypes.byref(config), ctypes.c_void_p(self.ptr), pointers, None)
        if status:
            raise DriverError(status)


class DriverError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"the driver says {status}")


class CudaRuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"the runtime says {status}")
        self.status = status


class FakeCuda:
    """The driver, and the modules ``cupy`` and ``torch`` over it. ``allocations`` names the library
    of each array that was made.
    """

    def __init__(self, path: Path, sizes: Mapping[str, tuple[int, ...]] = SIZES) -> None:
        self.path, self.sizes = path, sizes
        self.library: Any = ctypes.CDLL(str(path))
        self.kernels = {
            name: Kernel(len(own), (ctypes.c_int * ARGUMENTS)(*own)) for name, own in sizes.items()
        }
        self.allocations: list[str] = []
        self.capture_modes: list[int] = []
        self.current = threading.local()
        self.torch_stream = 0
        self.cupy = self._cupy()
        self.torch = self._torch()
        self.use(0)

    def use(self, device: int) -> None:
        """Make a device current."""
        self.current.device = device
        self.library.fake_set_context(ctypes.c_void_p(CONTEXTS[device]))

    def number(self, name: str) -> Any:
        return ctypes.c_int.in_dll(self.library, name)

    def capture(self, stream: int) -> None:
        """Capture a stream from now on; 0: none."""
        ctypes.c_void_p.in_dll(self.library, "fake_capturing").value = stream
        ctypes.c_uint64.in_dll(self.library, "fake_captures").value += 1

    def taken(self) -> list[tuple[Any, ...]]:
        """The launches since the last time: entry point, grid, block, shared memory, stream,
        context, early, arguments.
        """
        count = self.number("fake_launches").value
        records = (Record * count).in_dll(self.library, "fake_records")
        self.number("fake_launches").value = 0
        names = {ctypes.addressof(kernel): name for name, kernel in self.kernels.items()}
        sizes = self.sizes
        return [
            (
                names[r.kernel], tuple(r.grid), tuple(r.block), r.shared, r.stream or 0, r.context,
                bool(r.early),
                *(bytes(r.arguments[i][:size]) for i, size in enumerate(sizes[names[r.kernel]])),
            )
            for r in records
        ]  # fmt: skip

    def _made(self, library: str, kind: type[Any], *args: Any) -> Any:
        self.allocations.append(library)
        self.capture_modes.append(self.number("fake_mode").value)
        return kind(*args)

    @contextmanager
    def _on_device(self, device: int) -> Iterator[None]:
        old = self.current.device
        self.use(device)
        yield
        self.use(old)

    @contextmanager
    def _on_stream(self, stream: Any) -> Iterator[None]:
        old = self._current_stream().ptr
        self.current.stream = stream.ptr
        yield
        self.current.stream = old

    def _current_stream(self, device: int = -1) -> Any:
        return SimpleNamespace(ptr=getattr(self.current, "stream", 0))

    def _is_capturing(self, stream: int) -> int:
        status = ctypes.c_int()
        failure = self.library.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))
        if failure:
            raise CudaRuntimeError(failure)
        return status.value

    def _device(self, device: int) -> Any:
        """A context manager with attributes."""
        inside: Any = self._on_device(device)
        inside.compute_capability, inside.attributes = "90", {"MultiProcessorCount": 4}
        return inside

    def _module(self) -> Any:
        return SimpleNamespace(
            load=lambda cubin: None, get_function=lambda entry: Function(self, self.kernels[entry])
        )

    def _cupy(self) -> Any:
        fake = self

        class ndarray(Array):  # noqa: N801
            def __init__(self, shape: Any, dtype: Any = np.float32, device: int = 0) -> None:
                fake.allocations.append("cupy")
                super().__init__(shape, dtype, device)

        cuda = SimpleNamespace(
            Device=self._device,
            Stream=type("Stream", (OwnStream,), {"from_external": staticmethod(self._on_stream)}),
            get_current_stream=self._current_stream,
            runtime=SimpleNamespace(
                getDevice=lambda: self.current.device,
                streamIsCapturing=self._is_capturing,
                CUDARuntimeError=CudaRuntimeError,
                pointerGetAttributes=lambda pointer: SimpleNamespace(device=0),
            ),
            driver=SimpleNamespace(
                CUDADriverError=DriverError,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
                funcSetAttribute=lambda function, attribute, value: None,
            ),
            function=SimpleNamespace(Module=self._module),
        )
        return SimpleNamespace(
            ndarray=ndarray, zeros=lambda *given: self._made("cupy zeros", Array, *given), cuda=cuda
        )

    def _torch(self) -> ModuleType:
        torch: Any = ModuleType("torch")
        torch.Tensor = Tensor
        torch.uint8, torch.float16, torch.float32 = "uint8", "float16", "float32"
        torch.device = lambda kind, index: index

        def make(name: str) -> Any:
            return lambda shape, dtype, device: self._made(
                name, Tensor, shape if isinstance(shape, tuple) else (shape,), dtype, device
            )

        torch.empty, torch.zeros = make("torch"), make("torch zeros")
        torch.cuda = SimpleNamespace(
            current_stream=lambda device=None: SimpleNamespace(cuda_stream=self.torch_stream),
            is_initialized=lambda: False,
        )
        torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: self.torch_stream)
        return torch
