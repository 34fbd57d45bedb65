"""What is left of nodes that touch shared memory where a kernel is followed without its data."""

from __future__ import annotations

from dataclasses import dataclass

from selector.ir.nodes import Expr


@dataclass(frozen=True, slots=True)
class Touch:
    """``bytes`` that a thread writes at an address, where they are ``wanted``. ``how``: ``stored``,
    or ``copied``, which ends when its queue of copies says so.
    """

    how: str
    at: Expr
    bytes: int
    wanted: Expr | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """``ldmatrix`` from ``rows``: matrices of 8 rows of 16 bytes, ``step`` bytes apart, the first
    ones of which begin so many bytes further.
    """

    rows: str
    step: int
    matrices: tuple[int, ...]
