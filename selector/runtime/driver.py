"""What the executor needs of a device: implemented by ``runtime.cuda``, and by a recorder in
tests.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from selector.runtime.arrays import Library
from selector.runtime.tensor_map import TensorMap

Grid = tuple[int, int, int]


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
        """The stream to launch on: the one given, else the current one of the arrays' library."""
        ...

    def stream_key(self, stream: Any) -> Hashable: ...

    def capturing(self, stream: Any) -> bool:
        """Whether launches are being recorded instead of executed."""
        ...

    def active(self, device: int, stream: Any) -> AbstractContextManager[Any]:
        """Makes ``device`` current, and allocations belong to ``stream``."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: str, library: Library, device: int) -> Any:
        """A contiguous array, torch's or CuPy's, on the current device. Inside ``active``."""
        ...

    def zeros(self, size: int, device: int) -> Any:
        """That many bytes of zeros on the current device. Inside ``active``."""
        ...

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """A device array with the values of a host array. Inside ``active``."""
        ...

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        """A host array with the values of a device array, which are complete. Inside ``active``."""
        ...

    def capture(
        self, device: int, before: Callable[[Any], None], record: Callable[[Any], None]
    ) -> Recorded:
        """What ``record(stream)`` launches, to be replayed; ``before(stream)`` is executed, and
        complete, when this returns.
        """
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
