"""Lanes of a warp that exchange vectors before they store them: right in the simulator, which
notices a vector that lies elsewhere than it is read. (Its lanes go in step: that they wait for each
other is not seen there.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import halide as hl
import numpy as np
import pytest
from changed import places, replaced

import halide_bridge as hb
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.expressions import behind, number
from selector.gpu.ir.memory import StoreVector
from selector.gpu.ir.nodes import Kernel, Memory, walk
from selector.runtime.plan import Plan
from selector.simulate import simulate
from selector.targets import find_target

KINDS = {"uint8": hl.UInt(8), "uint16": hl.UInt(16), "float32": hl.Float(32)}
CHANNELS = 3


def turned(kind: str) -> tuple[tuple[Kernel, ...], Plan]:
    """Pixels whose elements stand in the other order."""
    a = hl.ImageParam(KINDS[kind], 3, "a")
    out, (c, x, y) = hl.Func("out"), (hl.Var("c"), hl.Var("x"), hl.Var("y"))
    out[c, x, y] = a[CHANNELS - 1 - c, x, y]
    out.bound(c, 0, CHANNELS)
    sizes = dict.fromkeys(("a", "out"), (2160, 3840, CHANNELS))
    kernel: Any = hb.compile(out, target="sm_90a", schedule="auto", sizes=sizes)
    return emit_kernels(kernel.module, find_target("sm_90a"))


def right(kernels: tuple[Kernel, ...], plan: Plan, kind: str, width: int) -> bool:
    data = np.random.default_rng(3).integers(0, 255, (8, width, CHANNELS)).astype(kind)
    found = simulate(kernels, plan, {"a": data}, data.shape)
    (values,) = found.outputs.values()
    return not found.faults and bool((values == data[..., ::-1]).all())


@pytest.mark.parametrize("kind", KINDS)
def test_whole_blocks_exchange(kind: str) -> None:
    kernels, plan = turned(kind)
    (kernel,) = kernels
    (room,) = [node for node in walk(kernel.body) if isinstance(node, Memory)]
    lanes = 16 // np.dtype(kind).itemsize
    assert room.bytes == 32 * lanes * CHANNELS * np.dtype(kind).itemsize
    for width in (32 * lanes, 48 * lanes, 32 * lanes - 5):
        assert right(kernels, plan, kind, width)


def test_mistakes_are_noticed() -> None:
    kernels, plan = turned("uint8")
    (kernel,) = kernels
    wrong: list[Kernel] = []
    for path, node in places(kernel.body, ()):
        if isinstance(node, StoreVector) and "exchanged" in repr(node.to):
            further = (replace(node, to=behind(node.to, number(16))),)
            wrong += [replace(kernel, body=replaced(kernel.body, path, by)) for by in ((), further)]
    assert len(wrong) == 2 * CHANNELS
    assert not any(right((k,), plan, "uint8", 512) for k in wrong)
