"""What may stand in a hole: leaves, and operators that build more.

A hole is a place in a small program (``holes``): the index or the predicate of an operand, a
factor, what is summed, the sum. Terms are made by size over one representative of each class.
"""

from __future__ import annotations

from functools import cache
from string import Template

from selector.dataclass import dataclass
from selector.eqsat.decode import Term
from selector.workbench.infer.holes import LANES, K, M, N
from selector.workbench.infer.patterns import read

Kind = tuple[str, int]
"""Element type and lanes."""
PLACE: Term = ("Hole",)


@dataclass(frozen=True, slots=True)
class Operator:
    """A constructor over ``#0``, ``#1``, ... of these kinds."""

    term: Term
    takes: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class Hole:
    """A place of a program, what fits there, and what is there as it is written best."""

    name: str
    about: str
    update: Term
    best: Term
    kind: Kind
    leaves: tuple[Term, ...]
    operators: tuple[Operator, ...]
    extra: tuple[Term, ...] = ()
    """Other terms that are recognised there, for laws."""


_PARTS = {
    "L": str(LANES), "M": str(M), "N": str(N), "K": str(K), "MN": str(M * N), "NK": str(N * K),
    "a": '(Sym "a")', "b": '(Sym "b")', "r": '(Sym "r")', "c": '(Sym "c")', "s": '(Sym "s")',
    "one": f"(Broadcast (Int 1) {LANES})",
    "two": f"(Broadcast (Int 2) {LANES})",
    "zero": f"(Broadcast (Int 0) {LANES})",
    "along": f"(Broadcast (Ramp (Int 0) (Int 1) {K}) {M * N})",
    "rows": f"(Ramp (Broadcast (Int 0) {N * K}) (Int 1) {M})",
    "outputs": f"(Ramp (Broadcast (Int 0) {K}) (Int 1) {M * N})",
    "left": f'(Ramp (Broadcast (Ramp (Sym "a") (Int 1) {K}) {N}) (Sym "r") {M})',
    "right": f'(Broadcast (Ramp (Ramp (Sym "b") (Sym "c") {K}) (Int 1) {N}) {M})',
    "image": f'(Ramp (Ramp (Sym "a") (Int 1) {K}) (Int 1) {M * N})',
    "taps": f'(Broadcast (Ramp (Sym "b") (Int 1) {K}) {M * N})',
}  # fmt: skip


def _term(source: str) -> Term:
    for _ in range(4):
        source = Template(source).substitute(_PARTS)
    return read(source)


_PARTS.update(
    {
        "inside": f'(Cmp "<" $along (Broadcast (Sym "s") {LANES}))',
        "over": f'(Cmp "<" $rows (Broadcast (Sym "s") {LANES}))',
        "acc": f"(Ramp (Int 0) (Int 1) {M * N})",
        "true": f"(Always {LANES})",
        "fzero": f'(Broadcast (FLit "float32" 0.0) {LANES})',
        "fone": f'(Broadcast (FLit "float32" 1.0) {LANES})',
        "A": '(Load "float16" "A" $left $true)',
        "B": '(Load "float16" "B" $right $true)',
        "AI": '(Load "int8" "A" $left $true)',
        "BI": '(Load "int8" "B" $right $true)',
    }
)


def _update(kind: str, total: str) -> Term:
    load = f'(Move "wmma" "mem" (Load "{kind}" "acc" $acc (Always $MN)))'
    sums = f'(Bop "+" {load} {total})'
    return _term(f'(Store "acc" $acc (Move "mem" "wmma" {sums}) (Always $MN))')


def _sum(kind: str, a: str, b: str) -> str:
    return f'(Reduce "add" (Bop "*" (Cast "{kind}" {a}) (Cast "{kind}" {b})) $MN)'


def _operators(*given: tuple[str, str]) -> tuple[Operator, ...]:
    """From ``(text over $0, $1, ..., their kinds)``; a kind is ``type x lanes``."""
    made: list[Operator] = []
    for source, kinds in given:
        takes = tuple((k.rsplit("x", 1)[0], int(k.rsplit("x", 1)[1])) for k in kinds.split())
        atoms = [f'(Atom "{t}" {n} "#{i}")' for i, (t, n) in enumerate(takes)]
        for i, atom in enumerate(atoms):
            source = source.replace(f"?{i}", atom)
        made.append(Operator(_term(source), takes))
    return tuple(made)


def _binary(ops: str, kind: str) -> list[tuple[str, str]]:
    return [(f'(Bop "{op}" ?0 ?1)', f"{kind} {kind}") for op in ops.split()]


def _compare(ops: str, kind: str) -> list[tuple[str, str]]:
    return [(f'(Cmp "{op}" ?0 ?1)', f"{kind} {kind}") for op in ops.split()]


def _hole(
    name: str, about: str, update: Term, best: str, kind: Kind, leaves: str,
    operators: list[tuple[str, str]], extra: tuple[str, ...] = (),
) -> Hole:  # fmt: skip
    """``leaves`` by their names above, beside what is there best."""
    terms = dict.fromkeys([_term(best), *(_term(f"${leaf}") for leaf in leaves.split())])
    more = tuple(map(_term, extra))
    return Hole(name, about, update, _term(best), kind, tuple(terms), _operators(*operators), more)


_I, _P, _F, _H = f"int32x{LANES}", f"uint1x{LANES}", f"float32x{LANES}", f"float16x{LANES}"
_INT, _BOOL = ("int32", LANES), ("uint1", LANES)
_LOGIC = [(f'(Bop "{op}" ?0 ?1)', f"{_P} {_P}") for op in ("&&", "||")] + [("(Not ?0)", _P)]
_BY = [(f'(Bop "{op}" ?0 (Broadcast (Int {c}) $L))', _I) for op in "/%" for c in (1, 2, 3)]
_INDEX = [*_binary("+ - * min max", _I), *_BY]


@cache
def holes() -> dict[str, Hole]:
    """The holes by name."""
    _PARTS.update(
        kbase=f"(Broadcast (Ramp $a (Int 1) {K}) {M * N})",
        rstep=f"(Ramp (Broadcast (Int 0) {N * K}) $r {M})",
        start=f"(Broadcast $a {LANES})",
        limit=f"(Broadcast $s {LANES})",
        qbase=f"(Ramp (Broadcast $a {K}) (Int 1) {M * N})",
        inB='(Load "float16" "B" $right $inside)',
    )
    made = (_index, _band, _taps, _predicate, _factor, _summand, _total)
    return {hole.name: hole for hole in (hole("(Hole)") for hole in made)}


def _index(place: str) -> Hole:
    update = _update("float32", _sum("float32", f'(Load "float16" "A" {place} $true)', "$B"))
    leaves = "kbase rstep along rows one two zero"
    return _hole("index", "the index of a product's operand", update, "$left", _INT, leaves, _INDEX)


def _band(place: str) -> Hole:
    image, taps = f'(Load "float16" "A" {place} $true)', '(Load "float16" "B" $taps $true)'
    update = _update("float32", _sum("float32", image, taps))
    leaves = "kbase qbase along outputs start one two"
    return _hole("band", "the index of a band's image", update, "$image", _INT, leaves, _INDEX)


def _taps(place: str) -> Hole:
    image, taps = '(Load "float16" "A" $image $true)', f'(Load "float16" "B" {place} $true)'
    update = _update("float32", _sum("float32", image, taps))
    leaves = "along one two zero limit"
    return _hole("taps", "the index of a band's taps", update, "$taps", _INT, leaves, _INDEX)


def _predicate(place: str) -> Hole:
    update = _update("float32", _sum("float32", f'(Load "float16" "A" $left {place})', "$B"))
    operators = [
        *_LOGIC, *_compare("< <= == !=", _I), *_binary("- min max", _I),
        ("(Select ?0 ?1 ?2)", f"{_P} {_P} {_P}"),
    ]  # fmt: skip
    about, leaves = "the predicate of a product's operand", "inside true rows along limit one"
    more = ('(Bop "&&" $over $inside)',)
    return _hole("predicate", about, update, "$over", _BOOL, leaves, operators, more)


def _factor(place: str) -> Hole:
    update = _update("float32", f'(Reduce "add" (Bop "*" {place} (Cast "float32" $B)) $MN)')
    operators = [
        ("(Select ?0 ?1 ?2)", f"{_P} {_F} {_F}"), ("(Select ?0 ?1 ?2)", f"{_P} {_H} {_H}"),
        ('(Cast "float32" ?0)', _P), ('(Cast "float32" ?0)', _H), ('(Cast "float16" ?0)', _P),
        *_binary("* + - min max", _F), *_binary("* min max", _H), ("(Not ?0)", _P),
    ]  # fmt: skip
    more = (
        '(Select $over (Cast "float32" $A) $fzero)',
        '(Select (Bop "&&" $over $inside) (Cast "float32" $A) $fzero)',
        '(Select (Not $over) (Cast "float32" $A) $fzero)',
        '(Cast "float32" (Load "float16" "A" $left $over))',
    )
    best, kind, leaves = '(Cast "float32" $A)', ("float32", LANES), "fzero fone over true A"
    return _hole("factor", "a factor of a product", update, best, kind, leaves, operators, more)


def _summand(place: str) -> Hole:
    """What is summed, of bytes: all of it is exact."""
    best = '(Bop "*" (Cast "int32" $AI) (Cast "int32" $BI))'
    short = f"int16x{LANES}"
    byte = f"int8x{LANES}"
    operators = [
        *_binary("* + -", _I), *_binary("* -", short), ("(Select ?0 ?1 ?2)", f"{_P} {_I} {_I}"),
        ("(Select ?0 ?1 ?2)", f"{_P} {byte} {byte}"),
        ('(Cast "int16" ?0)', byte), ('(Cast "int32" ?0)', byte), ('(Cast "int32" ?0)', short),
        ('(Cast "int32" ?0)', _P), ("(Not ?0)", _P),
    ]  # fmt: skip
    update = _update("int32", f'(Reduce "add" {place} $MN)')
    return _hole(
        "summand", "what a product sums", update, best, _INT, "AI BI over zero one", operators
    )


def _total(place: str) -> Hole:
    """The sum itself."""
    best = _sum("int32", "$AI", "$BI")
    few = f"int32x{M * N}"
    _PARTS["product"] = '(Bop "*" (Cast "int32" $AI) (Cast "int32" $BI))'
    _PARTS["ones"] = f"(Broadcast (Int 1) {M * N})"
    _PARTS["none"] = f"(Broadcast (Int 0) {M * N})"
    operators = [
        ('(Reduce "add" ?0 $MN)', _I), ('(Reduce "add" ?0 $MN)', few),
        *_binary("* + - min max", few), *_binary("+ - *", _I),
        ("(Broadcast ?0 1)", few),
    ]  # fmt: skip
    leaves = "product ones none zero one"
    about, kind = "the sum of a product", ("int32", M * N)
    return _hole("sum", about, _update("int32", place), best, kind, leaves, operators)
