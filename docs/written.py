"""Texts of the reference pages: docstrings as Markdown, and tables."""

from __future__ import annotations

import inspect
from collections.abc import Iterator


def markdown(text: str | None) -> str:
    """A docstring as Markdown: ``x`` is `x`, paragraphs stay."""
    assert text, "everything public has a docstring"
    return inspect.cleandoc(text).replace("``", "`")


def first(text: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(markdown(text).split("\n\n")[0].split())


def table(head: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)]) + "\n"
