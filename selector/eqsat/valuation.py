"""What every class of a saturated graph is worth on random memory.

A ``World`` gives symbols and buffers random values, in ``WORLDS`` versions at once, and evaluates
each node over the values of its children's classes, bottom-up. The first node of a class gives the
class its value and its type; the others are compared with it by ``selector.eqsat.soundness``.

The values: bytes and other integers over their whole range, extremes often, because a product that
is taken in too narrow a type shows nowhere else. Floats are halves of small integers, so that sums
are exact in any order; a float type in which nothing is computed (operands of mixed precision) has
values that need all of its mantissa but whose products still add up exactly. There is no NaN and no
infinity: rules that move a predicate from one factor to the other, or multiply memory beyond an
operand by zeros, hold for finite values only, as the rule files say. Indices are int32 and do not
overflow; symbols are small, zero, negative, or near the ends of the buffers, where loads from
outside give zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from selector.diagnostics import InternalError
from selector.eqsat.decode import Decoder, Term
from selector.eqsat.extract import Graph, Node
from selector.intrinsics import find
from selector.ir.arithmetic import dtype_of
from selector.ir.evaluator import Buffer, Frame, evaluate
from selector.ir.types import BFLOAT16, FLOAT16, INT32, IllTyped, Kind, Type

Array = NDArray[Any]
WORLDS = 6
"""Versions of memory and symbols that are evaluated side by side."""
MEMORY = 2048
"""Elements of each random buffer; loads beyond give zero."""
_NOTHING = -12345.5  # what a store leaves alone
_TERMS = ("Expr", "Stmt")
_MANTISSA = {FLOAT16: 9, BFLOAT16: 6}  # a last bit whose products still fit float32, K of them


class IllTypedError(Exception):
    """A node whose operands' types or lanes do not go together."""


class World:
    """Random memory and symbols, and the type and values of every class in them.

    Values are (WORLDS, lanes); the value of a statement is the memory that it leaves, without type.
    """

    def __init__(self, graph: Graph, generator: np.random.Generator):
        self.graph = graph
        self.values: dict[object, tuple[Type | None, Array]] = {}
        self._generator = generator
        self.frame = Frame(WORLDS, {})
        # names are those of a statement: another one's `b0` may hold another type
        self._memory: dict[tuple[str, Type], Buffer] = {}
        self._leaves: dict[object, Term] = {}
        self._exact = _computed_types(graph)
        for n in sorted(graph.nodes, key=_key):
            with suppress(ValueError):  # a type that does not exist: `evaluate` says so
                self._bind(n)

    def _bind(self, n: Node) -> None:
        """Memory or a value for what a node names."""
        match n.name, n.args:
            case "Load" | "Matrix", (str(t), str(buffer), *_):
                self._buffer(buffer, Type.parse(t))
            case "Sym", (str(name),) if name not in self.frame.variables:
                self.frame.variables[name] = _symbols(self._generator)
            case "Atom", (str(t), int(lanes), str(name)) if name not in self.frame.variables:
                self.frame.variables[name] = self._random(Type.parse(t), lanes, opaque=True)
            case _:
                pass

    def _buffer(self, name: str, element: Type) -> None:
        if (name, element) not in self._memory:
            self._memory[name, element] = Buffer(element, self._random(element, MEMORY))

    def _random(self, scalar: Type, count: int, opaque: bool = False) -> Array:
        """(WORLDS, count) values of a type; an opaque int32 is an index."""
        generator, shape = self._generator, (WORLDS, count)
        if scalar.is_bool:
            return generator.integers(0, 2, shape).astype(bool)
        if scalar.is_integer:
            if opaque and scalar == INT32:
                return generator.integers(-3, 40, shape).astype(np.int32)
            return _integers(generator, scalar, shape)
        values = generator.integers(-6, 7, shape) / 2.0
        bits = _MANTISSA.get(scalar)
        if bits is not None and scalar not in self._exact:
            values[0] = generator.integers(-1, 2, count) * (1 + 2.0**-bits)
        return values.astype(dtype_of(scalar))

    def evaluate(self, node: Node) -> tuple[Type | None, Array] | None:
        """Type and values of a node over its children's values; None while a child has none.

        IllTypedError for a node that has no type.
        """
        term = self._shallow(node)
        if term is None:
            return None
        try:
            if node.name == "Store":
                return None, self._written(term)
            expression = Decoder().expr(term)
            if node.name in ("Load", "Matrix"):
                name = str(node.args[1])
                self.frame.buffers[name] = self._memory[name, expression.type.element]
            with np.errstate(all="ignore"):
                value = evaluate(expression, self.frame)
        except (IllTyped, InternalError, ValueError) as error:
            raise IllTypedError(str(error) or "the operands' types do not go together") from None
        return expression.type, np.broadcast_to(value, (WORLDS, expression.type.lanes))

    def memory(self, name: str) -> list[Buffer]:
        """The buffers of a name, one for each type that is loaded from it."""
        return [b for (n, _), b in self._memory.items() if n == name]

    def enter(self, node: Node, value: tuple[Type | None, Array]) -> None:
        """Make a value the one of a node's class."""
        self.values[node.cls] = value
        kind, array = value
        if kind is None:
            return
        name = f"#{len(self.values)}"
        self.frame.variables[name] = array
        literal = node.name in ("Int", "Always")
        self._leaves[node.cls] = (
            (node.name, *node.args) if literal else ("Atom", str(kind.element), kind.lanes, name)
        )

    def _shallow(self, node: Node) -> Term | None:
        """The node's term over leaves that stand for its children's values."""
        args: list[object] = []
        for value, sort in zip(node.args, node.sorts, strict=True):
            if sort in _TERMS:
                if value not in self._leaves:
                    return None
                args.append(self._leaves[value])
            elif sort == "Args":
                children = [self._leaves.get(v) for v in cast(Sequence[object], value)]
                if None in children:
                    return None
                args.append(tuple(children))
            else:
                args.append(value)
        if node.name == "MultiplyAdd":
            _check_block(args)
        return (node.name, *args)

    def _written(self, term: Term) -> Array:
        """The memory that a statement leaves; elements outside are counted from the other end."""
        store = Decoder().store(term)
        shape = (WORLDS, store.value.type.lanes)
        index = np.broadcast_to(evaluate(store.index, self.frame), shape).astype(np.int64)
        value = np.broadcast_to(evaluate(store.value, self.frame), shape)
        keep = np.ones(shape, bool)
        if store.predicate is not None:
            keep = np.broadcast_to(evaluate(store.predicate, self.frame), shape).astype(bool)
        written = np.full((WORLDS, 4 * MEMORY), _NOTHING)
        for row in range(WORLDS):
            written[row, index[row][keep[row]] % written.shape[1]] = value[row][keep[row]]
        return written

    def of(self, cls: object) -> Array:
        """The values of a class; KeyError for one that has none."""
        return self.values[cls][1]

    def type(self, cls: object) -> Type:
        """The type of a class; KeyError for one that has none."""
        kind = self.values[cls][0]
        if kind is None:
            raise KeyError(cls)
        return kind


def _key(n: Node) -> tuple[str, str]:
    plain = (a for a, s in zip(n.args, n.sorts, strict=True) if s not in (*_TERMS, "Args"))
    return n.name, " ".join(map(str, plain))


def _check_block(args: Sequence[object]) -> None:
    """A block has the lanes that its extents say, and operands of the instruction's types."""
    name, m, n, k, c, a, b = args
    record = find(str(name))
    if record is None:
        raise InternalError(f"{name} is no instruction")
    sizes = (int(cast(int, m)), int(cast(int, n)), int(cast(int, k)))
    lanes = (sizes[0] * sizes[1], sizes[0] * sizes[2], record.packed_lanes(sizes[2], sizes[1]))
    types = (record.c_type, record.a_type, record.b_type)
    for operand, want, count in zip((c, a, b), types, lanes, strict=True):
        kind = Decoder().expr(cast(Term, operand)).type
        if kind != want.with_lanes(count):
            raise IllTypedError(f"{name} takes {want.with_lanes(count)}, not {kind}")


def _computed_types(graph: Graph) -> frozenset[Type]:
    """Float types in which the graph adds or multiplies."""
    kinds: set[Type] = set()
    for n in graph.nodes:
        if n.name in ("Bop", "Reduce"):
            kinds.update(t for t in _MANTISSA if any(_has_type(graph, a, t) for a in n.args))
        elif n.name == "MultiplyAdd":
            record = find(str(n.args[0]))
            kinds.update({record.c_type} if record else ())
    return frozenset(kinds)


def _has_type(graph: Graph, cls: object, scalar: Type) -> bool:
    """Whether some node of a class says that its elements are of this type."""
    nodes = graph.classes.get(cls, ())  # type: ignore[call-overload]
    return any(n.args and n.args[0] == str(scalar) for n in nodes)


def _integers(generator: np.random.Generator, scalar: Type, shape: tuple[int, int]) -> Array:
    bits = scalar.bits - (scalar.kind is Kind.INT)
    low = -(1 << bits) if scalar.kind is Kind.INT else 0
    high = (1 << bits) - 1
    dtype = dtype_of(scalar)
    values = generator.integers(low, high, shape, dtype, endpoint=True)
    extreme = generator.choice(np.array([low, high], dtype), shape)
    return np.where(generator.integers(0, 6, shape) == 0, extreme, values)


def _symbols(generator: np.random.Generator) -> Array:
    """One symbol in every world: positive; small, so that comparisons go both ways; maybe near a
    buffer's end; a unit."""
    edge = generator.choice([MEMORY - 9, -5]) + generator.integers(0, 12)
    values = (
        generator.integers(1, 41),
        generator.integers(-3, 7),
        generator.integers(-2, 4),
        generator.integers(0, 12),
        edge if generator.integers(0, 2) else generator.integers(0, 9),
        generator.choice([0, 1, -1, 2]),
    )
    return np.array(values, np.int32)[:, None]
