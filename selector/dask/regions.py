"""How much of each input a number of outputs needs, by Halide's own bounds: a module's
requirements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selector.ir.interpreter import evaluate_scalar
from selector.ir.module import Module
from selector.ir.nodes import IntImm, Role, Var

Side = tuple[str, int]  # a dimension of an input
_LONGEST_PERIOD = 129  # of outputs or tiles, after which a region has grown evenly
_FAR = 1 << 30  # an extent that no clamp reaches


class Stuck(Exception):  # noqa: N818 (no error: an answer)
    """An output dimension that cannot be cut; the text says why."""


class Uneven(Exception):  # noqa: N818
    """The tile has to be so many times as large."""

    def __init__(self, factor: int) -> None:
        super().__init__(factor)
        self.factor = factor


def region_ends(
    module: Module, inputs: Mapping[Side, int], output: Sequence[int], scalars: Mapping[str, Any]
) -> dict[Side, int]:
    """One past the last element of each input side that Halide's bounds demand for an output.

    ``output``: its extents, innermost first. ``inputs``: extents; a side without one goes on
    forever.
    """
    env: dict[str, int] = dict(scalars)
    made = next(b for b in module.buffers if b.role is Role.OUTPUT)
    for b in module.buffers:
        for k, d in enumerate(b.dims):
            size = output[k] if b is made else inputs.get((b.name, k), _FAR)
            for where in (d.extent, Var(f"{b.name}.extent.{k}")):
                if isinstance(where, Var):
                    env[where.name] = size
    first = {(b.name, k): d.min for b in module.buffers for k, d in enumerate(b.dims)}
    return {
        side: 1 + evaluate_scalar(r.maximum, env) - evaluate_scalar(first[side], env)
        for r in module.requirements
        if (side := (r.buffer, r.dim)) and r.buffer != made.name
    }


def steps_of(module: Module, dim: int, cut: frozenset[str], tile: int) -> dict[Side, int]:
    """How much further the region of each side reaches for each tile more."""
    output = next(b for b in module.buffers if b.role is Role.OUTPUT)
    zeros = {s.name: 0 for s in module.scalars}

    def ends(tiles: int) -> dict[Side, int]:
        extents = [d.extent.value if isinstance(d.extent, IntImm) else 4096 for d in output.dims]
        extents[dim] = tiles * tile
        found = region_ends(module, {}, extents, zeros)
        return {side: end for side, end in found.items() if side[0] in cut}

    for factor in range(1, _LONGEST_PERIOD):
        few, more, many = (ends(n * factor) for n in (64, 65, 128))
        steps = {side: more[side] - few[side] for side in few}
        uneven = [s for s in steps if many[s] - few[s] != 64 * steps[s]]
        if not uneven and factor == 1:
            return {side: step for side, step in steps.items() if step}
        if not uneven:
            raise Uneven(factor)
    raise Stuck("the regions of the inputs that it needs do not grow with it evenly")
