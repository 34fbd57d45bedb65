"""Where the factors of a sum vary: along the digits of its lanes, as matrices or as a convolution.

The lanes of a sum are numbered by digits, innermost first: those of the reduction, then those of
the outputs. A factor seen as a scalar over the digits is an operand if it follows few of them: a
matrix those of its rows and of the reduction (``matrices``); the image of a convolution one place,
stride * output + dilation * term, and the taps the phases and the reduction (``band``). Where the
image's place has a part that follows the phase alone, as in ``I[(x + 1)/2 + t]``, the taps are
moved by it instead: there are more of them, zeros at their ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from math import gcd, prod

from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.contents import holds
from selector.ir.lanes import lane
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Compare,
    CompareOp,
    Expr,
    IntImm,
    Load,
    Ramp,
    Select,
    Var,
)
from selector.ir.simplify import div, mod
from selector.ir.traverse import (
    change_expr,
    expr_children,
    free_vars,
    map_expr,
    substitute,
    walk_expr,
)
from selector.ir.types import INT32
from selector.operands.computed_values import ALONG, ROW, masked

# Places of a sum for each one that is a term of an output: of more, tensor units would multiply so
# many zeros that CUDA cores, a sixteenth as fast, are no slower.
SPARSEST = 16


@dataclass(frozen=True, slots=True)
class Digit:
    """One of the numbers that make a lane's; ``depth``: of the reduction."""

    name: str
    extent: int
    depth: bool

    @property
    def var(self) -> Var:
        return Var(self.name)


@dataclass(frozen=True, slots=True)
class Grid:
    """The digits of a sum's lanes, innermost first."""

    digits: tuple[Digit, ...]

    @property
    def depth(self) -> tuple[Digit, ...]:
        return tuple(d for d in self.digits if d.depth)

    @property
    def outputs(self) -> tuple[Digit, ...]:
        return tuple(d for d in self.digits if not d.depth)

    @property
    def lanes(self) -> int:
        return prod(d.extent for d in self.digits)

    @property
    def extents(self) -> dict[str, int]:
        return {d.name: d.extent for d in self.digits}

    def scalar(self, e: Expr) -> Expr:
        """One lane of a vector, over the digits, its indices as polynomials of them."""
        return _ordered(lane(e, tuple((d.var, d.extent) for d in self.digits)))

    def used(self, e: Expr) -> frozenset[str]:
        return free_vars(e) & self.extents.keys()

    def index(self, base: Expr, steps: Mapping[str, Affine]) -> Expr:
        """The index vector that walks so far along each digit."""
        e = base
        for d in self.digits:
            step = steps.get(d.name, Affine())
            if not step.terms:
                e = Broadcast(e, d.extent)
            else:
                lanes, by = e.type.lanes, step.to_expr()
                e = Ramp(e, by if lanes == 1 else Broadcast(by, lanes), d.extent)
        return e


def cuts_of(value: Expr) -> frozenset[int]:
    """After how many lanes the ramps and broadcasts of a value take another step."""
    return frozenset(
        (e.base if isinstance(e, Ramp) else e.value).type.lanes
        for e in walk_expr(value)
        if isinstance(e, Ramp | Broadcast)
    )


def grids(value: Expr, terms: int, beside: frozenset[int] = frozenset()) -> Iterator[Grid]:
    """The digits of a sum of so many terms in each output: as its ramps and broadcasts are nested,
    with phases where an index is divided, and as other sums are (``beside``)."""
    cuts = cuts_of(value) | {terms}
    for wanted in ({terms}, cuts, cuts | beside):
        first = _grid(_chain(wanted, terms, value.type.lanes), terms, value.type.lanes)
        phases = _phases(first, first.scalar(value))
        yield first
        output = first.outputs[0].extent if first.outputs else 1
        if phases > 1 and output % phases == 0 and output > phases:
            finer = _chain(wanted | {terms * phases}, terms, value.type.lanes)
            yield _grid(finer, terms, value.type.lanes)


def _ordered(e: Expr) -> Expr:
    """A value whose indices are polynomials."""
    place = e.type == INT32 and not holds(e, Load)
    return Affine.of(e).to_expr() if place else map_expr(e, _ordered)


def _chain(cuts: Set[int], terms: int, lanes: int) -> list[int]:
    """Lane counts that divide one another, up to all lanes."""
    found = [1]
    for c in sorted(cuts | {lanes}):
        nested = c % found[-1] == 0 and lanes % c == 0 and (c % terms == 0 or c < terms)
        if c > found[-1] and nested:
            found.append(c)
    return found


def _grid(chain: Sequence[int], terms: int, lanes: int) -> Grid:
    steps = enumerate(pairwise(chain))
    return Grid(tuple(Digit(f"$d{i}", b // a, b <= terms) for i, (a, b) in steps))


def _phases(grid: Grid, value: Expr) -> int:
    """After how many outputs what is divided in the indices begins anew; 1 for no division."""
    if not grid.outputs:
        return 1
    x, found = grid.outputs[0].var, 1
    for e in walk_expr(value):
        match e:
            case Binary(BinaryOp.DIV | BinaryOp.MOD, a, IntImm(by, _)) if by > 1:
                step = Affine.of(a).coefficient(x).constant
                if step:
                    period = by // gcd(by, step)
                    found = found * period // gcd(found, period)
            case _:
                pass
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """What an operand's element (ROW, ALONG) is, over these two; and how the index of its load
    walks along the digits: ``rows`` of ROW, ``along`` of ALONG."""

    value: Expr
    rows: Mapping[str, int]
    along: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """The two factors as operands, in their order, over the lanes of a grid (which has more terms
    than the sum where taps are moved). ``taps``: which of them is that of a convolution."""

    grid: Grid
    places: tuple[Place, Place]
    taps: int | None


def shape_of(grid: Grid, factors: tuple[Expr, Expr]) -> Shape | None:
    """How two scalars over the digits are the operands of one instruction; None if they are not."""
    return matrices(grid, factors) or band(grid, factors, 1) or band(grid, factors, 0)


def matrices(grid: Grid, factors: tuple[Expr, Expr]) -> Shape | None:
    """Factors that follow outputs of their own: the one the outer digits, the other the inner
    ones, or none at all."""
    outputs = grid.outputs
    used = [grid.used(f) for f in factors]
    for outer, inner in ((0, 1), (1, 0)):
        for cut in range(1, len(outputs)):
            low, high = outputs[:cut], outputs[cut:]
            if used[outer] & {d.name for d in low} or used[inner] & {d.name for d in high}:
                continue
            own = {outer: high, inner: low}
            first, second = (_matrix(grid, f, own[i]) for i, f in enumerate(factors))
            return Shape(grid, (first, second), None)
    return None


def _matrix(grid: Grid, value: Expr, own: tuple[Digit, ...]) -> Place:
    rows, values = _numbered(own, ROW)
    along, more = _numbered(grid.depth, ALONG)
    return Place(substitute(value, values | more), rows, along)


def _numbered(digits: tuple[Digit, ...], number: Var) -> tuple[dict[str, int], dict[str, Expr]]:
    """Digits as one number: its step along each, and each as a part of it."""
    steps, values = dict[str, int](), dict[str, Expr]()
    before = 1
    for i, d in enumerate(digits):
        steps[d.name] = before
        part = div(number, IntImm(before))
        values[d.name] = part if i == len(digits) - 1 else mod(part, IntImm(d.extent))
        before *= d.extent
    return steps, values


def band(grid: Grid, factors: tuple[Expr, Expr], taps: int) -> Shape | None:
    """A convolution of the one factor with the other, number ``taps``."""
    if len(grid.depth) > 1:
        return None
    outputs, used = grid.outputs, grid.used(factors[taps])
    count = max((i + 1 for i, d in enumerate(outputs) if d.name in used), default=0)
    for phases in range(count, len(outputs)):
        found = _band(grid, factors, taps, phases)
        if found is not None:
            return found
    return None


def _band(grid: Grid, factors: tuple[Expr, Expr], taps: int, phases: int) -> Shape | None:
    """The convolution whose outputs are digit number ``phases``, those before it phases."""
    outputs, image = grid.outputs, factors[1 - taps]
    term = grid.depth[0] if grid.depth else Digit("$none", 1, True)
    fast, output, rest = outputs[:phases], outputs[phases], outputs[phases + 1 :]
    if grid.used(image) & {d.name for d in fast}:
        moved = _moved(grid, factors, taps, fast, output, term)
        if moved is None:
            return None
        grid, factors = moved
        image, term = factors[1 - taps], grid.depth[0]
    walked = _walked(image, output.var, term.var)
    if walked is None:
        return None
    stride, dilation, along = walked
    rows, values = _numbered(rest, ROW)
    pictured = Place(substitute(along, values), rows, {output.name: stride, term.name: dilation})
    columns, more = _numbered(fast, ROW)
    tapped = Place(substitute(factors[taps], more | {term.name: ALONG}), columns, {term.name: 1})
    return Shape(grid, (tapped, pictured) if taps == 0 else (pictured, tapped), taps)


def _walked(image: Expr, output: Var, term: Var) -> tuple[int, int, Expr] | None:
    """The stride and dilation of the one place that a value follows, and the value over it."""
    forms = set(_forms(image, (output, term)))
    if not forms or None in forms:
        return None
    first = next(iter(sorted(f for f in forms if f is not None)))
    unit = gcd(*first) * (1 if first[0] > 0 else -1)
    stride, dilation = first[0] // unit, first[1] // unit
    if stride < 1 or any(f is None or f[0] * dilation != f[1] * stride for f in forms):
        return None
    return stride, dilation, _over_place(image, (output, term), stride)


def _forms(e: Expr, along: tuple[Var, Var]) -> Iterator[tuple[int, int] | None]:
    """The steps of the linear indices in a value along two digits; None for one that is not."""
    if free_vars(e).isdisjoint({v.name for v in along}):
        return
    steps = _linear(e, along)
    if steps is not None:
        yield steps[0]
        return
    if e in along:
        yield None
    yield from (f for c in expr_children(e) for f in _forms(c, along))


def _linear(e: Expr, along: tuple[Var, Var]) -> tuple[tuple[int, int], Affine] | None:
    """The constant steps of an index along two digits, and the rest of it."""
    if e.type != INT32:
        return None
    whole = Affine.of(e)
    steps = [whole.coefficient(v).constant for v in along]
    rest = whole.rest(along[0]).rest(along[1])
    if steps[0] is None or steps[1] is None or any(rest.mentions(v.name) for v in along):
        return None
    return (steps[0], steps[1]), rest


def _over_place(e: Expr, along: tuple[Var, Var], stride: int) -> Expr:
    """A value of one place along two digits, over ALONG."""
    if free_vars(e).isdisjoint({v.name for v in along}):
        return e
    found = _linear(e, along)
    if found is not None:
        (step, _), rest = found
        return (rest + Affine.of(ALONG) * (step // stride)).to_expr()
    return map_expr(e, lambda c: _over_place(c, along, stride))


def _moved(
    grid: Grid, factors: tuple[Expr, Expr], taps: int, fast: tuple[Digit, ...], output: Digit,
    term: Digit,
) -> tuple[Grid, tuple[Expr, Expr]] | None:  # fmt: skip
    """The same sum over more terms, one for each place of the image that some phase reads: what the
    place has of the phase is taken from the taps' number."""
    image = factors[1 - taps]
    places = {e.index for e in walk_expr(image) if isinstance(e, Load) and grid.used(e.index)}
    if len(places) != 1 or len(fast) != 1 or not grid.depth:
        return None
    (place,) = places
    phase = fast[0]
    whole = Affine.of(place)
    step = whole.coefficient(term.var).constant
    rest = whole.rest(term.var).rest(output.var)
    if not step or step < 0 or rest.mentions(output.name) or rest.mentions(term.name):
        return None
    apart = [_value(rest, phase, p) for p in range(phase.extent)]
    starts = [a - apart[0] for a in apart]
    offsets = [s.constant for s in starts if s.constant is not None]
    if len(offsets) < phase.extent:
        return None
    lead = [o - min(offsets) for o in offsets]
    first = apart[lead.index(0)]
    count = step * (term.extent - 1) + max(lead) + 1
    if count > SPARSEST * term.extent:
        return None
    index = (whole.coefficient(output.var) * output.var + first + Affine.of(term.var)).to_expr()
    behind: Expr = IntImm(lead[0])
    for p, o in enumerate(lead[1:], 1):
        behind = Select(Compare(CompareOp.EQ, phase.var, IntImm(p)), IntImm(o), behind)
    at = Binary(BinaryOp.SUB, term.var, behind)
    tap = substitute(factors[taps], {term.name: div(at, IntImm(step))})
    held = [
        Compare(CompareOp.LE, IntImm(0), at),
        Compare(CompareOp.LT, at, IntImm(step * (term.extent - 1) + 1)),
    ]
    if step > 1:
        held.append(Compare(CompareOp.EQ, mod(at, IntImm(step)), IntImm(0)))
    for condition in held:
        tap = masked(condition, tap)

    def moved(e: Expr) -> Expr | None:
        return replace(e, index=index) if isinstance(e, Load) and e.index == place else None

    pictured = change_expr(image, moved)
    if grid.used(pictured) & {phase.name}:
        return None
    digits = tuple(Digit(d.name, count, True) if d == term else d for d in grid.digits)
    return Grid(digits), (tap, pictured) if taps == 0 else (pictured, tap)


def _value(rest: Affine, phase: Digit, number: int) -> Affine:
    """The part of a place that is known when its phase is."""
    return Affine.of(substitute(rest.to_expr(), {phase.name: IntImm(number)}))
