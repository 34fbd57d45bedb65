"""Are the rules right? Every node of every class must have the class's value on random memory.

After saturation each node is decoded over the best terms of its children and evaluated by the
interpreter. The nodes of one class must agree lane by lane, and so must what the relations claim: a
``tile`` is its expression, a ``matmul`` its reduction, a ``split`` its predicate. Values are small
integers, so that floats are exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from selector.eqsat.decode import Decoder, Term
from selector.eqsat.encode import encode_store
from selector.eqsat.extract import Graph, Node, read_graph, read_rows
from selector.eqsat.saturate import Engine
from selector.intrinsics.calls import lanes, matrix
from selector.ir.evaluator import evaluate_expr
from selector.ir.nodes import Store
from selector.ir.traverse import stmt_exprs
from selector.ir.types import BOOL, INT32, Kind, Type

Array = NDArray[np.generic]
MEMORY = 512
"""Elements of each random buffer; loads beyond give zero."""


@dataclass
class Soundness:
    """What was compared, and every disagreement as text."""

    nodes: int = 0
    classes: int = 0
    claims: int = 0
    mismatches: list[str] = field(default_factory=list[str])
    fired: Counter[str] = field(default_factory=Counter[str])


def check_program(statements: Sequence[Store], engine: Engine, seed: int = 0) -> Soundness:
    """Saturate annotated statements and compare all nodes and claims."""
    commands = [f"(set (statement {i}) {encode_store(s)})" for i, s in enumerate(statements)]
    return _check(commands, engine, seed)


def check_term(term: str, engine: Engine, seed: int = 0) -> Soundness:
    """The same for one encoded term."""
    return _check([f"(let $subject {term})"], engine, seed)


def _check(commands: Sequence[str], engine: Engine, seed: int) -> Soundness:
    result = Soundness()
    with engine.saturated(commands) as saturation:
        result.fired = saturation.matches
        graph = read_graph(engine.graph, 0)
        rows = {name: read_rows(engine.graph, name) for name in _CLAIMS}
    world = _World(graph, np.random.default_rng(seed))
    for cls, nodes in graph.classes.items():
        result.classes += 1
        known: tuple[str, Array] | None = None
        for node in nodes:
            value = world.node(node)
            if value is None:
                continue
            result.nodes += 1
            if known is None:
                known = (node.name, value)
            elif not _same(known[1], value):
                result.mismatches.append(
                    f"class {cls}: {known[0]} and {node.name} {node.args} differ"
                )
    for name, claim in _CLAIMS.items():
        for row in rows[name]:
            result.claims += 1
            if not claim(world, row):
                result.mismatches.append(f"{name} {row} does not hold")
    return result


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.all(a == b))


class _World:
    """Random memory and symbols, and the value of everything in them."""

    def __init__(self, graph: Graph, generator: np.random.Generator):
        self.graph = graph
        self.memory: dict[str, Array] = {}
        self.symbols: dict[str, object] = {}
        for n in sorted(graph.nodes, key=lambda n: (n.name, str(n.args))):
            match n.name, n.args:
                case "Load", (str(t), str(buffer), *_):
                    self.memory.setdefault(buffer, _random(generator, Type.parse(t), MEMORY))
                case "Sym", (str(name),):
                    self.symbols.setdefault(name, _random(generator, INT32, 1))
                case "Atom", (str(t), int(count), str(name)):
                    self.symbols.setdefault(name, _random(generator, Type.parse(t), count))
                case _:
                    pass

    def term(self, term: Term) -> Array:
        return evaluate_expr(Decoder().expr(term), self.symbols, self.memory)

    def node(self, node: Node) -> Array | None:
        """The value of a node over its children's best terms; a statement's is what it writes."""
        found = self.graph.term(node)
        if found is None:
            return None
        if node.name != "Store":
            return self.term(found[2])
        store = Decoder().store(found[2])
        parts = [evaluate_expr(e, self.symbols, self.memory) for e in stmt_exprs(store)]
        written = np.zeros(4 * MEMORY, dtype=np.float64)
        mask = parts[2].astype(bool) if len(parts) > 2 else np.ones(parts[0].shape, bool)
        written[parts[0][mask].astype(np.int64) % written.size] = parts[1][mask]
        return written

    def of(self, cls: object) -> Array:
        """The value of a class."""
        return self.term(self.graph.best[cls][2])  # type: ignore[index]


def _random(generator: np.random.Generator, scalar: Type, count: int) -> Array:
    if scalar == BOOL:
        return generator.integers(0, 2, count).astype(bool)
    if scalar.is_float:
        values = generator.integers(-3, 4, count)
        return values.astype(
            np.float16 if scalar.bits == 16 and scalar.kind is Kind.FLOAT else np.float32
        )
    low = 0 if scalar.kind is Kind.UINT else -3
    return generator.integers(low, 6, count).astype(f"{'u' if low == 0 else 'i'}{scalar.bytes}")


def _tile(world: _World, row: tuple[object, ...]) -> bool:
    e, m, n, k, base, *strides = row
    digits = np.indices((int(m), int(n), int(k))).reshape(3, -1)  # type: ignore[call-overload]
    steps = [int(world.of(s)[0]) for s in strides]
    expected = np.full(digits.shape[1], int(world.of(base)[0]))
    for digit, step in zip(digits, steps, strict=True):
        expected = expected + digit * step
    return _same(world.of(e), expected)


def _matmul(world: _World, row: tuple[object, ...]) -> bool:
    reduction, m, n, k, a, b = row[:6]
    left, right = matrix(world.of(a), m, k), matrix(world.of(b), k, n)  # type: ignore[arg-type]
    product = lanes(left.astype(np.float64) @ right.astype(np.float64))
    return _same(world.of(reduction).astype(np.float64), product)


def _split(world: _World, row: tuple[object, ...]) -> bool:
    p, m, n, k, _, a, b = row
    left, right = matrix(world.of(a), m, k), matrix(world.of(b), k, n)  # type: ignore[arg-type]
    both = np.logical_and(left[:, None, :], np.swapaxes(right, 0, 1)[None, :, :])
    return _same(world.of(p), both.reshape(-1))


def _band_split(world: _World, row: tuple[object, ...]) -> bool:
    p, m, n, k, stride, dilation, direction, image, taps = row
    rows = int(dilation) * (int(k) - 1) + int(stride) * (int(n) - 1) + 1  # type: ignore[call-overload]
    _, j, r = np.indices((int(m), int(n), int(k)))  # type: ignore[call-overload]
    tap = r if direction == 1 else int(k) - 1 - r  # type: ignore[call-overload]
    left, right = matrix(world.of(image), int(m), rows), world.of(taps)  # type: ignore[call-overload]
    at = np.indices(j.shape)[0]
    row_of_band = int(stride) * j + int(dilation) * tap  # type: ignore[call-overload]
    both = np.logical_and(left[at, row_of_band], right[tap])
    return _same(world.of(p), both.reshape(-1))


_CLAIMS: Mapping[str, Callable[[_World, tuple[object, ...]], bool]] = {
    "tile": _tile,
    "matmul": _matmul,
    "split": _split,
    "band-split": _band_split,
}
