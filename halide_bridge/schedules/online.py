"""The schedule of attention that nobody scheduled (``recognise.attention``): scores of its own for
each of the three loops over keys, and these as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from halide_bridge import instead
from halide_bridge.schedules.asked import clone
from halide_bridge.schedules.attention import Attention, Joining, schedule_attention
from halide_bridge.schedules.kernels import Grid
from halide_bridge.schedules.recognise.attention import Online
from halide_bridge.schedules.recognise.program import Program, number
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import Guess
from selector.dataclass import dataclass
from selector.families import attention
from selector.families.attention.tiling import JOINED_AT_ONCE
from selector.ir.nodes import Expr
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
    keys = _keys(found, program)
    shape = attention.Shape(
        heads, known.extent(output, queries), max(1, known.value(keys)), found.depth, found.causal,
        found.window, len(found.matrices), fixed=number(keys) is not None, blocks=found.blocks,
    )  # fmt: skip
    best = attention.pick(shape, machine, parts=found.divisible)
    if best is None:
        yield from attention.for_warps(shape, machine)
    else:
        if found.divisible and found.sharing > 1:
            yield from attention.together(shape, found.sharing, machine)
        yield best
        ranked = attention.ranked(shape, machine)
        others = [t for _, t in ranked if t != best and not t.part]
        yield from others[: TRIED - 1]


def why_none(found: Online, program: Program) -> str:
    """Why there are none."""
    keys = number(_keys(found, program))
    if keys is not None and keys <= attention.FEWEST_KEYS:
        return f"{keys} keys are one turn"
    return "registers do not hold so many channels"


def _keys(found: Online, program: Program) -> Expr:
    return program.members[found.mixed].stages[1].reduced[0].extent


def attend(script: Script, program: Program, found: Online, tiling: attention.Tiling) -> Grid:
    """Schedule it so, in a kernel of the Func that reads the sums."""

    def func(name: str) -> Recorded:
        member = program.members[name]
        return script.func(member.label, member.handle)

    query, key, value = map(func, (found.query, found.key, found.value))
    operands = _Operands(query, key, value, found)
    if tiling.part:
        p = _in_parts(script, func, operands, tiling)
    else:
        p = _whole(func, operands)
        p.output.compute_root()
    schedule_attention(p, tiling)
    threads = tiling.units * (128 if tiling.groups else 32)
    return Grid(text=f"{threads} threads that multiply a block")


@dataclass(frozen=True, slots=True)
class _Operands:
    query: Recorded
    key: Recorded
    value: Recorded
    found: Online

    def attention(self, **parts: Any) -> Attention:
        """With the Funcs that are computed in one loop."""
        return Attention(
            query=self.query,
            key=self.key,
            value=self.value,
            keys=self.key,
            values=self.value,
            depth=self.found.depth,
            places=self.found.places,
            whole=self.found.whole,
            **parts,
        )


def _whole(func: Callable[[str], Recorded], operands: _Operands) -> Attention:
    """Of all keys: with scores of their own for the peak and the total."""
    found = operands.found
    names = (found.output, found.mixed, found.peak, found.total, found.weight)
    output, mixed, peak, total, weight = map(func, names)
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
    return operands.attention(
        output=output,
        mixed=mixed,
        peak=peak,
        total=total,
        weight=weight,
        scores=(scores[0], scores[1], func(found.scores)),
        matrices=matrices,
    )


def _in_parts(
    script: Script,
    func: Callable[[str], Recorded],
    operands: _Operands,
    tiling: attention.Tiling,
) -> Attention:
    """Of parts of the keys, which the output joins."""
    found = operands.found
    output, weight, scores = map(func, (found.output, found.weight, found.scores))
    peak, total, mixed = map(func, (found.peak, found.total, found.mixed))
    sums, part = (peak, total, mixed), tiling.part
    said = output, sums, weight, scores, found.along, part, JOINED_AT_ONCE
    if tiling.sharing > 1:
        shared = tiling.sharing, found.places.output, found.heads
        *made, rows = script.instead(instead.in_parts, (), *said, operands.query, shared)
        operands = replace(operands, query=rows)
    else:
        made = [*script.instead(instead.in_parts, (), *said)]
    parts, peak, total, mixed, *own, weight, near, top, sums = made
    return operands.attention(
        output=parts,
        mixed=mixed,
        peak=peak,
        total=total,
        weight=weight,
        scores=tuple(own),
        joining=Joining(output, near, top, sums),
    )
