"""Running a kernel's launches on the CPU, and the two questions that tests ask: what comes out
(``run``), and whether that depends on anything that it must not depend on (``check``).
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from emulation import build
from emulation.memory import SHARED_GRAIN, Guarded
from emulation.problems import Fault, Unsupported
from selector.ir.interpreter import evaluate_scalar
from selector.ir.nodes import BufferParam, Var
from selector.runtime import arguments, host
from selector.runtime.arrays import numpy_dtype, view
from selector.runtime.plan import (
    BufferArgument,
    Launch,
    MapArgument,
    MapsReady,
    Plan,
    ValueArgument,
)
from selector.runtime.prepare import grid_of, output_sizes
from selector.runtime.sizes import Environment, Size, check_requirements, environment
from selector.runtime.tensor_map import BYTES as MAP_BYTES
from selector.runtime.tensor_map import TensorMap

MULTIPROCESSORS = 3  # of the emulated GPU: blocks that stay get several tiles each
POISONS = (0xFF, 0x5A)  # NaN of every float, and -1; numbers, so that no NaN is taken for another
ORDERS = (2, 3)  # each warp is once the first to go on, whether its lanes meet or not

_MAP_MARK = 0x7E4507
_CELL_GRAIN = 64  # bytes: of a tensor map


class _Launch(ctypes.Structure):
    _fields_ = [
        ("body", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("cluster", ctypes.c_uint),
        ("order", ctypes.c_int),
        ("poison", ctypes.c_int),
        ("report", ctypes.c_int),
    ]


@dataclass(frozen=True, slots=True)
class _Call:
    """A launch with its grid and its arguments, each in memory of its own."""

    launch: Launch
    grid: tuple[int, int, int]
    cells: tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A kernel's launches on guarded arrays."""

    plan: Plan
    memory: dict[str, Guarded]
    known: Mapping[str, Size]
    calls: tuple[_Call, ...]


def run(
    kernel: Any,
    *,
    sizes: Any = None,
    order: int = 0,
    poison: int = POISONS[0],
    maps_ready: bool = True,
    timeout: float = 120,
    source: str | None = None,
    **inputs: Any,
) -> Any:
    """The output of a kernel, or a dict of outputs by name, as ``kernel.interpret`` gives them, in
    NumPy (bfloat16 as its bits).

    ``order``: 1 for threads from the last to the first, plus 2 for one thread of each block, whose
    turn it would be first, that runs only when no other can. ``poison``: the byte of all memory
    that nobody wrote. ``maps_ready``: False for a call without tensor maps; else there are those
    that a device has. ``timeout``: seconds. ``source``: another text than the kernel's own for its
    plan.

    ``Fault`` for an error that was seen, ``Unsupported`` for what cannot be emulated.
    """
    library = build.build(kernel.source if source is None else source)
    prepared = _prepare(kernel.plan, inputs, sizes, poison, maps_ready)
    said = _in_child(lambda report: _execute(library, prepared, order, poison, report), timeout)
    if said:
        raise Fault(_explained(said, prepared))
    for memory in prepared.memory.values():
        stray = memory.stray()
        if stray is not None:
            where = f"byte {stray} of the {memory.size} of {memory.name}"
            raise Fault(f"written beside an array: {where}")
    made = {b.name: _result(prepared, b) for b in arguments.outputs_of(kernel.plan)}
    return next(iter(made.values())) if len(made) == 1 else made


def check(kernel: Any, *, sizes: Any = None, **options: Any) -> Any:
    """The output of a kernel (see ``run``), which is the same, bit for bit, whatever lay in memory
    that nobody wrote and in whatever order threads run; ``Fault`` names the first element that is
    not.
    """
    first = run(kernel, sizes=sizes, poison=POISONS[0], order=ORDERS[0], **options)
    second = run(kernel, sizes=sizes, poison=POISONS[1], order=ORDERS[1], **options)
    pairs = first.items() if isinstance(first, dict) else [("the output", first)]
    for name, one in pairs:
        other = second[name] if isinstance(second, dict) else second
        _compare(name, one, other)
    return first


def _compare(name: str, one: np.ndarray, other: np.ndarray) -> None:
    a, b = (np.ascontiguousarray(x).view(f"u{x.itemsize}") for x in (one, other))
    same = a == b
    if one.dtype.kind == "f":
        same |= np.isnan(one) & np.isnan(other)
    if not same.all():
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        raise Fault(
            f"{name}{list(at)} is {one[at]} or {other[at]}: it depends on memory that nobody "
            f"wrote, or on the order of threads ({int((~same).sum())} of {same.size} elements do)"
        )


def _prepare(
    plan: Plan, inputs: Mapping[str, Any], sizes: Any, poison: int, maps_ready: bool
) -> _Prepared:
    """Arrays with guards, and the launches on them. The checks of a call on a device hold."""
    values = arguments.match_names(plan, (), inputs)
    memory: dict[str, Guarded] = {}
    known: dict[str, Size] = {}
    for b in arguments.inputs_of(plan):
        given = values[b.name]
        array = given if isinstance(given, np.ndarray) else host.to_host(b.name, given)
        arguments.check_array(b, view(b.name, array))
        memory[b.name], array = _placed(b.name, array, poison)
        known[b.name] = arguments.size_of(b, view(b.name, array))
    scalars = {s.name: arguments.check_scalar(s, values[s.name]) for s in plan.scalars}
    numbers = arguments.numbers(plan, scalars)
    known |= output_sizes(plan, known, numbers, sizes)
    env = environment(plan, known, numbers)
    check_requirements(plan, env)
    for b in arguments.outputs_of(plan):
        count = int(np.prod(known[b.name].extents))
        memory[b.name] = Guarded(b.name, count * b.type.bytes, poison)
    for i in plan.intermediates:  # allocated as zeros
        count = max(evaluate_scalar(i.elements, env), 1)
        memory[i.name] = Guarded(i.name, count * i.type.bytes, poison, 0)
    outputs = {b.name for b in arguments.outputs_of(plan)}
    calls: list[_Call] = []
    for launch in plan.launches:
        x, y, z = (evaluate_scalar(e, env) for e in launch.grid)
        if min(x, y, z) > 0:
            grid = grid_of((x, y, z), launch, lambda: MULTIPROCESSORS)
            found = _cells(launch, env, scalars, memory, outputs, maps_ready)
            cells = tuple(_aligned(cell) for cell in found)
            calls.append(_Call(launch, grid, cells))
    return _Prepared(plan, memory, known, tuple(calls))


def _placed(name: str, array: np.ndarray, poison: int) -> tuple[Guarded, np.ndarray]:
    """A copy of an array with the same strides in guarded memory, poison between its rows."""
    if array.size == 0:
        return Guarded(name, 0, poison), array
    if min(array.strides, default=0) < 0:
        raise Unsupported(f"{name}: negative strides")
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    memory = Guarded(name, reach + array.itemsize, poison)
    room = memory.data[: reach + array.itemsize]
    there = np.ndarray(array.shape, array.dtype, room, strides=array.strides)
    there[...] = array
    return memory, there


def _cells(
    launch: Launch,
    env: Environment,
    scalars: Mapping[str, Any],
    memory: Mapping[str, Guarded],
    stored: Collection[str],
    ready: bool,
) -> Iterator[np.ndarray]:
    """The arguments of a launch, in order."""
    maps = {
        a: _tensor_map(a, env, memory[a.name], a.name in stored) if ready else None
        for a in launch.arguments
        if isinstance(a, MapArgument)
    }
    for a in launch.arguments:
        match a:
            case BufferArgument(name):
                yield np.array([memory[name].address], np.uint64)
            case ValueArgument(Var(name, _), _) if name in scalars:
                yield np.asarray(scalars[name])
            case ValueArgument():
                yield np.asarray(numpy_dtype(a.type).type(evaluate_scalar(a.value, env)))
            case MapsReady(names):
                found = [m for a, m in maps.items() if not names or a.name in names]
                yield np.array([all(m is not None for m in found)], np.int32)
            case MapArgument():
                made = maps[a]
                yield np.zeros(MAP_BYTES, np.uint8) if made is None else made


def _tensor_map(
    argument: MapArgument, env: Environment, memory: Guarded, stored: bool
) -> np.ndarray | None:
    """128 bytes as the shim's copy engine reads them; None where a device has no map either."""
    size = argument.type.bytes
    shape = TensorMap(
        argument.type,
        tuple(evaluate_scalar(e, env) for e in argument.extents),
        tuple(evaluate_scalar(e, env) * size for e in argument.strides),
        argument.box,
        stored,
        argument.rounds,
        argument.steps,
    )
    if not shape.possible(memory.address):
        return None
    rank, row = len(shape.box), shape.box[0] * size
    swizzle = row if row in (32, 64, 128) else 0
    words = (rank, shape.rounds, size, swizzle, _MAP_MARK, memory.address)
    told = (shape.extents, shape.strides, shape.box, shape.apart)
    extents, strides, box, steps = ((*x, *[0] * (5 - len(x))) for x in told)
    data = struct.pack("<2H3IQ5Q4Q5H5B", *words, *extents, *strides[:4], *box, *steps)
    return np.frombuffer(data.ljust(MAP_BYTES, b"\0"), np.uint8)


def _aligned(cell: np.ndarray) -> np.ndarray:
    """A copy where any type of argument may lie: the text's code relies on its alignment."""
    room = np.zeros(cell.nbytes + _CELL_GRAIN, np.uint8)
    start = -room.ctypes.data % _CELL_GRAIN
    made = room[start : start + cell.nbytes]
    made[:] = np.frombuffer(cell.tobytes(), np.uint8)
    return made


def _execute(library: Path, prepared: _Prepared, order: int, poison: int, report: int) -> None:
    """Run all launches; in the child."""
    shim = ctypes.CDLL(str(build.runtime()), mode=ctypes.RTLD_GLOBAL)
    code = ctypes.CDLL(str(library))
    for call in prepared.calls:
        launch = call.launch
        rooms = [
            Guarded("shared memory", launch.shared_bytes, poison, grain=SHARED_GRAIN)
            for _ in range(launch.cluster)
        ]
        shared = (ctypes.c_void_p * launch.cluster)(*(r.address for r in rooms))
        pointers = (ctypes.c_void_p * max(len(call.cells), 1))(*(c.ctypes.data for c in call.cells))
        body = ctypes.cast(getattr(code, f"launch_{launch.entry}"), ctypes.c_void_p)
        wanted = _Launch(
            body.value,
            ctypes.cast(pointers, ctypes.c_void_p).value,
            (ctypes.c_uint * 3)(*call.grid),
            launch.threads,
            launch.shared_bytes,
            launch.cluster,
            order,
            poison,
            report,
        )
        shim.emulate(ctypes.byref(wanted), shared)


def _in_child(work: Callable[[int], None], timeout: float) -> str:
    """What a child process said that did some work; it may crash."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(write)
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode()[:2000])
        os._exit(0)
    os.close(write)
    said, end, late = b"", time.monotonic() + timeout, False
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([read], [], [], left)[0]:
            os.kill(child, signal.SIGKILL)
            late = True
            break
        piece = os.read(read, 4096)
        if not piece:
            break
        said += piece
    os.close(read)
    _, status = os.waitpid(child, 0)
    if late:
        return f"not done in {timeout:g} s"
    if not said and status:
        return f"the emulation ended with status {status}"
    return said.decode(errors="replace")


def _explained(said: str, prepared: _Prepared) -> str:
    """A failure, addresses in words."""

    def place(found: re.Match[str]) -> str:
        address = int(found[0], 16)
        words = (m.where(address) for m in prepared.memory.values())
        return next(filter(None, words), found[0])

    return re.sub(r"0x[0-9a-f]+", place, said)


def _result(prepared: _Prepared, b: BufferParam) -> np.ndarray:
    shape = prepared.known[b.name].extents[::-1]
    return prepared.memory[b.name].data.view(numpy_dtype(b.type)).reshape(shape).copy()
