"""Calls what ``build_halide.py`` compiled, on torch's tensors. Needs torch, no Halide."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from plain_jobs import Job

from casestudies.common.stock_call import DEVICE_DIRTY, Buffer, Dimension, ElementType

CODES = {
    torch.float16: (2, 16), torch.float32: (2, 32), torch.uint8: (1, 8), torch.uint16: (1, 16),
    torch.int32: (0, 32), torch.int8: (0, 8),
}  # fmt: skip


class HalidePipeline:
    """A job's, as Anderson2021 schedules it."""

    def __init__(self, path: Path, job: Job) -> None:
        self.library = ctypes.CDLL(str(path))
        self.names = json.loads(path.with_suffix(".json").read_text())
        self.job = job
        self.library.halide_cuda_device_interface.restype = ctypes.c_void_p
        self.interface = self.library.halide_cuda_device_interface()
        self.kept: dict[int, Any] = {}

    def __call__(self, inputs: Mapping[str, Any], outputs: Sequence[Any]) -> None:
        """RuntimeError where the pipeline fails."""
        self.library.peer_stream(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        numbers = {n: ctypes.c_float(v) for n, v in self.job.numbers.items()}
        given = [numbers.get(n) or self._buffer(inputs[n]) for n in self.names]
        error = self.library.pipeline(*given, *map(self._buffer, outputs))
        if error:
            raise RuntimeError(f"Halide's pipeline fails: {error}")

    def _buffer(self, tensor: Any) -> Any:
        """Halide's view of a tensor, whose last dimension is the first one there."""
        known = self.kept.get(tensor.data_ptr())
        if known is None:
            axes = zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True)
            dims = (Dimension * tensor.dim())(*(Dimension(0, n, s, 0) for n, s in axes))
            code, bits = CODES[tensor.dtype]
            buffer = Buffer(tensor.data_ptr(), self.interface, None, DEVICE_DIRTY,
                             ElementType(code, bits, 1), tensor.dim(), dims, None)  # fmt: skip
            known = self.kept[tensor.data_ptr()] = (buffer, dims)
        known[0].flags = DEVICE_DIRTY
        return ctypes.byref(known[0])
