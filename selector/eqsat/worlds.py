"""One e-graph in which a statement is saturated under many subsets of the rules at once.

A rule's cost is mostly that of looking for matches, however few there are, so one graph with many
copies of a statement takes little longer than one with one. Each copy is a *world*: every table
gets a column for the world's number, so that worlds share no term and no fact, and a telling rule
matches only in worlds that have it. Tables that no rule writes, the facts of the target, are the
same for all.

Without a rule that simplifies, others may go on for ever. So rows are counted after each round,
and a world that has too many loses its rules; else a single one would cost more than all others.

Rules are loaded when a statement first matches them. An e-graph belongs to its thread.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Protocol

from selector.eqsat.bindings import egglog
from selector.eqsat.decode import Term
from selector.eqsat.encode import real, text
from selector.eqsat.extract import Graph, read_graph
from selector.eqsat.saturate import Engine

RuleFiles = tuple[tuple[str, str], ...]
"""(file name, text), in loading order."""

Form = str | tuple["Form", ...]
_TOKEN = re.compile(r';[^\n]*|"(?:[^"\\]|\\.)*"|[()]|[^\s()";]+')
_RULES = ("rule", "rewrite", "birewrite")
_WORLD = "w!"
_BITS = 32
"""Rules of which one number says whether a world has them."""
# No rule file has names that end so.
_DECLARATIONS = """
(relation world! (i64 i64 i64))
(relation bit! (String i64 i64))
(relation enabled! (i64 String))
(relation reached! (i64))
(relation near! (i64))
(relation stopped! (i64))
(ruleset worlds!)
(ruleset goal!)
(rule ((world! w! part! mask!) (bit! rule! part! value!) (!= 0 (& mask! value!)))
      ((enabled! w! rule!))
      :ruleset worlds!)
(rule ((stopped! w!) (enabled! w! rule!)) ((delete (enabled! w! rule!))) :ruleset worlds!)
"""


class Goal(Protocol):
    """A selected statement: its term, and whether a graph holds it in this or another writing."""

    @property
    def term(self) -> Term: ...

    def __call__(self, graph: Graph) -> bool: ...


@dataclass
class _Growth:
    """What is known of ``count`` worlds of which none may have more than ``most`` rows: those that
    had, and the rows of all together at which another may have them."""

    count: int
    most: int
    large: set[int] = field(default_factory=set[int])
    limit: float = 0

    def is_odd(self, rows: int) -> bool:
        """Whether a world may be too large, as worlds do not become smaller."""
        if not self.limit:
            self.limit = rows - rows / self.count + self.most
        return rows > self.limit

    def counted(self, rows: int, worlds: Counter[int]) -> None:
        """The rows that each world was found to have."""
        self.large |= {i for i, n in worlds.items() if n > self.most}
        largest = max((n for i, n in worlds.items() if i not in self.large), default=0)
        self.limit = rows + self.most - largest


@dataclass
class Worlds:
    """The graph of worlds under some rules; ``order`` has the names of all, by their place in the
    files. Rules that are not ``telling`` are part of every world. ``stopped`` counts the worlds of
    which the search was too large.
    """

    rules: RuleFiles
    telling: Callable[[str], bool]
    engine: Engine = field(default_factory=lambda: Engine("", rules=()))
    order: dict[str, int] = field(default_factory=dict[str, int])
    _texts: dict[str, str] = field(default_factory=dict[str, str])
    stopped: int = 0
    _tagged: frozenset[str] = frozenset()
    _loaded: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        forms = [form for _, source in self.rules for form in parse(source)]
        rules = [f for f in forms if f[0] in _RULES]
        written = {name for rule in rules for name in _names(rule[2])}
        self._tagged = frozenset(
            str(f[1])
            for f in forms
            if f[0] in ("constructor", "function") or (f[0] == "relation" and f[1] in written)
        )
        others = [f for f in forms if f[0] not in _RULES]
        self.engine.run("\n".join([*(shown(self._declared(f)) for f in others), _DECLARATIONS]))
        for rule in rules:
            name = _option(rule, ":name").strip('"')
            self.order[name] = len(self.order)
            self._texts[name] = shown(self._guarded(rule, name))

    def _declared(self, form: Form) -> Form:
        match form:
            case ("constructor" | "function" | "relation" as kind, str(name), tuple(sorts), *more):
                columns = ("i64", *sorts) if name in self._tagged else sorts
                return (kind, name, columns, *more)
            case _:
                return form

    def _guarded(self, rule: Form, name: str) -> Form:
        """A rule that matches within one world, if that has it."""
        guard: tuple[Form, ...] = (("enabled!", _WORLD, text(name)),) * self.telling(name)
        match self.inside(rule):
            case ("rule", tuple(body), head, *options):
                return ("rule", (*body, *guard), head, *options)
            case (kind, left, right, *options):
                if ":when" not in options:
                    return (kind, left, right, ":when", guard, *options)
                i = options.index(":when") + 1
                conditions = options[i]
                assert isinstance(conditions, tuple)
                return (kind, left, right, *options[:i], (*conditions, *guard), *options[i + 1 :])
            case _:
                raise AssertionError(name)

    def inside(self, form: Form) -> Form:
        """Terms and facts of a world: its number comes first."""
        if isinstance(form, str):
            return form
        parts = tuple(self.inside(part) for part in form)
        if parts and parts[0] in self._tagged:
            return (parts[0], _WORLD, *parts[1:])
        return parts

    def load(self, names: frozenset[str]) -> None:
        """Make rules of these files known."""
        for name in sorted((names & self.order.keys()) - self._loaded, key=self.order.__getitem__):
            part, bit = divmod(self.order[name], _BITS)
            self.engine.run(f"{self._texts[name]} (bit! {text(name)} {part} {1 << bit})")
            self._loaded.add(name)

    @contextmanager
    def _opened(
        self, statement: str, facts: str, worlds: Sequence[frozenset[str]]
    ) -> Generator[None]:
        """A graph with a copy of a statement for each world."""
        parts = range(len(self.order) // _BITS + 1)
        numbers = [
            f"(world! {i} {part} {self._mask(rules, part)})"
            for i, rules in enumerate(worlds)
            for part in parts
        ]
        (term,) = parse(statement)
        start = shown(self.inside(("set", ("statement", "0"), term)))
        self.engine.run("(push)")
        try:
            self.engine.run(
                f"{facts} {' '.join(numbers)}\n"
                f"(rule ((world! {_WORLD} 0 mask!)) ({start}) :ruleset worlds!)\n"
                "(run-schedule (run worlds!))"
            )
            yield
        finally:
            self.engine.run("(pop)")

    def _mask(self, rules: frozenset[str], part: int) -> int:
        places = (divmod(self.order[rule], _BITS) for rule in rules)
        return sum(1 << bit for number, bit in places if number == part)

    def reaching(
        self, statement: str, facts: str, worlds: Sequence[frozenset[str]], goal: Goal, most: int
    ) -> list[bool]:
        """Whether a statement becomes the goal, in each world; a world of which the search has more
        than ``most`` rows, or reaches another cap, does not count as one where it does.
        """
        with self._opened(statement, facts, worlds):
            growth = _Growth(len(worlds), most)
            saturation = self.engine.saturate(partial(self._stop_large, growth))
            if not saturation.capped:
                self.stopped += len(growth.large)
                exact, near = self._reached(goal)
                near -= exact | growth.large
                exact |= {i for i in near if goal(read_graph(self.engine.graph, 1, i))}
                return [i in exact - growth.large for i in range(len(worlds))]
        if len(worlds) == 1:
            self.stopped += 1
            return [False]
        half = len(worlds) // 2  # one of them has no end
        return [
            found
            for some in (worlds[:half], worlds[half:])
            for found in self.reaching(statement, facts, some, goal, most)
        ]

    def _stop_large(self, growth: _Growth, _: egglog.RunReport) -> None:
        """After a round: no rule of a world that has become too large matches any more."""
        rows = self.engine.size()
        if growth.is_odd(rows):
            growth.counted(rows, self._rows())
            self.engine.run(" ".join(f"(stopped! {i})" for i in sorted(growth.large)))
            self.engine.run("(run-schedule (run worlds!))")

    def _rows(self) -> Counter[int]:
        """The rows of each world."""
        number, rows = self.engine.graph.value_to_i64, Counter[int]()
        tables = self.engine.graph.freeze().functions
        for name in self._tagged & tables.keys():
            rows.update(number(row.inputs[0]) for row in tables[name].rows)
        return rows

    def _reached(self, goal: Goal) -> tuple[set[int], set[int]]:
        """The worlds that hold the goal, and those that hold its instruction with any operands."""
        found = [form_of(goal.term), ("Store", "b!", "i!", _any_operands(goal.term), "p!")]
        for name, form in zip(("reached!", "near!"), found, strict=True):
            body = shown(self.inside((("=", "s", ("statement", "0")), ("=", "s", form))))
            self.engine.run(f"(rule {body} (({name} {_WORLD})) :ruleset goal!)")
        self.engine.run("(run-schedule (run goal!))")
        graph = self.engine.graph
        tables = graph.freeze().functions
        reached, near = (
            {graph.value_to_i64(row.inputs[0]) for row in tables[name].rows}
            for name in ("reached!", "near!")
        )
        return reached, near

    def first_firings(self, statement: str, facts: str, rules: frozenset[str]) -> dict[str, int]:
        """The step of the run with these rules in which each rule first matched."""
        first: dict[str, int] = {}
        with self._opened(statement, facts, [rules]):
            steps = count()
            self.engine.saturate(lambda report: _note(report, steps, first))
        return first


def _any_operands(term: Term) -> Form:
    """The form of a Store term's multiply-add, its operands left open."""
    match term:
        case ("Store", _, _, ("MultiplyAdd", name, m, n, *_), _):
            return ("MultiplyAdd", form_of(name), str(m), str(n), "k!", "c!", "x!", "y!")
        case _:
            raise AssertionError(term)


def _note(report: egglog.RunReport, steps: Iterator[int], first: dict[str, int]) -> None:
    for iteration in report.iterations:
        step = next(steps)
        for rule, matches in iteration.rule_set_report.rule_reports.items():
            if any(m.num_matches for m in matches):
                first.setdefault(rule, step)


def parse(source: str) -> tuple[Form, ...]:
    """The forms of egglog text."""
    stack: list[list[Form]] = [[]]
    for token in _TOKEN.findall(source):
        match token[0]:
            case ";":
                continue
            case "(":
                stack.append([])
            case ")":
                form = tuple(stack.pop())
                stack[-1].append(form)
            case _:
                stack[-1].append(token)
    (forms,) = stack
    return tuple(forms)


def shown(form: Form) -> str:
    """Egglog text of a form."""
    return form if isinstance(form, str) else f"({' '.join(map(shown, form))})"


def form_of(term: object) -> Form:
    """The form of a term that was read out of a graph."""
    match term:
        case (str(name), *args) if name[:1].isupper():
            return (name, *map(form_of, args))
        case ():
            return ("vec-empty",)
        case tuple():
            return ("vec-of", *map(form_of, term))
        case str():
            return text(term)
        case float():
            return real(term)
        case _:
            return str(term)


def _names(form: Form) -> Iterator[str]:
    """The words that forms begin with."""
    if isinstance(form, tuple) and form:
        if isinstance(form[0], str):
            yield form[0]
        for part in form:
            yield from _names(part)


def _option(rule: Form, name: str) -> str:
    assert isinstance(rule, tuple)
    return str(rule[rule.index(name) + 1]) if name in rule else ""
