"""Calls what ``build_halide.py`` compiled, on torch's tensors. Needs torch, no Halide."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from plain_jobs import Job

ON_DEVICE = 2  # of halide_buffer_t's flags: the device has the newest elements
CODES = {torch.float16: (2, 16), torch.float32: (2, 32), torch.uint8: (1, 8)}
CODES |= {torch.uint16: (1, 16), torch.int32: (0, 32), torch.int8: (0, 8)}


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Dimension(ctypes.Structure):
    _fields_ = tuple((n, ctypes.c_int32) for n in ("min", "extent", "stride", "flags"))


class Buffer(ctypes.Structure):
    """``halide_buffer_t``."""

    _fields_ = (
        ("device", ctypes.c_uint64),
        ("interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("type", _Type),
        ("dimensions", ctypes.c_int32),
        ("dim", ctypes.POINTER(_Dimension)),
        ("padding", ctypes.c_void_p),
    )


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
            dims = (_Dimension * tensor.dim())(*(_Dimension(0, n, s, 0) for n, s in axes))
            code, bits = CODES[tensor.dtype]
            buffer = Buffer(tensor.data_ptr(), self.interface, None, ON_DEVICE,
                             _Type(code, bits, 1), tensor.dim(), dims, None)  # fmt: skip
            known = self.kept[tensor.data_ptr()] = (buffer, dims)
        known[0].flags = ON_DEVICE
        return ctypes.byref(known[0])
