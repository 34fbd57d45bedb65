"""From a rule to what has to be proved: facts are premises, actions are goals.

A rewrite is a rule with ``(= e lhs)`` that unites e with its right side. What the body says is
taken as true of the classes, integers and strings that it names (``Context``); each action becomes
goals (``Goals``): that new terms are well formed, that their type follows, that lanes agree, and
that values are equal at every lane or that a relation holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from selector.dataclass import dataclass
from selector.diagnostics import ParseError, UserError
from selector.eqsat.worlds import Form, parse
from selector.workbench.prove.context import Arg, Cls, Context, Node
from selector.workbench.prove.goals import Goals
from selector.workbench.prove.lane_values import node_value
from selector.workbench.prove.meaning import well_formed
from selector.workbench.prove.placement import Placement, Stored
from selector.workbench.prove.relations import GIVEN, MEANINGS, Meaning
from selector.workbench.prove.sizes import ZERO, Poly, Vacuous, number, unknown
from selector.workbench.prove.sorts import (
    COMPARISONS,
    REWRITTEN,
    Signatures,
    Sorts,
    literal_sort,
    shown,
)


@dataclass
class Rule:
    """A rule while it is read: what its variables are."""

    signatures: Signatures
    context: Context = field(default_factory=Context)
    classes: dict[str, Cls] = field(default_factory=dict[str, Cls])
    statements: dict[str, list[tuple[Arg, ...]]] = field(
        default_factory=dict[str, list[tuple[Arg, ...]]]
    )
    sorts: Sorts = field(init=False)
    goals: Goals = field(init=False)
    _placed: Placement = field(init=False)
    _made: dict[Node, Cls] = field(default_factory=dict[Node, Cls])
    choices: tuple[tuple[int, int], ...] = ()
    _later: list[tuple[Form, ...]] = field(default_factory=list[tuple[Form, ...]])

    def __post_init__(self) -> None:
        self.sorts = Sorts(self.signatures)
        self.goals = Goals(self.context)
        self._placed = Placement(self.context, self.goals)

    # terms

    def expr(self, form: Form, goal: bool) -> Cls:
        """The class of a term; a new one is made of a goal's."""
        match form:
            case str(name):
                if name not in self.classes:
                    self.classes[name] = self.context.new(not goal)
                return self.context.find(self.classes[name])
            case (str(head), *args):
                if not self.signatures.is_term(head):
                    raise UserError(f"`{shown(form)}` is no term")
                sorts = self.signatures.sorts[head]
                arguments = (self.argument(a, s, goal) for a, s in zip(args, sorts, strict=True))
                node = Node(head, tuple(arguments))
                if node in self._made and head != "Int":
                    return self.context.find(self._made[node])
                e = self._made[node] = self.context.new(not goal)
                self.context.add(e, node)
                self.context.value(e, lambda at, d: node_value(at, e, node, d))
                if goal and head == "Int":
                    self.context.number(e)
                well_formed(self.context, self.goals if goal else self.context, e, node)
                return e
            case _:
                raise AssertionError(form)

    def argument(self, form: Form, sort: str, goal: bool) -> Arg:
        match sort:
            case "Expr":
                return self.expr(form, goal)
            case "i64":
                return self.integer(form, goal)
            case "String":
                return _string(form)
            case "f64":
                return str(form) if literal_sort(str(form)) else f"?{form}"
            case _:
                return f"?{shown(form)}"

    def integer(self, form: Form, goal: bool) -> Poly:
        sizes = self.context.sizes
        match form:
            case str(text) if literal_sort(text) == "i64":
                return number(int(text))
            case str(text) if not literal_sort(text):
                return unknown(text)
            case (str("+" | "-" | "*" as op), x, y):
                a, b = self.integer(x, goal), self.integer(y, goal)
                return a + b if op == "+" else a - b if op == "-" else a * b
            case (str("/" | "%" as op), x, y):
                a, b = self.integer(x, goal), self.integer(y, goal)
                if not sizes.is_positive(b):
                    (self.goals if goal else self.context).holds("!=", b, ZERO)
                return sizes.quotient(a, b)[0 if op == "/" else 1]
            case (str("min" | "max" as op), x, y):
                return sizes.extreme(op, self.integer(x, goal), self.integer(y, goal))
            case ("lanes", x):
                return self.context.lane_count(self.expr(x, goal))
            case (str(head), *args) if self.signatures.results.get(head) == "i64" and not goal:
                value = sizes.fresh(head)
                self.say(head, [*self._arguments(head, args, goal), value], self.context)
                return value
            case _:
                raise UserError(f"`{shown(form)}` is no integer that a proof knows")

    def _arguments(self, head: str, args: Sequence[Form], goal: bool) -> list[Arg]:
        sorts = self.signatures.sorts[head]
        return [self.argument(a, s, goal) for a, s in zip(args, sorts, strict=False)]

    def say(self, relation: str, row: Sequence[Arg], say: Goals | Context) -> None:
        known: Meaning | None = MEANINGS.get(relation)
        if known is None and say is self.context:
            known = GIVEN.get(relation)
        if known is None:
            raise UserError(
                f"the relation {relation} has no meaning to prove with",
                "a rule that uses it claims, or relies on, what nobody has said",
                "say it in selector/workbench/prove/relations.py, as in selector/eqsat/claims.py",
            )
        known(say, *row)

    # premises

    def premise(self, form: Form) -> None:
        match form:
            case ("=", a, b) if self._is_integer(a, b):
                self._later.append(("=", a, b))
            case ("=", a, b) if "Stmt" in (self.sorts.of(a), self.sorts.of(b)):
                name, term = (a, b) if isinstance(a, str) else (b, a)
                self._statement(str(name), term)
            case ("=", a, b) if "String" in (self.sorts.of(a), self.sorts.of(b)):
                self.context.strings.unite(_string(a), _string(b))
            case ("=", a, b):
                self.context.merge(self.expr(a, False), self.expr(b, False))
            case (str(op), a, b) if op in COMPARISONS:
                if self._is_integer(a, b):
                    self._later.append((op, a, b))
                elif op == "!=" and "String" in (self.sorts.of(a), self.sorts.of(b)):
                    self.context.strings.differ(_string(a), _string(b))
                elif op == "!=" and b == ("Int", "0"):
                    self.context.moves(self.expr(a, False))
            case (str(head), *args) if self.signatures.is_term(head):
                self.expr(form, False)
            case (str(head), *args):
                self.say(head, self._arguments(head, args, False), self.context)
            case _:
                raise UserError(f"`{shown(form)}` is no premise that a proof knows")

    def _is_integer(self, a: Form, b: Form) -> bool:
        return "i64" in (self.sorts.of(a), self.sorts.of(b))

    def _statement(self, name: str, term: Form) -> None:
        assert isinstance(term, tuple)
        row = tuple(self._arguments("Store", term[1:], False))
        self.statements.setdefault(name, []).append(row)
        self.context.lanes(_class(row[2]), self.context.lane_count(_class(row[1])))
        self.context.lanes(_class(row[3]), self.context.lane_count(_class(row[1])))

    def read_premises(self, forms: Sequence[Form]) -> None:
        for form in forms:
            self.premise(form)
        for op, a, b in sorted(self._later, key=_order):
            self._number_premise(str(op), a, b)

    def _number_premise(self, op: str, a: Form, b: Form) -> None:
        match op, a, b:
            case ("=", "0", ("%", m, n)) | ("=", ("%", m, n), "0"):
                divisor = self.integer(n, False)
                if not self.context.sizes.is_positive(divisor):
                    self.context.sizes.facts.append(("!=", divisor, ZERO))
                self.context.sizes.divides(self.integer(m, False), divisor)
            case _:
                self.context.holds(op, self.integer(a, False), self.integer(b, False))

    # actions

    def action(self, form: Form) -> None:
        match form:
            case ("union", a, b):
                if self.sorts.of(a) == "Stmt" or self.sorts.of(b) == "Stmt":
                    self._unite_statements(a, b)
                else:
                    self._unite(self.expr(a, True), self.expr(b, True))
            case ("set", (str(head), *args), value) if head in MEANINGS:
                row = [*self._arguments(head, args, True), self.integer(value, True)]
                self.say(head, row, self.goals)
            case (str(head), *args) if head in MEANINGS:
                self.say(head, self._arguments(head, args, True), self.goals)
            case (str(head), *args) if head in self.signatures.sorts:
                self.say(head, self._arguments(head, args, True), self.goals)
            case _:
                raise UserError(f"`{shown(form)}` is no action that a proof knows")

    def _unite(self, a: Cls, b: Cls) -> None:
        self._placed.united(a, b)
        self._equal(a, b)

    def _equal(self, a: Cls, b: Cls) -> None:
        self.goals.lanes(b, self.context.lane_count(a))
        self.goals.same_type(a, b)
        self.goals.value(a, lambda at, d: at.value(b, d))

    def _unite_statements(self, a: Form, b: Form) -> None:
        """Two statements leave the same memory if index, value and predicate agree."""
        name, term = (a, b) if isinstance(a, str) else (b, a)
        assert isinstance(term, tuple)
        new = tuple(self._arguments("Store", term[1:], True))
        (old, *_) = self.statements[str(name)]
        same = self.context.string(_name(old[0])) == self.context.string(_name(new[0]))
        self.goals.demand(same, "the same buffer")
        for x, y in zip(old[1:], new[1:], strict=True):
            self._equal(_class(x), _class(y))
        self._placed.stored(*(Stored(_name(s[0]), *map(_class, s[1:])) for s in (old, new)))


def _class(arg: Arg) -> Cls:
    assert isinstance(arg, int)
    return arg


def _name(arg: Arg) -> str:
    assert isinstance(arg, str)
    return arg


def _order(form: tuple[Form, ...]) -> int:
    """Whole numbers first: they give counts new names."""
    match form:
        case ("=", "0", ("%", _, _)):
            return 0
        case ("=", _, _):
            return 1
        case _:
            return 2


def _string(form: Form) -> str:
    text = str(form)
    return text.strip('"') if text.startswith('"') else f"?{text}"


def read_rule(text: str, signatures: Signatures) -> list[Rule]:
    """The premises and goals of a rule; two for a rewrite both ways."""
    (form,) = parse(text)
    match form:
        case ("rule", tuple(facts), tuple(actions), *_):
            return _ways(facts, actions, signatures)
        case (str("rewrite" | "birewrite" as kind), left, right, *options):
            when = options[options.index(":when") + 1] if ":when" in options else ()
            assert isinstance(when, tuple)
            ways = [(left, right)] + [(right, left)] * (kind == "birewrite")
            return [
                way
                for a, b in ways
                for way in _ways(
                    (("=", REWRITTEN, a), *when), (("union", REWRITTEN, b),), signatures
                )
            ]
        case _:
            raise ParseError(f"`{shown(form)}` is neither a rule nor a rewrite")


def _ways(
    facts: Sequence[Form], actions: Sequence[Form], signatures: Signatures
) -> list[Rule]:  # fmt: skip
    """A rule in all ways that its premises leave open."""
    found, waiting = list[Rule](), [tuple[int, ...]()]
    while waiting:
        choices = waiting.pop()
        try:
            way = _read(facts, actions, signatures, choices)
        except Vacuous:
            if any(choices):
                continue
            raise
        found.append(way)
        made = [chosen for chosen, _ in way.choices]
        waiting += [
            (*made[:i], other)
            for i in range(len(choices), len(made))
            for other in range(1, way.choices[i][1])
        ]
    return found


def _read(
    facts: Sequence[Form], actions: Sequence[Form], signatures: Signatures, choices: Sequence[int]
) -> Rule:  # fmt: skip
    rule = Rule(signatures)
    rule.sorts.read(facts, actions)
    rule.read_premises(facts)
    rule.choices = rule.context.answer(choices)
    for action in actions:
        rule.action(action)
    return rule
