"""The code that every program is known to become: ``tests/golden/digests.txt``, and how to ask it.

A line is a program, its target, and digests of the emitted text and of its machine code: for a GPU
the bytes of the cubin's ``.text`` sections, which other names and comments leave as they are. ``-``
stands where nothing was compiled (C is the business of the user's compiler), ``refused`` where the
program is an error. Lines above them say which NVRTC compiled, and what was recorded when and why.

Every text behind a line went through NVRTC before ``make digests UPDATE="why"`` wrote it, so a
test that finds its text known (``is_known``) need not compile it again to learn that it compiles.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from selector.runtime.sums import text_sections

FILE = Path(__file__).resolve().parent / "golden" / "digests.txt"
REFUSED, UNCOMPILED = "refused", "-"
HEAD = "# What every program of the case studies and the corpus becomes: see tests/known_code.py."
MOST_REASONS = 20

Key = tuple[str, str]
"""A program and its target: ``("corpus/blur_shared", "sm_80")``, ``("conv1d-k64", "sm_90a")``."""


@dataclass(frozen=True, slots=True)
class Code:
    """Digests of the text that a program becomes, and of that text's machine code."""

    text: str
    machine: str = UNCOMPILED


@dataclass(frozen=True, slots=True)
class Known:
    """The file. ``reasons``: what was recorded when and why, the latest first."""

    nvrtc: str = ""
    reasons: tuple[str, ...] = ()
    codes: Mapping[Key, Code] = field(default_factory=lambda: dict[Key, Code]())

    def __str__(self) -> str:
        head = (HEAD, f"# NVRTC {self.nvrtc}", *(f"# {r}" for r in self.reasons[:MOST_REASONS]))
        lines = (f"{p} {t} {c.text} {c.machine}" for (p, t), c in sorted(self.codes.items()))
        return "\n".join((*head, *lines)) + "\n"


def parse(text: str) -> Known:
    """What ``str`` of it was; ``ValueError`` for a program that is there twice, as a merge may
    leave it.
    """
    remarks, codes = list[str](), dict[Key, Code]()
    for line in text.splitlines():
        if line.startswith("# "):
            remarks.append(line.removeprefix("# "))
            continue
        program, target, *digests = line.split(" ")
        if (program, target) in codes:
            raise ValueError(f"{program} for {target} is there twice")
        codes[program, target] = Code(*digests)
    _, nvrtc, *reasons = remarks
    return Known(nvrtc.removeprefix("NVRTC "), tuple(reasons), codes)


@cache
def known() -> Known:
    """What the repository knows."""
    return parse(FILE.read_text(encoding="utf-8"))


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_known(program: str, target: str, text: str) -> bool:
    """Whether that is the text that the program is known to become for the target."""
    code = known().codes.get((program, target))
    return code is not None and code.text == text_digest(text)


def assert_known(program: str, target: str, text: str) -> None:
    """Emitted code changes only on purpose: who changes it records what it becomes, and why."""
    assert is_known(program, target, text), (
        f"the code of {program} for {target} is not the recorded one: `make digests` lists what "
        'has changed, `make digests UPDATE="why it may"` records it'
    )


def machine_digest(cubin: bytes) -> str:
    """A digest of the cubin's sections ``.text.*``, by name."""
    return hashlib.sha256(b"".join(a + b for a, b in sorted(text_sections(cubin)))).hexdigest()[:16]
