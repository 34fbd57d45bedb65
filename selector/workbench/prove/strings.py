"""What is known of a rule's strings, element types above all."""

from __future__ import annotations

from dataclasses import field

from selector.dataclass import dataclass
from selector.workbench.prove.sizes import Vacuous

BOOL = "uint1"
INT32 = "int32"


@dataclass(frozen=True, slots=True)
class Strings:
    """What is known of strings: what each is another name of, those that are types of integers,
    those that may become any, which ones are ``apart``, and the types of what is ``copied``.
    """

    names: dict[str, str] = field(default_factory=dict[str, str])
    integers: set[str] = field(default_factory=set[str])
    free: set[str] = field(default_factory=set[str])
    apart: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    copied: set[str] = field(default_factory=set[str])

    def find(self, name: str) -> str:
        """The literal or the variable that a string is."""
        while name in self.names:
            name = self.names[name]
        return name

    def is_integer(self, name: str) -> bool:
        name = self.find(name)
        return name in self.integers or _is_integral(name)

    def unite(self, a: str, b: str) -> None:
        """Two strings are one."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        if is_literal(a):
            a, b = b, a
        if is_literal(a):
            raise Vacuous(f"{a} and {b} are one name")
        if a in self.integers:
            if is_literal(b) and not _is_integral(b):
                raise Vacuous(f"an integer of type {b}")
            self.integers.add(b)
        self.names[a] = b

    def differ(self, a: str, b: str) -> None:
        """Two strings are not one."""
        self.apart.append((a, b))

    def are_different(self, a: str, b: str) -> bool:
        """Whether two strings are known not to be one."""
        asked = {self.find(a), self.find(b)}
        both_known = len(asked) == 2 and all(map(is_literal, asked))
        return both_known or any({self.find(x), self.find(y)} == asked for x, y in self.apart)


def is_literal(name: str) -> bool:
    """Whether a string is known."""
    return not name.startswith(("?", "of:"))


def _is_integral(name: str) -> bool:
    return name.startswith(("int", "uint")) and name != BOOL
