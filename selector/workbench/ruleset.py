"""Rules as written: name, ruleset, place, law; and what an author forgets.

``lint`` reads the text alone and lets egglog type every command, one by one, so that all mistakes
of a file are told and not the first only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rules import rule_files
from selector.dataclass import dataclass
from selector.eqsat.bindings import egglog
from selector.eqsat.stepping import run_text
from selector.workbench.cases import RULES
from selector.workbench.problems import Problem, at, of_egglog
from selector.workbench.source import Comment, Form, scan


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule or rewrite of a file; ``law`` is the comment above it."""

    name: str
    ruleset: str
    law: str
    form: Form

    def as_dict(self) -> dict[str, object]:
        """The rule as data, for JSON."""
        return {
            "name": self.name,
            "ruleset": self.ruleset,
            "file": self.form.file,
            "line": self.form.line,
            "law": self.law,
            "text": self.form.text,
        }


RuleFiles = tuple[tuple[str, str], ...]


def standard_files() -> RuleFiles:
    """The rules that come with the package, named as in the source tree."""
    return tuple((f"rules/{name}", text) for name, text in rule_files())


def forms(files: Iterable[tuple[str, str]]) -> list[Form]:
    """All forms of files in loading order."""
    return [f for name, text in files for f in scan(text, name) if not isinstance(f, Comment)]


def read_rules(files: Iterable[tuple[str, str]]) -> tuple[Rule, ...]:
    """All rules of files in loading order."""
    return tuple(rule_of(f) for f in forms(files) if f.head in RULES)


def rule_of(form: Form) -> Rule:
    """A form that is a rule, read."""
    law = " ".join(line.lstrip("; ").strip() for line in form.above)
    return Rule(form.option(":name"), form.option(":ruleset"), law, form)


def lint(files: Sequence[tuple[str, str]]) -> tuple[Problem, ...]:
    """The mistakes of rule files: names, laws, rulesets, and what egglog refuses."""
    found: list[Problem] = []
    known: dict[str, Rule] = {}
    graph = egglog.EGraph()
    for form in forms(files):
        if form.head in RULES:
            rule = rule_of(form)
            found += habits(rule, known)
            if rule.name in known:
                continue  # egglog panics on a second rule of one name
            if rule.name:
                known[rule.name] = rule
        try:
            run_text(graph, form.padded, form.file)
        except egglog.EggSmolError as error:
            problem = of_egglog(form, error.context, form.option(":name"))
            found.append(replace(problem, breaks=True))
    return tuple(found)


def habits(rule: Rule, known: Mapping[str, Rule]) -> list[Problem]:
    """What this project asks of a rule beyond egglog."""
    form, name = rule.form, rule.name
    found: list[Problem] = []
    if not name:
        found.append(at(form, "", "this rule has no :name"))
    elif name in known:
        first = known[name].form.place
        problem = at(form, name, f"a second rule of this name; the first is {first}")
        found.append(replace(problem, breaks=True))
    if not rule.law:
        found.append(at(form, name, "no law above this rule: a line `; lhs -> rhs`"))
    if not rule.ruleset:
        found.append(at(form, name, "this rule is in no :ruleset, so that it never runs"))
    return found
