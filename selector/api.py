"""What users and other rooms call: ``compile_module`` (as ``selector.compile``), ``load``,
``Kernel``, ``SizedKernel``.

Kernels are made by ``compile_module`` or read back by ``load``; the latter needs NumPy, and CuPy to
run on a GPU.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable

from selector import environment, performance, pipeline
from selector.diagnostics import TargetError
from selector.ir.module import Module
from selector.kernel import CacheEntry, Kernel
from selector.report import Report
from selector.runtime import sized_artifact
from selector.runtime.artifact import Artifact
from selector.runtime.cache import KernelCache, key_of
from selector.runtime.versions import versions
from selector.service.client import Service, as_service
from selector.sized import SizedKernel, read_sized
from selector.targets import Target, find_target, target_for

__all__ = [
    "Kernel",
    "Service",
    "SizedKernel",
    "compile_module",
    "load",
    "load_bytes",
    "resolve_target",
]


def compile_module(
    module: Module,
    target: str = "cuda",
    strict: bool = True,
    cache: bool = True,
    instructions: Iterable[str] | None = None,
    service: str | Service | None = None,
) -> Kernel:
    """Select tensor instructions in a module and emit code for a target.

    ``target``: ``cuda`` (the GPU at hand), or a name of ``selector.targets``. ``strict``: a
    statement that was asked onto a tensor unit and cannot go there is a ``SelectionError``;
    otherwise it is compiled as plain code, with a warning. ``cache``: look in the kernel cache
    first. ``instructions``: only these families (``wmma``, ``mma``) or names; ``tf32`` and ``fp8``
    have to be named, since the one rounds products of single floats, and sums of the other
    have about 14 bits. ``service``: have it done by a compile service, by its address or as a
    ``Service`` (``python -m selector serve``); ``ServiceError`` if it is away.
    """
    only = None if instructions is None else tuple(instructions)
    work = pipeline.Work(module, resolve_target(target), strict, only)
    clock = pipeline.Clock()
    entry = _cache_entry(work) if cache else None
    if entry is not None and (kernel := compiled_before(*entry)) is not None:
        return kernel
    if service is not None:
        return _warned(_compiled_elsewhere(work, clock, entry, service))
    work = pipeline.run(work, clock)
    assert work.plan is not None, "the last stage leaves a plan"
    copies = performance.copies_of(work.plan)
    # The times grow by what is done later.
    report = Report(work.statements, clock.seconds, copies, work.target.name, work.searches)
    artifact = Artifact(work.plan, str(work.module), str(report), report.as_dict(), {}, versions())
    if entry is not None:
        entry[0].put(entry[1], artifact)
    kernel = Kernel(artifact, clock, entry)
    kernel.report = report
    return _warned(kernel)


def compiled_before(cache: KernelCache, key: str) -> Kernel | None:
    """The kernel that a cache has under a key."""
    clock, start = pipeline.Clock(), time.perf_counter()
    found = cache.get(key)
    if found is None:
        return None
    clock.time("cached", start)
    return _warned(Kernel(found, clock, (cache, key)))


def _compiled_elsewhere(
    work: pipeline.Work, clock: pipeline.Clock, entry: CacheEntry | None, service: str | Service
) -> Kernel:
    """The kernel that a service makes of a module; kept in the cache if it is what we would make
    here."""
    start = time.perf_counter()
    found = as_service(service).compile(
        work.module, work.target.name, work.strict, work.instructions
    )
    clock.time("service", start)
    if found.versions == versions() and entry is not None:
        entry[0].put(entry[1], found)
    return Kernel(found, clock, entry if found.versions == versions() else None)


def load(path: str | os.PathLike[str], trust: bool = False) -> Kernel:
    """Read a kernel that ``Kernel.save`` wrote; ``ArtifactError`` if it cannot be read.

    A saved kernel is code. One for a GPU runs there, on the arrays that it is called with. One for
    the CPU runs as this process does, so it is called only with ``trust=True``: that whoever could
    write the file may run programs as you. Without, ``interpret`` gives its results. A kernel with
    programs for several sizes has those that it was saved with.
    """
    return read_sized(sized_artifact.load(path), trust)


def load_bytes(data: bytes, trust: bool = False) -> Kernel:
    """Read what ``Kernel.to_bytes`` gave, as ``load`` does."""
    return read_sized(sized_artifact.from_bytes(data), trust)


def resolve_target(name: str) -> Target:
    """The target of that name; ``cuda`` is the best one for the current GPU."""
    if name != "cuda":
        return find_target(name)
    from selector.runtime.cuda import driver

    try:
        gpu = driver()
    except TargetError as error:
        raise TargetError(
            "target 'cuda' means the GPU at hand, and there is none",
            why=f"{error.what}: {error.why}",
            hint="name a target to compile without a GPU, such as sm_80 or sm_90a",
        ) from error
    return target_for(gpu.capability(gpu.current_device()))


def _cache_entry(work: pipeline.Work) -> CacheEntry | None:
    folder = environment.cache_directory()
    if folder is None or environment.dump_directory() is not None:  # dumping wants the stages run
        return None
    key = key_of(
        {
            "module": str(work.module),
            "target": work.target.name,
            "strict": str(work.strict),
            "instructions": repr(work.instructions),
            "patience": repr(environment.patience()),
            **versions(),
        }
    )
    return KernelCache(folder), key


def _warned(kernel: Kernel) -> Kernel:
    """Warn about statements that were asked onto a tensor unit and stayed plain code."""
    if kernel.report.misses:
        warnings.warn(f"not everything was selected:\n{kernel.report}", stacklevel=3)
    performance.warn(kernel.plan, stacklevel=3)
    return kernel
