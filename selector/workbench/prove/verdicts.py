"""Verdicts on rules: proved, with the contracts of the proof, or why not."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from enum import Enum
from functools import partial
from multiprocessing import get_context
from time import perf_counter

import z3

from selector.dataclass import dataclass
from selector.diagnostics import ParseError, UserError
from selector.garbage import collector_paused
from selector.workbench.listing import matching_rules
from selector.workbench.prove import bits
from selector.workbench.prove.conditions import read_rule
from selector.workbench.prove.formulas import new_solver
from selector.workbench.prove.lemmas import lemmas
from selector.workbench.prove.refute import counterexample
from selector.workbench.prove.sizes import Vacuous
from selector.workbench.prove.solve import MOST, Outcome, are_possible, prove_goals
from selector.workbench.prove.sorts import Signatures
from selector.workbench.ruleset import Rule, RuleFiles

_PROCESSES = 2
_FEW = 20  # rules that are proved before another process has started


class Kind(Enum):
    """What became of a rule."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    VACUOUS = "vacuous"
    NO_RULE = "no rule"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a rule, a fact about types or a lemma; ``why`` it is not proved, line by line;
    ``goals`` that it had, and how many of them z3 was asked."""

    name: str
    kind: Kind
    contracts: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    goals: int = 0
    queries: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, object]:
        """The verdict as data, for JSON."""
        return {
            "name": self.name,
            "verdict": self.kind.value,
            "contracts": list(self.contracts),
            "why": list(self.why),
            "goals": self.goals,
            "queries": self.queries,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Verdicts on a set of rules, in the order of the files; exit code 0 if all are proved."""

    found: tuple[Verdict, ...]

    @property
    def code(self) -> int:
        return int(any(v.kind is not Kind.PROVED for v in self.found))

    def as_dict(self) -> dict[str, object]:
        return {"verdicts": [v.as_dict() for v in self.found]}

    def as_markdown(self) -> str:
        """A table of them."""
        rows = (f"| `{v.name}` | {v.kind.value} | {'; '.join(v.contracts)} |" for v in self.found)
        return "\n".join(["| rule | verdict | where |", "|---|---|---|", *rows]) + "\n"

    def __str__(self) -> str:
        width = max((len(v.name) for v in self.found), default=0)
        lines: list[str] = []
        for v in self.found:
            note = "; ".join(v.contracts)
            lines.append(f"{v.name:{width}}  {v.kind.value:9}  {note}".rstrip())
            lines += [f"{'':{width}}  {line}" for line in v.why]
        counted = ", ".join(
            f"{n} {kind.value}" for kind in Kind if (n := sum(v.kind is kind for v in self.found))
        )
        goals, queries = (sum(getattr(v, x) for v in self.found) for x in ("goals", "queries"))
        seconds = sum(v.seconds for v in self.found)
        return "\n".join(
            [*lines, f"{counted}: {goals} goals, {queries} by z3, {seconds:.1f} s"]
            if lines
            else ["no rules"]
        )


def prove(files: RuleFiles, pattern: str = "", refute: bool = False) -> Verdicts:
    """Prove the rules that a pattern finds, and what all proofs build on: the lemmas and the facts
    about types; ``refute``: look for matches that go wrong of what is not proved."""
    one = partial(prove_rule, signatures=Signatures.of(files), refute=refute)
    rules = matching_rules(files, pattern)
    workers = min(_PROCESSES, len(os.sched_getaffinity(0)))
    if workers == 1 or len(rules) <= _FEW:
        found = [*map(one, rules)]
    else:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            found = [*pool.map(one, rules)]
    if not pattern:
        found += [*prove_facts(bits.rows(files)), *prove_lemmas()]
    return Verdicts(tuple(found))


def prove_rule(rule: Rule, signatures: Signatures, refute: bool = False) -> Verdict:
    """The verdict on one rule, for every size."""
    return prove_text(rule.name, rule.form.text, signatures, refute)


@contextmanager
def _by_itself() -> Generator[None]:
    """Formulas in a context of their own, which nothing is taken from but by reference counts: how
    z3 writes one depends on the numbers of its terms, these on what came and went before, and with
    them whether a proof is found. So a rule has one verdict, whatever is proved beside it.
    """
    shared = z3.z3._main_ctx  # pyright: ignore
    z3.z3._main_ctx = z3.Context()  # pyright: ignore
    try:
        with collector_paused():
            yield
    finally:
        z3.z3._main_ctx = shared  # pyright: ignore


@_by_itself()
def prove_text(name: str, text: str, signatures: Signatures, refute: bool = False) -> Verdict:
    """The same for the text of a rule. What no proof knows (a relation without a meaning) is left
    undecided, and what egglog would not take is no rule."""
    start = perf_counter()
    total = Outcome()
    kind = Kind.PROVED
    try:
        for way in read_rule(text, signatures):
            if not are_possible(way):
                if any(chosen for chosen, _ in way.choices):
                    continue
                raise Vacuous("the sizes that it asks for contradict each other")
            outcome = prove_goals(way)
            total.contracts |= outcome.contracts
            total.missing += outcome.missing
            total.goals += outcome.goals
            total.queries += outcome.queries
            found = counterexample(way) if refute and outcome.missing else None
            if found is not None:
                kind, total.missing = Kind.REFUTED, [str(found), *total.missing]
    except Vacuous as why:
        kind, total.missing = Kind.VACUOUS, [str(why)]
    except UserError as error:
        kind = Kind.NO_RULE if isinstance(error, ParseError) else Kind.UNDECIDED
        total.missing = [line for line in (error.what, error.why, error.hint) if line]
    if kind is Kind.PROVED and total.missing:
        kind = Kind.UNDECIDED
    return Verdict(
        name, kind, tuple(sorted(total.contracts)), tuple(dict.fromkeys(total.missing)),
        total.goals, total.queries, perf_counter() - start,
    )  # fmt: skip


def prove_facts(rows: Iterable[tuple[str, str, str]]) -> list[Verdict]:
    """Verdicts on facts about types."""
    found: list[Verdict] = []
    for row in rows:
        wrong = bits.counterexample(*row)
        kind = Kind.UNDECIDED if wrong is None else Kind.REFUTED if wrong else Kind.PROVED
        why = {Kind.REFUTED: f"not so of {wrong}", Kind.UNDECIDED: "too many values to try"}
        told = (why[kind],) if kind in why else ()
        found.append(Verdict(" ".join(row), kind, why=told, goals=1))
    return found


def prove_lemmas() -> list[Verdict]:
    """Verdicts on the lemmas about sums and divisions."""
    return [_lemma(name, queries) for name, queries in lemmas().items()]


def _lemma(name: str, queries: Sequence[z3.BoolRef]) -> Verdict:
    start = perf_counter()
    answers = [new_solver([query], MOST).check() for query in queries]
    kind = Kind.PROVED if all(a == z3.unsat for a in answers) else Kind.UNDECIDED
    why = () if kind is Kind.PROVED else (f"z3: {', '.join(map(str, answers))}",)
    count = len(queries)
    return Verdict(f"lemma: {name}", kind, (), why, count, count, perf_counter() - start)
