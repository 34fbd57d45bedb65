"""The rule files: egglog text, one concern a file, and nothing else in this room but their tests.

They are read in the order of their names: ``00_ir`` declares, ``1x`` knows, ``2x-4x`` are laws of
the IR, ``5x-7x`` find tensor shapes, ``8x`` turns them into instructions. Each rule has a ``:name``
and a one-line law above it, and two tests in ``tests/``, in a file of the same name: a graph in
which it fires, and a close one in which it must not (``selector/workbench/cases.py`` says how they
are written).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path


@cache
def rule_files() -> tuple[tuple[str, str], ...]:
    """(file name, text) of every rule file, in loading order."""
    return _texts("")


@cache
def laws() -> dict[str, str]:
    """The law above each rule, by the rule's name."""
    rule = re.compile(r'((?:^;.*\n)+)^\((?:bi)?r(?:ule|ewrite)\b(?s:.)*?:name "([^"]+)"', re.M)
    return {
        name: " ".join(line.lstrip("; ").strip() for line in law.splitlines())
        for _, text in rule_files()
        for law, name in rule.findall(text)
    }


@cache
def test_files() -> tuple[tuple[str, str], ...]:
    """(file name, text) of every file of tests, in the order of their names."""
    return _texts("tests")


@cache
def program_files() -> tuple[tuple[str, str], ...]:
    """(file name, text) of the programs in the IR's text form that the rules are tried on."""
    return _texts("tests/programs", ".vir")


def _texts(folder: str, ending: str = ".egg") -> tuple[tuple[str, str], ...]:
    """(file name, text) of what lies in this folder or one in it."""
    place = Path(__file__).parent / folder
    found = (f for f in place.iterdir() if f.name.endswith(ending))
    return tuple(
        (f.name, f.read_text(encoding="utf-8")) for f in sorted(found, key=lambda f: f.name)
    )
