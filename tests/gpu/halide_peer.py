"""Calls what ``build_halide.py`` compiled, on torch's tensors. Needs torch, no Halide."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from plain_jobs import Job

from casestudies.common.stock_call import DEVICE_DIRTY, Buffer, Dimension, ElementType

CODES = {
    torch.float16: (2, 16), torch.float32: (2, 32), torch.uint8: (1, 8), torch.uint16: (1, 16),
    torch.int32: (0, 32), torch.int8: (0, 8),
}  # fmt: skip


class PeerError(Exception):
    """A pipeline of Halide's fails by its own account."""


class BrokenError(Exception):
    """A pipeline has done what no call of the process survives."""


class HalidePipeline:
    """A job's, as Anderson2021 schedules it."""

    def __init__(self, path: Path, job: Job) -> None:
        self.library = ctypes.CDLL(str(path))
        self.names = json.loads(path.with_name(f"{job.slug}.json").read_text())
        self.job = job
        self.library.halide_cuda_device_interface.restype = ctypes.c_void_p
        self.library.halide_reuse_device_allocations(None, ctypes.c_bool(True))
        self.interface = self.library.halide_cuda_device_interface()
        self.kept: dict[int, Any] = {}

    def __call__(self, inputs: Mapping[str, Any], outputs: Sequence[Any]) -> None:
        """PeerError where the pipeline fails."""
        self.library.peer_stream(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        numbers = {n: ctypes.c_float(v) for n, v in self.job.numbers.items()}
        given = [numbers.get(n) or self._buffer(inputs[n]) for n in self.names]
        error = self.library.pipeline(*given, *map(self._buffer, outputs))
        if error:
            raise PeerError(f"Halide's pipeline fails: {error}")

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


def check(
    folder: Path,
    job: Job,
    inputs: Mapping[str, Any],
    outputs: Sequence[Any],
    fault: Callable[[], str],
) -> None:
    """Call what was compiled for a job (``.so``) what it is: ``.right`` or ``.wrong``. A schedule
    may be the end of the process (BrokenError): it is wrong until it is known to be right.
    """
    for path in sorted(folder.glob(f"{job.slug}.*.so")):
        own, said = path.rename(path.with_suffix(".wrong")), ""
        try:
            HalidePipeline(own, job)(inputs, outputs)
            torch.cuda.synchronize()
            said = fault()
        except PeerError as error:
            said = str(error)
        except RuntimeError as error:
            raise BrokenError(path.name) from error
        if said:
            print(f"  {path.name}: {said}", flush=True)
        else:
            own.rename(path.with_suffix(".right"))


def fastest(
    folder: Path, job: Job, inputs: Mapping[str, Any], outputs: Sequence[Any]
) -> HalidePipeline | None:
    """Of all right schedules the one whose call takes the least time."""
    best, least = None, 0.0
    for path in sorted(folder.glob(f"{job.slug}.*.right")):
        pipeline, times = HalidePipeline(path, job), list[float]()
        for _ in range(6):
            begin = time.perf_counter()
            pipeline(inputs, outputs)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
            if sum(times) > 0.5:
                break
        if best is None or min(times) < least:
            best, least = pipeline, min(times)
    return best
