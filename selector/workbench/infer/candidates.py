"""Pairs to candidates: generalised, proved, and kept if they bring back what was refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from itertools import islice

from selector.dataclass import dataclass
from selector.eqsat.decode import Term
from selector.workbench.infer.fingerprints import Fingerprints
from selector.workbench.infer.grammar import PLACE
from selector.workbench.infer.holes import Recogniser, fill
from selector.workbench.infer.patterns import blanked, show
from selector.workbench.infer.search import Pair
from selector.workbench.infer.shapes import Proposal, core, proposals
from selector.workbench.prove.sorts import Signatures
from selector.workbench.prove.verdicts import Kind, prove_text

_PROOFS = 8
"""Rules of one pair that are tried to prove."""
_PAIRS = 2
"""Pairs of one shape that are looked at."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An equality that is proved, and what it brings back."""

    name: str
    rule: str
    law: str
    pair: Pair
    left: Term
    right: Term
    contracts: tuple[str, ...]


@dataclass
class Sieve:
    """What was found so far. ``refuted``: equal on random memory, and not proved: law and why."""

    recogniser: Recogniser
    prints: Fingerprints
    signatures: Signatures
    found: list[Candidate] = field(default_factory=list[Candidate])
    refuted: dict[str, str] = field(default_factory=dict[str, str])
    pairs: int = 0
    _shapes: Counter[object] = field(default_factory=Counter[object])

    def sift(self, pair: Pair) -> Candidate | None:
        """The candidate of a pair; None if it is known already, or nothing is proved of it."""
        self.pairs += 1
        left, right = core(pair.refused, pair.recognised, self.prints)
        shape = (blanked(left), blanked(right))
        self._shapes[shape] += 1
        if self._shapes[shape] > _PAIRS:
            return None
        update = fill(pair.update, PLACE, pair.refused)
        if self.recogniser.ask([update])[0] or self.recogniser.derives(show(left), show(right)):
            return None
        name = f"{pair.hole}-{len(self.found) + 1}"
        for proposal, contracts in self._proved(name, left, right):
            text = proposal.text(name)
            if self.recogniser.helps(text, update):
                self.recogniser.load(text)
                found = Candidate(name, text, proposal.law, pair, left, right, contracts)
                self.found.append(found)
                return found
        return None

    def _proved(
        self, name: str, left: Term, right: Term
    ) -> Iterator[tuple[Proposal, tuple[str, ...]]]:  # fmt: skip
        for proposal in islice(proposals(left, right, self.prints), _PROOFS):
            verdict = prove_text(name, proposal.text(name), self.signatures)
            if verdict.kind is Kind.PROVED:
                yield proposal, verdict.contracts
            else:
                self.refuted.setdefault(proposal.law, "; ".join(verdict.why[:2]))
