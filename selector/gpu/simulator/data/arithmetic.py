"""Legal expressions (``cuda.expressions`` says what is) as functions of threads: C's arithmetic, of
all threads at once.

Of a choice, and behind ``&&`` and ``||``, only those threads load something that come there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from selector.diagnostics import InternalError
from selector.gpu.ir.expressions import PAIR_IN_PANELS, POINTER
from selector.gpu.ir.layouts import BYTE, Swizzle
from selector.gpu.simulator.data.functions import (
    FUNCTIONS,
    bits_as,
    from_bf16,
    quotient,
    remainder,
    to_bf16,
    to_integer,
)
from selector.gpu.simulator.data.memory import Memories
from selector.gpu.simulator.data.values import BOOLEAN, DTYPES, Pointer, Threads
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Not,
    Select,
    Var,
)
from selector.ir.simplify import COMPARE
from selector.ir.traverse import free_vars, walk_expr
from selector.ir.types import BFLOAT16, BOOL, FLOAT32, Kind, Type

Evaluated = Callable[[Threads], Any]

_FLOATS = {BinaryOp.MIN: np.fmin, BinaryOp.MAX: np.fmax}
_BINARY: dict[BinaryOp, Callable[[Any, Any], Any]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.DIV: quotient,
    BinaryOp.MOD: remainder,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
}
WARP = 32
LOADS = frozenset(("element", "pair_at", PAIR_IN_PANELS, "load_shifted"))


def converted(x: Any, element: np.dtype[Any]) -> Any:
    """A number, or an address, as C converts it to another type."""
    if isinstance(x, Pointer):
        return x.byte.astype(element)
    if x.dtype == element:
        return x
    if element == BOOLEAN:
        return x != 0
    if x.dtype.kind == "f" and element.kind in "iu":
        return to_integer(x, element)
    return x.astype(element)


class Arithmetic:
    """Of one kernel."""

    def __init__(self, memories: Memories) -> None:
        self.memories = memories
        self.kept: dict[int, tuple[Expr, Evaluated]] = {}
        self.mentioned: dict[int, tuple[Expr, frozenset[str]]] = {}
        self.loading: dict[int, tuple[Expr, bool]] = {}

    def names(self, e: Expr) -> frozenset[str]:
        """Those whose values have a say."""
        found = self.mentioned.get(id(e))
        if found is None:
            found = self.mentioned[id(e)] = e, frozenset(free_vars(e))
        return found[1]

    def loads(self, e: Expr) -> bool:
        found = self.loading.get(id(e))
        if found is None:
            own = any(isinstance(x, Call) and x.name in LOADS for x in walk_expr(e))
            found = self.loading[id(e)] = e, own
        return found[1]

    def of(self, e: Expr) -> Evaluated:
        """The function."""
        found = self.kept.get(id(e))
        if found is None:
            found = self.kept[id(e)] = e, self._made(e)
        return found[1]

    def _made(self, e: Expr) -> Evaluated:
        match e:
            case IntImm(value, t) | FloatImm(value, t):
                constant = _constant(value, t)
                return lambda _: constant
            case Var(name, t):
                return _variable(name, t)
            case Cast(t, value):
                return self._cast(t, value)
            case Not(value):
                inner = self._truth(value)
                return lambda v: ~inner(v)
            case Select(c, a, b):
                return self._choice(c, a, b)
            case Binary(BinaryOp.AND | BinaryOp.OR, a, b):
                return self._both(e.op, a, b)
            case Binary(op, a, b):
                f = _FLOATS.get(op, _BINARY[op]) if e.type.is_float else _BINARY[op]
                return _applied(f, self.of(a), self.of(b))
            case Compare(op, a, b):
                return _applied(COMPARE[op], self.of(a), self.of(b))
            case Call():
                return self._call(e)
            case _:
                raise InternalError(f"{e} has no value in a kernel")

    def _truth(self, e: Expr) -> Evaluated:
        inner = self.of(e)
        return inner if e.type == BOOL else lambda v: inner(v) != 0

    def _cast(self, t: Type, value: Expr) -> Evaluated:
        inner, source = self.of(value), value.type
        if source == BFLOAT16 and t != BFLOAT16:
            wide = DTYPES[t]
            return lambda v: converted(from_bf16(inner(v)), wide)
        if t == BFLOAT16:
            return inner if source == t else lambda v: to_bf16(converted(inner(v), DTYPES[FLOAT32]))
        element = DTYPES[t]
        return lambda v: converted(inner(v), element)

    # ------------------------------------------------------------------ who comes where

    def _choice(self, c: Expr, a: Expr, b: Expr) -> Evaluated:
        test, then, other = self._truth(c), self.of(a), self.of(b)
        if not (self.loads(a) or self.loads(b)):
            return lambda v: _chosen(test(v), then(v), other(v))

        def choose(v: Threads) -> Any:
            holds = test(v)
            if holds.all():
                return then(v)
            if not holds.any():
                return other(v)
            return np.where(holds, self.among(holds, v, then), self.among(~holds, v, other))

        return choose

    def among(self, active: Any, v: Threads, f: Evaluated) -> Any:
        """The value where only some threads come to it."""
        outer = self.memories.active
        self.memories.active = active if outer is None else outer & active
        found = f(v)
        self.memories.active = outer
        return found

    def _both(self, op: BinaryOp, a: Expr, b: Expr) -> Evaluated:
        first, second = self._truth(a), self._truth(b)
        conjunction = op is BinaryOp.AND
        lazily = self.loads(b)

        def both(v: Threads) -> Any:
            left = first(v)
            asked = left if conjunction else ~left
            if not asked.any():
                return left
            part = lazily and not asked.all()
            right = self.among(asked, v, second) if part else second(v)
            return left & right if conjunction else left | right

        return both

    # ------------------------------------------------------------------ calls

    def _call(self, e: Call) -> Evaluated:
        parts = [self.of(a) for a in e.args]
        match e.name, e.args:
            case "element", _:
                return self._element(parts)
            case "shared_address", (IntImm(offset),):
                constant = np.int64(offset)
                return lambda _: constant
            case "shared_address", _:
                return lambda v: _sum(parts, v).byte
            case "behind", _:
                return lambda v: _sum(parts, v)
            case ("pair_at", _) | ("pair_in_panels", _):
                return lambda v: self.memories.load(v, self.pair(e, v))
            case _:
                return self._of_lanes(e, parts)

    def _of_lanes(self, e: Call, parts: list[Evaluated]) -> Evaluated:
        """A call that loads nothing."""
        match e.name, parts:
            case "cluster_rank", []:
                return lambda v: v["cluster_rank"]
            case (("first_lane" | "given"), [value]):
                return value
            case "shuffle_xor", [value, by]:
                return lambda v: shuffled(v, value(v), v["lane"] ^ by(v))
            case "__any_sync", [_, value]:
                return lambda v: np.repeat(_of_warps(v, value(v)).any(1), WARP)
            case "bits_as", [value]:
                read = bits_as(DTYPES[e.type])
                return lambda v: read(value(v))
            case "saturate", [value]:
                element = DTYPES[e.type]
                return lambda v: to_integer(value(v), element)
            case name, _ if name in FUNCTIONS:
                return self._function(e.type, name, parts)
            case name, _:
                raise InternalError(f"`{name}` is no function of a kernel that has a meaning here")

    def _function(self, t: Type, name: str, parts: list[Evaluated]) -> Evaluated:
        f, element = FUNCTIONS[name], DTYPES.get(t)
        return lambda v: _plain(f(*[part(v) for part in parts]), element)

    def _element(self, parts: list[Evaluated]) -> Evaluated:
        def load(v: Threads) -> Any:
            whole = parts[0](v)
            if isinstance(whole, Pointer):
                return self.memories.load(v, _sum(parts, v, whole))
            return own_element(whole, parts[1](v))

        return load

    def pair(self, e: Call, v: Threads) -> Pointer:
        """To two neighbours of 16 bits."""
        values = [self.of(a)(v) for a in e.args]
        if e.name == "pair_at":
            p: Pointer = values[0]
        else:
            rows, row_bytes, down, _, panels, row, column = values
            p = in_panels(int(rows), int(row_bytes), int(down), panels, row, column)
        return Pointer(p.space, np.dtype("u4"), p.byte)


def _constant(value: float, t: Type) -> Any:
    if t == BFLOAT16:
        return to_bf16(np.float32(value))
    element = DTYPES[t]
    if t.kind is Kind.INT or t.kind is Kind.UINT:
        return np.array(int(value) & ((1 << 8 * element.itemsize) - 1), np.uint64).astype(element)[
            ()
        ]
    return element.type(value)


def _variable(name: str, t: Type) -> Evaluated:
    if t == POINTER:
        return lambda v: v[name]
    element = DTYPES[t]
    return lambda v: _plain(v[name], element)


def _applied(f: Callable[[Any, Any], Any], a: Evaluated, b: Evaluated) -> Evaluated:
    return lambda v: f(a(v), b(v))


def _plain(x: Any, element: np.dtype[Any] | None) -> Any:
    """A variable's value, whatever C takes it for."""
    if element is None or isinstance(x, Pointer) or x.dtype == element:
        return x
    return converted(x, element)


def _chosen(holds: Any, a: Any, b: Any) -> Any:
    if holds.ndim == 0:
        return a if holds else b
    return np.where(holds, a, b)


def _sum(parts: list[Evaluated], v: Threads, whole: Any = None) -> Pointer:
    """A pointer and elements behind it."""
    found = parts[0](v) if whole is None else whole
    for part in parts[1:]:
        found = found + part(v)
    return found


def in_panels(
    rows: int, row_bytes: int, down: int, panels: Pointer, row: Any, column: Any
) -> Pointer:
    """To 16 bits in swizzled panels, ``down`` rows below ``row`` (``snippets.groups``)."""
    width = row_bytes // 2
    place = row * row_bytes + column % width * 2
    turned = Swizzle(row_bytes)(panels.byte + place)[BYTE]
    return Pointer(panels.space, panels.element, turned).moved(
        (column // width * rows + down) * row_bytes
    )


def own_element(whole: Any, index: Any) -> Any:
    """Of a thread's array: an element, or an array of fewer dimensions."""
    if index.ndim == 0:
        return whole[:, index]
    return whole[np.arange(whole.shape[0]), index]


# ------------------------------------------------------------------ warps


def _of_warps(v: Threads, x: Any) -> Any:
    return np.broadcast_to(x, (v.count,)).reshape(-1, WARP)


def shuffled(v: Threads, x: Any, source: Any) -> Any:
    """What the lane of that number has."""
    return np.take_along_axis(_of_warps(v, x), _of_warps(v, source) & 31, 1).reshape(-1)
