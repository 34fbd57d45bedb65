"""The graphs on which the rules are checked: the tests of the rules, and whole small programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import version

from tensor_programs import Spec, convolution, matmul
from tensor_terms import PRODUCTS

from rules import rule_files
from selector.eqsat.facts import instruction_facts, legal_instructions
from selector.eqsat.saturate import Engine
from selector.eqsat.soundness import Soundness, check_commands, scopes_of
from selector.intrinsics.records import INSTRUCTIONS
from selector.ir.module import Module
from selector.targets import find_target
from selector.workbench.cases import DEFAULT_TARGETS, load
from selector.workbench.source import Form, scan

ENGINE = f"egglog {version('egglog')}"
"""What makes the graphs, for `tests/verified.py`."""


def facts_of(targets: tuple[str, ...]) -> str:
    return instruction_facts(tuple(i for t in targets for i in legal_instructions(find_target(t))))


FACTS = facts_of(DEFAULT_TARGETS)
"""Accumulators of different units do not meet, so both targets fit in one engine."""


_SHAPES = {"wmma": ((2, 2), (4, 2), (2, 3)), "amx": ((3, 4),)}


def _small_facts() -> str:
    """The instructions' types with small shapes: nothing in the rules depends on sizes."""
    lines = [line for line in FACTS.splitlines() if not line.startswith("(instruction")]
    one = {(i.family, i.a_type, i.b_type, i.c_type): i for i in INSTRUCTIONS}
    for (family, *types), i in one.items():
        kinds = " ".join(f'"{t}"' for t in types)
        lines += [
            f'(instruction "{family}" "{i.name}" {m} {n} {kinds})'
            for m, n in _SHAPES.get(family, ())
        ]
    return "\n".join(lines)


SMALL = _small_facts()
"""The same rules apply; programs are smaller."""


@dataclass(frozen=True)
class Program:
    """Commands that make a graph, and the rules that they are about (none: whole programs)."""

    name: str
    commands: tuple[str, ...]
    rules: tuple[str, ...] = ()
    file: str = ""
    facts: str = FACTS


@cache
def rule_cases() -> tuple[Program, ...]:
    """The graphs of ``rules/tests/*.egg``; together they make every rule fire."""
    return tuple(
        Program(c.name, tuple(f.text for f in c.setup), c.rules, c.file.rsplit("/", 1)[-1], facts)
        for c in load()
        if not c.scheduled
        for facts in (FACTS if {*c.targets} <= {*DEFAULT_TARGETS} else facts_of(c.targets),)
    )


MODULES: dict[str, Module] = {
    "matmul": matmul(16, 16, 4),
    "matmul, unnested sums": matmul(16, 8, 4, style="sums"),
    "matmul, both transposed": matmul(8, 32, 2, a_layout="column", b_layout="column"),
    "matmul, f16 accumulator": matmul(16, 8, 4, Spec("float16", "float16")),
    "matmul, bytes": matmul(16, 8, 4, Spec("int8", "int32")),
    "matmul, unsigned bytes": matmul(16, 8, 4, Spec("uint8", "int32")),
    "matmul, bfloat16": matmul(16, 8, 4, Spec("bfloat16", "float32")),
    "convolution": convolution(128, 3),
    "one tap": convolution(128, 1, 3),
    "strided, dilated, kernel reversed": convolution(128, 5, 2, 3, reverse="K"),
    "strided, image reversed": convolution(128, 3, 4, 2, reverse="I"),
}


# Terms in which a guard nearly holds, or a rule would match were it a little wider.
NEAR_MISSES = (
    '(Ramp (Ramp (Sym "a") (Int 2) 4) (Int 6) 3)',
    '(Bop "-" (Broadcast (Sym "a") 12) (Broadcast (Ramp (Sym "b") (Sym "t") 2) 6))',
    '(Bop "-" (Broadcast (Ramp (Sym "b") (Sym "t") 2) 6) (Broadcast (Sym "a") 12))',
    '(Bop "/" (Bop "+" (Ramp (Int 0) (Int 1) 4) (Broadcast (Ramp (Int 0) (Int 1) 2) 2)) '
    "(Broadcast (Int 4) 4))",
    '(Bop "%" (Bop "+" (Ramp (Int 0) (Int 1) 4) (Broadcast (Ramp (Int 2) (Int 1) 2) 2)) '
    "(Broadcast (Int 4) 4))",
    '(Bop "/" (Bop "+" (Ramp (Broadcast (Int 2) 2) (Int 1) 2) (Broadcast (Int 3) 4)) '
    "(Broadcast (Int 4) 4))",
    '(Bop "/" (Ramp (Int 0) (Bop "*" (Sym "s") (Int 3)) 4) (Broadcast (Int 2) 4))',
    '(Bop "/" (Ramp (Int 0) (Bop "*" (Sym "s") (Int 6)) 4) (Broadcast (Int 2) 4))',
    '(Bop "%" (Ramp (Int 1) (Int -1) 4) (Broadcast (Int 3) 4))',
    '(Bop "/" (Ramp (Int 1) (Int 2) 3) (Broadcast (Int 5) 3))',
    '(Bop "/" (Ramp (Int 0) (Int 2) 3) (Broadcast (Int 5) 3))',
    '(Bop "/" (Ramp (Int 0) (Int 2) 4) (Broadcast (Int 3) 4))',
    '(Bop "/" (Ramp (Int 0) (Int 1) 6) (Broadcast (Int 0) 6))',
    '(Bop "/" (Ramp (Int 1) (Int 4) 6) (Broadcast (Int -2) 6))',
    *(
        f'(Select (Cmp "<" (Ramp (Sym "a") (Int 1) 8) (Broadcast (Sym "b") 8)) {value} {other})'
        for load in (
            '(Load "float16" "x" (Ramp (Sym "s") (Int 2) 8) '
            '(Cmp "<" (Ramp (Sym "t") (Int 1) 8) (Broadcast (Sym "u") 8)))',
        )
        for kind, value in (
            ("float16", load),
            ("float32", f'(Cast "float32" {load})'),
            ("float32", f'(Bop "*" (Cast "float32" {load}) (Atom "float32" 8 "y"))'),
        )
        for other in (
            f'(Broadcast (FLit "{kind}" 0.0) 8)',
            f'(Broadcast (FLit "{kind}" 1.0) 8)',
            f'(Broadcast (Atom "{kind}" 1 "z") 8)',
        )
    ),
    '(RampV (Ramp (Sym "a") (Int 1) 4) (Broadcast (Ramp (Sym "s") (Int 1) 2) 2) 3)',
    '(Ramp (Ramp (Sym "a") (Bop "*" (Sym "s") (Int 2)) 4) (Bop "*" (Sym "s") (Int 4)) 3)',
    '(Ramp (Ramp (Sym "a") (Bop "*" (Sym "s") (Int 2)) 4) (Bop "*" (Sym "s") (Int 2)) 3)',
    '(Ramp (Ramp (Sym "a") (Sym "s") 4) (Bop "*" (Sym "s") (Int 3)) 3)',
    '(Ramp (Ramp (Sym "a") (Int 2) 4) (Int 4) 3)',
    '(Bop "*" (Ramp (Ramp (Sym "a") (Int 1) 2) (Int 1) 4) (Broadcast (Sym "s") 8))',
    '(Bop "*" (Ramp (Sym "a") (Int 1) 4) (Broadcast (Ramp (Sym "b") (Sym "s") 2) 2))',
    '(Bop "+" (Ramp (Sym "a") (Sym "s") 6) (Broadcast (Ramp (Sym "b") (Sym "t") 3) 2))',
    '(Bop "-" (Ramp (Sym "a") (Sym "s") 6) (Broadcast (Ramp (Sym "b") (Sym "t") 3) 2))',
    '(Bop "-" (Broadcast (Ramp (Sym "b") (Sym "t") 3) 2) (Ramp (Sym "a") (Sym "s") 6))',
    '(Bop "+" (Ramp (Ramp (Sym "a") (Sym "s") 2) (Sym "u") 3) '
    '(Broadcast (Ramp (Sym "b") (Sym "t") 3) 2))',
    '(Bop "-" (Ramp (Ramp (Sym "a") (Sym "s") 2) (Sym "u") 3) '
    '(Broadcast (Ramp (Sym "b") (Sym "t") 3) 2))',
    '(Bop "-" (Broadcast (Ramp (Sym "b") (Sym "t") 3) 2) '
    '(Ramp (Ramp (Sym "a") (Sym "s") 2) (Sym "u") 3))',
    '(Bop "+" (Ramp (Ramp (Sym "a") (Sym "s") 2) (Sym "u") 3) '
    '(Ramp (Ramp (Sym "b") (Sym "t") 3) (Sym "v") 2))',
    '(Bop "-" (Ramp (Ramp (Sym "a") (Sym "s") 2) (Sym "u") 3) '
    '(Ramp (Ramp (Sym "b") (Sym "t") 3) (Sym "v") 2))',
    '(Bop "-" (Ramp (Ramp (Sym "a") (Sym "s") 4) (Sym "u") 3) (Broadcast (Sym "b") 12))',
    '(Bop "min" (Broadcast (Ramp (Sym "a") (Sym "s") 2) 6) '
    '(Broadcast (Ramp (Sym "b") (Sym "t") 3) 4))',
    '(Bop "max" (Broadcast (Ramp (Sym "a") (Sym "s") 6) 2) '
    '(Broadcast (Ramp (Sym "b") (Sym "t") 2) 6))',
)

_MATMUL = PRODUCTS["matmul, K of 1"]
_OTHER_KIND = _MATMUL.reduction.replace('(Reduce "add"', '(Reduce "max"')
_OTHER_SUM = _MATMUL.reduction.replace('(Bop "*"', '(Bop "+"')

STATEMENTS: dict[str, str] = {
    "a difference": _MATMUL.update.replace('(Bop "+" (Move', '(Bop "-" (Move'),
    "a smallest value": _MATMUL.update.replace('(Bop "+" (Move', '(Bop "min" (Move'),
    "another accumulator": _MATMUL.update.replace('"acc" (Ramp (Int 0)', '"acc" (Ramp (Int 8)', 1),
    "a greatest product": _MATMUL.update.replace(_MATMUL.reduction, _OTHER_KIND),
    "a sum of sums": _MATMUL.update.replace(_MATMUL.reduction, _OTHER_SUM),
    "columns of groups apart": PRODUCTS["stored in groups, no predicates"].update.replace(
        "(Int 2) 5)", "(Int 6) 5)"
    ),
}
"""Updates that are not what they look like."""

_NARROW = ("int8", "uint8", "int16", "uint16")


def _element(kind: str, buffer: str) -> str:
    index = f'(Ramp (Sym "{buffer}") (Int 1) 64)'
    return f'(Load "{kind}" "{buffer}-{kind}" {index} (Always 64))'


def _casts() -> dict[str, list[str]]:
    """Conversions of conversions and of products, exact or not."""
    products = [
        f'(Cast "int32" (Bop "*" (Cast "{middle}" {_element(kind, "x")}) '
        f'(Cast "{middle}" {_element(kind, "y")})))'
        for kind in _NARROW
        for middle in (*_NARROW, "uint32")
    ]
    twice = [
        f'(Cast "{wide}" (Cast "{middle}" {_element(kind, "x")}))'
        for kind in (*_NARROW, "int32", "float16", "bfloat16", "float32")
        for middle in (*_NARROW, "float16", "bfloat16", "float32")
        for wide in ("int32", "float32")
    ]
    return {"casts of products": products, "casts of casts": twice}


@cache
def near_misses() -> tuple[Program, ...]:
    """Terms that must stay what they are."""
    groups = {**{t: [t] for t in NEAR_MISSES}, **_casts()}
    terms = tuple(
        Program(name, tuple(f"(let $term-{i} {t})" for i, t in enumerate(terms)), facts=SMALL)
        for name, terms in groups.items()
    )
    return terms + tuple(
        Program(name, (f"(set (statement 0) {statement})",), facts=SMALL)
        for name, statement in STATEMENTS.items()
    )


@cache
def programs() -> tuple[Program, ...]:
    """Updates of every kind with small instructions, and the scopes of whole programs."""
    updates = tuple(
        Program(name, (f"(set (statement 0) {p.update})",), facts=SMALL)
        for name, p in PRODUCTS.items()
    )
    return updates + tuple(
        Program(name, tuple(f"(set (statement {i}) {s})" for i, s in enumerate(statements)))
        for name, module in MODULES.items()
        for statements in scopes_of(module)
    )


@cache
def engine(facts: str = FACTS) -> Engine:
    """The rules as they are."""
    return Engine(facts)


@cache
def checked(program: Program) -> Soundness:
    """What the rules as they are do in a program, and what does not agree in it."""
    return check_commands(program.commands, engine(program.facts))


@lru_cache(maxsize=4)
def _rest(file: str, facts: str) -> Engine:
    """The rules of all files but one, of which only the declarations are there."""
    rest = Engine(facts, frozenset(rules_of(file)))
    rest.without = frozenset()  # of what is loaded from now on, nothing is left out
    return rest


@contextmanager
def engine_with(file: str, rules: Mapping[str, str], facts: str) -> Iterator[Engine]:
    """An engine in which a file has these rules (text by name) in place of its own.

    A new engine would read all the others again, which takes longer than most tests of a rule.
    """
    rest = _rest(file, facts)
    rest.run("(push)")
    try:
        rest.load(file, "\n".join(rules.values()))
        yield rest
    finally:
        rest.run("(pop)")


def rules_of(file: str) -> dict[str, str]:
    """The text of each rule of a file, by name."""
    return {name: form.text for name, form in rule_forms().items() if form.file == file}


@cache
def rule_forms() -> dict[str, Form]:
    """Every rule and rewrite by its name."""
    return {
        form.option(":name"): form
        for file, text in rule_files()
        for form in _forms(text, file)
        if form.head in ("rule", "rewrite", "birewrite")
    }


def _forms(text: str, file: str) -> Iterator[Form]:
    return (item for item in scan(text, file) if isinstance(item, Form))


def declared(*heads: str) -> dict[str, str]:
    """Names that the rule files declare by these commands, and the file of each."""
    return {
        form.words[1]: file
        for file, text in rule_files()
        for form in _forms(text, file)
        if form.head in heads
    }
