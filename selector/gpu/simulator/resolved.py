"""Expressions of where memory is touched, of what a kernel that is followed has values for.

The sizes of arrays have none: a comparison with one is whether all is ``INSIDE``, of extrema
and choices the known side is left. Names that differ between the threads of a warp are replaced by
what they stand for.
"""

from __future__ import annotations

from dataclasses import field

from selector.dataclass import dataclass
from selector.gpu.ir.expressions import BLOCK, BLOCKS, GIVEN, THREAD, flag, plus, times
from selector.gpu.ir.memory import Point
from selector.gpu.ir.nodes import Memory
from selector.gpu.ir.views import BYTES, View
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Compare, Expr, IntImm, Not, Select, Var
from selector.ir.traverse import free_vars
from selector.ir.types import BOOL

INSIDE_NAME = "(inside)"  # of a launch: what is copied lies in its arrays
INSIDE = flag(INSIDE_NAME)
PLACED = frozenset({THREAD.name, BLOCK.name, BLOCKS.name, "lane", "warp", "group"})
OF_LANES = frozenset({THREAD.name, "lane"})  # that differ in a warp
_EXTREMA = (BinaryOp.MIN, BinaryOp.MAX)
_LOGIC = (BinaryOp.AND, BinaryOp.OR)
_WORDS = {"false": 0, "true": 1}


@dataclass(frozen=True, slots=True)
class Names:
    """What names stand for at a place: ``values`` of those that are replaced (None: unknown), those
    that are ``known`` there, the bytes of an element where memory and pointers point to.
    """

    values: dict[str, Expr | None] = field(default_factory=dict[str, "Expr | None"])
    known: set[str] = field(default_factory=lambda: set(PLACED))
    bytes: dict[str, int] = field(default_factory=dict[str, int])

    def inner(self) -> Names:
        """Those of a body inside."""
        return Names(dict(self.values), set(self.known), dict(self.bytes))

    def let(self, name: str, value: Expr) -> None:
        """Declare one that has a value in the kernel; what differs in a warp is replaced."""
        found = self.resolved(value)
        if value.type == BOOL and self._asked(value):
            self.variable(name)
        elif found is None or free_vars(found) & OF_LANES:
            self._replace(name, found)
        else:
            self.variable(name)

    def _asked(self, condition: Expr) -> bool:
        """Whether a condition of the kernel's control is alike in a warp."""
        return free_vars(condition).isdisjoint(OF_LANES | self.values.keys())

    def variable(self, name: str) -> None:
        """Declare one that changes."""
        self.values.pop(name, None)
        self.bytes.pop(name, None)
        self.known.add(name)

    def replace(self, name: str, value: Expr | None) -> None:
        """Declare one that is replaced."""
        self._replace(name, None if value is None else self.resolved(value))

    def _replace(self, name: str, value: Expr | None) -> None:
        self.known.discard(name)
        self.bytes.pop(name, None)
        self.values[name] = value

    def declare(self, node: Memory | Point) -> None:
        """Memory, or a pointer."""
        match node:
            case Memory(name):
                self.bytes[name] = node.element_bytes
                self.known.add(name)
                self.values.pop(name, None)
            case Point(name, kind, view):
                value = self.byte_of(view)
                self._replace(name, value)
                if value is not None:
                    self.bytes[name] = BYTES[kind.removeprefix("const ")]

    def byte_of(self, view: View) -> Expr | None:
        """The address of a part of shared memory."""
        if view.memory not in self.bytes:
            return None
        at = self.address(view.memory, view.start, view.index)
        further = None if view.at is None else self.resolved(view.at)
        if view.at is None or at is None:
            return at
        return None if further is None else plus(at, further)

    def address(self, name: str, *elements: Expr | None) -> Expr | None:
        """That of what lies so many elements behind a pointer."""
        found: Expr | None = self.values.get(name, Var(name, THREAD.type))
        for e in elements:
            if e is not None and found is not None:
                index = self.resolved(e)
                found = None if index is None else plus(found, times(index, self.bytes[name]))
        return found

    def condition(self, e: Expr) -> Expr:
        """Whether it holds."""
        return self.resolved(e) or INSIDE

    def resolved(self, e: Expr) -> Expr | None:
        """The expression without what is unknown; None if nothing is left."""
        match e:
            case IntImm():
                return e
            case Var(name):
                return self._name(e, name)
            case Binary(op, a, b) if op in _LOGIC:
                return Binary(op, self.condition(a), self.condition(b))
            case Not(a):
                found = self.resolved(a)
                return None if found is None or found == INSIDE else Not(found)
            case Compare(op, a, b):
                left, right = self.resolved(a), self.resolved(b)
                return None if left is None or right is None else Compare(op, left, right)
            case Binary(op, a, b):
                left, right = self.resolved(a), self.resolved(b)
                if left is None or right is None:
                    return (left or right) if op in _EXTREMA else None
                return Binary(op, left, right)
            case Select(c, a, b):
                then, other = self.resolved(a), self.resolved(b)
                if then is None or other is None:
                    return then or other
                return Select(self.condition(c), then, other)
            case Cast(t, a):
                found = self.resolved(a)
                return None if found is None else Cast(t, found)
            case Call():
                return self._call(e)
            case _:
                return None

    def _name(self, e: Var, name: str) -> Expr | None:
        if name in _WORDS:
            return IntImm(_WORDS[name], e.type)
        if name in self.values:
            value = self.values[name]
            return value if value is None or value.type == e.type else Cast(e.type, value)
        return e if name in self.known or e.type == BOOL else None

    def _call(self, e: Call) -> Expr | None:
        match e:
            case Call(_, "shared_address", (IntImm() as offset,)):
                return offset
            case Call(_, "shared_address", (Var(name), *parts)) if name in self.bytes:
                return self.address(name, *parts)
            case Call(_, _, ()):
                return e
            case Call(t, name, (value,)) if name == GIVEN:
                found = self.resolved(value)
                return e if found is None and t == BOOL else found
            case Call(t, name, args):
                parts = [self.resolved(a) for a in args]
                known = tuple(a for a in parts if a is not None)
                return Call(t, name, known) if len(known) == len(parts) else None
