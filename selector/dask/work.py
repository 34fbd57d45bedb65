"""What a worker does: it reads a kernel from its saved bytes once, and runs it on a block.

A ``Parcel`` is what travels: the bytes of a saved kernel, which hold no code but the kernel's own
and are checked by their hashes. Processes and clusters of Dask pickle it as those bytes.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from selector.api import Kernel, load_bytes
from selector.dataclass import dataclass

KERNELS_AT_MOST = 16
_loaded: OrderedDict[tuple[str, bool], tuple[Kernel, threading.Lock]] = OrderedDict()
_loading = threading.Lock()


@dataclass(frozen=True, slots=True)
class Parcel:
    """A saved kernel: its bytes, their SHA-256, and whether it may run code on the CPU."""

    data: bytes
    sha256: str
    trust: bool

    @staticmethod
    def of(kernel: Kernel, machine_code: bool) -> Parcel:
        data = kernel.to_bytes(machine_code)
        return Parcel(data, hashlib.sha256(data).hexdigest(), kernel.trusted)

    def kernel(self) -> tuple[Kernel, threading.Lock]:
        """The kernel, read once in this process, and who may launch it."""
        key = self.sha256, self.trust
        with _loading:
            found = _loaded.get(key)
            if found is None:
                found = load_bytes(self.data, self.trust), threading.Lock()
                _loaded[key] = found
                while len(_loaded) > KERNELS_AT_MOST:
                    _loaded.popitem(last=False)
            _loaded.move_to_end(key)
            return found


@dataclass(frozen=True, slots=True)
class Job:
    """One block: the output's shape to compute, and the part of it to keep; the names of the arrays
    that it is given, and the numbers.
    """

    shape: tuple[int, ...]
    keep: tuple[slice, ...]
    interpret: bool
    names: tuple[str, ...]
    scalars: Mapping[str, Any]


def run_block(parcel: Parcel, job: Job, *arrays: Any) -> Any:
    """The kept part of the output on these inputs, an array of its own."""
    kernel, turn = parcel.kernel()
    given = {**dict(zip(job.names, arrays, strict=True)), **job.scalars}
    if job.interpret:
        result = kernel.interpret(sizes=job.shape, **given)
    else:
        with turn:  # intermediate arrays belong to a stream, which threads of a process share
            result = kernel(sizes=job.shape, **given)
    kept = result[job.keep]
    whole = kept.shape == result.shape
    return kept if whole else kept.copy()


def join(parts: Any) -> Any:
    """Nested lists of neighbouring pieces as one array, where they are."""
    from dask.array.core import concatenate3

    return concatenate3(parts)


def piece(array: Any, where: tuple[slice, ...]) -> Any:
    """A part of a chunk, an array of its own: what is sent, and not more."""
    part = array[where]
    return np.ascontiguousarray(part) if isinstance(part, np.ndarray) else part.copy()
