"""A table of readable, unique C identifiers, and comments of C."""

from __future__ import annotations

import re

from selector.gpu.cuda.preamble import SNIPPET_NAMES
from selector.gpu.ir.nodes import Comment
from selector.intrinsics.functions import FUNCTIONS
from selector.ir.nodes import Expr, Var
from selector.ir.types import INT32, Type

_WORDS = """
abs ahead alignas asm at auto bf16 block blockDim blockIdx bool break case catch char class const
constexpr continue decltype default delete do double else enum explicit export extern f16 false
float for free_ friend from full goto gridDim if inline int int8_t isfinite isinf isnan item lane
line long main max min more mutable namespace new next noexcept nullptr operator phase private
protected public register return round row s16 s64 s8 short signed sizeof slot smem static
static_assert static_cast step struct switch template this threadIdx throw to true try typedef
typeid typename u16 u32 u64 u8 union unsigned using virtual void volatile warp warpSize wchar_t
while
"""
_RESERVED = frozenset(_WORDS.split())
_LOCALS = re.compile(
    r"[a-z]|row|box\d*|(?:a|c|p|r|row|tap|loop)\d+|(?:u?(?:char|short|int|long)|float|double)\d"
)
"""Short names that emitted code declares where it needs them, and CUDA's own types."""

_FUNCTIONS = SNIPPET_NAMES | {f.cuda for f in FUNCTIONS.values()}


def comment(text: str) -> str:
    """A line of comment, whatever is in the text."""
    return f"// {Comment(text).text}"


def identifier(text: str) -> str:
    """What of a text can stand in an identifier; empty if nothing."""
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")


class Names:
    """Maps names of the IR to C identifiers: the last readable part of the name, numbered where
    taken.
    """

    def __init__(self, more: frozenset[str] = frozenset()) -> None:
        """``more``: words that are taken besides those of CUDA."""
        self._of: dict[str, str] = {}
        self._standing: dict[str, Expr] = {}
        self._taken: set[str] = {*_RESERVED, *more}

    def fresh(self, wish: str) -> str:
        """A new identifier that resembles ``wish``."""
        base = identifier(wish) or "v"
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

    def variable(self, text: str, t: Type = INT32) -> Var:
        """The variable of the IR that C declares as ``text``; the program has none of its name."""
        name = f"${text}"
        self._of[name] = text
        return Var(name, t)

    def stand(self, name: str, e: Expr) -> Var:
        """The variable of the IR, of this name, that stands for a legal expression."""
        self._standing[name] = e
        return Var(name, e.type)

    def legal(self, v: Var) -> Expr:
        """What a variable of the IR is in C: a variable, or what it stands for."""
        found = self._standing.get(v.name)
        return Var(self.get(v.name), v.type) if found is None else found
