"""Kernels of the hand-written plans of ``tests/runtime``, for the GPU at hand."""

from __future__ import annotations

from dataclasses import replace

from runtime_plans import scale_plan

from selector.api import Kernel
from selector.pipeline import Clock
from selector.runtime.artifact import Artifact
from selector.runtime.plan import Plan
from selector.targets import target_for

SPIN = "for (long long until = clock64() + 100000; clock64() < until;) {}"


def kernel(plan: Plan) -> Kernel:
    """A kernel for the GPU at hand."""
    from selector.runtime.cuda import driver

    gpu = driver()
    plan = replace(plan, target=target_for(gpu.capability(gpu.current_device())).name)
    return Kernel(Artifact(plan, "", "", {"statements": [], "seconds": {}}), Clock(), None)


def early_plan() -> Plan:
    """``scale_plan`` with a second launch that comes up while the first one runs: the first writes
    late, the second waits late.
    """
    plan = scale_plan()
    first, second = plan.launches
    write, store = "    if (i < n) middle", "    if (i < n) output"
    start = f'    asm volatile("griddepcontrol.launch_dependents;");\n    {SPIN}\n'
    wait = f'    {SPIN}\n    asm volatile("griddepcontrol.wait;" ::: "memory");\n'
    source = plan.source.replace(write, start + write).replace(store, wait + store)
    return replace(plan, source=source, launches=(first, replace(second, early=True)))
