"""Terms of a hole by size, and those of one class of which only some are recognised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import product

import numpy as np

from selector.dataclass import dataclass
from selector.eqsat.decode import Decoder, Term
from selector.ir.arithmetic import Array
from selector.workbench.infer.fingerprints import WORLDS, Fingerprints, keys
from selector.workbench.infer.grammar import PLACE, Hole, Kind, Operator
from selector.workbench.infer.holes import Recogniser, fill
from selector.workbench.infer.patterns import blanked

_MOST = 2500
"""Classes of a kind and size that larger terms are built of."""
_TRIES = 2
"""Terms of one shape that are asked about in all classes."""

Made = tuple[int, Term]
"""A term and the number of its class."""


@dataclass
class Bank:
    """The terms of a grammar by kind and size, one a class, with their values."""

    hole: Hole
    prints: Fingerprints
    pools: dict[tuple[Kind, int], tuple[list[Term], Array]] = field(
        default_factory=dict[tuple[Kind, int], tuple[list[Term], Array]]
    )
    _seen: dict[Kind, set[int]] = field(default_factory=dict[Kind, set[int]])

    def leaves(self) -> list[Made]:
        """The terms of size 1."""
        found: list[Made] = []
        for term in self.hole.leaves:
            value = self.prints.value(term)
            assert value is not None, term
            kind = (str(value[0].element), value[0].lanes)
            found += self._enter(kind, 1, [term], value[1][None])
        return found

    def grow(self, size: int) -> Iterator[Made]:
        """The terms of a size in the hole, after all smaller ones."""
        for operator in self.hole.operators:
            expression = Decoder().expr(operator.term)
            kind = (str(expression.type.element), expression.type.lanes)
            for sizes in _splits(size - 1, len(operator.takes)):
                pools = [self.pools.get(p) for p in zip(operator.takes, sizes, strict=True)]
                if any(p is None for p in pools):
                    continue
                *first, (terms, last) = [p for p in pools if p is not None]
                for chosen in product(*(range(len(p[0])) for p in first)):
                    values = [p[1][i : i + 1] for p, i in zip(first, chosen, strict=True)]
                    frame = self.prints.batch([*values, last])
                    value = self.prints.evaluate(expression, frame)
                    before = [p[0][i] for p, i in zip(first, chosen, strict=True)]
                    made = [_filled(operator, [*before, t]) for t in terms]
                    yield from self._enter(kind, size, made, value.reshape(len(terms), WORLDS, -1))

    def _enter(self, kind: Kind, size: int, terms: list[Term], values: Array) -> list[Made]:
        """Add the first term of each new class; those that fit the hole, which are no constant."""
        flat = values.reshape(len(terms), -1)
        numbers = keys(flat)
        seen = self._seen.setdefault(kind, set())
        new = [i for i, k in enumerate(numbers) if k not in seen]
        new = [i for j, i in enumerate(new) if numbers[i] not in {numbers[x] for x in new[:j]}]
        old, kept = self.pools.get((kind, size), ([], values[:0]))
        new = new[: max(0, _MOST - len(old))]
        seen.update(numbers[i] for i in new)
        if new:
            stacked = np.concatenate([kept, values[new]])
            self.pools[kind, size] = ([*old, *(terms[i] for i in new)], stacked)
        if kind != self.hole.kind:
            return []
        varies = np.any(flat != flat[:, :1], axis=1)
        return [(numbers[i], t) for i, t in enumerate(terms) if varies[i]]


def _filled(operator: Operator, terms: Sequence[Term]) -> Term:
    result = operator.term
    for i, (term, (kind, lanes)) in enumerate(zip(terms, operator.takes, strict=True)):
        result = fill(result, ("Atom", kind, lanes, f"#{i}"), term)
    return result


def _splits(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Positive numbers with a sum."""
    if parts == 1:
        if total > 0:
            yield (total,)
        return
    for first in range(1, total):
        for rest in _splits(total - first, parts - 1):
            yield (first, *rest)


@dataclass(frozen=True, slots=True)
class Pair:
    """A program that is refused, and the term that is recognised where another stands."""

    hole: str
    update: Term
    refused: Term
    recognised: Term


@dataclass
class Search:
    """The search in one hole."""

    hole: Hole
    bank: Bank
    recogniser: Recogniser
    terms: int = 0
    _good: dict[int, Term] = field(default_factory=dict[int, Term])
    _bad: dict[int, list[Term]] = field(default_factory=dict[int, list[Term]])
    _shapes: Counter[object] = field(default_factory=Counter[object])

    @property
    def classes(self) -> int:
        return len(self._good.keys() | self._bad.keys())

    def step(self, size: int) -> Iterator[Pair | None]:
        """The pairs of terms of a size, smaller ones done before; None where time may be over."""
        waiting: list[Made] = []
        for number, term in self.bank.leaves() if size == 1 else self.bank.grow(size):
            self.terms += 1
            if self.terms % 64 == 0:
                yield None
            shape = blanked(term)
            if self._shapes[shape] >= _TRIES or self._shapes[number, shape]:
                continue
            self._shapes[shape] += 1
            self._shapes[number, shape] += 1
            waiting.append((number, term))
            if len(waiting) == 24:
                yield from self._asked(waiting)
                waiting = []
        yield from self._asked(waiting)

    def _asked(self, made: list[Made]) -> Iterator[Pair]:
        answers = self.recogniser.ask([fill(self.hole.update, PLACE, t) for _, t in made])
        for (number, term), good in zip(made, answers, strict=True):
            if good and number not in self._good:
                self._good[number] = term
                refused = self._bad.pop(number, [])
            elif not good and number not in self._good:
                self._bad.setdefault(number, []).append(term)
                continue
            else:
                refused = [] if good else [term]
            for t in refused:
                yield Pair(self.hole.name, self.hole.update, t, self._good[number])
