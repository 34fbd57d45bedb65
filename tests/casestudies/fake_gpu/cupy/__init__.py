"""NumPy under CuPy's name, for tests of the way that measurements go: "kernels" run on the CPU when
they are called, events read the clock, graphs call again what was called between begin and end.

Not for kernels of ours: their launches need CUDA.
"""

import time
import types

import numpy
from numpy import *  # noqa: F403
from numpy import asarray, linalg  # noqa: F401

__version__ = "0.0 (fake)"
random = types.SimpleNamespace(
    Generator=numpy.random.Generator,
    XORWOW=numpy.random.PCG64,
    default_rng=numpy.random.default_rng,
)


def asnumpy(array):
    return array


def get_default_memory_pool():
    return types.SimpleNamespace(free_all_blocks=lambda: None)


class CUDARuntimeError(RuntimeError):
    """What a lost context raises."""


class Device:
    id = 0
    lost = False
    mem_info = (1 << 24, 1 << 25)

    @property
    def attributes(self):
        return {
            "L2CacheSize": 1 << 16,
            "MaxSharedMemoryPerBlockOptin": 1 << 16,
            "MultiProcessorCount": 2,
        }

    def synchronize(self):
        if Device.lost:
            raise CUDARuntimeError("cudaErrorIllegalAddress")


class RawKernel:
    """One that does nothing."""

    def __init__(self, code, name):
        pass

    def __call__(self, grid, block, args, *, shared_mem=0):
        pass


class Stream:
    ptr = 1

    def __init__(self, non_blocking=False):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def synchronize(self):
        Device().synchronize()

    def begin_capture(self):
        raise CUDARuntimeError("nothing is captured here")

    def is_capturing(self):
        return False


class Event:
    def record(self, stream):
        self.seconds = time.perf_counter()

    def synchronize(self):
        pass


cuda = types.SimpleNamespace(
    Device=Device,
    Stream=Stream,
    Event=Event,
    get_elapsed_time=lambda begin, end: (end.seconds - begin.seconds) * 1e3,
    runtime=types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceProperties=lambda device: {"name": b"NVIDIA H200 (fake)"},
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
        deviceSynchronize=lambda: Device().synchronize(),
        getDeviceCount=lambda: 1,
    ),
)
