"""The schedule of a drawn program, as lines of Python."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fuzzing.copies import stagings
from fuzzing.loops import (
    all_loops,
    levels,
    loop_name,
    marked,
    places,
    split_loops,
    sum_loops,
)
from fuzzing.program import FLOAT8, NAMES, Program

MEMORY = {"wmma": "WMMAAccumulator", "wgmma": "WGMMAAccumulator", "amx": "AMXTile"}


def schedule(p: Program) -> Iterator[str]:
    loops = {n for name, a in zip(p.variables, p.axes, strict=True) for n, _ in levels(a, name)}
    if p.after:
        loops |= {name + level for name in p.variables for level in "bj"}
    names = sorted(loops)
    yield f"{', '.join(names)}, = map(hl.Var, {json.dumps(names)})"
    target = "kept" if p.after else "out"
    if p.from_zero:
        yield from (f"hb.from_zero({f}, {target})" for f in p.accumulators)
    for o in p.operands:
        if o.inline and o.produce not in FLOAT8:  # bytes are multiplied as they are
            order = ", ".join(t.var for i in o.index for t in i.terms)
            number = int((o.name == "B") != p.swapped)
            yield f"made_{o.name} = hb.operand(acc, {number}, [{order}])"
    if p.after:
        yield from _stencil(p)
    yield from _outputs(p, target)
    for f in p.accumulators:
        yield from _sum(p, f)
    yield from stagings(p)
    for name, count in p.directives:
        yield f"hb.{name}(out{f', {count}' if count else ''})"
    yield "return out"


def _stencil(p: Program) -> Iterator[str]:
    """The output that reads what is kept: a block of it, a little narrower than what is kept."""
    if p.after == "root":
        yield "kept.compute_root()"
    inner: list[str] = []
    for i, (name, a) in enumerate(zip(p.variables, p.axes, strict=True)):
        size = 32 if p.after == "root" else a.block - 8 if i == 0 else a.block
        if size > 1:
            yield f"out.split({name}, {name}b, {name}j, {size})"
            inner.append(name)
    blocks = [f"{name}b" if name in inner else name for name in p.variables]
    yield f"out.reorder({', '.join([f'{name}j' for name in inner] + blocks)})"
    yield f"out.gpu_blocks({', '.join(blocks)})"
    if p.after == "root":
        yield f"out.gpu_threads({', '.join(f'{name}j' for name in inner[:1])})"
    else:
        yield f"kept.compute_at(out, {blocks[0]}).store_in(hl.MemoryType.GPUShared)"


def _outputs(p: Program, f: str) -> Iterator[str]:
    inside = p.after == "shared"
    outer = "s" if inside else "o"
    tail = f", hl.TailStrategy.{p.tail}" if p.tail else ""
    for i, a in enumerate(p.axes):
        if a.bounded:
            yield f"out.bound({NAMES[i]}, 0, {a.size})"
        if inside:
            yield f"{f}.bound_extent({NAMES[i]}, {a.block})"
        yield from split_loops(f, NAMES[i], levels(a, NAMES[i], outer), tail)
    by = all_loops(p, outer)
    order = by["i"] + by["u"] + by["w"] + by["s"] + by["o"]
    if inside:  # a loop of one iteration is none
        order += [NAMES[i] for i, a in enumerate(p.axes) if a.block == 1]
    if len(order) > 1:
        yield f"{f}.reorder({', '.join(order)})"
    yield from marked(p, f, by)


def _sum(p: Program, f: str) -> Iterator[str]:
    place = places(p)["unit" if p.at == "unit" else "part"]
    outer = "u" if p.at == "unit" else "w"
    for i, a in enumerate(p.axes):
        extent = a.unit if p.at == "unit" else a.part
        if extent > 1:
            yield f"{f}.bound_extent({NAMES[i]}, {extent})"
    yield f"{f}.compute_at({place[0]}, {place[1]})"
    yield f"hb.store_in({f}, hb.MemoryType.{MEMORY[p.memory]})"
    by = all_loops(p, outer)
    for i, a in enumerate(p.axes):
        yield from split_loops(f, NAMES[i], levels(a, NAMES[i], outer))
    order = by["i"] + by["u"] + by["w"]
    if len(order) > 1:
        yield f"{f}.reorder({', '.join(order)})"
    yield from marked(p, f, by)
    for number in range(2 if p.second == "update" else 1):
        yield f"update = {f}.update({number or ''})"
        for i, a in enumerate(p.axes):
            yield from split_loops("update", NAMES[i], levels(a, NAMES[i], outer))
        yield from _reduction(p, by)


def _reduction(p: Program, by: dict[str, list[str]]) -> Iterator[str]:
    vectors: list[str] = []
    unrolled: list[str] = []
    serial: list[str] = []
    for i, s in enumerate(p.sums):
        loops = sum_loops(s, NAMES[i])
        if len(loops) > 1:
            yield f"{', '.join(n for n, _ in loops)} = " + ", ".join(
                f'hl.RVar("{n}")' for n, _ in loops
            )
        yield from split_loops("update", f"r.{NAMES[i]}", loops)
        for level, group in (("i", vectors), ("u", unrolled), ("o", serial)):
            name = loop_name(loops, f"r.{NAMES[i]}", f"r{NAMES[i]}{level}")
            if name and level == "o" and s.outer == "unrolled":
                unrolled.append(name)
            elif name:
                group.append(name)
    order = vectors + by["i"] + by["u"] + unrolled + by["w"] + serial
    if p.at == "unit":
        order = vectors + by["i"] + by["u"] + unrolled + serial
    if len(order) > 1:
        yield f"update.reorder({', '.join(order)})"
    yield "update.atomic()"
    yield from marked(p, "update", {**by, "o": []})
    for name in vectors:
        yield f"update.vectorize({name})"
    for name in unrolled:
        yield f"update.unroll({name})"
