"""What a user's schedule leaves on CUDA cores, and a tensor unit has instructions for.

Definitions are read as for a schedule of ours (``schedules.recognise``); loops are not looked at.
Only told (``Report.opportunities``): where a Func is computed is its user's decision.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from halide_bridge.schedules.candidates import Sum, candidates, sum_of
from halide_bridge.schedules.recognise.products import Product
from halide_bridge.schedules.recognise.program import read_program
from halide_bridge.schedules.recognise.windows import Window
from halide_bridge.schedules.sizes import guess
from selector.machine import machine_for
from selector.report import Opportunity
from selector.targets import Target


def opportunities(
    outputs: Sequence[Any], target: Target, taken: Set[str], asked: frozenset[str]
) -> tuple[Opportunity, ...]:
    """The sums of a pipeline that families of schedules have tiles for, but for those of the Funcs
    ``taken``, which are in tensor memory. ``asked``: instructions that the user has named."""
    if target.family != "cuda":
        return ()
    program, machine = read_program(list(outputs), asked), machine_for(target)
    known = guess(program, None, "")
    found: list[Opportunity] = []
    for member in program:
        if member.label in taken:
            continue
        total = sum_of(member, program, known, machine)
        if isinstance(total, str) or next(candidates(total, program, known, machine), None) is None:
            continue
        directive = f"hb.store_in({member.label}, hb.MemoryType.WMMAAccumulator)"
        found.append(Opportunity(member.label, _what(total), directive))
    return tuple(found)


def _what(total: Sum) -> str:
    match total:
        case Product():
            return "a matrix product"
        case Window():
            return "windows of an image times taps"
        case _:
            return "a layer"
