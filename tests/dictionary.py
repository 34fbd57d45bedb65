"""The dictionary of errors in docs/reference/errors.md, beside the messages themselves: the tests
that provoke them compare, ``python docs/reference.py`` writes.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from selector.diagnostics import UserError

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "errors.md"
_ENTRY = re.compile(r"<!-- error: (\S[^\n]*) -->\n```text\n(.*?)```\n", re.DOTALL)


def message(error: UserError) -> str:
    """An error as the page has it: its kind, and without the place."""
    lines = [f"{type(error).__name__}: {error.what}"]
    lines += [f"  why:   {error.why}"] if error.why else []
    lines += [f"  hint:  {error.hint}"] if error.hint else []
    return "\n".join(lines) + "\n"


def entry(part: str, name: str, error: UserError) -> str:
    """The Markdown of an entry."""
    return f"<!-- error: {part}, {name} -->\n```text\n{message(error)}```\n"


@cache
def entries() -> dict[str, str]:
    """What the page says, by ``part, name``."""
    return dict(_ENTRY.findall(PAGE.read_text(encoding="utf-8")))


def check(part: str, name: str, error: UserError) -> None:
    """The page has this message under this name."""
    shown = entries().get(f"{part}, {name}")
    assert shown == message(error), "python docs/reference.py rewrites the dictionary"
