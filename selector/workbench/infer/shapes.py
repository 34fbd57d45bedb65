"""From two equal terms to rules: what they share becomes unknowns, numbers become sizes.

The most general rule comes first. Each is tried on random terms of other sizes, lanes and types
before anything is proved of it: most are false, and that is told in a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import islice, product
from random import Random

from selector.dataclass import dataclass
from selector.eqsat.decode import Decoder, Term
from selector.ir.types import Type
from selector.workbench.infer.fingerprints import Fingerprints, agree
from selector.workbench.infer.patterns import Formula, Unknown, instance, plain, show, unknowns

_TRIES, _ENOUGH = 120, 5
_COUNTS = (1, 2, 3, 4, 6)
_TYPES = ("int8", "uint8", "int16", "uint16", "int32", "float16", "float32")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_FORMULAS = 48
_TYPED = {"Cast": (1,), "Load": (1,), "Lit": (1,), "FLit": (1,)}
_NAMED = {"Load": (2,), "Sym": (1,)}


def core(refused: Term, recognised: Term, prints: Fingerprints) -> tuple[Term, Term]:
    """The smallest parts in which two equal terms differ that are equal themselves."""
    pairs = list(zip(refused, recognised, strict=False))
    differ = [(a, b) for a, b in pairs if a != b]
    if len(refused) == len(recognised) and len(differ) == 1:
        ((a, b),) = differ
        if not isinstance(a, tuple) or not isinstance(b, tuple):
            return refused, recognised
        if agree(prints.value(a), prints.value(b)):
            return core(a, b, prints)
    return refused, recognised


@dataclass(frozen=True, slots=True)
class Proposal:
    """A rule without a name: two sides over unknowns, and what has to hold."""

    left: Term
    right: object
    guards: tuple[str, ...]

    def text(self, name: str) -> str:
        when = f"\n         :when ({' '.join(self.guards)})" if self.guards else ""
        sides = f"(rewrite {show(self.left)} {show(self.right)}"
        return f'{sides}{when}\n         :ruleset axioms :name "{name}")'

    @property
    def law(self) -> str:
        """The comment above the rule."""
        return f"; {plain(self.left)} -> {plain(self.right)}"


@dataclass
class _Opened:
    """Terms with unknowns, and what these were."""

    left: Term
    right: object
    terms: dict[str, Term]
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    types: dict[str, str] = field(default_factory=dict[str, str])
    names: dict[str, str] = field(default_factory=dict[str, str])
    operators: dict[str, str] = field(default_factory=dict[str, str])
    shared: set[str] = field(default_factory=set[str])
    """Comparisons of both sides: any will do."""
    scalar: frozenset[str] = frozenset()
    """Unknown terms that have to be of one lane."""


def proposals(left: Term, right: Term, prints: Fingerprints) -> Iterator[Proposal]:
    """Rules of which two equal terms are an instance, that random terms do not refute."""
    seen: set[str] = set()
    for opened in _opened(left, right):
        for types in (True, False):
            for style in ("free", "equal", "literal", "tied", "fixed"):
                for found in _sized(opened, types, style, prints):
                    text = found.text("")
                    if text not in seen:
                        seen.add(text)
                        yield found


# Terms


def _opened(left: Term, right: Term) -> Iterator[_Opened]:
    """What both sides have in common as unknowns, then with some of these one constructor deeper;
    before each, what only the left side has as unknowns too."""
    shared = _shared(right, left)
    deeper = [_shared_in(t, left) for t in shared]
    inner = tuple(x for d in deeper for x in d)
    choices = [tuple(shared), inner, tuple(x for x in (*shared, *inner) if _varies(x))]
    choices += [
        tuple(x for j, t in enumerate(shared) for x in (deeper[j] if i == j else (t,)))
        for i in range(len(shared))
    ]
    for chosen in dict.fromkeys(choices):
        names = {t: f"x{i}" for i, t in enumerate(dict.fromkeys(chosen))}
        opened = _replaced(left, names)
        if isinstance(opened, Unknown):
            continue
        rest = [t for t in _closed(opened) if t not in names]
        more = names | {t: f"y{i}" for i, t in enumerate(dict.fromkeys(rest))}
        for named in (more, names) if rest else (names,):
            terms = {name: t for t, name in named.items()}
            yield _Opened(_replaced(left, named), _replaced(right, named), terms)  # type: ignore[arg-type]


def _shared(term: object, other: Term) -> list[Term]:
    """The largest terms that occur in another one."""
    if not isinstance(term, tuple):
        return []
    if _occurs(term, other) and term[0] not in ("Int", "Lit", "FLit", "Always"):
        return [term]
    return list(dict.fromkeys(x for t in term for x in _shared(t, other)))


def _varies(term: Term) -> bool:
    """Whether a term is more than a symbol in all lanes, which is an index by its constructor."""
    return term[0] != "Sym" and not (term[0] == "Broadcast" and _is_symbol(term[1]))


def _is_symbol(term: object) -> bool:
    return isinstance(term, tuple) and term[0] == "Sym"


def _shared_in(term: Term, other: Term) -> tuple[Term, ...]:
    return tuple(dict.fromkeys(x for t in term for x in _shared(t, other)))


def _occurs(term: Term, other: object) -> bool:
    return term == other or (isinstance(other, tuple) and any(_occurs(term, t) for t in other))


def _replaced(term: object, names: Mapping[Term, str]) -> object:
    if not isinstance(term, tuple):
        return term
    return Unknown(names[term]) if term in names else tuple(_replaced(t, names) for t in term)


def _closed(term: object) -> list[Term]:
    """The largest terms without unknowns, below the root, that are no literals."""
    if not isinstance(term, tuple):
        return []
    found: list[Term] = []
    for t in term[1:]:
        if isinstance(t, tuple) and not any(True for _ in unknowns(t)):
            found += [] if _is_literal(t) else [t]
        else:
            found += _closed(t)
    return found


def _parts(p: object) -> Iterator[Term]:
    if isinstance(p, tuple):
        yield p
        for x in p[1:]:
            yield from _parts(x)


def _is_literal(term: Term) -> bool:
    inner = term[1] if term[0] == "Broadcast" else term
    return isinstance(inner, tuple) and inner[0] in ("Int", "Lit", "FLit", "Always")


# Numbers, types and names


def _sized(opened: _Opened, types: bool, style: str, prints: Fingerprints) -> Iterator[Proposal]:
    """With numbers, types and names as unknowns; each way to compute the right side's numbers."""
    made = _Opened(opened.left, opened.right, opened.terms)
    made.shared = {str(t[1]) for t in _parts(opened.right) if t[0] == "Cmp"}
    left = _named(opened.left, made, types, style)
    assert isinstance(left, tuple)
    widths = {
        f"l{n[1:]}" if n[0] == "x" else f"m{n[1:]}": n for n in unknowns(left) if n in made.terms
    }
    known = made.numbers | {w: _type(made.terms[n]).lanes for w, n in widths.items()}
    for scalar in (
        frozenset[str](),
        frozenset(n for n, t in made.terms.items() if _type(t).lanes == 1),
    ):
        made.left, made.scalar = left, scalar
        samples = list(islice(_samples(made, widths, prints), _ENOUGH))
        if len(samples) == _ENOUGH:
            break
        if not made.terms or all(_type(t).lanes > 1 for t in made.terms.values()):
            return
    else:
        return
    for right in islice(_rights(made.right, made, known), _FORMULAS):
        if _holds(right, samples, prints):
            yield Proposal(left, right, tuple(_guards(right, widths, made)))


def _named(term: object, made: _Opened, types: bool, style: str) -> object:
    """The left side with unknowns; ``made`` is told what they were."""
    if not isinstance(term, tuple):
        return term
    name = str(term[0])
    result: list[object] = [name]
    for i, part in enumerate(term[1:], 1):
        if isinstance(part, float):
            result.append(part)
        elif isinstance(part, int):
            literal = name in ("Int", "Lit")
            fixed = style == "fixed" or (literal and style in ("literal", "tied"))
            result.append(part if fixed else _number(part, made, style in ("equal", "tied")))
        elif isinstance(part, str) and i in _TYPED.get(name, ()):
            result.append(_string(part, "t", made.types) if types else part)
        elif isinstance(part, str) and name == "Cmp" and part in made.shared:
            result.append(_string(part, "o", made.operators))
        elif isinstance(part, str) and i in _NAMED.get(name, ()):
            result.append(_string(part, "b", made.names))
        else:
            result.append(_named(part, made, types, style))
    return tuple(result)


def _number(value: int, made: _Opened, tied: bool) -> Unknown:
    same = [n for n, v in made.numbers.items() if v == value] if tied else []
    name = same[0] if same else f"n{len(made.numbers)}"
    made.numbers[name] = value
    return Unknown(name)


def _string(value: str, prefix: str, table: dict[str, str]) -> Unknown:
    names = {v: n for n, v in table.items()}
    name = names.get(value, f"{prefix}{len(table)}")
    table[name] = value
    return Unknown(name)


def _rights(term: object, made: _Opened, known: Mapping[str, int]) -> Iterator[object]:
    """The right side with its numbers as unknowns or formulas that had their values."""
    strings = {
        v: Unknown(n)
        for table in (made.types, made.names, made.operators)
        for n, v in table.items()
    }
    slots: list[list[object]] = []

    def visit(t: object) -> object:
        if isinstance(t, int):
            slots.append(_formulas(t, known))
            return len(slots) - 1
        if isinstance(t, tuple):
            return (t[0], *map(visit, t[1:])) if t[0] not in ("Bop", "Cmp", "Reduce") else (
                t[0], t[1], *map(visit, t[2:]))  # fmt: skip
        return strings.get(t, t) if isinstance(t, str) else t

    shape = visit(term)
    for chosen in product(*slots):
        yield _chosen(shape, chosen)


def _chosen(shape: object, chosen: Sequence[object]) -> object:
    if isinstance(shape, int):
        return chosen[shape]
    return tuple(_chosen(t, chosen) for t in shape) if isinstance(shape, tuple) else shape


def _formulas(value: int, known: Mapping[str, int]) -> list[object]:
    """What has a value: unknowns, then small constants, then what is computed of two."""
    found: list[object] = [Unknown(n) for n, v in known.items() if v == value]
    if value in (-1, 0, 1) or not known:
        found.append(value)
    pairs = [(a, b) for a in known for b in known if a != b]
    operators: tuple[tuple[str, Callable[[int, int], bool]], ...] = (
        ("*", lambda a, b: a * b == value and a != 1 != b),
        ("/", lambda a, b: b > 1 and a == value * b),
        ("+", lambda a, b: a + b == value and a != 0 != b),
        ("-", lambda a, b: a - b == value and b != 0),
    )
    for op, holds in operators:
        ordered = pairs if op in "/-" else [(a, b) for a, b in pairs if a < b]
        found += [
            Formula(op, Unknown(a), Unknown(b)) for a, b in ordered if holds(known[a], known[b])
        ]
    return found or [value]


# Trials

_Sample = tuple[dict[str, object], object]


def _samples(made: _Opened, widths: Mapping[str, str], prints: Fingerprints) -> Iterator[_Sample]:
    """Random unknowns of which the left side is well formed, with its value."""
    text = show(made.left)
    draw, counts = Random(text), _counts(made.left)
    index = any(name in text for name in ("(Int", "(Ramp", "(Reduce"))
    seen: set[str] = set()
    for _ in range(_TRIES):
        bound = _drawn(made, widths, draw, counts, index)
        value = prints.value(instance(made.left, bound))  # type: ignore[arg-type]
        if value is not None and 1 <= value[0].lanes <= 144 and str(bound) not in seen:
            seen.add(str(bound))
            yield bound, value
        elif not (made.numbers or made.terms or made.types):
            return


def _drawn(
    made: _Opened, widths: Mapping[str, str], draw: Random, counts: set[str], index: bool
) -> dict[str, object]:
    """Values of the unknowns; ``index``: int32 stays what it is."""
    kinds = {t: t if index and t == "int32" else draw.choice(_TYPES) for t in _TYPES}
    bound: dict[str, object] = {n: kinds.get(t, t) for n, t in made.types.items()}
    bound |= made.names | {n: draw.choice(_COMPARISONS) for n in made.operators}
    for name in made.numbers:
        bound[name] = draw.choice(_COUNTS) if name in counts else draw.randint(-3, 7)
    of = {n: w for w, n in widths.items()}
    for name, term in made.terms.items():
        count = 1 if name in made.scalar else draw.choice(_COUNTS)
        element = str(_type(term).element)
        kind = kinds.get(element, element) if made.types else element
        scalar = count == 1 and kind == "int32"
        bound[name] = ("Sym", name) if scalar else ("Atom", kind, count, f"{name} {kind} {count}")
        bound[of.get(name, "")] = count
    return bound


@lru_cache(maxsize=4096)
def _type(term: Term) -> Type:
    return Decoder().expr(term).type


def _counts(term: object) -> set[str]:
    """The unknown integers that count lanes."""
    match term:
        case ("Int", _) | ("Lit", _, _):
            return set()
        case ("Ramp", b, s, n):
            return _counts(b) | _counts(s) | {*unknowns(n)}
        case ("Broadcast" | "Always" | "Reduce", *rest):
            own = {*unknowns(rest[-1])} if not isinstance(rest[-1], tuple) else set[str]()
            return own | {n for t in rest if isinstance(t, tuple) for n in _counts(t)}
        case tuple():
            return {n for t in term for n in _counts(t)}
        case _:
            return set()


def _holds(right: object, samples: Sequence[_Sample], prints: Fingerprints) -> bool:
    tried = 0
    for bound, value in samples:
        try:
            term = instance(right, bound)
        except ValueError:
            continue  # a guard excludes it
        tried += 1
        found = prints.value(term) if isinstance(term, tuple) else None
        if not agree(found, value):  # type: ignore[arg-type]
            return False
    return tried > 1


def _guards(right: object, widths: Mapping[str, str], made: _Opened) -> Iterator[str]:
    """What has to hold: lanes that are used or one, and quotients without a rest."""
    used = {*unknowns(right)}
    for width, name in widths.items():
        if width in used:
            yield f"(= {width} (lanes {name}))"
        elif name in made.scalar:
            yield f"(= 1 (lanes {name}))"
    for f in dict.fromkeys(_quotients(right)):
        yield f"(= 0 (% {show(f.a)} {show(f.b)}))"


def _quotients(p: object) -> Iterator[Formula]:
    match p:
        case Formula("/", _, _):
            yield p
        case tuple():
            for t in p:
                yield from _quotients(t)
        case _:
            pass
