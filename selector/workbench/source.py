"""Egglog text as forms with positions.

egglog parses and checks; what it does not keep (comments, the law above a rule, where in a file a
command begins) is read here. A form is parsed on its own at its place in the file, so that the
spans of egglog's errors are those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from selector.dataclass import dataclass
from selector.diagnostics import ParseError, UserError

DEEPEST = 200
"""Parentheses inside one another: egglog's parser recurses on the stack of its process. Our rules
have 10."""
_TOKEN = re.compile(r';[^\n]*|"(?:\\.|[^"\\])*"|[()]|\s+|[^\s()";]+|"', re.DOTALL)


@lru_cache(maxsize=2048)
def _words(text: str) -> tuple[str, ...]:
    found = (m[0] for m in _TOKEN.finditer(text))
    return tuple(w for w in found if w[0] not in ";()" and not w.isspace())


@dataclass(frozen=True, slots=True)
class Form:
    """A top-level form: its text, its file, the line and column (from 1) where it begins, the
    comment lines directly above it, and its offset in the file.
    """

    text: str
    file: str
    line: int
    column: int
    above: tuple[str, ...] = ()
    offset: int = 0

    @property
    def head(self) -> str:
        """The first word: ``rule``, ``check``, ``let``."""
        found = re.match(r"\(\s*([^\s()\";]+)", self.text)
        return found[1] if found else ""

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens of the form, without parentheses and comments."""
        return _words(self.text)

    def option(self, name: str) -> str:
        """The value of an option such as ``:name``, without quotes; empty if it is not there."""
        words = self.words
        at = words.index(name) + 1 if name in words else len(words)
        return words[at].strip('"') if at < len(words) else ""

    def covers(self, file: str, line: int) -> bool:
        """Whether a line of a file (egglog names it without its folder) is one of the form."""
        return Path(self.file).name == Path(
            file
        ).name and self.line <= line <= self.line + self.text.count("\n")

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def padded(self) -> str:
        """The text after as many newlines and blanks as put it at its place."""
        return "\n" * (self.line - 1) + " " * (self.column - 1) + self.text


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment line that begins a line, without its semicolons."""

    text: str
    line: int


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of an offset."""
    start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, offset - start + 1


def scan(text: str, file: str) -> Iterator[Form | Comment]:
    """The forms and comment lines of a file in order; ``ParseError`` where one does not end."""
    depth, start = 0, 0
    above: list[str] = []
    last_line, inner = 0, 0
    for token in _TOKEN.finditer(text):
        word, line = token[0], 0
        match word[0]:
            case "(":
                if depth == 0:
                    start = token.start()
                elif not inner and text[token.start() - 1] == "\n":
                    inner = position(text, token.start())[0]
                depth += 1
                if depth > DEEPEST:
                    why = f"more than {DEEPEST} parentheses inside one another"
                    raise _unreadable(text, token.start(), file, why)
            case _ if why := _misplaced(word, depth):
                raise _unreadable(text, token.start(), file, why)
            case ")":
                depth -= 1
                if depth == 0:
                    inner = 0
                    line, column = position(text, start)
                    adjacent = tuple(above) if last_line == line - 1 else ()
                    yield Form(text[start : token.end()], file, line, column, adjacent, start)
                    above = []
            case ";" if depth == 0:
                line, column = position(text, token.start())
                if column == 1:
                    above = [*above, word] if last_line == line - 1 else [word]
                    last_line = line
                    yield Comment(word.lstrip(";").strip(), line)
            case _:
                pass
    if depth:
        why = "this parenthesis is never closed"
        more = f"; the command on line {inner} begins inside it" if inner else ""
        raise _unreadable(text, start, file, why + more)


def _misplaced(word: str, depth: int) -> str:
    """Why a token cannot stand where it does; empty if it can."""
    if word == '"':
        return "this string does not end"
    if depth or word[0] in "(;" or word.isspace():
        return ""
    if word == ")":
        return "this parenthesis closes nothing"
    return f"a command expected, not `{word}`"


def _unreadable(text: str, offset: int, file: str, why: str) -> ParseError:
    line, column = position(text, offset)
    shown = excerpt(text, line, column)
    return ParseError(
        f"{file} is not egglog text", f"{why}\n{shown}", "", f"{file}:{line}:{column}"
    )


def expression(pattern: str) -> re.Pattern[str]:
    """The regular expression that a user gave; ``UserError`` for what is none."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UserError(f"{pattern!r} is no regular expression", str(error)) from None


def excerpt(text: str, line: int, column: int, width: int = 1) -> str:
    """The line of a text with a caret (or as many as the width) under its column."""
    lines = text.splitlines()
    shown = lines[line - 1] if line <= len(lines) else ""
    marks = "^" * max(1, min(width, len(shown) - column + 1))
    return f"    {shown}\n    {' ' * (column - 1)}{marks}"


def read_text(path: str | Path) -> str:
    """The text of a file; ``UserError`` if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}", str(error)) from None
