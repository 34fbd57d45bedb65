"""``rules explain``: a law by its tests, whose terms are drawn as loops and computed on small
memory.

A term of a test is a vector expression; what the rule says of it is another, or a fact.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import InternalError, UserError
from selector.eqsat.decode import Decoder
from selector.eqsat.worlds import Form, parse, shown
from selector.ir.arithmetic import dtype_of
from selector.ir.contents import nodes_of
from selector.ir.evaluator import Buffer, Frame, evaluate
from selector.ir.nodes import Expr, Load, Store, Var
from selector.ir.types import IllTyped
from selector.workbench.cases import Case, Kind
from selector.workbench.infer.patterns import instance, pattern
from selector.workbench.nests import drawn
from selector.workbench.ruleset import Rule, RuleFiles, forms, read_rules

SHOWN = 8
"""Lanes of a value that are shown."""
MEMORY = 4096
_PRIMES = (3, 5, 7, 11, 13, 2, 17, 19, 23)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A rule, what the relations of its head say, and its tests as examples."""

    rule: Rule
    relations: tuple[str, ...]
    examples: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The explanation as data, for JSON."""
        return self.rule.as_dict() | {
            "relations": list(self.relations),
            "examples": list(self.examples),
        }

    def __str__(self) -> str:
        r = self.rule
        lines = [f"{r.name} ({r.ruleset}, {r.form.place})", "", f"  {r.law}", ""]
        lines += [f"  {line}" for line in r.form.text.splitlines()]
        if self.relations:
            wrapped = (textwrap.wrap(line, 94, subsequent_indent="    ") for line in self.relations)
            lines += ["", *(f"  {line}" for lines_of in wrapped for line in lines_of)]
        for example in self.examples:
            lines += ["", *(f"  {line}".rstrip() for line in example.splitlines())]
        return "\n".join(lines)


def explain(name: str, files: RuleFiles, cases: Sequence[Case]) -> Explanation:
    """The rule of that name; ``UserError`` names those that are like it."""
    rules = {r.name: r for r in read_rules(files)}
    if name not in rules:
        near = difflib.get_close_matches(name, rules, 3, 0.4)
        hint = f"rules like it: {', '.join(near)}" if near else "`rules list` names them all"
        raise UserError(f"no rule {name!r}", hint=hint)
    return explained(rules[name], files, cases)


def explained(rule: Rule, files: RuleFiles, cases: Sequence[Case]) -> Explanation:
    """A rule with those tests of it in which it fires and the relations that it adds to."""
    own = [c for c in cases if rule.name in c.rules and c.kind is Kind.FIRES]
    words = set(rule.form.words)
    said = tuple(
        " ".join(line.lstrip("; ").strip() for line in f.above)
        for f in forms(files)
        if f.head in ("relation", "function") and f.above and f.words[1] in words
    )
    return Explanation(rule, said, tuple("\n".join(_example(c)) for c in own))


def terms_of(case: Case) -> dict[str, object]:
    """The terms that a test names, by these names, each with those before it."""
    terms = dict[str, object]()
    for form in case.setup:
        (words,) = parse(form.text)
        if words[0] == "let":
            terms[str(words[1])] = instance(pattern(words[2]), terms)
    return terms


def _example(case: Case) -> Iterator[str]:
    """A test: its terms, what the rule says of them, and both on small memory."""
    yield f"for example ({case.file}:{case.line})" + (f": {case.note}" if case.note else "")
    terms, memory = terms_of(case), Memory()
    inner = {w for form in case.setup for w in form.words[2:]}
    for form in case.setup:
        (words,) = parse(form.text)
        if words[0] != "let":
            yield from _wrapped(shown(words))
            continue
        name = str(words[1])
        yield from _wrapped(f"{name} = {shown(words[2])}")
        if name not in inner:
            yield from _drawn(terms[name], memory)
    yield "gives"
    for form in case.rest:
        (words,) = parse(form.text)
        for fact in words[1:] if form.head == "check" else ():
            yield from _fact(fact, terms, memory)


def _fact(fact: Form, terms: Mapping[str, object], memory: Memory) -> Iterator[str]:
    """A fact of a check, and the expressions that it says something of."""
    yield from _wrapped(shown(fact))
    name, *args = fact if isinstance(fact, tuple) else (fact,)
    if name == "=" and isinstance(args[0], str):
        args = args[1:]
    for arg in args:
        with suppress(KeyError, ValueError):  # an unknown, or no integer
            if isinstance(arg, tuple):
                yield from _drawn(instance(pattern(arg), terms), memory)


def _wrapped(text: str) -> Iterator[str]:
    lines = textwrap.wrap(text, 92, break_long_words=False, break_on_hyphens=False)
    yield from (f"  {'    ' * (i > 0)}{line}" for i, line in enumerate(lines))


def _drawn(term: object, memory: Memory) -> Iterator[str]:
    """A term as loops and its first lanes; nothing of one that is no vector, nor a statement."""
    found = decoded(term)
    if found is None or (not isinstance(found, Store) and found.type.lanes == 1):
        return
    yield from (f"      {line}" for line in drawn(found))
    if not isinstance(found, Store):
        with suppress(InternalError, IllTyped, ValueError):
            values = memory.values(found)
            more = ", ..." if len(values) > SHOWN else ""
            yield f"      = {', '.join(f'{v:g}' for v in values[:SHOWN])}{more}"


def decoded(term: object) -> Expr | Store | None:
    """The expression or statement of a ground term; None for what is neither."""
    if not isinstance(term, tuple):
        return None
    with suppress(InternalError, IllTyped, ValueError):
        return Decoder().store(term) if term[0] == "Store" else Decoder().expr(term)
    return None


class Memory:
    """What a test's terms are computed on: element i of a buffer is the last digit of i, symbols
    are small primes.
    """

    def __init__(self) -> None:
        self.frame = Frame(1, {})

    def values(self, e: Expr) -> Sequence[float]:
        """The lanes of an expression."""
        for load in nodes_of(e, Load):
            data = np.arange(MEMORY)[None, :] % 10
            element = load.type.element
            self.frame.buffers[load.buffer] = Buffer(element, data.astype(dtype_of(element)))
        for v in nodes_of(e, Var):
            kind = dtype_of(v.type.element)
            value = _PRIMES[len(self.frame.variables) % len(_PRIMES)] + np.arange(v.type.lanes)
            self.frame.variables.setdefault(v.name, value[None, :].astype(kind))
        with np.errstate(all="ignore"):
            found = evaluate(e, self.frame)
        return np.broadcast_to(found, (1, e.type.lanes))[0].astype(np.float64).tolist()
