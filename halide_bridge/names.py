"""Names without Halide's process-wide counters.

Halide makes names unique with suffixes (``conv$3``) and numbers what has no name (``f12``, ``t57``,
``r4$x``). The same pipeline built twice in a process must give the same text, so suffixes go and
numbers restart at 0, in the order in which the names are first asked for; names that would clash
get a suffix of our own. What a user has called ``b1`` keeps that name: Halide writes ``b1$0`` of a
Func, and parameters without a name are ``p`` with a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SUFFIX = re.compile(r"\$\d+")
# ``rfactor`` names its Func after another one, ``conv$3_intm``. Where that name's hash is one that
# Halide has counted for another name, it writes ``conv_3_intm$1``.
_INTERMEDIATE = re.compile(r"_\d+(?=_intm)")
_MADE = re.compile(r"(_intm|_im|_in|_global_wrapper)+(?=\$|$)")  # of a Func, or around it
_COUNTED = re.compile(r"(?:(?<=^)|(?<=_in_))([a-z]|lambda_)(\d+)(?=$|_im|_in_|_global)")
_CALLED_SO = re.compile(r"^[a-z]\d+\$\d+$")
_NO_NAME = re.compile(r"^p\d+$")  # of parameters
_COUNTED_VAR = re.compile(r"^([vr])(\d+)(?=$|\$)")
_COUNTED_LET = re.compile(r"^(t)(\d+)$")


def plain(name: str) -> str:
    """A name as the user wrote it, for messages."""
    return _SUFFIX.sub("", name)


def of_user(said: str, known: Iterable[str]) -> str:
    """The same of a Func that Halide speaks of, or of the one that it is made of: one of those that
    are ``known``, with `_` for `$` where Halide has counted a name with that hash before.
    """
    own = {name.replace("$", "_"): name for name in map(_maker, known)}
    name = _maker(said)
    return plain(own.get(name, own.get(name.rsplit("$", 1)[0], name)))


def _maker(name: str) -> str:
    made = _MADE.search(name)
    return name if made is None else name[: made.start()]


class Names:
    """A renaming from Halide's names to stable ones, one per lowering. ``parameters``: names of the
    pipeline's; ``variables``: ``f.x`` for each of a Func, among them what a user has called ``t1``.
    """

    def __init__(self, parameters: Iterable[str] = (), variables: Iterable[str] = ()) -> None:
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._heads: dict[str, str] = {}
        self._taken_heads: set[str] = set()
        self._numbers: dict[str, dict[str, int]] = {}
        self._called = set[str]()
        self._variables = {
            (f, part) for f, *rest in (v.split(".") for v in variables) for part in rest
        }
        for name in sorted(parameters, key=lambda n: (len(n), n)):
            if _NO_NAME.match(name):
                self._number(name[0], name[1:])
            else:
                self._called.add(name)

    def __call__(self, name: str) -> str:
        """The stable name of a Func, parameter, loop or let."""
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = self._unique(self._stable(name), self._taken)
        return known

    def stands_for(self, name: str, other: str) -> None:
        """A Func has the stable name of another one, which gets a suffix."""
        self._heads[name] = self._head(other)
        self(name)

    def _stable(self, name: str) -> str:
        head, *rest = name.split(".")
        return ".".join((self._head(head), *(self._component(head, r) for r in rest)))

    def _head(self, head: str) -> str:
        known = self._heads.get(head)
        if known is None:
            plain = _INTERMEDIATE.sub("", _SUFFIX.sub("", head))
            if not _CALLED_SO.match(head):
                plain = _COUNTED.sub(self._counted, plain)
            known = self._heads[head] = self._unique(plain, self._taken_heads)
        return known

    def _component(self, head: str, component: str) -> str:
        plain = _SUFFIX.sub("", component)
        if (head, component) not in self._variables:
            plain = _COUNTED_LET.sub(lambda m: self._number(m[1], m[2]), plain)
        return _COUNTED_VAR.sub(lambda m: self._number(m[1], m[2]), plain)

    def _counted(self, m: re.Match[str]) -> str:
        return m[0] if m[0] in self._called else self._number(m[1], m[2])

    def _number(self, letter: str, digits: str) -> str:
        numbers = self._numbers.setdefault(letter, {})
        return f"{letter}{numbers.setdefault(digits, len(numbers))}"

    @staticmethod
    def _unique(name: str, taken: set[str]) -> str:
        candidate, count = name, 0
        while candidate in taken:
            count += 1
            candidate = f"{name}${count}"
        taken.add(candidate)
        return candidate
