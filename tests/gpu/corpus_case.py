"""What a case of the GPU corpus is, and the arrays it runs on.

A case is one scheduled Halide pipeline with the output sizes to run it at. Inputs are random and
follow from the sizes: an input is as large as the algorithm needs, unless the case says more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import halide as hl
import numpy as np

from selector.ir.interpreter import evaluate_scalar
from selector.ir.module import Module
from selector.ir.nodes import BufferParam, IntImm, Role

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class Case:
    """A pipeline of the corpus.

    ``build`` returns its fresh output (or outputs), scheduled. ``sizes`` are output extents in
    Halide's order (dimension 0 first), the same for all outputs. ``shapes`` maps such a size to
    the extents of inputs that the sizes do not fix, ``values`` names the range of an integer input.
    ``tensor``: tensor instructions are expected. ``only`` restricts the instructions. ``target``:
    the one target that has them. ``warned``: most of its time goes into a copy, and compiling it
    says so.
    """

    name: str
    build: Callable[[], Any]
    sizes: tuple[Shape, ...]
    tensor: bool = False
    only: tuple[str, ...] | None = None
    shapes: Callable[[Shape], Shapes] | None = None
    scalars: Mapping[str, float] = field(default_factory=lambda: dict[str, float]())
    values: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: dict[str, tuple[float, float]]()
    )
    tolerance: float = 1e-6
    target: str | None = None
    warned: bool = False


def variables(names: str) -> list[hl.Var]:
    return [hl.Var(n) for n in names.split()]


def cases(*groups: Iterable[Case]) -> dict[str, Case]:
    """All cases by name."""
    found = [c for group in groups for c in group]
    table = {c.name: c for c in found}
    assert len(table) == len(found), "names of cases are unique"
    return table


_DTYPES: dict[str, type[np.generic]] = {
    "float16": np.float16, "float32": np.float32, "float64": np.float64, "bfloat16": np.uint16,
    "int8": np.int8, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16,
    "int32": np.int32, "uint32": np.uint32, "int64": np.int64, "uint64": np.uint64,
}  # fmt: skip


def input_shapes(case: Case, module: Module, size: Shape) -> dict[str, Shape]:
    """Extents of every input in Halide's order."""
    given = dict(case.shapes(size)) if case.shapes else {}
    env: dict[str, Any] = dict(case.scalars)
    for b in module.buffers:
        known = size if b.role is Role.OUTPUT else given.get(b.name, ())
        for d, dim in enumerate(b.dims):
            if isinstance(dim.extent, IntImm):
                env[f"{b.name}.extent.{d}"] = dim.extent.value
            elif d < len(known):
                env[f"{b.name}.extent.{d}"] = known[d]
    found: dict[str, Shape] = {}
    for b in module.buffers:
        if b.role is Role.INPUT:
            found[b.name] = given.get(b.name) or tuple(
                _extent(module, b, d, env) for d in range(len(b.dims))
            )
    return found


def _extent(module: Module, b: BufferParam, d: int, env: Mapping[str, Any]) -> int:
    fixed = b.dims[d].extent
    if isinstance(fixed, IntImm):
        return fixed.value
    needs = [r.maximum for r in module.requirements if r.buffer == b.name and r.dim == d]
    return max((evaluate_scalar(e, env) + 1 for e in needs), default=1)


def output_shapes(module: Module, size: Shape) -> dict[str, Shape]:
    """NumPy shapes of the outputs."""
    return {
        b.name: tuple(reversed(size[: len(b.dims)]))
        for b in module.buffers
        if b.role is Role.OUTPUT
    }


def random_inputs(
    case: Case, module: Module, size: Shape, seed: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Random arrays, in NumPy's order of axes; bfloat16 as its bits."""
    rng = np.random.default_rng(seed)
    shapes = input_shapes(case, module, size)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for b in module.buffers:
        if b.role is not Role.INPUT:
            continue
        shape, dtype = tuple(reversed(shapes[b.name])), _DTYPES[str(b.type)]
        if not b.type.is_float:
            low, high = case.values.get(b.name) or (-100, 100)
            low = max(low, np.iinfo(dtype).min)
            arrays[b.name] = rng.integers(int(low), int(high), shape, endpoint=True).astype(dtype)
            continue
        low, high = case.values.get(b.name) or (-2, 2)
        values = rng.uniform(low, high, shape).astype(np.float32)
        if str(b.type) == "bfloat16":
            arrays[b.name] = (values.view(np.uint32) >> 16).astype(np.uint16)
        else:
            arrays[b.name] = values.astype(dtype)
    return arrays
