"""What happens to a kernel on the GPU: it runs once on poisoned outputs, its results are compared,
and it is timed. Needs NumPy and CuPy; in a worker process, like ``tuning.building``.

Inputs and outputs rotate through more memory than the L2 cache holds, so that no call finds its
inputs there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError, UserError
from selector.ir.types import Kind
from selector.runtime import host
from selector.runtime.arrays import is_array, is_torch
from selector.tuning.executor import SpoiledWorkerError
from selector.tuning.results import Measurement
from selector.tuning.timing import rotation, time_calls

if TYPE_CHECKING:
    from selector.api import Kernel

Arrays = dict[str, Any]
HOPELESS = 1e30  # an error that JSON can hold
_POISON = 0x55  # of integers, and of bfloat16 as its bits
_TOLERANCE = {"f2": 5e-3, "f4": 2e-3, "f8": 2e-3}  # of floats by their size; integers are exact


@dataclass(frozen=True, slots=True)
class Bench:
    """What kernels are called with and compared to; as arrays, or as functions that make them where
    the GPU is.

    ``arguments``: arrays and scalars by parameter. ``reference``: the results to expect, an array,
    arrays by output, or a function that computes them from the arguments; None compares nothing.
    ``tolerance`` bounds the relative Frobenius error; None: 2e-3, 5e-3 for 16-bit floats, exact for
    integers. ``sizes`` are a call's: the shape of outputs that nothing else fixes.
    """

    arguments: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    reference: Any = None
    tolerance: float | None = None
    sizes: Any = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What times depend on besides the kernel: the GPU, its driver and the arguments.

    ``target`` is the best one for that GPU, ``capability`` 90 for 9.0.
    """

    device: str
    driver: str
    target: str
    arguments: str
    capability: int = 0


@dataclass(frozen=True, slots=True)
class Timed:
    """A measurement, and the results on the host if they were asked for."""

    measurement: Measurement
    outputs: Arrays | None = None


@dataclass(frozen=True, slots=True)
class _Ready:
    """A bench with its arrays on the GPU."""

    bench: Bench
    arguments: Arrays
    reference: Any


_ready: list[_Ready] = []  # the one of this process


def facts(bench: Bench) -> Facts:
    """The GPU at hand and the arguments; ``TargetError`` without a GPU."""
    from selector.runtime.cuda import driver
    from selector.targets import target_for

    gpu = driver()
    import cupy  # pyright: ignore

    capability = gpu.capability(gpu.current_device())
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    version = str(cupy.cuda.runtime.driverGetVersion())
    arguments = signature(_on_gpu(bench).arguments, bench.sizes)
    target = target_for(capability).name
    return Facts(properties["name"].decode(), version, target, arguments, capability)


def signature(arguments: Mapping[str, Any], sizes: Any = None) -> str:
    """Shapes and types of arrays and the values of scalars, as a short hash."""
    known = {
        name: [list(value.shape), str(value.dtype)] if is_array(value) else repr(value)
        for name, value in arguments.items()
    }
    return hashlib.sha256(json.dumps([known, repr(sizes)]).encode()).hexdigest()[:16]


def time_kernel(bench: Bench, kernel: bytes, keep: bool = False) -> Timed:
    """Check and time a saved kernel; ``keep`` returns its results.

    ``UserError`` for arguments that do not fit; whatever else goes wrong on a GPU costs the
    process.
    """
    from selector.api import load_bytes

    try:
        return _time(_on_gpu(bench), load_bytes(kernel, trust=True), keep)
    except UserError:
        _await_gpu()
        raise
    except Exception as error:
        raise SpoiledWorkerError from error


def _await_gpu() -> None:
    """Let what was launched end: should it have gone astray, the next kernel is not to blame."""
    import cupy  # pyright: ignore

    try:
        cupy.cuda.Device().synchronize()
    except Exception as error:
        raise SpoiledWorkerError from error


def interpreted(bench: Bench, kernel: bytes) -> Arrays:
    """The results of a saved kernel's selected program under the reference semantics, in NumPy."""
    from selector.api import load_bytes

    loaded = load_bytes(kernel)
    arguments = {name: on_host(name, value) for name, value in made(bench.arguments).items()}
    return _by_name(loaded, loaded.interpret(**arguments, sizes=bench.sizes))


def made(arguments: Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The arguments themselves; ``ArgumentError`` where a function returns no mapping."""
    found: Any = arguments() if callable(arguments) else arguments
    if not isinstance(found, Mapping):
        raise ArgumentError(
            f"the arguments to tune with are {type(found).__name__}",
            hint="give arrays by name: {'I': image, 'K': taps}",
        )
    return found


def on_host(name: str, value: Any) -> Any:
    """An array as NumPy's, bfloat16 as its bits; anything else as it is."""
    return host.to_host(name, value) if is_array(value) else value


def _on_gpu(bench: Bench) -> _Ready:
    import cupy  # pyright: ignore

    if not _ready or _ready[0].bench is not bench:
        _ready.clear()
        arguments = {
            name: cupy.asarray(_readable(name, value)) if is_array(value) else value
            for name, value in made(bench.arguments).items()
        }
        reference = bench.reference
        if callable(reference):
            reference = reference(arguments)
        _ready.append(_Ready(bench, arguments, reference))
    return _ready[0]


def _readable(name: str, array: Any) -> Any:
    """torch's tensors by way of the host: CuPy reads no bfloat16."""
    return on_host(name, array) if is_torch(array) else array


def _time(ready: _Ready, kernel: Kernel, keep: bool) -> Timed:
    import cupy  # pyright: ignore

    sizes = ready.bench.sizes
    outputs = _by_name(kernel, kernel(**ready.arguments, sizes=sizes))
    for array in outputs.values():
        array.fill(cupy.nan if array.dtype.kind == "f" else _POISON)
    kernel(**ready.arguments, out=outputs)
    cupy.cuda.Device().synchronize()
    error, tolerance = compare(kernel, outputs, ready.reference, ready.bench.tolerance, cupy)
    kept = {name: on_host(name, a) for name, a in outputs.items()} if keep else None
    if error is not None and not error <= tolerance:
        return Timed(Measurement(0, 0, 0, 0, 0, error=error, tolerance=tolerance), kept)
    calls = _calls(ready, kernel, outputs, cupy)
    cupy.cuda.Device().synchronize()
    timing = time_calls(calls)
    return Timed(
        Measurement(
            timing.median, timing.low, timing.high, timing.calls, timing.repeats, timing.method,
            error, tolerance,
        ),
        kept,
    )  # fmt: skip


def _calls(ready: _Ready, kernel: Kernel, outputs: Arrays, cupy: Any) -> list[Any]:
    """Calls on as many sets of arrays as exceed the L2 cache."""
    arrays = [a for a in (*ready.arguments.values(), *outputs.values()) if is_array(a)]
    cache = cupy.cuda.Device().attributes["L2CacheSize"]
    sets = [(ready.arguments, outputs)]
    for _ in range(rotation(sum(a.nbytes for a in arrays), cache) - 1):
        arguments = {n: a.copy() if is_array(a) else a for n, a in ready.arguments.items()}
        sets.append((arguments, {n: a.copy() for n, a in outputs.items()}))
    return [_call(kernel, arguments, out) for arguments, out in sets]


def _call(kernel: Kernel, arguments: Arrays, out: Arrays) -> Callable[[], object]:
    return lambda: kernel(**arguments, out=out)


def compare(
    kernel: Kernel, outputs: Arrays, reference: Any, tolerance: float | None, xp: Any
) -> tuple[float | None, float]:
    """The largest relative Frobenius error of the outputs, and the tolerance of that output; None
    without a reference. ``HOPELESS`` if anything is NaN or infinite.

    ``ArgumentError`` for a reference that does not have the outputs' shapes.
    """
    if reference is None:
        return None, 0.0
    expected = reference if isinstance(reference, Mapping) else _by_name(kernel, reference)
    types = {b.name: b.type for b in kernel.plan.buffers}
    found: list[tuple[float, float]] = []
    for name, array in outputs.items():
        if name not in expected:
            raise ArgumentError(f"the reference has no {name}", hint="give every output by name")
        wide = [_wide(a, types[name].kind is Kind.BFLOAT, xp) for a in (array, expected[name])]
        if wide[0].shape != wide[1].shape:
            raise ArgumentError(
                f"{name} has shape {wide[0].shape}, and the reference {wide[1].shape}",
                hint="axes follow NumPy: the last one is Halide's dimension 0",
            )
        error = _error(wide[0], wide[1], xp)
        limit = _limit(array.dtype, types[name].kind is Kind.BFLOAT, tolerance)
        found.append((error, limit))
    return max(found, key=lambda f: f[0] - f[1])


def _limit(dtype: Any, is_bfloat: bool, tolerance: float | None) -> float:
    if tolerance is not None:
        return tolerance
    return 5e-3 if is_bfloat else _TOLERANCE.get(np.dtype(dtype).str[1:], 0.0)


def _wide(array: Any, is_bfloat: bool, xp: Any) -> Any:
    array = xp.asarray(_readable("reference", array))
    if is_bfloat and array.dtype == xp.uint16:
        array = (array.astype(xp.uint32) << 16).view(xp.float32)
    return array.astype(xp.float64)


def _error(result: Any, expected: Any, xp: Any) -> float:
    norm = float(xp.linalg.norm(expected.ravel()))
    error = float(xp.linalg.norm((result - expected).ravel())) / max(norm, 1e-300)
    return error if error < HOPELESS else HOPELESS  # NaN is not less


def _by_name(kernel: Kernel, outputs: Any) -> Arrays:
    """The outputs of a call as a dict."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    from selector.runtime.arguments import outputs_of

    (only,) = outputs_of(kernel.plan)
    return {only.name: outputs}
