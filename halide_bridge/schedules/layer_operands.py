"""What the schedule of a layer (``layers``) wants of a pipeline: its operands as they lie or as
kernels of their own copy them (``turns``), and one of the phases of its pixels for each block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from halide_bridge.schedules.contraction import added, as_one
from halide_bridge.schedules.layers import Layers, schedule_layer
from halide_bridge.schedules.recognise.layers import Layer, with_own_taps
from halide_bridge.schedules.recognise.program import Member, Program
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import Guess
from halide_bridge.schedules.turns import Argument, argument_of, picked, side_by_side, turned
from selector.dataclass import dataclass
from selector.families.layers import VECTOR, Tiling
from selector.ir.traverse import free_vars


def keeps_start(member: Member, found: Any, size: Any) -> bool:
    """Whether the sums of a layer begin in their accumulators: a number for each filter is there
    before the first operands are, and blocks that stay keep it; who stores would wait for it.
    """
    if not (isinstance(found, Layer) and isinstance(size, Tiling)) or size.part:
        return False
    (start,) = member.stages[0].values
    return free_vars(start) <= {member.args[found.filters]}


def by_layer(
    script: Script,
    program: Program,
    known: Guess,
    found: Layer,
    size: Tiling,
    total: Recorded,
    stored: Recorded,
    args: tuple[Any, ...],
) -> None:
    """The directives of a layer that ``stored`` reads where it is computed itself, at ``args``, the
    dimensions of ``total``.
    """
    phases: tuple[Any, ...] = ()
    if max(found.phases) > 1:
        total, args, phases = _phased(script, found, total, stored, args)
    made: Mapping[str, Recorded] = {}
    if found.joined:
        total, made = _joined(script, program, found, total, stored)
        found = found.of_joined
    channels = total.rvars(0)[found.channels]
    taps = tuple(total.rvars(0)[place] for place in found.taps)
    if size.part:
        channels, inner = script.rvars("kp", "kr")
        total.update().split(total.rvars(0)[found.channels], channels, inner, size.part)
        total, stored, args, phases = _parted(script, total, stored, channels)
        channels = inner
        if size.planes:
            filters, *pixels = _filters_first(found, args)
            stored.reorder_storage(*pixels, filters, *phases)
    operands = _Operands(script, program, known, total, found.copied, made)
    if found.picked:
        found = found.of_picked
        staged = _picked(script, program, known, found, total, channels).in_(total)
    elif max(found.steps) > 1 and size.taps == 1:
        staged = _windows(script, found, total, (channels, taps))
        replace(operands, total=staged).rows(found.image, (found.inner,))
    else:
        staged = operands.rows(found.image, (found.inner,))[0].in_(total)
    either = found.along if found.bytes > 1 else found.along[:1]  # bytes: along the sum only
    several = [d for d, count in enumerate(found.phases) if count > 1]
    member = program.members[found.func]
    own = [k for k, d in enumerate(several) if member.args[d] in with_own_taps(member)]
    if own and size.taps > 1:
        weights = _own_taps(script, found, total, (channels, taps), own)
        row = found.along.index(replace(operands, total=weights).rows(found.weights, either)[1])
        along = 0, 1
    else:
        weights, row = operands.rows(found.weights, either)
        weights, along = weights.in_(total), found.along
    p = Layers(
        stored, _filters_first(found, args), total, staged, weights, channels, taps, found.filters,
        found.inner, along, row, phases,
    )  # fmt: skip
    schedule_layer(p, size)


def _filters_first(found: Layer, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The dimensions of a layer, that of the filters before those of the pixels."""
    return (args[found.filters], *args[: found.filters], *args[found.filters + 1 :])


def _phased(
    script: Script, found: Layer, total: Recorded, stored: Recorded, args: tuple[Any, ...]
) -> tuple[Recorded, tuple[Any, ...], tuple[Any, ...]]:
    """A sum whose pixels have phases with one of them a block, the loops of what stores it over
    pixels of a phase, and those over phases.
    """
    pixels, loops, told = list(args), list[Any](), list[tuple[Any, Any, Any, int]]()
    for d, count in enumerate(found.phases):
        if count > 1:
            outer, phase = script.variables(f"q{d}", f"ph{d}")
            told.append((args[d], outer, phase, count))
            pixels[d] = outer
            loops.append(phase)
    return script.phased(total, stored, told), tuple(pixels), tuple(loops)


def _joined(
    script: Script, program: Program, found: Layer, total: Recorded, stored: Recorded
) -> tuple[Recorded, Mapping[str, Recorded]]:
    """A sum over channels and columns as one, and its factors by what they are made of, each in a
    kernel of its own.
    """
    assert found.columns is not None
    domain = total.rvars(0)
    pair = domain[found.channels], domain[found.columns.place]
    total, *factors = script.joined(total, stored, *pair)
    image, weights = factors[:: 1 if found.factor == 0 else -1]
    source, run = program.members[found.image], VECTOR // found.bytes
    pixels = script.func(source.label, source.handle), found.columns.image
    side_by_side(script, weights, found.columns.terms, run)
    side_by_side(script, image, found.columns.terms, run, pixels)
    return total, {found.image: image, found.weights: weights}


def _parted(
    script: Script, total: Recorded, stored: Recorded, parts: Any
) -> tuple[Recorded, Recorded, tuple[Any, ...], tuple[Any, ...]]:
    """The sums of parts, what stores them, at its loops over the dimensions of ``total`` and over
    the parts; they are added where ``stored`` reads their sum, a thread each.
    """
    (part,) = script.variables("part")
    sums = total.update().rfactor(parts, part)
    first, second, *others = stored.args()
    stored.reorder(first, second, *others)
    added(stored, total, first, second, parts)
    stored.gpu_blocks(*as_one(stored, others))
    kept = sums.in_(total).compute_root()
    *args, last = kept.args()
    return sums, kept, tuple(args), (last,)


def _windows(
    script: Script, found: Layer, total: Recorded, summed: tuple[Any, tuple[Any, ...]]
) -> Recorded:
    """What a block copies of an image whose windows lie apart, ``windows[c, x, y, s, r]`` of
    ``image[c, 2 * x + s, 2 * y + r]``: the pixels that a tap reads are neighbours.
    """
    (channels, taps), pixels = summed, [*total.args()]
    pixels.pop(found.filters)
    pixels.insert(found.inner, channels)
    return script.operand(total, found.factor, (*pixels, *taps))


def _picked(
    script: Script,
    program: Program,
    known: Guess,
    found: Layer,
    total: Recorded,
    channels: Any,
) -> Recorded:
    """A copy of the pixels that a layer reads, by a kernel of its own, channels innermost."""
    member, copy = program.members[found.func], _windows(script, found, total, (channels, ()))
    pixels = [known.extent(member, d) for d in range(len(member.args)) if d != found.filters]
    deep = known.value(member.stages[1].reduced[found.channels].extent)
    picked(script, copy, (deep, *pixels), VECTOR // found.bytes)
    return copy


def _own_taps(
    script: Script,
    found: Layer,
    total: Recorded,
    summed: tuple[Any, tuple[Any, ...]],
    phases: Sequence[int],
) -> Recorded:
    """What a block copies of weights that have taps for each of some ``phases``, ``own[c, f, s,
    p]`` of ``weights[c, 2 * s + p, f]``: those of its phase, and none between them.
    """
    (channels, taps), args = summed, total.args()
    own = [args[len(found.phases) + k] for k in phases]
    return script.operand(total, 1 - found.factor, (channels, args[found.filters], *taps, *own))


@dataclass(frozen=True, slots=True)
class _Operands:
    script: Script
    program: Program
    known: Guess
    total: Recorded
    copied: bool = False
    made: Mapping[str, Recorded] = field(default_factory=dict[str, Recorded])

    def _func(self, member: Member) -> Recorded:
        return self.script.func(member.label, member.handle)

    def _begins_anywhere(self, found: Argument) -> bool:
        """Whether rows of an argument are no multiples of what the copy engine takes."""
        row = self.known.extent(found.source, 0) * found.source.types[0].bytes
        return row % VECTOR > 0

    def rows(self, name: str, either: Sequence[int]) -> tuple[Recorded, int]:
        """An operand of a layer, and along which of some dimensions it has rows. Where none lies
        innermost in an argument, or rows are to be ``copied``, a kernel of its own turns that, so
        that the first does. What is ``made`` has been stored so.
        """
        if name in self.made:
            return self.made[name], either[0]
        operand = self.program.members[name]
        found = [argument_of(operand, d, self.program) for d in either]
        for argument, d in zip(found, either, strict=True):
            if argument is None:
                rows = d == 0
            else:
                rows = argument.along == 0 and not (self.copied and self._begins_anywhere(argument))
            if rows:
                return self._func(operand), d
        first = found[0]
        if first is None:
            return self._func(operand), either[0]
        sizes = [self.known.extent(first.source, d) for d in range(len(first.source.args))]
        reader = self.total if first.reader is None else self._func(first.reader)
        copy = turned(self.script, self._func(first.source), reader, first, sizes)
        return (copy if first.reader is None else self._func(operand)), either[0]
