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
class KnownWeights:
    """A recurrence with numbers for ``weights``. ``memory``: no state makes a difference of more
    than the square of its type's precision, of its own largest part, to any that comes so many
    steps later; 0 where it does not forget.
    """

    weights: tuple[float, ...]
    memory: int

    def power(self, steps: int) -> Matrix:
        """Of the transition: what a state becomes over so many steps."""
        return _power(_transition(self.weights), steps)

    def bounded(self, steps: int) -> bool:
        """Whether numbers of a type have room for that."""
        return all(abs(entry) <= LARGEST for row in self.power(steps) for entry in row)


def known_weights(weights: Sequence[Expr], t: Type) -> KnownWeights | None:
    """Of what outputs before are multiplied by; None where these are no numbers."""
    if not weights or not t.is_float or any(free_vars(w) or holds(w, Load) for w in weights):
        return None
    try:
        numbers = tuple(float(evaluate(w, Frame(1, {})).flat[0]) for w in weights)
    except InternalError:
        return None
    small = (2.0**-52 if t.bits == 64 else 2.0**-23) ** 2
    return KnownWeights(numbers, steps_until(numbers, small) or 0)


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
