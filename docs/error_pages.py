"""The dictionary of errors: what every scenario of the tests is told, in full.

The scenarios are those of ``tests/bridge/test_unselected.py`` (pipelines), of
``tests/eqsat/test_misses.py`` (the text form) and of ``tests/errors/test_call_errors.py`` (calls).
Each has a program that gets the error and, where there is a way out, one that follows the hint.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
INTRODUCTION = """# Errors

## Kinds

All are a `UserError` with `what` went wrong, `why`, a `hint` towards the way out, and `where`; as
data, `error.as_dict()`. Two are not: a `PerformanceWarning` is a warning, and an `InternalError` is
a defect of this package.

{kinds}
What follows are the messages that tests provoke, one of each kind, with the names of the tests'
Funcs (`mm` is the sum, `out` reads it) and without `where`, which is a line of your program. Search
the page for a part of your message.
"""
PARTS = {
    "pipelines": "What a pipeline is told, in Halide's names.",
    "text form": "What a program in the text form is told: other conditions, and the same ones "
    "where no Halide stands before them.",
    "calls": "What a call of a kernel is told.",
}
"""The sections: name, and what they hold."""


def page(kinds: Iterator[tuple[str, str]]) -> str:
    """The text of the page."""
    for room in ("", "bridge", "eqsat", "errors", "runtime"):
        sys.path.insert(0, str(TESTS / room))
    import dictionary

    rows = "".join(f"| {name} | {meaning} |\n" for name, meaning in kinds)
    text = INTRODUCTION.replace("{kinds}", f"| kind | meaning |\n|---|---|\n{rows}")
    makers = {"pipelines": _pipelines, "text form": _text_form, "calls": _calls}
    for part, about in PARTS.items():
        text += f"\n## {part[0].upper()}{part[1:]}\n\n{about}\n"
        for name, error in makers[part]():
            text += f"\n### {name}\n\n{dictionary.entry(part, name, error)}"
    return text


def _pipelines() -> Iterator[tuple[str, Exception]]:
    from test_unselected import SCENARIOS

    import halide_bridge as hb

    for name, s in SCENARIOS.items():
        only = s.instructions
        try:
            hb.compile(s.build(), target=s.target, cache=False, instructions=only)
        except s.error as error:
            yield name, error


def _text_form() -> Iterator[tuple[str, Exception]]:
    from test_misses import SCENARIOS

    from selector.diagnostics import SelectionError
    from selector.eqsat import select
    from selector.targets import find_target

    for name, s in SCENARIOS.items():
        try:
            select(s.module, find_target(s.target), instructions=s.only)
        except SelectionError as error:
            yield name, error


def _calls() -> Iterator[tuple[str, Exception]]:
    from test_call_errors import CASES

    from selector.diagnostics import ArgumentError

    for name, (run, _) in CASES.items():
        try:
            run()
        except ArgumentError as error:
            yield name, error
