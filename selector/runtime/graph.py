"""A call that is replayed: its launches as one CUDA graph, on the arrays that it was made with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selector.runtime.driver import Driver, Recorded


class LaunchGraph:
    """What ``Kernel.graph`` returns. Replays read what then is in the inputs, write ``output``
    (an array, or a dict by name if there are several), and keep scalars as they were.

    All arrays and the intermediate ones, which no other call uses, stay referenced. The graph has
    to be kept until its last replay is complete. Replays of one graph do not overlap, on whichever
    streams they are.
    """

    def __init__(
        self,
        driver: Driver,
        device: int,
        recorded: Recorded,
        output: Any,
        arrays: Sequence[Any],
        owners: object,
    ) -> None:
        self.output = output
        self._driver = driver
        self._device = device
        self._recorded = recorded
        self._arrays = arrays
        self._owners = owners

    def launch(self, stream: Any = None) -> Any:
        """Replay on a stream (CuPy's, torch's, or a handle; default: the current one); the output,
        which is complete when the stream has come so far.
        """
        on = self._driver.stream(stream, self._arrays)
        with self._driver.active(self._device, on):
            self._recorded.launch(on)
        return self.output

    def __call__(self, stream: Any = None) -> Any:
        """The same as ``launch``."""
        return self.launch(stream)
