"""The tests of rules, as they are written in ``rules/tests/*.egg``.

A test is plain egglog under a header line:

    ; [ramp-zero] fires
    (let $term (Ramp (Sym "a") (Int 0) 4))
    (check (= $term (Broadcast (Sym "a") 4)))

    ; [ramp-zero] must not fire: the stride is 1
    (let $term (Ramp (Sym "a") (Int 1) 4))
    (fail (check (= $term (Broadcast (Sym "a") n))))

What comes before the first check builds a graph; it is saturated as in a compilation (all phases,
all rules) unless the test has a ``run-schedule`` of its own; then the checks run. Under ``fires``
the rule must have matched and every check hold; under ``must not fire`` it must not have matched,
and a ``(fail (check ...))`` says what would be wrong. Several rules in one pair of brackets are all
meant. A header without brackets, ``; test: two tiles of one row``, is about no rule in particular.

The instructions are those of ``sm_80`` and of ``amx`` together (their accumulators live in
different places, so they do not meet); a line ``; target: sm_90a amx`` changes that for the tests
below it. Every test has a graph of its own. The name of a global begins with ``$`` and must not be
a variable of a rule: two letters at least. Rules and declarations in a file of tests are loaded
with the others, for all of its tests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from rules import test_files
from selector.dataclass import dataclass
from selector.diagnostics import ParseError
from selector.targets import find_target
from selector.workbench.source import Comment, Form, excerpt, scan

RULES = ("rule", "rewrite", "birewrite")
DECLARATIONS = (
    *RULES, "sort", "datatype", "datatype*", "constructor", "function", "relation", "ruleset",
    "unstable-combined-ruleset",
)  # fmt: skip
"""Commands that declare; in a file of tests they hold for all of them."""

SCHEDULES = ("run", "run-schedule")
DEFAULT_TARGETS = ("sm_80", "amx")

_HEADER = re.compile(r"\[([^\]]*)\]\s*(fires|must not fire)?\s*(?::\s*(.*))?$|test:\s*(.+)$")
_TARGET = re.compile(r"target:\s*(\S.*)$")


class Kind(Enum):
    """What a test says of its rules."""

    FIRES = "fires"
    SILENT = "must not fire"
    HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class Case:
    """One test: the rules it is about (none for ``test:``), what it says of them, its forms."""

    rules: tuple[str, ...]
    kind: Kind
    note: str
    targets: tuple[str, ...]
    file: str
    line: int
    forms: tuple[Form, ...]

    @property
    def rule(self) -> str:
        """The first rule; empty for a test of none."""
        return self.rules[0] if self.rules else ""

    @property
    def name(self) -> str:
        """``ramp-zero fires``."""
        about = " ".join(self.rules)
        return f"{about} {self.kind.value}" if about else self.note

    @property
    def setup(self) -> tuple[Form, ...]:
        """The commands before the first check: they build the graph."""
        first = next((i for i, f in enumerate(self.forms) if is_check(f)), len(self.forms))
        return self.forms[:first]

    @property
    def rest(self) -> tuple[Form, ...]:
        """The checks, and commands between them."""
        return self.forms[len(self.setup) :]

    def on(self, targets: tuple[str, ...]) -> Case:
        """The same test with other targets' instructions."""
        return replace(self, targets=targets)

    @property
    def program(self) -> str:
        """The text of the commands that build the graph."""
        return "\n".join(f.text for f in self.setup)

    @property
    def scheduled(self) -> bool:
        """Whether the test runs rules itself."""
        return any(f.head in SCHEDULES for f in self.setup)


def is_check(form: Form) -> bool:
    return form.head in ("check", "fail")


def load() -> tuple[Case, ...]:
    """The tests that come with the rules.

    ``ParseError`` for a file that is not made as the docstring above says.
    """
    files = [(f"rules/tests/{name}", text) for name, text in test_files()]
    return tuple(case for name, text in files for case in read_cases(text, name))


def has_header(text: str) -> bool:
    """Whether a file is one of tests: it has a header line."""
    return any(
        found is not None and (found[2] or found[4])
        for found in (
            _HEADER.match(line.lstrip("; ")) for line in text.splitlines() if line[:1] == ";"
        )
    )


def read_cases(text: str, file: str) -> tuple[Case, ...]:
    """The tests of one file."""
    cases: list[Case] = []
    targets = DEFAULT_TARGETS
    header: Case | None = None
    forms: list[Form] = []
    for item in scan(text, file):
        match item:
            case Form() if item.head in DECLARATIONS:
                continue  # a file's own rules: ``selector.workbench.files``
            case Form() if header is None:
                raise _wrong(text, item, "a command before the first `; [rule] fires`")
            case Form():
                forms.append(item)
            case Comment(line=line):
                if found := _TARGET.match(item.text):
                    targets = tuple(find_target(t).name for t in found[1].split())
                elif started := _header(item.text, targets, file, line):
                    cases += _finished(header, forms, text)
                    header, forms = started, []
    return (*cases, *_finished(header, forms, text))


def _header(comment: str, targets: tuple[str, ...], file: str, line: int) -> Case | None:
    found = _HEADER.match(comment)
    if found is None:
        return None
    names, says, note, title = found.groups()
    if title:
        return Case((), Kind.HOLDS, title, targets, file, line, ())
    rules = tuple(names.split())
    if not says or not rules:
        return None
    return Case(rules, Kind(says), note or "", targets, file, line, ())


def _finished(header: Case | None, forms: Sequence[Form], text: str) -> list[Case]:
    """The case of a header and the forms below it."""
    if header is None:
        return []
    at = Form("", header.file, header.line, 1)
    wanted = "fail" if header.kind is Kind.SILENT else "check"
    if header.kind is not Kind.HOLDS and all(f.head != wanted for f in forms):
        example = "(fail (check ...))" if wanted == "fail" else "(check ...)"
        raise _wrong(text, at, f"the test `{header.name}` has no {example}")
    if not any(is_check(f) for f in forms):
        raise _wrong(text, at, f"the test `{header.name}` checks nothing")
    h = header
    return [Case(h.rules, h.kind, h.note, h.targets, h.file, h.line, tuple(forms))]


def _wrong(text: str, form: Form, why: str) -> ParseError:
    shown = excerpt(text, form.line, form.column, len(form.text.split("\n")[0]))
    return ParseError(
        f"{form.file} is no file of tests",
        f"{why}\n{shown}",
        "a test begins with a line `; [rule] fires` or `; [rule] must not fire`",
        form.place,
    )
