"""Tokens of the text form, and errors that point into the text."""

from __future__ import annotations

import re
from typing import NamedTuple

from selector.diagnostics import ParseError, Where

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f\v]+|\#[^\n]*|//[^\n]*)
      | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fh]?)
      | (?P<name>\.?[A-Za-z_$][A-Za-z0-9_$.]*)
      | (?P<quoted>`[^`\n]*`)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<op>&&|\|\||==|!=|<=|>=|[-+*/%<>!()\[\]{},=:;])""",
    re.VERBOSE,
)
_SHOWN = 90  # columns of the offending line that an error shows


class Token(NamedTuple):
    """``kind`` is name, quoted, number, string, op or end; ``fresh`` if first on its line."""

    kind: str
    text: str
    start: int
    fresh: bool


class Source:
    """A text with a name, for errors of the form ``file:line:col`` with the line and a caret."""

    def __init__(self, text: str, filename: str) -> None:
        self.text, self.filename = text, filename

    def error(self, position: int, what: str, why: str = "", hint: str = "") -> ParseError:
        """The error to raise for a mistake at a character offset."""
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        line = self.text[start : end if end >= 0 else len(self.text)]
        number, column = self.text.count("\n", 0, start) + 1, position - start
        first = max(0, column - _SHOWN // 2)
        shown = line[first : first + _SHOWN].replace("\t", " ")
        caret = " " * (column - first) + "^"
        where = Where(
            location=f"{self.filename}:{number}:{column + 1}", statement=f"{shown}\n    {caret}"
        )
        return ParseError(what, why, hint, where)

    def tokens(self) -> list[Token]:
        """All tokens and a final ``end``."""
        found: list[Token] = []
        position, fresh, match_at = 0, True, _TOKEN.match
        size = len(self.text)
        while position < size:
            match = match_at(self.text, position)
            if match is None:
                character = self.text[position]
                raise self.error(position, f"unexpected character {character!r}")
            kind, text = match.lastgroup or "", match[0]
            if kind == "space":
                fresh = fresh or "\n" in text
            else:
                found.append(Token(kind, text, position, fresh))
                fresh = False
            position = match.end()
        found.append(Token("end", "", size, True))
        return found
