"""Terms of sums for tensor units as these have them, where they are in other words: steps of
``factors``, which change the Funcs of a pipeline and return the lines of Python that do so to the
Funcs ``f``.
"""

from __future__ import annotations

from math import prod

from halide_bridge.names import plain
from halide_bridge.native import native
from halide_bridge.schedules.candidates import fills
from halide_bridge.schedules.factors import sums_apart
from halide_bridge.schedules.recognise.program import Member, Program
from halide_bridge.schedules.recognise.terms import (
    adds_several,
    around_edges,
    counts_down,
    is_of_windows,
    multiplies_sums,
)
from halide_bridge.schedules.sizes import Guess

MANY = 1 << 26  # multiply-adds, which take CUDA cores about 10 microseconds
SOME = 1 << 24  # of a window that goes to a tensor unit as one


def set_windows_together(program: Program, known: Guess) -> list[str]:
    """Have several windows that lie one after the other, or a sum of such pixels, be one window."""
    lines: list[str] = []
    for member in (m for m in program if m.name not in program.outputs):
        if is_of_windows(member, program) and is_worth(SOME, member, known):
            funcs = (member, *program.readers(member))
            name = f"{plain(member.name)}_together"
            if native().together(member.handle, [f.handle for f in funcs[1:]], name):
                said = ", ".join(f'f["{f.label}"]' for f in funcs)
                lines.append(f"hb.together({said})")
    return lines


def set_expanded(program: Program, known: Guess) -> list[str]:
    """Have sums of products of sums add products."""
    lines: list[str] = []
    for member in (m for m in program if multiplies_sums(m, program)):
        if is_worth(MANY, member, known) and native().expanded(member.handle):
            lines.append(f'hb.expanded(f["{member.label}"])')
    return lines


def set_terms_apart(program: Program, known: Guess) -> list[str]:
    """Have each of several products that are not one be a sum of its own."""
    lines: list[str] = []
    for member in (m for m in program if adds_several(m, program)):
        if is_worth(MANY, member, known):
            lines += sums_apart(member, program, each=True)
    return lines


def set_down(program: Program) -> list[str]:
    """Have windows that go backwards over an image go forwards."""
    lines: list[str] = []
    for member in program:
        for place in counts_down(member, program):
            native().counted_down(member.handle, member.handle.rvars(0)[place].name())
            func = f'f["{member.label}"]'
            lines.append(f"hb.counted_down({func}, {func}.rvars(0)[{place}])")
    return lines


def set_around(program: Program) -> list[str]:
    """Have windows that are read around the edges of an image read a Func."""
    lines: list[str] = []
    for member in program:
        for number in around_edges(member, program):
            name = f"{plain(member.name)}_around_{'ab'[number]}"
            if native().around(member.handle, number, name).defined():
                lines.append(f'hb.around(f["{member.label}"], {number})')
    return lines


def is_worth(least: int, member: Member, known: Guess) -> bool:
    """Whether a sum has so many multiply-adds, and fills tiles of a tensor unit."""
    extents = [known.extent(member, d) for d in range(len(member.args))]
    depth = prod(known.value(r.extent) for r in member.stages[1].reduced)
    return depth * prod(extents) >= least and any(fills(extents[0], m, depth) for m in extents[1:])
