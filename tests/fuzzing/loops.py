"""The loops of a drawn program by their names, and where Funcs are computed among them.

An axis ``x`` is split into blocks ``xo``, parts that a block computes in turn ``xs``, warps ``xw``,
unrolled vectors ``xu`` and the vector ``xi``, of which those of one iteration are left out; a
variable ``r.x`` of the sum into steps ``rxo``, unrolled vectors ``rxu`` and the vector ``rxi``.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzzing.program import NAMES, Axis, Program, Sum


def levels(a: Axis, name: str, outer: str = "") -> list[tuple[str, int]]:
    """Loops of an axis from the outside in, with their counts (0: what there is): blocks,
    segments, warps, unrolled, vector; only those that are there. ``outer``: the first of them."""
    found = [(f"{name}o", 0), (f"{name}s", a.segments), (f"{name}w", a.warps),
             (f"{name}u", a.unroll), (f"{name}i", a.vector)]  # fmt: skip
    if outer:
        found = found["oswui".index(outer) :]
    return [(n, c) for n, c in found if c != 1]


def split_loops(stage: str, name: str, loops: list[tuple[str, int]], tail: str = "") -> list[str]:
    """Statements that split ``name`` into these loops; a single one keeps the name."""
    lines: list[str] = []
    current = name
    for i, (outer, _) in enumerate(loops[:-1]):
        size = 1
        for _, count in loops[i + 1 :]:
            size *= count
        inner = loops[i + 1][0]
        lines.append(f"{stage}.split({current}, {outer}, {inner}, {size}{tail if i == 0 else ''})")
        current = inner
    return lines


def loop_name(loops: list[tuple[str, int]], name: str, wanted: str) -> str:
    """The loop of that name, which is the variable itself where it is the only one."""
    if not any(n == wanted for n, _ in loops):
        return ""
    return name if len(loops) == 1 else wanted


def all_loops(p: Program, outer: str) -> dict[str, list[str]]:
    """By level from ``outer`` in, the loops of all axes from the innermost axis out."""
    found: dict[str, list[str]] = {level: [] for level in "oswui"}
    for i, a in enumerate(p.axes):
        loops = levels(a, NAMES[i], outer)
        for level in found:
            name = loop_name(loops, NAMES[i], NAMES[i] + level)
            if name:
                found[level].append(name)
    return found


def marked(p: Program, f: str, by: dict[str, list[str]]) -> Iterator[str]:
    """How the loops of a stage run."""
    for name in by["i"]:
        yield f"{f}.vectorize({name})"
    for name in by["u"]:
        yield f"{f}.unroll({name})"
    if p.memory == "amx":
        if by["o"]:
            yield f"{f}.parallel({by['o'][-1]})"
        return
    if by["w"]:
        yield f"{f}.gpu_threads({', '.join(by['w'])})"
    if by["o"]:
        yield f"{f}.gpu_blocks({', '.join(by['o'])})"


def places(p: Program) -> dict[str, tuple[str, str]]:
    """Where a Func can be computed: (consumer, loop) for "unit", "part" and "block"."""
    target = "kept" if p.after else "out"
    by = all_loops(p, "s" if p.after == "shared" else "o")
    block = (target, by["o"][0]) if by["o"] else ("out", "xb")
    part = (target, by["s"][0]) if by["s"] else block
    unit = (target, by["w"][0]) if by["w"] else part
    return {"unit": unit, "part": part, "block": block}


def sum_loops(s: Sum, name: str) -> list[tuple[str, int]]:
    """Loops of a variable of the sum from the outside in: over steps, unrolled, vector."""
    step = s.step or max(s.vector, 1)
    loops = [(f"r{name}o", 0 if step < s.extent or s.dynamic else 1),
             (f"r{name}u", step // s.vector), (f"r{name}i", s.vector)]  # fmt: skip
    return [(n, c) for n, c in loops if c != 1]


def serial_loop(p: Program) -> str:
    """The innermost serial loop of the sum, around which operands are staged."""
    for i, s in enumerate(p.sums):
        loops = sum_loops(s, NAMES[i])
        name = loop_name(loops, f"r.{NAMES[i]}", f"r{NAMES[i]}o")
        if name and s.outer == "serial":
            return name
    return ""
