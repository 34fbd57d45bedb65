"""An indenting writer of C-like source, and a table of readable, unique C identifiers."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from selector.emit.preamble import SNIPPET_NAMES
from selector.intrinsics.functions import FUNCTIONS

_RESERVED = frozenset(  # noqa: SIM905 - a list of words reads better so
    (
        "auto bool break case char class const continue default do double else enum extern float "
        "for goto if inline int long main new operator private public register return short "
        "signed sizeof static struct switch template this typedef union unsigned using virtual "
        "void volatile while smem lane warp f16 bf16 u8 u16 u32 u64 s8 s16 s64 full free_ slot "
        "round next more ahead int8_t min max abs alignas asm auto catch constexpr decltype delete "
        "explicit export false friend mutable namespace noexcept nullptr operator protected "
        "static_assert static_cast this throw true try typeid typename wchar_t signed "
        "threadIdx blockIdx blockDim gridDim warpSize item line row block at to from step isnan "
        "isinf isfinite "
    ).split()
)

_LOCALS = re.compile(
    r"[a-z]|(?:a|c|p|r|row|tap|loop)\d+|(?:u?(?:char|short|int|long)|float|double)\d"
)
"""Short names that emitted code declares where it needs them, and CUDA's own types and functions."""

_FUNCTIONS = SNIPPET_NAMES | {f.cuda for f in FUNCTIONS.values()}


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


class Names:
    """Maps names of the IR to C identifiers: the last readable part of the name, numbered where
    taken.
    """

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._taken: set[str] = set(_RESERVED)

    def fresh(self, wish: str) -> str:
        """A new identifier that resembles ``wish``."""
        base = re.sub(r"\W+", "_", wish, flags=re.ASCII).strip("_") or "v"
        if base[0].isdigit():
            base = f"v{base}"
        name, count = base, 1
        while name in self._taken or name in _FUNCTIONS or _LOCALS.fullmatch(name):
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name

    def get(self, name: str) -> str:
        """The identifier of an IR name, made at its first use."""
        if name not in self._of:
            self._of[name] = self.fresh(name)
        return self._of[name]

    def verbatim(self, text: str) -> str:
        """Let a variable of the IR stand for a piece of C as it is; the variable's name is the
        text.
        """
        self._of[text] = text
        return text

    def bind(self, name: str, text: str) -> None:
        """Spell an IR name as the given C expression."""
        self._of[name] = text

    def __contains__(self, name: str) -> bool:
        return name in self._of
