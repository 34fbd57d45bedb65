"""``rules infer``: the searches in all holes, one size after another, and what they found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from selector.dataclass import dataclass
from selector.diagnostics import UserError
from selector.workbench.infer.candidates import Candidate, Sieve
from selector.workbench.infer.cost import Cost, Paired
from selector.workbench.infer.examples import test_of
from selector.workbench.infer.fingerprints import Fingerprints
from selector.workbench.infer.grammar import holes
from selector.workbench.infer.holes import Recogniser
from selector.workbench.infer.laws import from_laws
from selector.workbench.infer.patterns import plain, show
from selector.workbench.infer.search import Bank, Pair, Search
from selector.workbench.prove.sorts import Signatures
from selector.workbench.ruleset import RuleFiles, read_rules

LARGEST = 7
_FIRST = 3
"""The size up to which terms are looked at before laws are applied; with no larger ones, none
are."""


@dataclass(frozen=True, slots=True)
class Options:
    """Which holes (all if none is named), the size of terms, the seconds after which no further
    pair is looked at, the seed of random memory, rules that are left out."""

    holes: tuple[str, ...] = ()
    size: int = 4
    seconds: float = 60.0
    seed: int = 0
    without: tuple[str, ...] = ()
    cost: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate with its test and its cost (None if that was not asked for)."""

    candidate: Candidate
    test: str
    cost: Cost | None

    def as_dict(self) -> dict[str, object]:
        c, cost = self.candidate, self.cost
        return {
            "name": c.name,
            "hole": c.pair.hole,
            "law": c.law.lstrip("; "),
            "rule": c.rule,
            "test": self.test,
            "refused": show(c.pair.refused),
            "recognised": show(c.pair.recognised),
            "contracts": list(c.contracts),
            "cost": None
            if cost is None
            else {"rows": cost.rows, "most": cost.most, "scopes": cost.matched},
        }

    def __str__(self) -> str:
        c = self.candidate
        given = f", given that {'; '.join(c.contracts)}" if c.contracts else ""
        lines = [f"; {holes()[c.pair.hole].about}; proved{given}"]
        lines += [f"; cost over the corpus: {self.cost}"] if self.cost is not None else []
        return "\n".join([*lines, c.law, c.rule, "", *(f"; | {x}" for x in self.test.splitlines())])


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found, what is equal on random memory and was not proved, and what was tried;
    ``stopped``: the time was over first."""

    found: tuple[Found, ...]
    unproved: tuple[tuple[str, str], ...]
    terms: int
    classes: int
    asked: int
    pairs: int
    stopped: bool

    def as_dict(self) -> dict[str, object]:
        return {
            "found": [f.as_dict() for f in self.found],
            "unproved": [{"law": law, "why": why} for law, why in self.unproved],
            "terms": self.terms,
            "classes": self.classes,
            "asked": self.asked,
            "pairs": self.pairs,
            "stopped": self.stopped,
        }

    def as_markdown(self) -> str:
        """A table of them."""
        lines = ["| law | selects | given | rows |", "|---|---|---|---:|"]
        for f in self.found:
            c, cost = f.candidate, f.cost
            law = c.law.lstrip("; ").replace("|", "\\|")
            rows = "" if cost is None else f"{cost.rows - 1:+.1%}"
            given = "; ".join(c.contracts)
            lines.append(
                f"| `{law}` | {holes()[c.pair.hole].about}: "
                f"`{_short(plain(c.pair.refused))}` | {given} | {rows} |"
            )
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        counted = (
            f"; {self.terms} terms, {self.classes} classes, {self.asked} programs asked about, "
            f"{self.pairs} pairs of equals of which one is refused: {len(self.found)} proved "
            f"equalities, {len(self.unproved)} equal on random memory and not proved"
            f"{'; stopped as the time was over' if self.stopped else ''}"
        )
        return "\n\n".join([*map(str, self.found), counted])


def _short(text: str, most: int = 100) -> str:
    text = text.replace("|", "\\|")
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def infer(
    files: RuleFiles, options: Options, tell: Callable[[Candidate], None] = lambda found: None
) -> Findings:
    """Look for equalities that the rules miss; ``tell`` is told of each as it is proved.

    The same options give the same findings, but for what a time that is over cuts off. UserError
    for a hole or a rule that there is not, a size or a time that cannot be.
    """
    _check(files, options)
    end = monotonic() + options.seconds
    recogniser = Recogniser(files, frozenset(options.without))
    prints = Fingerprints(options.seed)
    sieve = Sieve(recogniser, prints, Signatures.of(files))
    searches = [
        Search(hole, Bank(hole, prints), recogniser)
        for name, hole in holes().items()
        if not options.holes or name in options.holes
    ]
    stopped = False
    for pair in _pairs(searches, prints, recogniser, options.size):
        if monotonic() > end:
            stopped = True
            break
        if pair is not None and (found := sieve.sift(pair)) is not None:
            tell(found)
    return Findings(
        tuple(_measured(sieve.found, files, options)),
        tuple(sieve.refuted.items()),
        sum(s.terms for s in searches),
        sum(s.classes for s in searches),
        recogniser.asked,
        sieve.pairs,
        stopped,
    )


def _pairs(
    searches: Sequence[Search], prints: Fingerprints, recogniser: Recogniser, size: int
) -> Iterator[Pair | None]:
    """Small terms, laws, larger terms."""
    for n in range(1, min(size, _FIRST) + 1):
        for search in searches:
            yield from search.step(n)
    if size > _FIRST:
        yield from from_laws(prints, recogniser, {s.hole.name for s in searches})
    for n in range(_FIRST + 1, size + 1):
        for search in searches:
            yield from search.step(n)


def _measured(found: Sequence[Candidate], files: RuleFiles, options: Options) -> Iterator[Found]:
    """With tests and, for as long again as the search may take, with costs."""
    end = monotonic() + options.seconds
    paired = Paired(files, frozenset(options.without)) if options.cost and found else None
    for c in found:
        cost = paired.cost(c.name, c.rule) if paired is not None and monotonic() < end else None
        yield Found(c, "" if options.without else test_of(c, files), cost)


def _check(files: RuleFiles, options: Options) -> None:
    for name in options.holes:
        if name not in holes():
            raise UserError(f"there is no hole {name!r}", hint=f"holes: {', '.join(holes())}")
    known = {r.name for r in read_rules(files)}
    for name in options.without:
        if name not in known:
            raise UserError(
                f"there is no rule {name!r}", hint="`python -m selector rules list` names them"
            )
    if not 1 <= options.size <= LARGEST:
        raise UserError(f"terms of size {options.size}", hint=f"sizes are 1 to {LARGEST}")
    if not options.seconds > 0:
        raise UserError(f"{options.seconds:g} seconds", hint="a time above 0")
