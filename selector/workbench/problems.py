"""What is wrong with a rule or a test: its place (``file:line:column``), the rule, the text under a
caret, the terms concerned.
"""

from __future__ import annotations

import re

from selector.dataclass import dataclass
from selector.workbench.source import Form, excerpt

_PLACE = re.compile(r"In (\d+):(\d+)-(?:(\d+):)?(\d+)(?: of ([^:]*))?: ")


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. ``details`` are lines of what the graph held instead; ``breaks``: egglog does
    not take the file.
    """

    file: str
    line: int
    column: int
    rule: str
    what: str
    shown: str = ""
    details: tuple[str, ...] = ()
    breaks: bool = False

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        about = f" [{self.rule}]" if self.rule else ""
        lines = [f"{self.place}:{about} {self.what}"]
        if self.shown:
            lines.append(self.shown)
        lines += [f"    {line}" for line in self.details]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """The finding as data, for JSON."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "rule": self.rule,
            "what": self.what,
            "details": list(self.details),
        }


def at(form: Form, rule: str, what: str, details: tuple[str, ...] = ()) -> Problem:
    """A problem of a whole form, its first line shown."""
    first = form.text.split("\n")[0]
    shown = excerpt(" " * (form.column - 1) + first, 1, form.column, len(first))
    return Problem(form.file, form.line, form.column, rule, what, shown, details)


def within(form: Form, start: int, length: int, rule: str, what: str) -> Problem:
    """A problem of a part of a form: an offset into its text, and how many characters."""
    before = form.text[:start]
    line = form.line + before.count("\n")
    last = before.rfind("\n")
    column = form.column + start if last < 0 else start - last
    width = len(form.text[start : start + length].split("\n")[0])
    return Problem(form.file, line, column, rule, what, _shown(form, line, column, width))


def of_egglog(form: Form, message: str, rule: str) -> Problem:
    """What egglog said of a form that was parsed at its place in the file."""
    places = list(_PLACE.finditer(message))
    why = _PLACE.sub("", message).strip().splitlines()
    if not places:
        return at(form, rule, why[-1].strip() if why else message)
    last = places[-1]
    line, column, end_line, end = int(last[1]), int(last[2]), last[3], int(last[4])
    said = message[last.end() :].strip().splitlines()
    what = said[-1].strip() if said else message
    if line < form.line or line > form.line + form.text.count("\n"):
        return at(form, rule, what)
    width = end - column + 1 if end_line is None else len(form.text)
    return Problem(form.file, line, column, rule, what, _shown(form, line, column, max(1, width)))


def place_of(message: str) -> tuple[str, int] | None:
    """File and line of the innermost place that an error of egglog names; None if it names none."""
    places = [m for m in _PLACE.finditer(message) if m[5]]
    return (places[-1][5], int(places[-1][1])) if places else None


def _shown(form: Form, line: int, column: int, width: int) -> str:
    text = " " * (form.column - 1) + form.text
    return excerpt(text, line - form.line + 1, column, width)
