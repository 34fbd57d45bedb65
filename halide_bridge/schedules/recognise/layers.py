"""Sums over channels and windows of pixels that a tensor unit takes, and what keeps others from it.

    out[f, x, y, n] += image[c, x + s, y + r, n] * weights[c, s, r, f]

with any number of dimensions of pixels, with taps or without. Channels and filters are one of the
dimensions each; those of the weights come in any order. Every so many pixels may be a phase, which
has taps of its own, such as those of a transposed convolution:

    out[f, x, n] += image[c, (x + 1) / 2 - 1 + s, n] * weights[c, (x + 1) % 2 + 2 - 2 * s, f]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from halide_bridge.schedules.recognise.products import STARTS, element, factors, multiplied
from halide_bridge.schedules.recognise.program import Access, Member, Program, number
from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm, Var
from selector.ir.traverse import free_vars
from selector.ir.types import Type

DIMENSIONS = range(3, 5)  # of the result


@dataclass(frozen=True, slots=True)
class Columns:
    """So many ``taps`` along the first pixels of a layer, which go with its channels as one sum of
    so many ``terms`` (``hb.joined``): their ``place`` in the reduction domain, among the dimensions
    of the ``image`` and of the ``weights``.
    """

    taps: int
    terms: int
    place: int
    image: int
    weights: int


@dataclass(frozen=True, slots=True)
class Layer:
    """``func[f, x, ...] += image * weights``: the places of the channels and of the ``taps`` in the
    reduction domain, that of the ``filters`` among the dimensions of the result and of the channels
    among those of the image (``inner``), and those of both among the dimensions of the weights; the
    ``bytes`` of an element; how many elements of the image lie between those that neighbours read,
    along each of its dimensions, and how far windows ``reach`` there from their first element to
    the last; which ``factor`` of the products the image is; whether operands are ``copied`` whose
    rows of channels begin anywhere, and ``joined``: their ``columns`` with them; ``picked``: only
    the pixels that are read are copied. ``phases`` of the result, along each of its dimensions;
    ``backwards``: the taps of one are read from the last on.
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
    reach: tuple[int, ...]
    factor: int
    phases: tuple[int, ...] = ()
    backwards: bool = False
    copied: bool = False
    columns: Columns | None = None
    joined: bool = False
    picked: bool = False

    @property
    def of_picked(self) -> Layer:
        """The layer of a copy that has the pixels that are read, side by side, and channels
        innermost: one behind another, whatever lies between them in its image.
        """
        steps = (1,) * len(self.steps)
        return replace(self, inner=0, steps=steps, copied=False, picked=False)

    @property
    def of_joined(self) -> Layer:
        """The layer whose channels are the terms of both: its image has a window for each of the
        first pixels, channels innermost, its weights the other taps and filters behind these.
        """
        assert self.columns is not None
        own, taken = self.columns, {self.along[0], self.columns.weights}
        behind = [d for d in range(len(self.taps) + 2) if d not in taken]
        others = [d for d in range(len(self.steps)) if d != self.inner]
        return replace(
            self, channels=0, taps=tuple(range(1, len(self.taps))),
            along=(0, 1 + behind.index(self.along[1])), inner=0,
            steps=(1, *(1 if d == own.image else self.steps[d] for d in others)),
            reach=(0, *(0 if d == own.image else self.reach[d] for d in others)),
            copied=False, columns=None, joined=False,
        )  # fmt: skip


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
    phases = dict[str, int]()
    found = [(a, f) for a in read if (f := _filters(a, member, {*reduced}, phases))]
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
        return STARTS
    if any(number(r.extent) is None for r in update.reduced if r.name != channels):
        return "the number of its taps is not known"
    kinds = [*dict.fromkeys(multiplied(e, member, program) for e in pair)]
    misses = [k for k in kinds if isinstance(k, str)]
    if misses:
        return misses[0]
    types = [k for k in kinds if isinstance(k, Type)]
    if len(types) > 1 and any(t.is_float and t.bits > 8 for t in types):
        return "its operands have two types"
    if types[0].bytes > 2:
        return f"there are no layers of {types[0]} on tensor units"
    others = [i for d, i in enumerate(image.indices) if d != inner]
    if len(others) != len(pixels):
        return "its image and its result do not have the same dimensions"
    taps = {r.name: number(r.extent) or 1 for r in update.reduced if r.name != channels}
    places = _places(dict(zip(pixels, others, strict=True)), taps, phases)
    if isinstance(places, str):
        return places
    steps, reach = ([*x] for x in zip(*(p[:2] for p in places.values()), strict=True))
    steps.insert(inner, 1)
    reach.insert(inner, 0)
    names, order = [*reduced], [_plain(i) for i in weights.indices]
    return Layer(
        member.name, image.func, weights.func, names.index(channels),
        tuple(i for i, name in enumerate(names) if name != channels),
        (order.index(channels), order.index(filters)),
        member.args.index(filters), inner, types[0].bytes, tuple(steps),
        tuple(reach), read.index(image),
        tuple(places[v][2] if v in places else 1 for v in member.args),
        bool(phases) and not all(_goes_up(i, name) for i in weights.indices for name in taps),
        columns=_columns(image, weights, inner, {r.name: number(r.extent) for r in update.reduced}),
    )  # fmt: skip


def _goes_up(index: Expr, name: str) -> bool:
    apart = Affine.of(index).coefficient(Var(name)).constant
    return apart is None or apart >= 0


def _columns(
    image: Access, weights: Access, inner: int, terms: Mapping[str, int | None]
) -> Columns | None:
    """The taps along the first pixels; None where there is none, their weights depend on phases, or
    the number of channels is not known. ``terms``: of the reduction variables, in their order.
    """
    first = next((d for d in range(len(image.indices)) if d != inner), None)
    channels = terms[_plain(image.indices[inner])]
    if first is None or channels is None:
        return None
    over = [name for name in terms if name in free_vars(image.indices[first])]
    names = [_plain(i) for i in weights.indices]
    if len(over) != 1 or over[0] not in names:
        return None
    taps, order = terms[over[0]] or 1, [*terms]
    places = order.index(over[0]), first, names.index(over[0])
    return Columns(taps, taps * channels, *places) if taps > 1 else None


def with_own_taps(member: Member) -> frozenset[str]:
    """The variables of the result that taps of a sum of products depend on, by their phase."""
    reduced, found = {r.name for r in member.stages[1].reduced}, dict[str, int]()
    for e in factors(member) or ():
        phases, access = dict[str, int](), element(e)
        if access is not None and _filters(access, member, reduced, phases):
            found |= phases
    return frozenset(found)


def _places(
    indices: dict[str, Expr], taps: dict[str, int], phases: dict[str, int]
) -> dict[str, tuple[int, int, int]] | str:
    """By pixel variable how far apart neighbours read, how far their windows reach, and how many
    phases there are; else why a tensor unit cannot have them. ``taps``: how many of each variable.
    """
    found = dict[str, tuple[int, int, int]]()
    for variable, index in indices.items():
        within, count = _phase(index, variable)
        if phases.get(variable, count) != count:
            return "its taps and its windows do not have the same phases"
        found[variable] = *_window(within, variable, taps), count
    if not all(step for step, _, _ in found.values()):
        return "its windows are not those of one tap along each dimension"
    if max(n for *_, n in found.values()) > 1 and max(step for step, *_ in found.values()) > 1:
        return "its pixels have phases, and windows that lie apart"
    return found


def _plain(e: Expr) -> str:
    return e.name if isinstance(e, Var) else ""


def _filters(access: Access, member: Member, reduced: set[str], phases: dict[str, int]) -> str:
    """The variable of the result at which weights are read, beside every reduction variable, which
    may be those of a phase (``phases``: how many there are); empty if they are none.
    """
    names = [_plain(i) or _tap(i, member, reduced, phases) for i in access.indices]
    own = [name for name in names if name in member.args]
    return own[0] if len(own) == 1 and sorted(names) == sorted((*reduced, *own)) else ""


def _tap(index: Expr, member: Member, reduced: set[str], phases: dict[str, int]) -> str:
    """The reduction variable of a tap that depends on the phase of a pixel; empty if it is none."""
    form, over = Affine.of(index), [r for r in reduced if r in free_vars(index)]
    if len(over) != 1 or form.coefficient(Var(over[0])).constant is None:
        return ""
    for atoms, _ in form.rest(Var(over[0])):
        match atoms:
            case () | (Binary(BinaryOp.MOD, _, IntImm()),):
                pass
            case _:
                return ""
        for part in atoms:
            assert isinstance(part, Binary)
            assert isinstance(part.b, IntImm)
            place, count = Affine.of(part.a), part.b.value
            own = [v for v in member.args if v in free_vars(part.a)]
            if len(own) != 1 or place.coefficient(Var(own[0])).constant != 1:
                return ""
            if place.rest(Var(own[0])).constant is None or phases.get(own[0], count) != count:
                return ""
            phases[own[0]] = count
    return over[0]


def _phase(index: Expr, variable: str) -> tuple[Expr, int]:
    """An index in which every so many pixels are one, as they are within a phase, and how many
    phases there are.
    """
    form = Affine.of(index)
    for atoms, factor in form:
        match atoms:
            case (Binary(BinaryOp.DIV, place, IntImm(value=count)) as quotient,) if (
                factor == 1 and count > 1 and variable in free_vars(place)
            ):
                inner = Affine.of(place)
                rest = form.rest(quotient)
                if inner.coefficient(Var(variable)).constant == 1 and (
                    inner.rest(Var(variable)).constant is not None
                ):
                    return (rest + Affine.of(Var(variable))).to_expr(), count
            case _:
                pass
    return index, 1


def _window(index: Expr, variable: str, taps: dict[str, int]) -> tuple[int, int]:
    """How far apart neighbours read at one tap, 0 if these are no windows, and how far a window
    reaches.
    """
    form, reach = Affine.of(index), 0
    rest, over = form.rest(Var(variable)), free_vars(index) & {*taps}
    for name in over:
        rest = rest.rest(Var(name))
        apart = form.coefficient(Var(name)).constant
        if apart is None:
            return 0, 0
        reach += abs(apart) * (taps[name] - 1)
    step = form.coefficient(Var(variable)).constant or 0
    return (max(step, 0) if len(over) <= 1 and rest.constant is not None else 0), reach
