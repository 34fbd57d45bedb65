"""The schedule of attention that nobody scheduled (``recognise.attention``): scores of its own for
each of the three loops over keys, and these as one.
"""

from __future__ import annotations

from collections.abc import Iterator

from halide_bridge.schedules.asked import clone
from halide_bridge.schedules.attention import Attention, schedule_attention
from halide_bridge.schedules.kernels import Grid
from halide_bridge.schedules.recognise.attention import Online
from halide_bridge.schedules.recognise.program import Program
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import Guess
from selector.families import attention
from selector.machine import Machine

TRIED = 3  # of a space


def candidates(
    found: Online, program: Program, known: Guess, machine: Machine
) -> Iterator[attention.Tiling]:
    """Schedules of attention, the best first."""
    output = program.members[found.output]
    heads = 1
    queries = found.places.output
    for d in range(1, len(output.args)):
        heads *= known.extent(output, d) if d != queries else 1
    keys = known.value(program.members[found.mixed].stages[1].reduced[0].extent)
    shape = attention.Shape(
        heads, known.extent(output, queries), max(1, keys), found.depth, found.causal, found.window,
        matrices=len(found.matrices),
    )  # fmt: skip
    best = attention.pick(shape, machine, parts=False)
    if best is None:
        yield from attention.for_warps(shape, machine)
    else:
        yield best
        ranked = attention.ranked(shape, machine)
        others = [t for _, t in ranked if t != best and not t.part]
        yield from others[: TRIED - 1]


def attend(script: Script, program: Program, found: Online, tiling: attention.Tiling) -> Grid:
    """Schedule it so, in a kernel of the Func that reads the sums."""

    def func(name: str) -> Recorded:
        member = program.members[name]
        return script.func(member.label, member.handle)

    names = (found.output, found.mixed, found.peak, found.total, found.weight)
    output, mixed, peak, total, weight = map(func, names)
    query, key, value = map(func, (found.query, found.key, found.value))
    scores: list[Recorded] = []
    clones: list[dict[str, Recorded]] = []
    for reader, path in zip((peak, total), found.paths, strict=True):
        last, own = reader, dict[str, Recorded]()
        for name in path:
            last = own[name] = clone(func(name), last)
        scores.append(last)
        clones.append(own)
    matrices = tuple(
        (func(name), (clones[0][reader], clones[1][reader], func(reader)), along)
        for name, reader, along in found.matrices
    )
    output.compute_root()
    p = Attention(
        output=output,
        mixed=mixed,
        peak=peak,
        total=total,
        weight=weight,
        scores=(scores[0], scores[1], func(found.scores)),
        query=query,
        key=key,
        value=value,
        keys=key,
        values=value,
        depth=found.depth,
        matrices=matrices,
        places=found.places,
        whole=found.whole,
    )
    schedule_attention(p, tiling)
    threads = tiling.units * (128 if tiling.groups else 32)
    return Grid(text=f"{threads} threads that multiply a block")
