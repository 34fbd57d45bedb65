"""Expressions of elements of any type: drawn, written as Halide's, and computed in NumPy.

An expression is a tuple ``(operation, type, ...)``, which JSON keeps: operands are expressions,
types and numbers. What is drawn is exact: integers of 8 and 16 bits wrap, all else stays within
what its type holds, so that every oracle has to give the same bits.

``("load", kind, name, offsets, step)``: an element of an array or a Func beside the output's, with
``step`` along the first dimension; in a reduction the reduction's variables are added to the first
two, or are all there is of them (``("tap", kind, name)``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Random = random.Random
Array = np.ndarray[Any, Any]
Expression = tuple[Any, ...]
Read = Callable[[Expression], Array]
"""The numbers of a load."""

HALIDE = {
    "bool": "hl.Bool()", "u8": "hl.UInt(8)", "s8": "hl.Int(8)", "u16": "hl.UInt(16)",
    "s16": "hl.Int(16)", "u32": "hl.UInt(32)", "s32": "hl.Int(32)", "s64": "hl.Int(64)",
    "f16": "hl.Float(16)", "f32": "hl.Float(32)", "f64": "hl.Float(64)",
}  # fmt: skip
INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64")
FLOATS = ("f16", "f32", "f64")
WRAP = ("s8", "u8", "s16", "u16")  # may be more than their type holds
EXACT = {"f16": 1 << 11, "f32": 1 << 24, "f64": 1 << 53, "s32": (1 << 31) - 1,
         "u32": (1 << 31) - 1, "s64": 1 << 60, "s8": 128, "u8": 255, "s16": 1 << 15,
         "u16": (1 << 16) - 1, "bool": 1}  # fmt: skip
SIGNED = ("s8", "s16", "s32", "s64", *FLOATS)
TABLE = 256  # elements of what is looked up
OPERATIONS = ("+", "+", "-", "*", "min", "max", "if", "number")
OF_INTEGERS = ("//", "%", ">>", "<<", "&", "^", "look", "absd")
SHIFTS = ("<<", ">>", "//", "%")  # by a number
COMPARISONS = ("<", "<=", "==", "!=", ">")


def bits(kind: str) -> int:
    return 1 if kind == "bool" else int(kind[1:])


def limits(kind: str) -> tuple[int, int]:
    """The smallest and the largest integer of a type."""
    if kind == "bool":
        return 0, 1
    half = 1 << bits(kind) - 1
    return (-half, half - 1) if kind[0] == "s" else (0, 2 * half - 1)


# --------------------------------------------------------------------- drawing


class Drawing:
    """Draws expressions. ``sources``: what may be loaded, by name its type, its largest size, and
    how far from the output's own place. ``taps``: those that a reduction indexes alone.
    """

    def __init__(
        self, r: Random, sources: Mapping[str, tuple[str, int]], dims: int, reach: Sequence[int],
        steps: Sequence[int] = (1,), taps: Mapping[str, tuple[str, int]] = {}, table: str = "",
    ) -> None:  # fmt: skip
        self.r, self.sources, self.taps = r, sources, taps
        self.dims, self.reach, self.steps, self.table = dims, reach, steps, table

    def of(self, kind: str, depth: int) -> tuple[Expression, int]:
        """An expression of a type and the largest size of its values."""
        r = self.r
        if kind == "bool":
            return self._condition(depth)
        if depth <= 0 or r.random() < 0.1:
            return self.converted(*self._leaf(), kind)
        if r.random() < 0.35:  # computed in another type
            other = r.choice([k for k in HALIDE if k not in ("bool", kind)])
            return self.converted(*self.of(other, depth - 1), kind)
        one, a = self.of(kind, depth - 1)
        name = r.choice((*OPERATIONS, *(OF_INTEGERS if kind in INTEGERS else ())))
        if name in ("number", *SHIFTS):
            return self._by_a_number(name, kind, one, a)
        if name == "look" and self.table:
            held, size = self.sources[self.table]
            return self.converted(("look", held, self.table, one), size, kind)
        if name == "if":
            condition, _ = self._condition(depth - 1)
            other, b = self.of(kind, depth - 1)
            return ("if", kind, condition, one, other), max(a, b)
        other, b = self.of(kind, depth - 1)
        if name == "look" or (name in ("&", "^") and kind in SIGNED):
            name = "max"
        if name in ("-", "absd"):
            name = "-" if kind in SIGNED or (kind in WRAP and name == "-") else "absd"
        size = {"+": a + b, "-": a + b, "*": a * b, "^": (1 << max(a, b).bit_length()) - 1}
        return self._checked(name, kind, one, other, size.get(name, max(a, b)), (one, a))

    def _by_a_number(self, name: str, kind: str, one: Expression, a: int) -> tuple[Expression, int]:
        n = self.r.choice((2, 3, 5, 7, 8, 10))
        match name:
            case "//":
                return (name, kind, one, n), a
            case "%":
                return (name, kind, one, n), n - 1
            case ">>":
                return (name, kind, one, n % 4 + 1), a
            case "<<":
                n = n % 3 + 1
                return self._checked(name, kind, one, n, a << n, (one, a))
            case _:
                return self._checked("*", kind, one, ("number", kind, n), a * n, (one, a))

    def _checked(
        self, name: str, kind: str, one: Any, other: Any, size: int,
        instead: tuple[Expression, int],
    ) -> tuple[Expression, int]:  # fmt: skip
        """The expression, or what it was to be made of, where its type does not hold it."""
        if kind in WRAP:
            return (name, kind, one, other), EXACT[kind]
        return ((name, kind, one, other), size) if size <= EXACT[kind] else instead

    def _leaf(self) -> tuple[Expression, int]:
        r = self.r
        if self.taps and r.random() < 0.4:
            name = r.choice(list(self.taps))
            kind, size = self.taps[name]
            return ("tap", kind, name), size
        name = r.choice([n for n in self.sources if n != self.table])
        kind, size = self.sources[name]
        far = self.reach if name == "A" else (0, max(self.reach))
        offsets = tuple(r.randint(*far) if d < 2 else 0 for d in range(self.dims))
        if r.random() < 0.4:
            offsets = (0,) * self.dims
        return ("load", kind, name, offsets, r.choice(self.steps)), size

    def _condition(self, depth: int) -> tuple[Expression, int]:
        r = self.r
        if depth > 0 and r.random() < 0.25:
            one, other = (self._condition(depth - 1)[0] for _ in range(2))
            return (r.choice(("and", "or")), "bool", one, other), 1
        leaf, _ = self._leaf()
        if leaf[1] == "bool":
            return leaf, 1
        kind = leaf[1]
        other = self.of(kind, depth - 1)[0]
        if r.random() < 0.5:
            low = 0 if kind not in SIGNED else -2
            other = ("number", kind, r.randint(low, 3))
        return ("compare", "bool", r.choice(COMPARISONS), leaf, other), 1

    def converted(self, e: Expression, size: int, kind: str) -> tuple[Expression, int]:
        """As another type; what that does not hold is cut off, or wraps where it may."""
        have = e[1]
        if have == kind:
            return e, size
        if have == "bool":
            return ("to", kind, e), 1
        holds = size <= EXACT[kind] and (kind in SIGNED or have not in SIGNED)
        if holds:
            return ("to", kind, e), size
        if kind in FLOATS:
            edge = EXACT[kind] // 2
            return ("to", kind, cut(e, -edge if have in SIGNED else 0, edge)), edge
        if have in FLOATS or kind not in WRAP or self.r.random() < 0.6:
            low, high = limits(kind)
            edge = min(high, EXACT[kind], size)
            if kind in WRAP:
                return ("fit", kind, e), EXACT[kind]
            low = max(low, -edge)
            return ("to", kind, cut(e, low if have in SIGNED else 0, edge)), edge
        return ("to", kind, e), EXACT[kind]


def cut(e: Expression, low: int, high: int) -> Expression:
    kind = e[1]
    if kind in INTEGERS:
        low, high = max(low, limits(kind)[0]), min(high, limits(kind)[1])
    return "min", kind, ("max", kind, e, ("number", kind, low)), ("number", kind, high)


# ------------------------------------------------------------------------ text

WRITTEN = {"and": "&", "or": "|"}


def text(e: Expression, names: Sequence[str], variables: Sequence[str] = ()) -> str:
    """As Halide's; ``names`` of the variables, ``variables`` of the reduction."""
    name, kind, *rest = e

    def of(part: Expression) -> str:
        return text(part, names, variables)

    match name:
        case "load":
            return f"{rest[0]}[{', '.join(_places(rest, names, variables))}]"
        case "tap":
            return f"{rest[0]}[{', '.join(variables)}]"
        case "number":
            return f"hl.cast({HALIDE[kind]}, {rest[0]})"
        case "to":
            return f"hl.cast({HALIDE[kind]}, {of(rest[0])})"
        case "fit":
            return f"hl.saturating_cast({HALIDE[kind]}, {of(rest[0])})"
        case "look":
            return f"{rest[0]}[hl.clamp(hl.i32({of(rest[1])}), 0, {TABLE - 1})]"
        case "if":
            asked, one, other = map(of, rest)  # of two elements of Funcs, Halide would make a tuple
            return f"hl.select({asked}, hl.cast({HALIDE[kind]}, {one}), {other})"
        case "compare":
            return f"({of(rest[1])} {rest[0]} {of(rest[2])})"
        case "min" | "max" | "absd":
            return f"hl.{name}({of(rest[0])}, {of(rest[1])})"
        case _ if name in SHIFTS:
            by = "/" if name == "//" else name
            return f"({of(rest[0])} {by} hl.cast({HALIDE[kind]}, {rest[1]}))"
        case _:
            return f"({of(rest[0])} {WRITTEN.get(name, name)} {of(rest[1])})"


def _places(rest: Sequence[Any], names: Sequence[str], variables: Sequence[str]) -> list[str]:
    _, offsets, step = rest
    found: list[str] = []
    for d, (n, offset) in enumerate(zip(names, offsets, strict=True)):
        place = f"{step}*{n}" if d == 0 and step != 1 else n
        place += f" + {variables[d]}" if d < len(variables) else ""
        place += f" {'+' if offset > 0 else '-'} {abs(offset)}" if offset else ""
        found.append(place)
    return found


# --------------------------------------------------------------------- numbers


def wrapped(values: Array, kind: str) -> Array:
    """Numbers as a type holds them; floats are exact."""
    if kind == "bool":
        return np.asarray(values).astype(bool).astype(np.int64)
    if kind in FLOATS:
        return np.asarray(values, np.float64)
    low, _ = limits(kind)
    span = 1 << bits(kind)
    whole = np.asarray(values).astype(np.int64)
    return whole if kind == "s64" else (whole - low) % span + low


def computed(e: Expression, read: Read, tables: Mapping[str, Array]) -> Array:
    """The numbers of an expression: int64, of floats float64."""
    name, kind, *rest = e

    def of(part: Expression) -> Array:
        return computed(part, read, tables)

    match name:
        case "load" | "tap":
            return read(e)
        case "number":
            found: Array = np.asarray(rest[0])
        case "to":
            found = np.trunc(of(rest[0])) if kind in INTEGERS else of(rest[0])
        case "fit":
            found = np.clip(np.trunc(of(rest[0])), *limits(kind))
        case "look":
            found = tables[rest[0]][np.clip(of(rest[1]), 0, TABLE - 1).astype(np.int64)]
        case "if":
            found = np.where(of(rest[0]) != 0, of(rest[1]), of(rest[2]))
        case "compare":
            found = BINARY[rest[0]](of(rest[1]), of(rest[2]))
        case _:
            found = BINARY[name](of(rest[0]), rest[1] if name in SHIFTS else of(rest[1]))
    return wrapped(found, kind)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "min": np.minimum, "max": np.maximum,
    "absd": lambda a, b: np.abs(a - b), "&": np.bitwise_and, "^": np.bitwise_xor,
    "and": np.logical_and, "or": np.logical_or, "//": np.floor_divide, "%": np.mod,
    ">>": np.right_shift, "<<": np.left_shift, "<": np.less, "<=": np.less_equal,
    "==": np.equal, "!=": np.not_equal, ">": np.greater,
}  # fmt: skip


def loads(e: Expression) -> list[Expression]:
    """Those of an expression, taps included."""
    if e[0] in ("load", "tap"):
        return [e]
    own = [("look", e[1], e[2])] if e[0] == "look" else []
    return own + [x for part in e[2:] if isinstance(part, tuple) for x in loads(part)]


def simpler(e: Expression) -> Iterator[Expression]:
    """Expressions of the same type with an operation less, or at the output's own place."""
    if e[0] == "load" and (any(e[3]) or e[4] > 1):
        yield (*e[:3], (0,) * len(e[3]), 1)
    for n, part in enumerate(e):
        if isinstance(part, tuple) and n > 1 and e[0] not in ("load", "tap"):
            if part[1] == e[1]:
                yield part
            yield from ((*e[:n], less, *e[n + 1 :]) for less in simpler(part))
