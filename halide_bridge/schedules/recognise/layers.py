"""Sums over channels and windows of pixels that a tensor unit takes, and what keeps others from it.

    out[f, x, y, n] += image[c, x + s, y + r, n] * weights[c, s, r, f]

with channels and filters innermost, and any number of dimensions of pixels, with taps or without;
the dimensions of the weights come in any order.
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
    reduction domain, and those of channels and filters among the dimensions of the weights.
    """

    func: str
    image: str
    weights: str
    channels: int
    taps: tuple[int, ...]
    along: tuple[int, int]


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
    weights = next((a for a in read if _is_weights(a, member, {*reduced})), None)
    image = next((a for a in read if a is not weights), None)
    if weights is None or image is None or update.predicate is not None:
        return ""
    channels = _plain(image.indices[0])
    if channels not in reduced:
        return "its channels do not lie innermost"
    if any(number(r.minimum) != 0 for r in update.reduced):
        return "its sum does not begin at 0"
    if any(number(r.extent) is None for r in update.reduced if r.name != channels):
        return "the number of its taps is not known"
    kinds = {multiplied(e, member, program) for e in pair}
    misses = [k for k in kinds if isinstance(k, str)]
    if misses:
        return misses[0]
    if len(kinds) > 1 or any(isinstance(k, Type) and k.bits != 16 for k in kinds):
        return "its operands are not of one type of 16 bits"
    if len(image.indices) != len(member.args):
        return "its image and its result do not have the same dimensions"
    if any(
        not _is_window(i, v, {*reduced} - {channels})
        for i, v in zip(image.indices[1:], member.args[1:], strict=True)
    ):
        return "its windows do not lie at neighbouring pixels"
    names, order = [*reduced], [_plain(i) for i in weights.indices]
    return Layer(
        member.name, image.func, weights.func, names.index(channels),
        tuple(i for i, name in enumerate(names) if name != channels),
        (order.index(channels), order.index(member.args[0])),
    )  # fmt: skip


def _plain(e: Expr) -> str:
    return e.name if isinstance(e, Var) else ""


def _is_weights(access: Access, member: Member, reduced: set[str]) -> bool:
    """Whether it is read at every reduction variable and the innermost one of the result."""
    names = [_plain(i) for i in access.indices]
    return sorted(names) == sorted((*reduced, member.args[0]))


def _is_window(index: Expr, variable: str, taps: set[str]) -> bool:
    """Whether neighbours read neighbours, at one tap."""
    form, names = Affine.of(index), free_vars(index)
    rest = form.rest(Var(variable))
    over = names & taps
    for name in over:
        rest = rest.rest(Var(name))
        if form.coefficient(Var(name)).constant is None:
            return False
    alone = form.coefficient(Var(variable)).constant == 1
    return alone and len(over) <= 1 and rest.constant is not None
