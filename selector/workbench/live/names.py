"""What the words of rule files mean, and where that is said: declarations and rules.

For hovering, going to a definition, and for what is told beside an error of egglog.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from difflib import get_close_matches
from functools import lru_cache

from selector.dataclass import dataclass
from selector.workbench.cases import DECLARATIONS, RULES
from selector.workbench.ruleset import forms, rule_of
from selector.workbench.source import Form, position

WORD = re.compile(r'[^\s()";\[\]]+')


@dataclass(frozen=True, slots=True)
class Named:
    """A name and where it is declared."""

    name: str
    kind: str
    """The head of its declaration: ``constructor``, ``rewrite``."""
    file: str
    line: int
    column: int
    about: str
    """The comment above it, or above those directly before it; of a rule its law."""
    text: str
    """The declaration."""


@lru_cache(maxsize=256)
def declared(text: str, file: str) -> tuple[Named, ...]:
    """What a file declares, in order; ``ParseError`` if it is no egglog text."""
    found: list[Named] = []
    about: tuple[str, ...] = ()
    end = 0
    for form in forms([(file, text)]):
        about = form.above or (about if form.line == end + 1 else ())
        end = form.line + form.text.count("\n")
        if name := _name(form):
            line, column = position(text, form.offset + _place(form, name))
            comment = " ".join(c.lstrip("; ").strip() for c in about)
            found.append(Named(name, form.head, file, line, column, comment, form.text))
    return tuple(found)


def _name(form: Form) -> str:
    """What a form declares; empty for nothing."""
    if form.head in RULES:
        return rule_of(form).name
    return form.words[1] if form.head in DECLARATIONS and len(form.words) > 1 else ""


def _place(form: Form, name: str) -> int:
    if form.head in RULES:
        return form.text.rindex(f'"{name}"') + 1
    return form.text.index(name, len(form.head) + 1)


@dataclass(frozen=True)
class Names:
    """The names of a set of files; a rule's is in quotes, since a relation may have it, too."""

    by_name: dict[str, Named] = field(default_factory=dict[str, Named])

    @staticmethod
    def of(documents: Iterable[tuple[str, str]]) -> Names:
        found: dict[str, Named] = {}
        for file, text in documents:
            for named in declared(text, file):
                shown = f'"{named.name}"' if named.kind in RULES else named.name
                found.setdefault(shown, named)
        return Names(found)

    def hints(self, what: str) -> tuple[str, ...]:
        """What helps beside an error of egglog: the name that was meant, or the declaration."""
        if found := re.search(r"(?:Unbound function|No such ruleset:|Undefined sort) (\S+)", what):
            return tuple(f"did you mean `{n}`?" for n in get_close_matches(found[1], self.by_name))
        if found := re.search(r"Arity mismatch.*\((\S+)", what):
            named = self.by_name.get(found[1])
            return (named.text,) if named is not None else ()
        return ()

    def at(self, shown: str, column: int) -> Named | None:
        """What is named at a column (from 1) of a line: a rule in quotes and in comments."""
        for found in WORD.finditer(shown):
            if found.start() < column <= found.end() + 1:
                word, quoted = found[0], f'"{found[0]}"'
                is_rule = shown.startswith(";") or shown[: found.end() + 1].endswith(quoted)
                first, second = (quoted, word) if is_rule else (word, quoted)
                return self.by_name.get(first) or self.by_name.get(second)
        return None


def described(named: Named) -> str:
    """A name in Markdown: its law or comment, its declaration, where it stands."""
    about = f"`{named.about}`" if "->" in named.about else named.about
    parts = (
        f"**{named.name}**, {named.kind} of `{named.file}`",
        about,
        f"```egg\n{named.text}\n```",
    )
    return "\n\n".join(part for part in parts if part)
