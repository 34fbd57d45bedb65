"""What the executor needs of a device: implemented by ``runtime.cuda``, and by a recorder in
tests.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from selector.runtime.arrays import Library
from selector.runtime.tensor_map import TensorMap

if TYPE_CHECKING:
    from selector.runtime import _launch

Grid = tuple[int, int, int]
T = TypeVar("T")
StreamKey = tuple[int, int]  # a handle, and a thread where each has another stream of it
Making = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Function(Protocol):
    """A kernel's entry point on a device; ``shared_bytes`` is dynamic shared memory."""

    def __call__(
        self, grid: Grid, block: Grid, args: Sequence[Any], shared_bytes: int, stream: Any
    ) -> None: ...


class Recorded(Protocol):
    """Launches that were recorded."""

    def launch(self, stream: Any) -> object: ...


class Driver(Protocol):
    """A kind of device. Arrays are opaque here but for ``runtime.arrays.view``.

    ``stream`` arguments are what ``Driver.stream`` returned.
    """

    def capability(self, device: int) -> int:
        """Compute capability, such as 90."""
        ...

    def multiprocessors(self, device: int) -> int:
        """How many there are."""
        ...

    def current_device(self) -> int: ...

    def signature(self, value: Any) -> Hashable:
        """What a prepared launch depends on: library, shape, strides, dtype and device, but not the
        address. None for what does not lie on a device.
        """
        ...

    def pointer(self, value: Any) -> int: ...

    def stream(self, given: Any, arrays: Sequence[Any]) -> Any:
        """The stream to launch on: the one given, else the current one of the arrays' library on
        their device.
        """
        ...

    def stream_key(self, stream: Any) -> StreamKey: ...

    def capturing(self, stream: Any) -> bool:
        """Whether launches are being recorded instead of executed. ``ArgumentError`` for a default
        stream while another one records.
        """
        ...

    def relaxed(self) -> AbstractContextManager[None]:
        """While this thread records a stream: allocating and loading code are allowed inside."""
        ...

    def capture_key(self, stream: Any) -> Hashable:
        """What is being recorded from ``stream``, and the stream: what has the same follows each
        other in the graph.
        """
        ...

    def hold(self, stream: Any, owner: object) -> None:
        """Keep ``owner`` as long as the graph that is being recorded from ``stream``."""
        ...

    def active(self, device: int, stream: Any) -> AbstractContextManager[Any]:
        """Makes ``device`` current, and allocations belong to ``stream``."""
        ...

    def allocation(
        self, shape: tuple[int, ...], dtype: str, library: Library, device: int
    ) -> Making:
        """A callable and its arguments, which give a contiguous array, torch's or CuPy's, on the
        current device. Inside ``active``.
        """
        ...

    def zeros(self, size: int, library: Library, device: int) -> Any:
        """That many bytes of zeros on the current device, from torch's memory or CuPy's. Inside
        ``active``.
        """
        ...

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """A device array with the values of a host array. Inside ``active``."""
        ...

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        """A host array with the values of a device array, which are complete. Inside ``active``."""
        ...

    def apart(self, device: int, work: Callable[[Any], T]) -> T:
        """The result of ``work(stream)``, on a stream of its own that is current, when all of its
        launches are complete.
        """
        ...

    def capture(self, device: int, record: Callable[[Any], None]) -> Recorded:
        """What ``record(stream)`` launches, to be replayed."""
        ...

    def native(self) -> _launch.Libraries | None:
        """How the native module reads arrays of this device; None where it cannot be used."""
        ...

    def failed(self, status: int) -> Exception:
        """The exception for what a function of the device's driver returned."""
        ...

    def failure(self, stream: Any) -> str:
        """What the device says went wrong, once all launches on a stream are complete; empty if
        nothing.
        """
        ...

    def load(self, cubin: bytes) -> Any:
        """A cubin as a module on the current device. Inside ``active``."""
        ...

    def function(self, module: Any, entry: str, shared_bytes: int) -> Function:
        """An entry point of a loaded module, allowed that much dynamic shared memory."""
        ...

    def early(self, function: Function) -> Function:
        """The same entry point, launched while what precedes it on the stream may still run; the
        function itself where that cannot be.
        """
        ...

    def tensor_map(self, shape: TensorMap, address: int) -> Any | None:
        """A kernel argument by which the copy engine reads the array at ``address``; None if it
        cannot.
        """
        ...
