"""Which GPU a cost is computed for."""

from __future__ import annotations

from selector.diagnostics import TargetError
from selector.machine.gpus import MACHINES
from selector.machine.record import Machine
from selector.targets import Target, find_target, runs_on


def machine_named(name: str) -> Machine | None:
    """The GPU whose name the given one holds, such as CUDA's ``NVIDIA H200``; None for one that is
    not known.
    """
    return next((m for m in MACHINES if m.name in name), None)


def machine_for(target: Target | str, gpu: str = "") -> Machine:
    """The GPU that a target is taken to run on: the one named ``gpu``, else the first of the
    target's, else the first of any that runs the target's code.

    ``TargetError`` for a GPU that is not known or cannot run the target's code, and for a target
    that is no GPU's.
    """
    asked = find_target(target) if isinstance(target, str) else target
    names = ", ".join(m.name for m in MACHINES)
    if gpu:
        found = machine_named(gpu)
        if found is None:
            raise TargetError(f"nothing is known of the GPU {gpu!r}", hint=f"known GPUs: {names}")
        if not runs_on(asked, find_target(found.target).capability):
            raise TargetError(
                f"code for {asked.name} does not run on {found.name}",
                why=f"that is a GPU for {found.target}",
            )
        return found
    able = [m for m in MACHINES if runs_on(asked, find_target(m.target).capability)]
    if not able:
        raise TargetError(f"{asked.name} is no target of a GPU", hint=f"known GPUs: {names}")
    return next((m for m in able if m.target == asked.name), able[0])
