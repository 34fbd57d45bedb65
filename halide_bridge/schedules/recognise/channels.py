"""Sums over windows of pixels in which each channel, or each group of a few, has filters of its
own.

    depthwise[c, x, y, n] += image[c, x + s, y + r, n] * weights[c, s, r]
    grouped[c, x, y, n]   += image[c / g * g + k, x + s, y + r, n] * weights[c, k, s, r]

in any order of dimensions, with any steps and distances of taps.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from halide_bridge.schedules.recognise.products import element, factors
from halide_bridge.schedules.recognise.program import Access, Member, Program, number
from selector.dataclass import dataclass
from selector.families.channels import Windows
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm, Var
from selector.ir.traverse import free_vars

TERMS = 128  # of a sum that a thread takes alone


@dataclass(frozen=True, slots=True)
class Channels:
    """Such a sum: the ``windows`` along each dimension of the result, the place of its ``channel``
    there, how many are summed up for each (``group``), the places of taps in the reduction domain
    by dimension, and that of the ``group``; ``side``: channels lie side by side in the image, and
    ``along`` which dimension of the weights, whose dimensions ``inside`` of that have so many
    elements.
    """

    func: str
    image: str
    weights: str
    windows: tuple[Windows, ...]
    channel: int
    group: int
    taps: Mapping[int, int]
    inner: int | None
    side: bool
    along: int
    inside: int
    bytes: int


def channels_of(member: Member, program: Program) -> Channels | None:
    """The sum that a reduction is, or None."""
    pair = factors(member)
    if pair is None or len(member.stages) != 2 or len(member.types) != 1:
        return None
    update = member.stages[1]
    extents = {r.name: number(r.extent) for r in update.reduced}
    known = {name: e for name, e in extents.items() if e is not None}
    if update.predicate is not None or len(known) < len(extents) or not known:
        return None
    if prod(known.values()) > TERMS or any(number(r.minimum) != 0 for r in update.reduced):
        return None
    read = [a for e in pair if (a := element(e)) is not None]
    found = [(a, c) for a in read if (c := _filters(a, member, known)) is not None]
    if len(read) != 2 or len(found) != 1 or any(a.func not in program.members for a in read):
        return None
    weights, channel = found[0]
    image = read[1] if weights is read[0] else read[0]
    if image.func == weights.func:  # one copy for a thread would be of all between the two
        return None
    return _channels(member, program, image, weights, channel, known)


def _channels(
    member: Member,
    program: Program,
    image: Access,
    weights: Access,
    channel: str,
    known: Mapping[str, int],
) -> Channels | None:
    names, place = [*known], member.args.index(channel)
    windows, taps = [Windows()] * len(member.args), dict[int, int]()
    group, inner = 1, None
    left = list(member.args)
    for index in image.indices:
        own = [v for v in left if v in free_vars(index)]
        if len(own) != 1:
            return None
        (variable,) = own
        left.remove(variable)
        if variable == channel:
            found = _group(index, channel, known)
            if found is None:
                return None
            group, k = found
            inner = None if k is None else names.index(k)
            continue
        window = _window(index, variable, known)
        if window is None:
            return None
        d = member.args.index(variable)
        windows[d], tap = window
        if tap is not None:
            taps[d] = names.index(tap)
    summed = {*taps.values(), *([] if inner is None else [inner])}
    if left or summed != {*range(len(names))} or len(summed) != len(taps) + (inner is not None):
        return None
    side, along = channel in free_vars(image.indices[0]), weights.indices.index(Var(channel))
    inside = prod(known.get(i.name, 1) for i in weights.indices[:along] if isinstance(i, Var))
    types = {program.members[a.func].types[0] for a in (image, weights)}
    if len(types) != 1 or (place and side):
        return None
    return Channels(
        member.name, image.func, weights.func, tuple(windows), place, group, taps, inner,
        side, along, inside, next(iter(types)).bytes,
    )  # fmt: skip


def _filters(access: Access, member: Member, reduced: Mapping[str, int]) -> str | None:
    """The variable of the result along which there is a filter for each; None if they are none."""
    variables = [i.name for i in access.indices if isinstance(i, Var)]
    rest = [i for i in access.indices if not isinstance(i, Var)]
    own = [v for v in variables if v in member.args]
    if any(Affine.of(i).constant is None for i in rest) or len(own) != 1:
        return None
    return own[0] if sorted(variables) == sorted((*reduced, own[0])) else None


def _group(index: Expr, channel: str, reduced: Mapping[str, int]) -> tuple[int, str | None] | None:
    """How many channels of the image each of the result sums up, and the variable of these."""
    if index == Var(channel):
        return 1, None
    over = [name for name in reduced if name in free_vars(index)]
    if len(over) != 1:
        return None
    (k,) = over
    form, group = Affine.of(index), reduced[k]
    alone = form.coefficient(Var(k)).constant == 1
    match form.rest(Var(k)).terms:
        case (((Binary(BinaryOp.DIV, Var(name), IntImm(value=size)),), times),):
            same = name == channel and size == times == group
            return (group, k) if same and alone else None
        case _:
            return None


def _window(
    index: Expr, variable: str, reduced: Mapping[str, int]
) -> tuple[Windows, str | None] | None:
    form = Affine.of(index)
    over = [name for name in reduced if name in free_vars(index)]
    step, rest = form.coefficient(Var(variable)).constant, form.rest(Var(variable))
    if len(over) > 1 or not step or step < 1:
        return None
    for name in over:
        apart, rest = rest.coefficient(Var(name)).constant, rest.rest(Var(name))
        if not apart or apart < 1 or free_vars(rest.to_expr()) & {name, variable}:
            return None
        return Windows(reduced[name], step, apart), name
    return None if variable in free_vars(rest.to_expr()) else (Windows(1, step), None)
