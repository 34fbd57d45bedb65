"""Factors of products that are computed in the update, as Funcs of their own: what the schedule of
a tensor unit stages is a Func.
"""

from __future__ import annotations

from halide_bridge.memory import operand
from halide_bridge.schedules.candidates import sum_of
from halide_bridge.schedules.recognise.products import computed_factors
from halide_bridge.schedules.recognise.program import Member, Program
from halide_bridge.schedules.sizes import Guess
from selector.machine import Machine


def set_apart(program: Program, known: Guess, machine: Machine) -> str:
    """Make Funcs of factors that keep sums from a tensor unit by being more than elements. Python
    that does so to ``output``; empty where there are none.
    """
    lines = [
        line
        for member in program
        if not member.fixed and isinstance(sum_of(member, program, known, machine), str)
        for line in _apart(member, program)
    ]
    return "\n".join(("f = hb.funcs(output)", *lines, "")) if lines else ""


def _apart(member: Member, program: Program) -> list[str]:
    lines = []
    for factor, order in computed_factors(member, program):
        handle = member.handle
        sums, own = handle.rvars(0), handle.args()
        places = [sums[0] if place is None else own[place] for place in order]
        operand(handle, factor, places)
        func = f'f["{member.label}"]'
        said = (f"{func}.rvars(0)[0]" if p is None else f"{func}.args()[{p}]" for p in order)
        lines.append(f"hb.operand({func}, {factor}, [{', '.join(said)}])")
    return lines
