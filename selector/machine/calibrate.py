"""Measure the GPU at hand and print its record: ``python -m selector.machine.calibrate``.

Needs NumPy and CuPy. Medians of several runs; rates of units by clocks, of memory by events. What
cannot be measured (the data sheet's bandwidth) is taken from the record of that name, if there is
one.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from dataclasses import asdict, replace
from statistics import median
from typing import Any

import numpy as np

from selector.machine.choice import machine_named
from selector.machine.device import device_name
from selector.machine.kernels import entry, macs, source
from selector.machine.record import Machine, Rate
from selector.targets import target_for

RUNS = 7
LAUNCHES = 512
COPIED = 1 << 30  # bytes
CACHED = 8 << 20  # bytes, that stay in L2
ALONE = 2 << 20  # bytes, that one multiprocessor reads
CHAIN = 1 << 28  # bytes
CLUSTERS = (2, 3, 4, 5, 6, 7, 8)
CLUSTER_DIMENSION = 4  # CUlaunchAttributeID


class Bench:
    """The kernels, compiled for the current device, and what they say."""

    def __init__(self) -> None:
        import cupy  # pyright: ignore

        self.cupy: Any = cupy
        self.properties: Any = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        capability = int(cupy.cuda.Device().compute_capability)
        self.target = target_for(capability)
        self.wide = self.target.has("wgmma")
        options = ("-std=c++17", f"-arch={self.target.name}")
        code = source(wide=self.wide)
        self.module: Any = cupy.RawModule(code=code, options=options, backend="nvrtc")
        self.multiprocessors = int(self.properties["multiProcessorCount"])
        self.sink: Any = cupy.zeros(16, cupy.uint32)

    def watched(
        self, name: str, blocks: int, threads: int, *arguments: Any, shared: int = 0
    ) -> tuple[float, float]:
        """Clocks and nanoseconds of a kernel's loop, the middle block's, the median of runs."""
        kernel = self.module.get_function(name)
        if shared:
            kernel.max_dynamic_shared_size_bytes = shared
        out = self.cupy.zeros((blocks, 2), self.cupy.int64)
        clocks: list[float] = []
        times: list[float] = []
        for _ in range(RUNS):
            kernel((blocks,), (threads,), (out, *arguments), shared_mem=shared)
            found = np.asarray(out.get())
            clocks.append(float(np.median(found[:, 0])))
            times.append(float(np.median(found[:, 1])))
        return median(clocks), median(times)

    def timed(self, call: Any, count: int) -> float:
        """Microseconds of one of ``count`` calls in a graph."""
        stream = self.cupy.cuda.Stream(non_blocking=True)
        start, stop = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        times: list[float] = []
        with stream:
            call()
            stream.begin_capture()
            for _ in range(count):
                call()
            graph = stream.end_capture()
            for _ in range(RUNS):
                start.record(stream)
                graph.launch(stream)
                stop.record(stream)
                stop.synchronize()
                times.append(self.cupy.cuda.get_elapsed_time(start, stop) * 1e3 / count)
        return median(times)


def rates(b: Bench) -> tuple[dict[Rate, float], float]:
    """Multiply-adds a clock of a multiprocessor by kind, and the megahertz of the heaviest."""
    found: dict[Rate, float] = {}
    megahertz = 0.0
    kinds: tuple[tuple[Rate, int, int], ...] = (
        ("fma.f32", 1, 1024), ("mma.f16", 32, 512), ("mma.f16.f16", 32, 512), ("mma.s8", 32, 512),
    )  # fmt: skip
    wide: tuple[tuple[Rate, int, int], ...] = (("wgmma.s8", 128, 256), ("wgmma.f16", 128, 256))
    for rate, size, threads in (*kinds, *(wide if b.wide else ())):
        turns = 4096
        shared = 41 << 10 if rate in ("wgmma.s8", "wgmma.f16") else 0
        clocks, time = b.watched(
            entry(rate), b.multiprocessors, threads, b.sink, np.int32(turns), shared=shared
        )
        found[rate] = round(macs(rate) * turns * (threads // size) / clocks, 1)
        megahertz = clocks / time * 1e3
    return found, round(megahertz)


def memory(b: Bench) -> dict[str, float]:
    """``copy``, ``l2``, ``fill``, ``shared`` and ``latency`` of the record."""
    cupy = b.cupy
    one, other = cupy.zeros(COPIED // 4, cupy.uint32), cupy.zeros(COPIED // 4, cupy.uint32)

    copied = 2 * COPIED / b.timed(lambda: cupy.copyto(other, one), 8) / 1e6
    turns = np.int32(8)
    read = b.watched(
        "cache_reads", b.multiprocessors, 1024, one, np.int32(CACHED // 16), turns, b.sink
    )
    alone = b.watched("cache_reads", 1, 1024, one, np.int32(ALONE // 16), turns, b.sink)
    shared = b.watched("shared_reads", b.multiprocessors, 1024, b.sink, np.int32(1024))
    order = np.random.default_rng(1).permutation(CHAIN // 128).astype(np.uint32) * 32
    chain = np.zeros(CHAIN // 4, np.uint32)
    chain[order] = np.roll(order, -1)
    steps = 4096
    chased = b.watched("chase", 1, 32, cupy.asarray(chain), np.int32(steps), b.sink)
    return {
        "copy": round(copied, 2),
        "l2": round(CACHED * 8 * b.multiprocessors / read[1] / 1e3, 2),
        "fill": round(ALONE * 8 / alone[0], 1),
        "shared": round(1024 * 1024 * 8 * 16 / shared[0], 1),
        "latency": round(chased[1] / steps),
    }


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: the extents of a cluster."""

    _fields_ = (("id", ctypes.c_uint32), ("pad", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint32),
    )  # fmt: skip


def clusters(b: Bench) -> tuple[tuple[int, int], ...]:
    """Blocks that run at once in clusters, one a multiprocessor (CUDA Driver API:
    ``cuOccupancyMaxActiveClusters``).
    """
    if b.target.capability < 90:
        return ()
    kernel = b.module.get_function("empty")
    shared = b.target.shared_memory
    kernel.max_dynamic_shared_size_bytes = shared
    driver = ctypes.CDLL("libcuda.so.1")
    found: list[tuple[int, int]] = []
    for size in CLUSTERS:
        attribute = _Attribute(CLUSTER_DIMENSION, 0, (ctypes.c_uint32 * 16)(size, 1, 1))
        config = _Config(
            (ctypes.c_uint32 * 3)(size * 1024, 1, 1), (ctypes.c_uint32 * 3)(128, 1, 1), shared,
            None, ctypes.pointer(attribute), 1,
        )  # fmt: skip
        count = ctypes.c_int(0)
        failed = driver.cuOccupancyMaxActiveClusters(
            ctypes.byref(count), ctypes.c_void_p(kernel.kernel.ptr), ctypes.byref(config)
        )
        if not failed and count.value:
            found.append((size, size * count.value))
    return tuple(found)


def measured() -> Machine:
    """The record of the current device."""
    b = Bench()
    known = machine_named(device_name())
    found, megahertz = rates(b)
    level = memory(b)
    _, time = b.watched("barrier", b.multiprocessors, 256, np.int32(4096))
    empty = b.module.get_function("empty")

    def launch() -> None:
        empty((b.multiprocessors,), (256,), ())

    record = Machine(
        known.name if known else device_name(), b.target.name, b.multiprocessors, megahertz, found,
        known.dram if known else level["copy"], level["copy"], int(b.properties["l2CacheSize"]),
        level["l2"], level["fill"], "python -m selector.machine.calibrate",
        measured=frozenset(
            ("megahertz", "rates", "copy", "l2", "fill", "shared", "launch", "latency", "barrier",
             "clusters", "l2_bytes", "multiprocessors")
        ),
    )  # fmt: skip
    return replace(
        record, shared=level["shared"], latency=level["latency"], clusters=clusters(b),
        launch=round(b.timed(launch, LAUNCHES), 2), barrier=round(time / 4096, 1),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="as data")
    options = parser.parse_args()
    found = measured()
    data = asdict(found) | {"measured": sorted(found.measured)}
    print(json.dumps(data, indent=1) if options.json else found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
