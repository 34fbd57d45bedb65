"""Terms with unknowns, as rules have them: read, shown, matched and filled in.

A pattern is a term (nested tuples, as ``decode`` takes them) in which ``Unknown`` stands for a
term, an integer or a string, and ``Formula`` for an integer that is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from selector.dataclass import dataclass
from selector.eqsat.decode import Term
from selector.eqsat.encode import real, text
from selector.eqsat.worlds import Form, parse


@dataclass(frozen=True, slots=True)
class Unknown:
    name: str


@dataclass(frozen=True, slots=True)
class Formula:
    op: str
    a: Unknown | Formula | int
    b: Unknown | Formula | int


Bound = Mapping[str, object]
"""What the unknowns are: terms, integers, strings."""
_OPERATORS = ("+", "-", "*", "/")


def _computed(op: str, a: int, b: int) -> int | None:
    """None for a quotient that leaves a rest."""
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case _:
            return a // b if b and a % b == 0 else None


def read(source: str) -> Term:
    """The pattern of a text; names without quotes are unknowns."""
    (form,) = parse(source)
    found = pattern(form)
    assert isinstance(found, tuple)
    return found


def pattern(form: Form) -> object:
    match form:
        case str(word) if word[0] == '"':
            return word[1:-1]
        case str(word):
            try:
                return float(word) if "." in word else int(word)
            except ValueError:
                return Unknown(word)
        case (str(op), a, b) if op in _OPERATORS:
            return Formula(op, pattern(a), pattern(b))  # type: ignore[arg-type]
        case ("vec-of" | "vec-empty", *items):
            return tuple(map(pattern, items))
        case (name, *args):
            return (name, *map(pattern, args))
        case _:
            return ()


def show(p: object) -> str:
    """A pattern as egglog text."""
    match p:
        case Unknown(name):
            return name
        case Formula(op, a, b):
            return f"({op} {show(a)} {show(b)})"
        case ():
            return "(vec-empty)"
        case (str(name), *args):
            return f"({' '.join((name, *map(show, args)))})"
        case tuple():
            return f"(vec-of {' '.join(map(show, p))})"
        case str():
            return text(p)
        case float():
            return real(p)
        case _:
            return str(p)


def number(p: object, bound: Bound) -> object:
    """An integer of a pattern; None if it is none (a quotient that leaves a rest)."""
    match p:
        case Unknown(name):
            return bound[name]
        case Formula(op, a, b):
            x, y = number(a, bound), number(b, bound)
            if isinstance(x, int) and isinstance(y, int):
                return _computed(op, x, y)
            return None
        case _:
            return p


def instance(p: object, bound: Bound) -> object:
    """A pattern with its unknowns filled in; ValueError where an integer is none, KeyError for an
    unknown that is not bound."""
    match p:
        case tuple():
            return tuple(instance(x, bound) for x in p)
        case Unknown() | Formula():
            value = number(p, bound)
            if value is None:
                raise ValueError(show(p))
            return value
        case _:
            return p


def match(p: object, term: object, bound: dict[str, object]) -> bool:
    """Whether a term is an instance of a pattern without formulas; ``bound`` grows."""
    match p:
        case Unknown(name):
            return bound.setdefault(name, term) == term
        case tuple():
            return (
                isinstance(term, tuple)
                and len(p) == len(term)
                and all(match(x, y, bound) for x, y in zip(p, term, strict=True))
            )
        case _:
            return p == term and type(p) is type(term)


def unknowns(p: object) -> Iterator[str]:
    """The names of a pattern's unknowns, as often as they occur."""
    match p:
        case Unknown(name):
            yield name
        case Formula(_, a, b):
            yield from unknowns(a)
            yield from unknowns(b)
        case tuple():
            for x in p:
                yield from unknowns(x)
        case _:
            pass


def subterms(term: Term) -> Iterator[Term]:
    """A term and all terms in it, outermost first."""
    yield term
    for t in term[1:]:
        if isinstance(t, tuple):
            yield from subterms(t)


def size(term: object) -> int:
    """The constructors of a term."""
    return 1 + sum(map(size, term[1:])) if isinstance(term, tuple) else 0


def blanked(term: object) -> object:
    """A term without its numbers, types and names: terms of one shape are one cluster."""
    match term:
        case ("Sym" | "Int", _):
            return "scalar"
        case ("Lit" | "FLit", _, value):
            return ("literal", value)
        case ("Bop" | "Cmp" | "Reduce" as name, str(op), *rest):
            return (name, op, *map(blanked, rest))
        case tuple():
            return tuple(map(blanked, (t for t in term if not isinstance(t, (int, str))))) or "leaf"
        case _:
            return "_"


def plain(p: object) -> str:  # noqa: C901 (a line a constructor)
    """A pattern as the laws in the rule files are written."""
    match p:
        case ("Bop" | "Cmp", op, a, b) if op in ("min", "max"):
            return f"{op}({plain(a)}, {plain(b)})"
        case ("Bop" | "Cmp", op, a, b):
            return f"({plain(a)} {op if isinstance(op, str) else plain(op)} {plain(b)})"
        case ("Int" | "Sym", v):
            return plain(v)
        case ("Lit" | "FLit", t, v):
            return f"{plain(t)}({plain(v)})"
        case ("Broadcast", v, n):
            return f"x{plain(n)}({plain(v)})"
        case ("Ramp", b, s, n):
            return f"ramp({plain(b)}, {plain(s)}, {plain(n)})"
        case ("Load", _, b, i, m):
            return f"{plain(b)}[{plain(i)} if {plain(m)}]"
        case ("Cast", t, v):
            return f"{plain(t)}({plain(v)})"
        case ("Not", v):
            return f"!{plain(v)}"
        case ("Reduce", op, v, n):
            return f"reduce-{op}({plain(v)} to {plain(n)})"
        case ("Always", n):
            return f"always {plain(n)}"
        case (name, *args):
            return f"{str(name).lower()}({', '.join(map(plain, args))})"
        case Formula(op, a, b):
            return f"{plain(a)}{op}{plain(b)}"
        case Unknown(name):
            return name
        case _:
            return str(p)
