"""An indenting writer of C."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class Writer:
    """Collects lines; ``block`` indents. The text ends with a newline."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        self._lines.append("  " * self._depth + text if text else "")

    def lines(self, text: str) -> None:
        for part in text.splitlines():
            self.line(part)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Generator[None]:
        """``head {`` ... ``tail`` with the lines between indented."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(tail)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
