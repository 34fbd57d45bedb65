"""Parts of a memory."""

from __future__ import annotations

from dataclasses import dataclass

from selector.ir.nodes import Expr


@dataclass(frozen=True, slots=True)
class View:
    """A part of a memory, ``start`` elements from its begin, and so many bytes (``at``) or elements
    (``index``) further.
    """

    memory: str
    start: Expr | None = None
    at: Expr | None = None
    index: Expr | None = None
