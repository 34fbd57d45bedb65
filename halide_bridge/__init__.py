"""Stock Halide pipelines in, ``selector.ir`` modules and kernels out.

hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
module = hb.lower(output, target="sm_90a")
kernel = hb.compile(output, target="sm_90a")
best = hb.tune(schedule, {"n": (128, 256)}, arguments).best
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from halide_bridge.apply import apply
from halide_bridge.compile import compile  # noqa: A004 - the public name
from halide_bridge.float8 import e4m3, e5m2
from halide_bridge.groups import Taps, grouped
from halide_bridge.instead import (
    as_product,
    clone,
    counted_from_zero,
    divided_last,
    from_zero,
    in_parts,
    joined,
    multiplied_last,
    narrow_factors,
    narrowed,
    operand,
    phased,
    separated,
    subtracted_last,
    sums_apart,
    together,
)
from halide_bridge.lowering import Options, lower
from halide_bridge.memory import (
    MemoryType,
    cluster,
    in_line,
    interleaved,
    online,
    persistent,
    pipeline_stages,
    resident_blocks,
    self_fed,
    store_in,
    teams,
)
from halide_bridge.precision import split_product
from halide_bridge.terms import around, counted_down, expanded
from halide_bridge.tuning import tune
from selector.runtime.classes import SizeClass

if TYPE_CHECKING:
    from halide_bridge.adjoints import adjoint
    from halide_bridge.schedules.auto import autoschedule
    from halide_bridge.schedules.recorder import funcs
    from halide_bridge.schedules.trials import Schedule

__all__ = [
    "MemoryType",
    "Options",
    "Schedule",
    "SizeClass",
    "Taps",
    "adjoint",
    "apply",
    "around",
    "as_product",
    "autoschedule",
    "clone",
    "cluster",
    "compile",
    "counted_down",
    "counted_from_zero",
    "divided_last",
    "e4m3",
    "e5m2",
    "expanded",
    "from_zero",
    "funcs",
    "grouped",
    "in_line",
    "in_parts",
    "interleaved",
    "joined",
    "lower",
    "multiplied_last",
    "narrow_factors",
    "narrowed",
    "online",
    "operand",
    "persistent",
    "phased",
    "pipeline_stages",
    "resident_blocks",
    "self_fed",
    "separated",
    "split_product",
    "store_in",
    "subtracted_last",
    "sums_apart",
    "teams",
    "together",
    "tune",
]
_LATER = {
    "Schedule": "schedules.trials",
    "adjoint": "adjoints",
    "autoschedule": "schedules.auto",
    "funcs": "schedules.recorder",
}


def __getattr__(name: str) -> Any:
    """What reads pipelines to schedule them, imported when first used: half of all modules."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
