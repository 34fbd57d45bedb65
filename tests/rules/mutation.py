"""Wrong versions of the rules, made by operators, and the search for a program that tells.

A mutant is a rule with one spot changed: a factor or a term left out, a guard dropped, a sign
turned, two neighbouring arguments swapped, an operator exchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from soundness_programs import (
    Program,
    checked,
    engine_with,
    near_misses,
    programs,
    rule_cases,
    rule_forms,
    rules_of,
)

from selector.diagnostics import InternalError, UserError
from selector.eqsat.saturate import Engine, Saturation
from selector.eqsat.soundness import Soundness, compare

Tree = str | list["Tree"]

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[()]|[^\s()"]+')
PHASES = ((("axioms",), 24), (("axioms", "application"), 32), (("lowering",), 4))
MOST_TUPLES = 6000
_COMPARISONS = (">", "<", ">=", "<=", "!=")
_ARITHMETIC = ("+", "-", "*", "/", "%", "min", "max")


@dataclass(frozen=True)
class Mutant:
    """A rule with ``old`` (which occurs in it once) replaced by ``new``. ``told_by``: a program to
    try first, where the search is long.
    """

    rule: str
    old: str
    new: str
    told_by: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"

    @property
    def text(self) -> str:
        """The changed rule."""
        form = rule_forms()[self.rule]
        assert form.text.count(self.old) == 1, f"{self}: it occurs {form.text.count(self.old)}x"
        return form.text.replace(self.old, self.new)

    @property
    def rules(self) -> dict[str, str]:
        """The rules of its file, with the changed rule in its place."""
        own = rules_of(rule_forms()[self.rule].file)
        assert self.text != own[self.rule], f"{self} changes nothing"
        return own | {self.rule: self.text}


@dataclass(frozen=True)
class Verdict:
    """What the soundness run says of a mutant: the program that told and its finding, if any; how
    often the rule matched; how many programs were tried."""

    program: str = ""
    finding: str = ""
    fired: int = 0
    tried: int = 0

    @property
    def found(self) -> bool:
        return bool(self.finding)


def judge(mutant: Mutant, among: Iterable[Program] | None = None) -> Verdict:
    """Run programs until one tells: all, those first that are about the rule or its file."""
    file = rule_forms()[mutant.rule].file
    engines: dict[str, Engine] = {}
    fired = tried = 0
    with ExitStack() as stack:
        for tried, program in enumerate(among or ordered(mutant, file), 1):
            if program.facts not in engines:
                try:
                    made = engine_with(file, mutant.rules, program.facts)
                    engines[program.facts] = stack.enter_context(made)
                except UserError as error:
                    return Verdict("", f"not a rule: {error.why}")
            result = check_where_fires(program, engines[program.facts], mutant.rule)
            fired += result.fired[mutant.rule]
            if result.mismatches:
                return Verdict(program.name, result.mismatches[0], fired, tried)
    return Verdict(fired=fired, tried=tried)


def check_where_fires(program: Program, engine: Engine, rule: str) -> Soundness:
    """A graph in which the rule does nothing needs no comparison."""
    result = Soundness()
    engine.run("(push)")
    try:
        for command in program.commands:
            engine.run(command)
        result.fired = saturate_in_steps(engine).matches
        if result.fired[rule]:
            compare(engine, 0, result)
    except InternalError as error:
        result.mismatches.append(str(error))
    finally:
        engine.run("(pop)")
    return result


def saturate_in_steps(engine: Engine) -> Saturation:
    """The phases of a selection, one step at a time: a wrong rule may grow without end, and the
    engine cannot be interrupted within a step."""
    result = Saturation()
    for rulesets, most in PHASES:
        for _ in range(most):
            changed = [_step(engine, ruleset, result) for ruleset in rulesets]
            if not any(changed) or engine.size() > MOST_TUPLES:
                break
    return result


def _step(engine: Engine, ruleset: str, result: Saturation) -> bool:
    """One ruleset once, after all facts that follow."""
    for _ in range(8):
        if not engine.round("(run supporting 1)", result) or engine.size() > MOST_TUPLES:
            break
    return engine.round(f"(run {ruleset} 1)", result)


def ordered(mutant: Mutant, file: str) -> Iterator[Program]:
    """The program that is known to tell, the tests of the rule, what nearly matches, whole small
    programs, the tests of its file; first of these those in which the rule matches as it is."""
    rule = mutant.rule
    own = [p for p in rule_cases() if rule in p.rules]
    near = [p for p in rule_cases() if p.file == file and p not in own]
    others = (*near_misses(), *programs(), *near)
    if mutant.told_by:
        yield next(p for p in others if p.name == mutant.told_by)
    yield from own
    yield from sorted(others, key=lambda p: not checked(p).fired[rule])


def parse(text: str) -> Tree:
    """An s-expression as nested lists of tokens."""
    stack: list[list[Tree]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    (tree,) = stack[0]
    return tree


def show(tree: Tree) -> str:
    return tree if isinstance(tree, str) else f"({' '.join(map(show, tree))})"


def spots(tree: Tree) -> Iterator[tuple[list[Tree], int]]:
    """Every place in a tree, as a list and an index in it."""
    if isinstance(tree, list):
        for i, child in enumerate(tree):
            yield tree, i
            yield from spots(child)


def changes(tree: Tree, right: bool) -> Iterator[Tree]:
    """Wrong versions of one place; ``right`` on a rule's right-hand side."""
    match tree:
        case ["-", "0", x]:
            yield x
        case [str(op), a, b] if op in _ARITHMETIC:
            yield a
            yield b
        case ["Bop", str(op), a, b] if right:
            yield a
            yield b
            yield ["Bop", '"-"' if op == '"+"' else '"+"' if op == '"*"' else '"||"', a, b]
        case ["Int", str(value)] if right and value.lstrip("-").isdigit():
            yield ["Int", str(-int(value) if value != "0" else 1)]
        case [head, *arguments] if right and isinstance(head, str) and head.isalpha():
            for i in range(len(arguments) - 1):
                a, b = arguments[i : i + 2]
                if a != b and {type(a), type(b)} != {str, list}:
                    yield [head, *arguments[:i], b, a, *arguments[i + 2 :]]
        case "1" | "-1" if right:
            yield str(-int(tree))
        case _:
            return


def is_guard(tree: Tree) -> bool:
    """A condition that binds nothing."""
    match tree:
        case [str(op), _, _] if op in _COMPARISONS:
            return True
        case ["=", "0", ["%", _, _]] | ["=", "1", ["lanes", _]]:
            return True
        case _:
            return False


def generated(rule: str) -> Iterator[tuple[str, str]]:
    """The mutants of a rule: what was changed, and the whole changed text."""
    text = rule_forms()[rule].text
    original = parse(text)
    for number, (_, _) in enumerate(spots(original)):
        for variant in range(64):
            tree = parse(text)
            parent, i = list(spots(tree))[number]
            options = list(_options(tree, parent, i))
            if variant >= len(options):
                break
            what, new = options[variant]
            if new is None:
                del parent[i]
            else:
                parent[i] = new
            yield what, show(tree)


def _options(tree: Tree, parent: list[Tree], i: int) -> Iterator[tuple[str, Tree | None]]:
    old = parent[i]
    if is_guard(old):
        yield f"without {show(old)}", None
    if old in (":ruleset", ":name", ":when"):
        return
    assert isinstance(tree, list)
    right = any(s is parent for s, _ in _right(tree)) or parent is tree[2]
    left_numbers = any(s is parent for s, _ in spots(tree))
    for new in changes(old, right) if left_numbers else ():
        yield f"{show(old)} -> {show(new)}", new


def _right(tree: list[Tree]) -> Iterator[tuple[list[Tree], int]]:
    """Places of the right-hand side of a rule or rewrite."""
    yield tree, 2
    yield from spots(tree[2])
