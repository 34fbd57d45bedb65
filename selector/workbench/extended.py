"""The standard rules with more rules from elsewhere: text that nobody here has read.

egglog has commands that read and write files, and its Python bindings add functions that run
Python (``py-exec``); a rule can name any of them. So rules from elsewhere are taken only where each
command is one that declares something, and where no word is the name of such a function. What is
left can still be wrong, or never come to an end: who runs it sets limits.
"""

from __future__ import annotations

import re
from functools import lru_cache

from selector.diagnostics import ParseError
from selector.eqsat.bindings import egglog
from selector.workbench.bench import Bench
from selector.workbench.problems import Problem, at
from selector.workbench.ruleset import RuleFiles, lint, read_rules, standard_files
from selector.workbench.source import Form, excerpt, position, scan

DECLARING = ("rule", "rewrite", "birewrite", "ruleset", "relation", "function", "constructor")
"""The commands that rules from elsewhere may have. None of them reads, writes or runs anything."""

_PARSED = (
    egglog.RuleCommand,
    egglog.RewriteCommand,
    egglog.BiRewriteCommand,
    egglog.AddRuleset,
    egglog.Relation,
    egglog.FunctionCommand,
    egglog.Constructor,
)
# A word that begins so, wherever it stands: a call, or a string that names a function.
_REACHING = re.compile(r"(?:^|[\s()\";])((?:py-|unstable-)[^\s()\";]*)")


def check_rules(text: str, name: str) -> None:
    """``ParseError`` for rule text that may not run here; it is parsed, and nothing is run."""
    found = _REACHING.search(text)
    if found is not None:
        line, column = position(text, found.start(1))
        raise ParseError(
            f"`{found[1]}` is refused",
            f"rules from elsewhere call no functions outside of egglog\n"
            f"{excerpt(text, line, column, len(found[1]))}",
            "",
            f"{name}:{line}:{column}",
        )
    for form in scan(text, name):
        if isinstance(form, Form) and form.head not in DECLARING:
            raise _refused(at(form, "", f"`{form.head}` is refused"))
    try:
        commands = egglog.EGraph().parse_program(text, name)
    except egglog.EggSmolError as error:
        raise ParseError(f"{name} is not egglog text", error.context, "", name) from None
    for command in commands:
        if not isinstance(command, _PARSED):
            raise ParseError(f"`{command}` is refused", _WHY, _HINT, name)


_WHY = "rules from elsewhere declare, and do nothing else"
_HINT = f"the commands that are taken: {', '.join(DECLARING)}"


def _refused(problem: Problem) -> ParseError:
    return ParseError(problem.what, f"{_WHY}\n{problem.shown}", _HINT, problem.place)


@lru_cache(maxsize=4)
def extended_bench(rules: RuleFiles, only: tuple[str, ...] | None) -> Bench:
    """The bench of the standard rules and these; ``ParseError`` for one that is not right."""
    for name, text in rules:
        check_rules(text, name)
    files = (*standard_files(), *rules)
    problems = [p for p in lint(files) if p.breaks]
    for rule in read_rules(rules):
        missing = ":name" if not rule.name else ":ruleset" if not rule.ruleset else ""
        if missing:
            problems.append(at(rule.form, rule.name, f"this rule has no {missing}"))
    if problems:
        first = problems[0]
        why = "\n".join(("this cannot be loaded", first.shown, *first.details))
        raise ParseError(first.what, why, "", first.place)
    return Bench(files, only)
