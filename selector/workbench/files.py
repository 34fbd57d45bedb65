"""The files that an author names: rules, tests, or both in one.

What a file is, its content says. With test headers it is a file of tests, and the rules in it are
loaded for them. Without a header, but with checks at top level, it is one test. Anything else is a
file of rules: it is added to the standard ones, or stands for the one of its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from selector.dataclass import dataclass
from selector.workbench.cases import (
    DECLARATIONS,
    DEFAULT_TARGETS,
    Case,
    Kind,
    has_header,
    is_check,
    read_cases,
)
from selector.workbench.ruleset import RuleFiles, standard_files
from selector.workbench.source import Form, read_text, scan


@dataclass(frozen=True)
class Given:
    """Files as they were named, told apart: rule files and tests."""

    rules: RuleFiles = ()
    cases: tuple[Case, ...] = ()


def read_given(paths: Iterable[str]) -> Given:
    """Read files; ``UserError`` for one that cannot be read, ``ParseError`` for one that is no
    egglog text.
    """
    rules: list[tuple[str, str]] = []
    cases: list[Case] = []
    for path in paths:
        own, tests = split(read_text(path), path)
        rules += [(path, own)] if own else []
        cases += tests
    return Given(tuple(rules), tuple(cases))


def split(text: str, file: str) -> tuple[str, tuple[Case, ...]]:
    """The rules of a file, at their places, and its tests."""
    found = [f for f in scan(text, file) if isinstance(f, Form)]
    if has_header(text):
        return _without(text, found), read_cases(text, file)
    if not any(is_check(f) for f in found):
        return text, ()
    forms = tuple(f for f in found if f.head not in DECLARATIONS)
    title = f"the checks of {Path(file).name}"
    test = Case((), Kind.HOLDS, title, DEFAULT_TARGETS, file, forms[0].line, forms)
    return _without(text, found), (test,)


def _without(text: str, found: Iterable[Form]) -> str:
    """The text with everything but declarations blanked out; empty if there is none."""
    blanked = text
    for form in found:
        if form.head not in DECLARATIONS:
            spaces = "".join(c if c == "\n" else " " for c in form.text)
            at = form.offset
            blanked = blanked[:at] + spaces + blanked[at + len(spaces) :]
    return blanked if any(f.head in DECLARATIONS for f in found) else ""


def with_standard(given: RuleFiles, alone: bool = False) -> RuleFiles:
    """The standard files, those of a given name replaced, and the others after them."""
    if alone:
        return given
    own = {Path(path).name: (path, text) for path, text in given}
    standard = standard_files()
    names = {Path(path).name for path, _ in standard}
    kept = tuple(own.get(Path(path).name, (path, text)) for path, text in standard)
    return (*kept, *((path, text) for path, text in given if Path(path).name not in names))
