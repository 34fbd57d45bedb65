"""Which rules a result needs: a minimal chain, in the order in which its rules first apply.

From the rules that matched, one after the other is taken away; if the same instruction still comes
out with the same operands, it stays away. Fewer rules never find more, so what remains is minimal:
it is enough, and none of it can be left out. A rule without which the search has no end, or grows
beyond ``GROWTH`` times its size, is needed too. Many such subsets are tried in one run
(``worlds``). A search that reached a cap, or is too large to be tried so often, has no chain.

Rules that only ask questions or note facts (``is_telling``) are part of every run and of no chain.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field

from rules import rule_files
from selector.dataclass import dataclass
from selector.eqsat.decode import Decoder, Term
from selector.eqsat.extract import Graph, Shape
from selector.eqsat.facts import instruction_facts
from selector.eqsat.saturate import Saturation
from selector.eqsat.worlds import RuleFiles, Worlds
from selector.intrinsics import find
from selector.ir.nodes import Store, Var

PLUMBING = (
    "and-", "band-", "block-", "convolve-ask", "convolve-masks", "demand-", "divided-", "factor-",
    "fold-", "gcd-", "lanes-", "mask-", "masked-", "packed-", "phases-", "product-packed",
    "scaled-", "true-", "want-", "zero-",
)  # fmt: skip
"""Names of rules that only ask questions or note facts begin so."""

SELDOM = (
    "add-zero", "binary-broadcasts", "broadcast-and", "broadcast-broadcast", "broadcast-compare",
    "convolve-rows", "mul-", "ramp-merge", "ramp-one", "rows-", "split-and", "tile-fill",
    "tile-read", "toeplitz-rows",
)  # fmt: skip
"""Names of rules that match in most searches and are in hardly any chain begin so: the first chain
is looked for without them, which makes that search shorter and never changes its result."""

GROWTH = 4
"""So many times the rows of its whole search may a statement have under some of the rules."""
MOST_ROWS = 100_000
"""Rows of a search, times the rules that matched, up to which it has a chain."""


def is_telling(rule: str) -> bool:
    """Whether a rule tells something about a result: it is a law, not a question."""
    return not rule.startswith(PLUMBING)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A result to explain: the instruction and tile that were chosen for a statement, its term."""

    shape: Shape
    term: Term

    def __call__(self, graph: Graph) -> bool:
        """Whether a graph still holds it, up to the way in which its indices are written."""
        found = graph.blocks(0).get(self.shape)
        return found is not None and canonical(found[3]) == canonical(self.term)

    @property
    def facts(self) -> str:
        """What the rules have to know of the target for it: this instruction."""
        record = find(self.shape[0])
        assert record is not None
        return instruction_facts((record,))


def wanted(term: Term) -> Wanted | None:
    """The result that a selected Store term is; None for fills, reads and plain statements."""
    match term:
        case ("Store", _, _, ("MultiplyAdd", str(name), int(m), int(n), *_), _):
            return Wanted((name, m, n), term)
        case _:
            return None


def canonical(term: Term) -> Store:
    """A Store term over its symbols, the sums in its indices simplified."""
    symbols = {name: Var(name) for name in set(_symbols(term))}
    return Decoder(symbols or {"": Var("s")}).store(term)


def _symbols(term: object) -> Iterable[str]:
    match term:
        case ("Sym", str(name)):
            yield name
        case tuple():
            for part in term:
                yield from _symbols(part)
        case _:
            return


def chain(
    statement: str, facts: str, result: Wanted, run: Saturation, rules: RuleFiles | None = None
) -> tuple[str, ...]:
    """A minimal set of telling rules with which an encoded statement still comes to its result, in
    the order in which they first apply; none if the statement alone does not come to it, or its
    search is too large.

    ``run`` is the saturation that found the result and ``facts`` are its facts of the target; the
    one instruction suffices, unless another's shape lent its tile. ``rules`` are the standard ones
    if not given.
    """
    known = _known(rule_files() if rules is None else rules)
    worlds, matched = known.worlds, frozenset(r for r, n in run.matches.items() if n)
    order = [r for r in worlds.order if r in matched and is_telling(r)]
    if run.capped or len(order) * run.rows > MOST_ROWS:
        return ()
    worlds.load(matched)
    steps: dict[frozenset[str], Mapping[str, int]] = {}
    for own in (result.facts, facts):

        def attempt(some: Sequence[frozenset[str]], own: str = own) -> list[bool]:
            reaching = worlds.reaching(statement, own, some, result, GROWTH * run.rows)
            steps[some[0]] = reaching.steps
            return reaching.found

        stopped = worlds.stopped
        kept = minimal(order, known.expected(order), attempt)
        if kept is not None:
            if worlds.stopped > stopped:
                kept = irreducible(kept, order, attempt)
            known.learn(order, kept)
            if kept not in steps:
                attempt([kept])
            first = steps[kept]
            return tuple(sorted(kept, key=lambda r: (first.get(r, 0), worlds.order[r])))
    return ()  # only beside the other statements of its scope


def minimal(
    order: Sequence[str],
    expected: Set[str],
    attempt: Callable[[Sequence[frozenset[str]]], list[bool]],
) -> frozenset[str] | None:
    """The rules left when they are taken away one after the other, in ``order``, wherever the
    result still comes out; None if it does not come out of all of them.

    ``attempt`` says for several sets at once whether the result comes out. So all decisions are
    made at once, each as if those before it had come out as ``expected``: up to the first that is
    not so they are right, and so is that one, the other way round. What is expected makes the
    search shorter and never changes its result.
    """
    kept = [rule in expected for rule in order]
    needed: set[str] = set()  # lost without it, whatever else there is
    start = 0
    while True:
        without = [frozenset(chosen(order, kept, i)) for i in range(len(order))]
        asked = [i for i in range(start, len(order)) if kept[i] and order[i] not in needed]
        enough, *found = attempt([frozenset(chosen(order, kept)), *(without[i] for i in asked)])
        wrong = [i for i, comes_out in zip(asked, found, strict=True) if comes_out]
        if not enough:
            left = [i for i in range(start, len(order)) if not kept[i]]
            whole, *lost = attempt([frozenset(order), *(without[i] for i in left)])
            if not whole:
                return None
            missing = [i for i, comes_out in zip(left, lost, strict=True) if not comes_out]
            wrong = [*(i for i in wrong if i < missing[0]), missing[0]]
        if not wrong:
            return frozenset(chosen(order, kept))
        for i in asked:
            if i not in wrong and without[i] == frozenset(order) - {order[i]}:
                needed.add(order[i])
        for i in wrong:
            kept[i] = not kept[i]
        start = min(wrong) + 1


def irreducible(
    kept: frozenset[str],
    order: Sequence[str],
    attempt: Callable[[Sequence[frozenset[str]]], list[bool]],
) -> frozenset[str]:
    """These rules without those that can be left out all the same: a search that grew too large
    without one of them may end without another one too."""
    while True:
        rules = [r for r in order if r in kept]
        found = attempt([kept - {r} for r in rules])
        if not any(found):
            return kept
        kept -= {rules[found.index(True)]}


def chosen(order: Sequence[str], kept: Sequence[bool], i: int | None = None) -> Iterator[str]:
    """The rules that are kept; with the number of one, those before it, and all behind it."""
    for j, rule in enumerate(order):
        if i is None or j < i:
            if kept[j]:
                yield rule
        elif j > i:
            yield rule


@dataclass
class _Known:
    """The worlds of a set of rules, and the chains that were found: of the rules that matched,
    those that were kept."""

    worlds: Worlds
    found: dict[frozenset[str], frozenset[str]] = field(
        default_factory=dict[frozenset[str], frozenset[str]]
    )

    def expected(self, order: Sequence[str]) -> frozenset[str]:
        """The rules that may be needed: as where most nearly the same rules matched, the last of
        such; and those that were not among them. At first all but the ``SELDOM`` ones."""
        matched = frozenset(order)
        if not self.found:
            return frozenset(r for r in order if not r.startswith(SELDOM))
        nearest = min(
            reversed(self.found), key=lambda m: len(m ^ matched), default=frozenset[str]()
        )
        return matched & self.found.get(nearest, matched) | (matched - nearest)

    def learn(self, order: Sequence[str], kept: frozenset[str]) -> None:
        self.found.pop(frozenset(order), None)
        self.found[frozenset(order)] = kept


_local = threading.local()
_MOST_KNOWN = 4


def _known(rules: RuleFiles) -> _Known:
    """One for each set of rules and thread: an e-graph belongs to its thread."""
    table: dict[RuleFiles, _Known] = _local.__dict__.setdefault("table", {})
    if rules not in table:
        if len(table) >= _MOST_KNOWN:
            del table[next(iter(table))]
        worlds = Worlds(rules, is_telling)
        table[rules] = _Known(worlds)
    return table[rules]
