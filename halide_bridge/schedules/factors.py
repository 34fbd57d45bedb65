"""Parts of what is computed in an update as Funcs of their own: what the schedule of a tensor unit
stages is a Func, and what is stored is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from halide_bridge.instead import (
    counted_from_zero,
    divided_last,
    multiplied_last,
    narrowed,
    operand,
    subtracted_last,
    together,
)
from halide_bridge.names import plain
from halide_bridge.native import native
from halide_bridge.schedules import online
from halide_bridge.schedules.candidates import Given, fills, form_of, sum_of
from halide_bridge.schedules.recognise.attention import online_of
from halide_bridge.schedules.recognise.computed import computed_factors, is_filter
from halide_bridge.schedules.recognise.differences import has_zero_points
from halide_bridge.schedules.recognise.divided import divided_of, has_same
from halide_bridge.schedules.recognise.layers import with_own_taps
from halide_bridge.schedules.recognise.narrow import has_wide_factors, only_cast
from halide_bridge.schedules.recognise.products import is_product_in_other_words
from halide_bridge.schedules.recognise.program import Member, Program, read_program
from halide_bridge.schedules.recognise.separable import rows_of
from halide_bridge.schedules.recognise.together import precision_of, products_of
from halide_bridge.schedules.recognise.updates import begins_elsewhere, sums_of
from halide_bridge.schedules.sizes import Guess
from selector.machine import Machine

TOGETHER = 1 << 28  # multiply-adds, which CUDA cores take more than 10 microseconds for


def rewritten(
    outputs: list[Any], program: Program, steps: Sequence[Callable[[Program], list[str]]]
) -> tuple[Program, list[str]]:
    """A pipeline after steps that change its Funcs, and the lines of Python that do so."""
    lines: list[str] = []
    for step in steps:
        changed = step(program)
        program = read_program(outputs, program.asked) if changed else program
        lines += ["f = hb.funcs(output)", *changed, ""] if changed else []
    return program, lines


def set_apart(
    program: Program, known: Guess, machine: Machine, given: Mapping[str, Given]
) -> list[str]:
    """Make Funcs of factors that keep sums from a tensor unit by being more than elements, but for
    those of attention, which takes heads that others share as they are. ``given``: tilings of sums
    by name. Lines of Python that do so to the Funcs ``f`` of a pipeline.
    """
    loops = [found for m in program if (found := online_of(m, program)) is not None]
    loops = [found for found in loops if any(online.candidates(found, program, known, machine))]
    taken = frozenset[str]().union(*(found.members for found in loops))

    def is_sum(member: Member) -> bool:
        told = given.get(member.label)
        found = form_of(told, member, program, known, machine) if told is not None else ""
        return not isinstance(found or sum_of(member, program, known, machine), str)

    sums = [m for m in program if m.name not in taken]
    return [line for m in sums for line in operands_apart(m, program, known, partial(is_sum, m))]


def set_divided(program: Program) -> list[str]:
    """Have sums multiplied in place of their terms, and divided in place of the weights of
    attention. Lines of Python, as below.
    """
    lines: list[str] = []
    for member in (m for m in _read(program) if has_same(m, program)):
        funcs = (member, *program.readers(member))
        multiplied_last(*(f.handle for f in funcs))
        lines.append(f"hb.multiplied_last({_said(funcs)})")
    for found in filter(None, (divided_of(m, program) for m in program)):
        funcs = (found.weight, found.total, found.mixed, found.reader, *found.between)
        divided_last(*(f.handle for f in funcs))
        lines.append(f"hb.divided_last({_said(funcs)})")
    return lines


def set_sums_apart(program: Program, known: Guess) -> list[str]:
    """Have products for tensor units that are one of several updates, or values, of a Func be Funcs
    of their own. Lines of Python, as below.
    """
    lines: list[str] = []
    for member in program:
        if not any(_fills(member, known, update=s.number) for s in sums_of(member, program)):
            continue
        lines += sums_apart(member, program)
    return lines


def sums_apart(member: Member, program: Program, *, each: bool = False) -> list[str]:
    """Have its sums be Funcs, or ``each`` product of these. A line of Python, if it has any."""
    readers, said = program.readers(member), f'f["{member.label}"]'
    stored = member.name in program.outputs
    asked = [f.handle for f in readers], plain(member.name), stored, each
    if not native().sums_apart(member.handle, *asked):
        return []
    own = [f"{said}.in_()"] if stored else []
    how = ["each=True"] if each else []
    said = ", ".join((said, *(f'f["{f.label}"]' for f in readers), *own, *how))
    return [f"hb.sums_apart({said})"]


def set_counted(program: Program) -> list[str]:
    """Have products and layers go along variables that begin at 0. Lines of Python, as below."""
    lines: list[str] = []
    for member in (m for m in program if begins_elsewhere(m, program)):
        counted_from_zero(member.handle)
        lines.append(f'hb.counted_from_zero(f["{member.label}"])')
    return lines


def set_products(program: Program, known: Guess) -> list[str]:
    """Have terms be products of two factors that are such in other words, where their sum then is
    for tensor units. Lines of Python, as below.
    """
    lines: list[str] = []
    for member in (m for m in program if is_product_in_other_words(m, program)):
        if _fills(member, known) and native().as_product(member.handle):
            lines.append(f'hb.as_product(f["{member.label}"])')
    return lines


def set_narrow_factors(program: Program, known: Guess) -> list[str]:
    """Have factors of float32 that 16 bits have all values of be computed in these, where their sum
    then is for tensor units. Lines of Python, as below.
    """
    lines: list[str] = []
    for member in (m for m in program if has_wide_factors(m)):
        if _fills(member, known) and native().narrow_factors(member.handle):
            lines.append(f'hb.narrow_factors(f["{member.label}"])')
    return lines


def set_separated(program: Program) -> list[str]:
    """Have windows of which neighbours share rows add up those. Lines of Python, as below."""
    found = (separated(m, at) for m in program if (at := rows_of(m, program)) is not None)
    return [line for _, line in filter(None, found)]


def separated(member: Member, at: int) -> tuple[str, str] | None:
    """Have a window add up rows, if neighbours share those, along a variable of its domain, by
    place: the name of the rows' Func, and a line of Python.
    """
    names = [r.name() for r in member.handle.rvars(0)]
    rows = native().separated(member.handle, names[at], f"{plain(member.name)}_rows")
    said = f'f["{member.label}"]'
    return (rows.name(), f"hb.separated({said}, {said}.rvars(0)[{at}])") if rows.defined() else None


def set_zero_points(program: Program, known: Guess) -> list[str]:
    """Have what reads sums for tensor units subtract zero points. Lines of Python, as below."""
    lines: list[str] = []
    for member in (m for m in _read(program) if has_zero_points(m)):
        if len(member.args) > 1 and _fills(member, known):
            funcs = (member, *program.readers(member))
            subtracted_last(*(f.handle for f in funcs))
            lines.append(f"hb.subtracted_last({_said(funcs)})")
    return lines


def set_together(
    program: Program, known: Guess, factors: set[str], precisions: dict[str, str]
) -> list[str]:
    """Make one product of sums of several, where that saves more than to store their factors one
    after the other costs, whose names are added to ``factors``; ``precisions`` gets what is known
    of a sum's products, by its name. Lines of Python, as below.
    """
    lines: list[str] = []
    for member in _read(program):
        count = products_of(member)
        if count == 0:  # a size that is asked for is one that the schedule depends on
            continue
        n, *rows = (known.extent(member, d) for d in range(len(member.args)))
        depth = known.value(member.stages[1].reduced[0].extent)
        many = count * depth * n * prod(rows) >= TOGETHER
        if many and any(fills(n, m, depth) for m in rows):
            funcs = (member, *program.readers(member))
            total, *stored = together(*(f.handle for f in funcs))
            factors.update(f.name() for f in stored)
            precisions[total.name()] = precision_of(member)
            lines.append(f"hb.together({_said(funcs)})")
    return lines


def _fills(
    member: Member, known: Guess, rows: Iterable[int] | None = None, update: int = 1
) -> bool:
    """Whether a product fills tiles of a tensor unit, whichever dimension its rows go along."""
    depth = max((known.value(r.extent) for r in member.stages[update].reduced), default=1)
    among = range(1, len(member.args)) if rows is None else rows
    return any(fills(known.extent(member, 0), known.extent(member, d), depth) for d in among)


def _read(program: Program) -> list[Member]:
    """Funcs that others read, and nobody else."""
    return [m for m in program if m.name not in program.outputs]


def _said(funcs: Iterable[Member]) -> str:
    """As arguments in Python."""
    return ", ".join(f'f["{f.label}"]' for f in funcs)


def set_narrow(program: Program) -> list[str]:
    """Make Funcs of what all that read a sum cast it to. Lines of Python, as above."""
    lines: list[str] = []
    for member in program:
        readers = only_cast(member, program)
        if readers:
            narrowed(member.handle, *(r.handle for r in readers))
            lines.append(f"hb.narrowed({_said((member, *readers))})")
    return lines


def operands_apart(
    member: Member, program: Program, known: Guess, is_sum: Callable[[], bool]
) -> list[str]:
    """Make Funcs of the factors of a sum that are more than elements, unless it ``is_sum`` that a
    tensor unit has as it is. Lines of Python, as above.
    """
    found = [] if member.fixed else computed_factors(member, program)
    if not found or is_sum():
        return []
    # What has taps of its own for each pixel has images alone, which may be few.
    own = with_own_taps(member)
    rows = [d for d in range(1, len(member.args)) if member.args[d] not in own]
    rows = [d for d in rows if known.tells(member, d)] if own else rows
    if not (is_filter(member) or _fills(member, known, rows)):
        return []
    lines, handle, func = [], member.handle, f'f["{member.label}"]'
    loops = [(v, f"{func}.args()[{i}]") for i, v in enumerate(handle.args())]
    loops += [(r, f"{func}.rvars(0)[{i}]") for i, r in enumerate(handle.rvars(0))]
    by_name = {loop.name(): (loop, text) for loop, text in loops}
    for factor, order in found:
        operand(handle, factor, [by_name[name][0] for name in order])
        said = ", ".join(by_name[name][1] for name in order)
        lines.append(f"hb.operand({func}, {factor}{f', [{said}]' if order else ''})")
    return lines
