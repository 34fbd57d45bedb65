"""What came of a program, as data, and the classes of messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FAILURES = ("wrong", "internal", "exception", "nvrtc", "slow", "hang", "crash")
COMPILING = ("build", "lower", "select", "machine code")  # stages from a Func to machine code


@dataclass(frozen=True, slots=True)
class Outcome:
    """``kind``: "ok", "refused" or one of ``FAILURES``. ``detail``: the class of the message, with
    names and numbers taken out; for wrong results the oracles that saw it. ``text``: the message.
    ``notes``: oracles that could not say anything, and why. ``used``: what is to be counted beside
    the program's features: directives that the compiler's own schedule gives.
    """

    kind: str
    detail: str = ""
    text: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    notes: tuple[str, ...] = ()
    used: tuple[str, ...] = ()

    @property
    def compiled(self) -> bool:
        return self.kind in ("ok", "wrong")

    def same_class(self, other: Outcome) -> bool:
        """Whether both are the same kind of failure; a NaN may become a number as programs do."""
        return self.place == other.place

    @property
    def place(self) -> tuple[str, str]:
        """The kind, and where it was seen: what makes failures ones of a class."""
        wrong = self.kind == "wrong"
        return self.kind, re.sub(r" \([^()]*\)", "", self.detail) if wrong else self.detail

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def template(text: str) -> str:
    """A message's class: its first line without names and numbers."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    line = re.sub(r"`[^`]*`", "`...`", line)
    line = re.sub(r"\b(?:wmma|mma|wgmma|amx)\.[\w.]+", "INSTRUCTION", line)
    line = re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", line)
    line = re.sub(r"\b\w+\.(?:s\d+\.|extent|stride|min)[\w.$]*", "NAME", line)
    line = re.sub(r"\b\w*(?:\$|__|_\d)\w*(?:\.\w+)*", "NAME", line)
    line = re.sub(r"\b0x[0-9a-f]+\b", "N", line)
    line = re.sub(r"-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b", "N", line)
    return re.sub(r"N(?:, N)+", "N...", line)[:200]
