"""The layer by its family of schedules (``halide_bridge.schedules.layers``)."""

from __future__ import annotations

from typing import Any

import halide as hl

import halide_bridge as hb
from casestudies.conv_layer.algorithm import Layer
from halide_bridge.schedules.layers import Layers, schedule_layer
from selector.families.layers import Tiling


def by_family(p: Layer, tiling: Tiling) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    taps: tuple[Any, ...] = (p.r.y, p.r.z)
    if p.stride > 1 and tiling.taps == 1:  # the pixels of a tap lie apart
        staged = hb.operand(p.conv, 0, [p.r.x, p.x, p.y, p.n, *taps])
    else:
        staged = p.image.in_(p.conv)
    funcs = Layers(
        p.output, (p.c, p.x, p.y, p.n), p.conv, staged, p.weights, p.r.x, taps, 0, 0, (1, 0), 0
    )  # fmt: skip
    return schedule_layer(funcs, tiling)
