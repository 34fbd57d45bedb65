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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import field
from functools import partial, reduce
from itertools import count
from operator import or_
from typing import Protocol

from selector.dataclass import dataclass
from selector.eqsat.bindings import egglog
from selector.eqsat.decode import Term
from selector.eqsat.encode import real, text
from selector.eqsat.extract import Graph, read_worlds
from selector.eqsat.saturate import Engine, Watch

RuleFiles = tuple[tuple[str, str], ...]
"""(file name, text), in loading order."""

Form = str | tuple["Form", ...]
_TOKEN = re.compile(r';[^\n]*|"(?:[^"\\]|\\.)*"|[()]|[^\s()";]+')
_RULES = ("rule", "rewrite")
_TABLES = ("constructor", "function", "relation")
_WORLD = "w!"
_BITS = 62
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

    def counted(self, rows: int, worlds: Mapping[int, int]) -> None:
        """The rows that each world was found to have."""
        self.large |= {i for i, n in worlds.items() if n > self.most}
        largest = max((n for i, n in worlds.items() if i not in self.large), default=0)
        self.limit = rows + self.most - largest


@dataclass(frozen=True, slots=True)
class Reaching:
    """Which worlds reach a goal, and in which step of the first one each rule first matched."""

    found: list[bool]
    steps: Mapping[str, int]


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
    stopped: int = 0
    _forms: dict[str, Form] = field(default_factory=dict[str, Form])
    _tagged: frozenset[str] = frozenset()
    _places: dict[str, int] = field(default_factory=dict[str, int])
    _tables: dict[str, int] = field(default_factory=dict[str, int])
    _ways: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def __post_init__(self) -> None:
        forms = [form for _, source in self.rules for form in parse(source)]
        rules = [f for f in forms if f[0] in _RULES]
        written = {name for rule in rules for name in _names(rule[2])}
        self._tagged = frozenset(
            str(f[1]) for f in forms if f[0] in _TABLES and (f[0] != "relation" or f[1] in written)
        )
        others = [f for f in forms if f[0] not in _RULES]
        names = [str(f[1]) for f in others if f[0] in _TABLES]
        self._tables.update((name, 1 << i) for i, name in enumerate(names))
        self.engine.run("\n".join([*(shown(self._declared(f)) for f in others), _DECLARATIONS]))
        for rule in rules:
            name = _option(rule, ":name").strip('"')
            self.order[name] = len(self.order)
            self._forms[name] = rule

    def _in_tables(self, form: Form) -> int:
        """The tables of which a form has rows, as bits."""
        found = 0
        for name in _names(form):
            found |= self._tables.get(name, 0)
        return found

    def _declared(self, form: Form) -> Form:
        match form:
            case (str(kind), str(name), tuple(sorts), *more) if kind in _TABLES:
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
        for name in sorted(
            (names & self.order.keys()) - self._ways.keys(), key=self.order.__getitem__
        ):
            rule = self._forms[name]
            when = rule[rule.index(":when") + 1] if ":when" in rule else ()
            self._ways[name] = self._in_tables((rule[1], when)), self._in_tables(rule[2])
            self.engine.run(shown(self._guarded(rule, name)))
            if self.telling(name):
                part, bit = divmod(len(self._places), _BITS)
                self._places[name] = len(self._places)
                self.engine.run(f"(bit! {text(name)} {part} {1 << bit})")

    @contextmanager
    def _opened(self, statement: str, facts: str, goal: Goal) -> Generator[None]:
        """A graph in which every world has a copy of a statement, and those are told that hold the
        goal, and those that hold its instruction with any operands."""
        (term,) = parse(statement)
        start = shown(self.inside(("set", ("statement", "0"), term)))
        rules = [f"(rule ((world! {_WORLD} 0 mask!)) ({start}) :ruleset worlds!)"]
        found = [form_of(goal.term), ("Store", "b!", "i!", _any_operands(goal.term), "p!")]
        for name, form in zip(("reached!", "near!"), found, strict=True):
            body = shown(self.inside((("=", "s", ("statement", "0")), ("=", "s", form))))
            rules.append(f"(rule {body} (({name} {_WORLD})) :ruleset goal!)")
        self.engine.run("(push)")
        try:
            self.engine.run("\n".join([facts, *rules]))
            yield
        finally:
            self.engine.run("(pop)")

    def _begin(self, first: int, worlds: Sequence[frozenset[str]]) -> None:
        """Add worlds with these rules, numbered from ``first`` on."""
        masks = [
            f"(world! {i} {part} {mask})"
            for i, rules in enumerate(worlds, first)
            for part, mask in self._masks(rules).items()
        ]
        self.engine.run(f"{' '.join(masks)} (run-schedule (run worlds!))")

    def _masks(self, rules: frozenset[str]) -> dict[int, int]:
        masks = {0: 0}
        for rule in rules:
            part, bit = divmod(self._places[rule], _BITS)
            masks[part] = masks.get(part, 0) | 1 << bit
        return masks

    def reaching(
        self, statement: str, facts: str, worlds: Sequence[frozenset[str]], goal: Goal, most: int
    ) -> Reaching:
        """Whether a statement becomes the goal, in each world; a world of which the search has more
        than ``most`` rows, or reaches another cap, does not count as one where it does.

        The first world is searched alone, so that it is known when its rules match.
        """
        steps: dict[str, int] = {}
        with self._opened(statement, facts, goal):
            note = partial(_note, count(), steps)
            found = self._searched(worlds[:1], 0, goal, most, note)
            self._stop({0})
            given = self._in_tables(parse(f"{statement} {facts}"))
            last = self._in_tables(_any_operands(goal.term))
            rest = [w for w in worlds[1:] if self._may_reach(w, given, last)]
            others = None if found is None else self._searched(rest, 1, goal, most)
        if found is None:
            self.stopped += 1
        first = bool(found)
        if others is not None:
            reaching = {w for i, w in enumerate(rest, 1) if i in others}
        else:
            half = (len(rest) + 1) // 2  # one of them has no end
            parts = (rest[:half], rest[half:])
            reaching = set[frozenset[str]]()
            for part in parts:
                if part:
                    found = self.reaching(statement, facts, part, goal, most).found
                    reaching |= {w for w, reaches in zip(part, found, strict=True) if reaches}
        return Reaching([first, *(w in reaching for w in worlds[1:])], steps)

    def _may_reach(self, rules: frozenset[str], given: int, goal: int) -> bool:
        """Whether there may be rows in the goal's tables, by which tables each rule reads and
        writes. Most rules that are needed are the only ones that write some table, which takes no
        search."""
        waiting = [w for r, w in self._ways.items() if r in rules or not self.telling(r)]
        while goal & ~given:
            writes = [way[1] for way in waiting if not way[0] & ~given]
            waiting = [way for way in waiting if way[0] & ~given]
            if not writes:
                return False
            given = reduce(or_, writes, given)
        return True

    def _searched(
        self,
        worlds: Sequence[frozenset[str]],
        first: int,
        goal: Goal,
        most: int,
        watch: Watch = lambda report, rows: None,
    ) -> set[int] | None:
        """Those of the worlds that reach the goal, numbered from ``first`` on; None if the search
        reaches a cap."""
        if not worlds:
            return set()
        before = self.engine.size()
        self._begin(first, worlds)
        numbers = range(first, first + len(worlds))
        growth = _Growth(len(worlds), most)

        def watch_all(report: egglog.RunReport, rows: int) -> None:
            """No rule of a world that has become too large matches any more."""
            watch(report, rows)
            if growth.is_odd(rows - before):
                every = self._rows()
                growth.counted(rows - before, {i: every[i] for i in numbers})
                self._stop(growth.large)

        if self.engine.saturate(watch_all).capped:
            return None
        self.stopped += len(growth.large)
        return self._reached(goal, set(numbers) - growth.large)

    def _stop(self, worlds: Set[int]) -> None:
        stopped = " ".join(f"(stopped! {i})" for i in sorted(worlds))
        self.engine.run(f"{stopped} (run-schedule (run worlds!))")

    def _rows(self) -> Counter[int]:
        """The rows of each world."""
        number, rows = self.engine.graph.value_to_i64, Counter[int]()
        tables = self.engine.graph.freeze().functions
        for name in self._tagged & tables.keys():
            rows.update(number(row.inputs[0]) for row in tables[name].rows)
        return rows

    def _reached(self, goal: Goal, worlds: Set[int]) -> set[int]:
        """Those of the worlds that hold the goal in any writing."""
        self.engine.run("(run-schedule (run goal!))")
        graph = self.engine.graph
        tables = graph.freeze().functions
        exact, near = (
            {graph.value_to_i64(row.inputs[0]) for row in tables[name].rows} & worlds
            for name in ("reached!", "near!")
        )
        others = near - exact
        graphs = read_worlds(graph, others) if others else {}
        return exact | {i for i, found in graphs.items() if goal(found)}


def _any_operands(term: Term) -> Form:
    """The form of a Store term's multiply-add, its operands left open."""
    match term:
        case ("Store", _, _, ("MultiplyAdd", name, m, n, *_), _):
            return ("MultiplyAdd", form_of(name), str(m), str(n), "k!", "c!", "x!", "y!")
        case _:
            raise AssertionError(term)


def _note(steps: Iterator[int], first: dict[str, int], report: egglog.RunReport, _: int) -> None:
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
