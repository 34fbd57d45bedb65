"""Sums over channels and windows of pixels that a tensor unit takes, and what keeps others from it.

    out[f, x, y, n] += image[c, x + s, y + r, n] * weights[c, s, r, f]

with any number of dimensions of pixels, with taps or without. Channels and filters are one of the
dimensions each; those of the weights come in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

from halide_bridge.schedules.recognise.products import element, factors, multiplied
from halide_bridge.schedules.recognise.program import Access, Member, Program, number
from selector.ir.affine import Affine
from selector.ir.nodes import Expr, Var
from selector.ir.traverse import free_vars
from selector.ir.types import Type

DIMENSIONS = range(3, 5)  # of the result


@dataclass(frozen=True, slots=True)
class Layer:
    """``func[f, x, ...] += image * weights``: the places of the channels and of the ``taps`` in the
    reduction domain, that of the ``filters`` among the dimensions of the result and of the channels
    among those of the image (``inner``), and those of both among the dimensions of the weights; the
    ``bytes`` of an element; how many elements of the image lie between those that neighbours read,
    along each of its dimensions.
    """

    func: str
    image: str
    weights: str
    channels: int
    taps: tuple[int, ...]
    along: tuple[int, int]
    filters: int
    inner: int
    bytes: int
    steps: tuple[int, ...]


def layer_of(member: Member, program: Program) -> Layer | str:
    """The layer that a reduction is; else why a tensor unit cannot have it, empty where it is none
    at all.
    """
    pair = factors(member)
    if pair is None or len(member.args) not in DIMENSIONS:
        return ""
    update = member.stages[1]
    reduced = {r.name: r for r in update.reduced}
    read = [a for e in pair if (a := element(e)) is not None]
    found = [(a, f) for a in read if (f := _filters(a, member, {*reduced}))]
    if len(read) != 2 or not found or update.predicate is not None:
        return ""
    weights, filters = found[0]
    image = read[1] if weights is read[0] else read[0]
    pixels = [v for v in member.args if v != filters]
    inner = next((d for d, i in enumerate(image.indices) if _plain(i) in reduced), None)
    if any(filters in free_vars(i) for i in image.indices):
        return ""  # each has a window of its own
    if inner is None:
        return "its channels have no dimension of their own" if filters == member.args[0] else ""
    channels = _plain(image.indices[inner])
    if any(number(r.minimum) != 0 for r in update.reduced):
        return "its sum does not begin at 0"
    if any(number(r.extent) is None for r in update.reduced if r.name != channels):
        return "the number of its taps is not known"
    kinds = {multiplied(e, member, program) for e in pair}
    misses = [k for k in kinds if isinstance(k, str)]
    if misses:
        return misses[0]
    types = [k for k in kinds if isinstance(k, Type)]
    if len(types) > 1:
        return "its operands have two types"
    if types[0].bytes > 2:
        return f"there are no layers of {types[0]} on tensor units"
    others = [i for d, i in enumerate(image.indices) if d != inner]
    if len(others) != len(pixels):
        return "its image and its result do not have the same dimensions"
    steps = [_step(i, v, {*reduced} - {channels}) for i, v in zip(others, pixels, strict=True)]
    if not all(steps):
        return "its windows are not those of one tap along each dimension"
    steps.insert(inner, 1)
    names, order = [*reduced], [_plain(i) for i in weights.indices]
    return Layer(
        member.name, image.func, weights.func, names.index(channels),
        tuple(i for i, name in enumerate(names) if name != channels),
        (order.index(channels), order.index(filters)),
        member.args.index(filters), inner, types[0].bytes, tuple(steps),
    )  # fmt: skip


def _plain(e: Expr) -> str:
    return e.name if isinstance(e, Var) else ""


def _filters(access: Access, member: Member, reduced: set[str]) -> str:
    """The variable of the result at which weights are read, beside every reduction variable; empty
    if they are none.
    """
    names = [_plain(i) for i in access.indices]
    own = [name for name in names if name in member.args]
    return own[0] if len(own) == 1 and sorted(names) == sorted((*reduced, *own)) else ""


def _step(index: Expr, variable: str, taps: set[str]) -> int:
    """How far apart neighbours read at one tap; 0 if these are no windows."""
    form, names = Affine.of(index), free_vars(index)
    rest = form.rest(Var(variable))
    over = names & taps
    for name in over:
        rest = rest.rest(Var(name))
        if form.coefficient(Var(name)).constant is None:
            return 0
    step = form.coefficient(Var(variable)).constant or 0
    return max(step, 0) if len(over) <= 1 and rest.constant is not None else 0
