"""What a command of the bench printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """Exit code and both outputs of a command."""

    code: int
    out: str
    err: str


Rules = Callable[..., Done]
