"""After how many steps a linear recurrence has forgotten where it began.

Where weights are numbers and the powers of the transition decay, what lies further back is left out
of a state, so that blocks, and threads far apart, have nothing to tell each other: they run through
so many steps ahead of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.ir.affine import settled
from selector.ir.contents import holds
from selector.ir.evaluator import Frame, evaluate
from selector.ir.nodes import Expr, IntImm, Load, Store, Var
from selector.ir.simplify import add, mul, sub
from selector.ir.traverse import free_vars, substitute
from selector.ir.types import Type
from selector.lowering.scans.find import Spread

LONGEST = 1 << 14  # steps that are looked through
FEW = 4  # steps of a thread ahead of a block, at least: fewer are more to join
LARGEST = 1e30  # a power that does not decay
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Fading:
    """A recurrence with numbers for ``weights``, that forgets where it began within ``steps``: no
    state makes a difference of more than the square of its type's precision, of its own largest
    part, to any that comes so much later.
    """

    weights: tuple[float, ...]
    steps: int

    def power(self, steps: int) -> Matrix:
        """Of the transition: what a state becomes over so many steps."""
        return _power(_transition(self.weights), steps)


def fading(found: Spread) -> Fading | None:
    return forgetting(found.weights, found.type)


def forgetting(outputs: Sequence[Expr], t: Type) -> Fading | None:
    """Of what ``outputs`` before are multiplied by. None for a recurrence that does not forget, or
    where that is not known.
    """
    if not outputs or not t.is_float or any(free_vars(w) or holds(w, Load) for w in outputs):
        return None
    try:
        weights = tuple(float(evaluate(w, Frame(1, {})).flat[0]) for w in outputs)
    except InternalError:
        return None
    steps = steps_until(weights, (2.0**-52 if t.bits == 64 else 2.0**-23) ** 2)
    return None if steps is None else Fading(weights, steps)


def ahead(found: Spread, kept: int, threads: int, *, few: bool) -> Spread | None:
    """The steps before a block's of which it has ``kept`` at least: as few for each of its
    ``threads``, which is soonest done, or as many as in a tile for a ``few`` of them, which is
    least to do. None where a tile has fewer, or the steps of a thread are no single loop.
    """
    if found.blocks is None or len(found.inner) != 1:
        return None
    (x,), along, steps = found.inner, found.along, found.steps
    if few:
        count = _power_of_two(-(-kept // steps))
    else:
        count, steps = threads, _power_of_two(max(min(FEW, steps), -(-kept // threads)))
    if count > threads or found.steps % steps or (found.steps // steps).bit_count() != 1:
        return None
    place = sub(add(mul(Var(along.name), IntImm(steps)), Var(x.name)), IntImm(count * steps))
    values: dict[str, Expr] = {x.name: place, along.name: IntImm(0)}  # as if one took all steps
    values |= {loop.name: loop.min for loop in found.outer}
    store = Store(
        found.store.buffer,
        settled(substitute(found.store.index, values)),
        settled(substitute(found.store.value, values)),
    )
    own = replace(along, extent=IntImm(count))
    threads_ = tuple(own if loop is along else loop for loop in found.threads)
    tests = tuple(settled(substitute(t, values)) for t in found.tests)
    loops = (found.blocks, own, replace(x, extent=IntImm(steps)))
    return replace(found, store=store, loops=loops, threads=threads_, tests=tests)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def steps_until(weights: Sequence[float], small: float) -> int | None:
    """Steps after which the transition's powers, that one and all later ones, are so small."""
    transition, largest = _transition(weights), 1.0
    power = _power(transition, 0)
    for steps in range(1, LONGEST):
        power = _product(power, transition)
        size = max(sum(map(abs, row)) for row in power)
        if not size <= LARGEST:
            return None
        largest = max(largest, size)
        if size * largest <= small:  # any later power is a product of this one and those before
            return steps
    return None


def _transition(weights: Sequence[float]) -> Matrix:
    """From the outputs before, nearest first, to those a step later."""
    places = range(len(weights))
    older = (tuple(float(m == n) for m in places) for n in places[:-1])
    return (tuple(weights), *older)


def _power(m: Matrix, exponent: int) -> Matrix:
    places = range(len(m))
    found = tuple(tuple(float(a == b) for b in places) for a in places)
    while exponent:
        if exponent & 1:
            found = _product(found, m)
        m, exponent = _product(m, m), exponent >> 1
    return found


def _product(a: Matrix, b: Matrix) -> Matrix:
    """In a fixed order, the same on every machine."""
    columns = [*zip(*b, strict=True)]
    return tuple(
        tuple(sum(x * y for x, y in zip(row, column, strict=True)) for column in columns)
        for row in a
    )
