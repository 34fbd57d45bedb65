"""A plain pipeline whose emitted text, in the emulation, computes what Halide does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulation
import halide as hl
import numpy as np
from plain_pipelines import Plain
from test_plain_pipelines import by_halide, close

import halide_bridge as hb


def emulated(
    make: Callable[[], Plain], *, sizes: Any = None, tolerance: float | None = None
) -> tuple[hb.Schedule, Any]:
    """The schedule, which says the same as text, and the kernel. ``sizes``: that it is told."""
    case, again = make(), make()
    schedule = hb.autoschedule(case.outputs, target="sm_90a", sizes=sizes)
    kernel = hb.compile(case.outputs, target="sm_90a", cache=False)
    exec(schedule.source, {"hb": hb, "hl": hl, "output": again.outputs})
    assert hb.compile(again.outputs, target="sm_90a").source == kernel.source
    arrays: dict[str, Any] = {p.name(): value for p, value in case.arguments}
    found = emulation.check(kernel, sizes=case.sizes, **arrays)
    (wanted,) = by_halide(make())
    within = case.tolerance if tolerance is None else tolerance
    assert close(np.asarray(found), wanted, within), f"{schedule.report}\n{schedule.source}"
    return schedule, kernel
