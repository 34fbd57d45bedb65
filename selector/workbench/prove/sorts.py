"""Sorts of a rule's variables, and whether a text is a rule at all: each variable of one sort, and
bound by what the rule looks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from selector.dataclass import dataclass
from selector.diagnostics import ParseError, UserError
from selector.eqsat.worlds import Form, parse

ARITHMETIC = ("+", "-", "*", "/", "%", "min", "max")
COMPARISONS = (">", "<", ">=", "<=", "!=")
REWRITTEN = "rewritten"  # what a rewrite looks for


@dataclass(frozen=True, slots=True)
class Signatures:
    """Constructors, relations and functions with the sorts of their arguments and their value."""

    sorts: dict[str, tuple[str, ...]]
    results: dict[str, str]

    @staticmethod
    def of(files: Sequence[tuple[str, str]]) -> Signatures:
        sorts: dict[str, tuple[str, ...]] = {}
        results: dict[str, str] = {}
        for form in (f for _, text in files for f in parse(text)):
            match form:
                case ("constructor" | "function", str(name), tuple(args), str(result), *_):
                    sorts[name], results[name] = tuple(map(str, args)), result
                case ("relation", str(name), tuple(args)):
                    sorts[name], results[name] = tuple(map(str, args)), ""
                case _:
                    pass
        return Signatures(sorts, results)

    def is_term(self, head: object) -> bool:
        return self.results.get(str(head)) in ("Expr", "Stmt")


@dataclass
class Sorts:
    """The sorts of variables, as far as they are known."""

    signatures: Signatures
    known: dict[str, str] = field(default_factory=dict[str, str])

    def read(self, facts: Sequence[Form], actions: Sequence[Form]) -> None:
        """Find all sorts. ``ParseError`` for what is no rule, ``UserError`` for what no proof
        knows."""
        for _ in range(4):
            for form in (*facts, *actions):
                self.of(form)
        names = [name for form in (*facts, *actions) for name in _variables(form)]
        bound = _bound(facts, self.signatures)
        for name in sorted(dict.fromkeys(names), key=lambda name: name == REWRITTEN):
            if name not in bound:
                raise ParseError(f"`{name}` is bound by nothing that the rule looks for")
            if name not in self.known:
                raise ParseError(f"`{name}` may be of any sort")

    def of(self, form: Form, wanted: str = "") -> str:
        """The sort of a form, empty if it is not known; ``wanted`` where it stands."""
        found = self._own(form, wanted)
        if wanted and found != wanted:
            raise ParseError(f"`{shown(form)}` is {_a(found)} where {_a(wanted)} belongs")
        return found

    def _own(self, form: Form, wanted: str) -> str:
        match form:
            case str(name):
                known = literal_sort(name) or self.known.get(name, "")
                if wanted and not known:
                    self.known[name] = wanted
                return known or wanted
            case (str("=" | "!=" | "union"), a, b):
                sort = self.of(a) or self.of(b)
                self.of(a, sort)
                self.of(b, sort)
                return ""
            case ("set", (str(head), *_) as a, b) if head in self.signatures.sorts:
                self.of(b, self.of(a))
                return ""
            case ("set", a, _):
                raise ParseError(f"`{shown(a)}` is no function's, and cannot be set")
            case (str(op), a, b) if op in (*ARITHMETIC, *COMPARISONS):
                if "f64" in (self.of(a), self.of(b)):
                    raise UserError(f"`{shown(form)}` computes with floats, which no proof knows")
                self.of(a, "i64")
                self.of(b, "i64")
                return "i64" if op in ARITHMETIC else ""
            case (str(head), *args) if head in self.signatures.sorts:
                sorts = self.signatures.sorts[head]
                if len(args) != len(sorts):
                    raise ParseError(f"`{shown(form)}` has {len(args)} arguments, not {len(sorts)}")
                for arg, sort in zip(args, sorts, strict=True):
                    self.of(arg, sort)
                return self.signatures.results[head]
            case _:
                raise UserError(f"`{shown(form)}` is nothing that a proof knows")


def _a(sort: str) -> str:
    names = {"i64": "an integer", "Expr": "a term", "Stmt": "a statement", "String": "a string"}
    return names.get(sort, f"of sort {sort}" if sort else "no value")


def _variables(form: Form) -> Iterator[str]:
    match form:
        case str(name):
            if not literal_sort(name):
                yield name
        case (_, *args):
            for arg in args:
                yield from _variables(arg)
        case _:
            pass


def _bound(facts: Sequence[Form], signatures: Signatures) -> set[str]:
    """Variables that tables have values for, and what is equal to something made of them."""
    found = {name for form in facts for name in _in_tables(form, signatures)}
    before = -1
    while before < len(found):
        before = len(found)
        for form in facts:
            match form:
                case ("=", a, b):
                    for one, other in ((a, b), (b, a)):
                        if isinstance(one, str) and found.issuperset(_variables(other)):
                            found.add(one)
                case _:
                    pass
    return found


def _in_tables(form: Form, signatures: Signatures) -> Iterator[str]:
    """The arguments of what is looked up; arithmetic on them binds nothing."""
    match form:
        case (str(head), *args):
            for arg in args:
                if isinstance(arg, str) and head in signatures.sorts and not literal_sort(arg):
                    yield arg
                yield from _in_tables(arg, signatures)
        case _:
            pass


def literal_sort(text: str) -> str:
    """The sort of a literal; empty for a variable."""
    if text.startswith('"'):
        return "String"
    if text.lstrip("-").isdigit():
        return "i64"
    return "f64" if text.lstrip("-").replace(".", "", 1).isdigit() else ""


def shown(form: Form) -> str:
    return form if isinstance(form, str) else f"({' '.join(map(shown, form))})"
