"""Runs a compiled program without a GPU, kernel by kernel as the kernel IR has it: what
``Kernel.interpret`` does with the selected program, with all that was decided after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import TargetError
from selector.gpu.ir.memory import Map
from selector.gpu.ir.nodes import Kernel, walk
from selector.gpu.ir.tensor import TensorAlloc
from selector.gpu.simulator.data.launch import Launched, run_launch
from selector.gpu.simulator.data.values import Pointer, Space
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
from selector.runtime.tensor_map import TensorMap

MULTIPROCESSORS = 3  # of the GPU that is thought of: blocks that stay get several tiles each
GRAIN = 16  # bytes: of the arrays' begins, and of what a flag of alignment promises


@dataclass(frozen=True, slots=True)
class Simulated:
    """The outputs by name, in NumPy (bfloat16 as its bits), what is wrong, each once, and the ids
    of the nodes that some thread came to.
    """

    outputs: Mapping[str, Any]
    faults: tuple[str, ...]
    reached: frozenset[int]


def simulate(
    kernels: Sequence[Kernel],
    plan: Plan,
    inputs: Mapping[str, Any],
    sizes: Any = None,
    *,
    flags: bool = True,
    maps: bool = True,
) -> Simulated:
    """Run the ``kernels`` of a plan on arrays. ``flags``: False for a call whose arrays begin
    anywhere, so that there are no tensor maps of them. ``maps``: False where no driver makes any.
    ``TargetError`` for kernels with accumulators in tensor memory.
    """
    for kernel in kernels:
        if any(isinstance(node, TensorAlloc) for node in walk(kernel.body)):
            raise TargetError(
                f"`{kernel.name}` cannot be simulated with its numbers",
                "what is in tensor memory is not followed",
                "ask Kernel.interpret(...), or compile for sm_90a",
            )
    return _Call(plan, inputs, sizes, flags, maps).run(kernels)


class _Call:
    """The arrays of a call in memory, and the sizes that follow."""

    def __init__(
        self, plan: Plan, inputs: Mapping[str, Any], sizes: Any, flags: bool, maps: bool
    ) -> None:
        self.plan, self.maps = plan, maps
        values = arguments.match_names(plan, (), inputs)
        self.memory: dict[str, Pointer] = {}
        self.known: dict[str, Size] = {}
        for b in arguments.inputs_of(plan):
            array = host.to_host(b.name, values[b.name])
            arguments.check_array(b, view(b.name, array))
            self.known[b.name] = arguments.size_of(b, view(b.name, array))
            self.memory[b.name] = _placed(b, array, apart=not flags)
        self.scalars = {s.name: arguments.check_scalar(s, values[s.name]) for s in plan.scalars}
        numbers = arguments.numbers(plan, self.scalars)
        self.known |= output_sizes(plan, self.known, numbers, sizes)
        self.env: Environment = environment(plan, self.known, numbers)
        check_requirements(plan, self.env)
        for b in arguments.outputs_of(plan):
            count = int(np.prod(self.known[b.name].extents))
            self.memory[b.name] = _room(b.name, count, numpy_dtype(b.type), apart=not flags)
        for i in plan.intermediates:
            count = max(evaluate_scalar(i.elements, self.env), 1)
            self.memory[i.name] = _room(i.name, count, numpy_dtype(i.type), zeros=True)

    def run(self, kernels: Sequence[Kernel]) -> Simulated:
        faults: dict[str, None] = {}
        reached: set[int] = set()
        for kernel, launch in zip(kernels, self.plan.launches, strict=True):
            x, y, z = (evaluate_scalar(e, self.env) for e in launch.grid)
            if min(x, y, z) > 0:
                grid = grid_of((x, y, z), launch, lambda: MULTIPROCESSORS)
                found, come = run_launch(self.launched(kernel, launch, grid))
                reached |= come
                faults |= dict.fromkeys(f"{kernel.name}: {fault}" for fault in found)
        outputs = {b.name: self.result(b, faults) for b in arguments.outputs_of(self.plan)}
        return Simulated(outputs, tuple(faults), frozenset(reached))

    def result(self, b: BufferParam, faults: dict[str, None]) -> Any:
        to, extents = self.memory[b.name], self.known[b.name].extents
        room = slice(int(to.byte), int(to.byte) + int(np.prod(extents)) * to.element.itemsize)
        marks = to.space.unwritten
        assert marks is not None
        if marks[room].any():
            faults.setdefault(f"some of `{b.name}` is not written")
        return to.space.data[room].view(to.element).reshape(extents[::-1])

    # ------------------------------------------------------------------ launches

    def launched(self, kernel: Kernel, launch: Launch, grid: tuple[int, int, int]) -> Launched:
        """A kernel with the arguments of its launch, in the order of its parameters."""
        declared = {m.name: m for m in walk(kernel.declarations) if isinstance(m, Map)}
        values: dict[str, Any] = {}
        maps: dict[str, Any] = {}
        for p, a in zip(kernel.parameters, launch.arguments, strict=True):
            name = p.name
            match a:
                case BufferArgument(of):
                    values[name] = self.memory[of]
                case ValueArgument(Var(of), _) if of in self.scalars:
                    values[name] = np.asarray(self.scalars[of])[()]
                case ValueArgument(e, t):
                    values[name] = numpy_dtype(t).type(evaluate_scalar(e, self.env))
                case MapsReady(wanted):
                    values[name] = np.int32(self.ready(launch, wanted))
                case MapArgument(of):
                    extents = tuple(evaluate_scalar(e, self.env) for e in a.extents)
                    strides = tuple(evaluate_scalar(e, self.env) for e in a.strides)
                    assert name in declared
                    maps[name] = self.memory[of], extents, strides
        return Launched(kernel, grid, launch.shared_bytes, values, maps)

    def ready(self, launch: Launch, names: Sequence[str]) -> bool:
        """Whether a device has all maps of these arrays."""
        maps = (a for a in launch.arguments if isinstance(a, MapArgument))
        return self.maps and all(self.possible(a) for a in maps if not names or a.name in names)

    def possible(self, a: MapArgument) -> bool:
        shape = TensorMap(
            a.type,
            tuple(evaluate_scalar(e, self.env) for e in a.extents),
            tuple(evaluate_scalar(e, self.env) * a.type.bytes for e in a.strides),
            a.box,
            any(b.name == a.name for b in arguments.outputs_of(self.plan)),
            steps=a.steps,
        )
        return shape.possible(int(self.memory[a.name].byte))


def _placed(b: BufferParam, array: Any, *, apart: bool) -> Pointer:
    """A copy of an array with the same strides."""
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    to = _room(b.name, reach // array.itemsize + 1, numpy_dtype(b.type), apart=apart, zeros=True)
    if array.size:
        room = to.space.data[int(to.byte) :]
        np.ndarray(array.shape, array.dtype, room, strides=array.strides)[...] = array
    return to


def _room(
    name: str, count: int, element: np.dtype[Any], *, apart: bool = False, zeros: bool = False
) -> Pointer:
    """For so many elements, which begin at a multiple of ``GRAIN`` bytes, or ``apart`` from one;
    what nobody wrote, or ``zeros``.
    """
    start = element.itemsize if apart and element.itemsize < GRAIN else 0
    size = -(-max(start + count * element.itemsize, 1) // GRAIN) * GRAIN
    marks = None if zeros else np.full(size, 0xFF, np.uint8)
    space = Space(name, np.zeros(size, np.uint8), marks, size)
    return Pointer(space, element, np.int64(start))
