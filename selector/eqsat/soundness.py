"""Are the rules right? Every node of every class must have the class's value on random memory.

After saturation each node is evaluated by the interpreter over the values of its children's classes
(``valuation``). The nodes of one class must agree in type, in lanes, and lane by lane; so must what
the relations claim (``claims``): a ``tile`` is its expression, a ``matmul`` its reduction, a
``split`` its predicate. A saturation that the engine stops, because vectors of different lengths
were made equal or a division failed, is a finding as well. ``blame`` names the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import cast

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.eqsat.claims import CLAIMS, agreeing, same
from selector.eqsat.extract import Graph, Node, read_graph, read_tables
from selector.eqsat.facts import EXECUTES
from selector.eqsat.saturate import Engine
from selector.eqsat.scopes import open_scope
from selector.eqsat.valuation import Array, IllTypedError, World
from selector.intrinsics import find
from selector.ir.module import Module
from selector.ir.nodes import Allocate, Location, Stmt
from selector.ir.traverse import stmt_children
from selector.ir.types import Type
from selector.operands.accumulators import is_tensor
from selector.operands.movement import annotate_movement
from selector.operands.prepare import prepare
from selector.operands.slices import slice_reductions

Value = tuple[Type | None, Array]
_SHOWN = 160


@dataclass
class Soundness:
    """What was compared, every disagreement as text, and how often each rule matched."""

    nodes: int = 0
    classes: int = 0
    claims: int = 0
    mismatches: list[str] = field(default_factory=list[str])
    fired: Counter[str] = field(default_factory=Counter[str])
    capped: tuple[str, ...] = ()

    def add(self, other: Soundness) -> None:
        """Count what another check found."""
        self.nodes += other.nodes
        self.classes += other.classes
        self.claims += other.claims
        self.mismatches += other.mismatches
        self.fired.update(other.fired)
        self.capped += other.capped


def scopes_of(module: Module) -> list[tuple[str, ...]]:
    """The encoded statements of every accumulator scope of a program, in all forms that a
    selection tries, each distinct one once."""
    found: list[tuple[str, ...]] = []

    def visit(s: Stmt) -> None:
        if isinstance(s, Allocate) and is_tensor(s):
            prepared = prepare(s)
            forms = (prepared, *slice_reductions(prepared))
            found.extend(open_scope(form).distinct for form in forms)
            return
        for child in stmt_children(s):
            visit(child)

    visit(annotate_movement(module.body))
    return found


def check_commands(commands: Sequence[str], engine: Engine, seed: int = 0) -> Soundness:
    """The same for a graph that these commands make: terms, statements, facts."""
    result = Soundness()
    try:
        with engine.saturated(commands) as saturation:
            result.fired, result.capped = saturation.matches, saturation.capped
            compare(engine, seed, result)
    except InternalError as error:
        result.mismatches.append(str(error))
    return result


def compare(engine: Engine, seed: int, result: Soundness) -> None:
    """Compare all nodes and claims of the graph that an engine holds now; adds to ``result``."""
    graph = read_graph(engine.graph, 0)
    world = World(graph, np.random.default_rng(seed))
    first: dict[object, Node] = {}
    result.classes += len(graph.classes)
    for node, value in _values(graph, world, result):
        result.nodes += 1
        known = first.setdefault(node.cls, node)
        if known is node:
            world.enter(node, value)
        elif (difference := _difference(world.values[node.cls], value)) is not None:
            texts = f"{_shown(graph, known)} and {_shown(graph, node)}"
            result.mismatches.append(f"{difference}: {texts}")
    result.mismatches += _misplaced(graph)
    _compare_claims(engine, world, result)


def _shown(graph: Graph, node: Node) -> str:
    """A node as text, over the best terms of its children."""
    term = graph.term(node)
    return node.name if term is None else _short(term[1])


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _values(graph: Graph, world: World, result: Soundness) -> Iterable[tuple[Node, Value]]:
    """Every node after all classes that it needs have values; ill-typed ones are mismatches."""
    waiting: dict[object, list[Node]] = {}
    ready = sorted((n for n in graph.nodes if not _children(n)), key=lambda n: n.name)
    missing = {id(n): len(_children(n)) for n in graph.nodes}
    for n in graph.nodes:
        for child in _children(n):
            waiting.setdefault(child, []).append(n)
    released: set[object] = set()
    while ready:
        node = ready.pop()
        try:
            value = world.evaluate(node)
        except IllTypedError as error:
            result.mismatches.append(f"{error}: {_shown(graph, node)}")
            continue
        assert value is not None
        yield node, value
        if node.cls not in released:
            released.add(node.cls)
            for user in waiting.get(node.cls, ()):
                missing[id(user)] -= 1
                if not missing[id(user)]:
                    ready.append(user)


def _children(node: Node) -> set[object]:
    """The classes that a node is made of."""
    found: set[object] = set()
    for value, sort in zip(node.args, node.sorts, strict=True):
        if sort in ("Expr", "Stmt"):
            found.add(value)
        elif sort == "Args":
            found.update(cast(Sequence[object], value))
    return found


def _difference(a: Value, b: Value) -> str | None:
    """How two values of one class differ."""
    if a[0] != b[0]:
        return f"types {a[0]} and {b[0]} differ"
    if same(a[1], b[1]):
        return None
    world, lane = np.argwhere(~agreeing(a[1], b[1]))[0]
    return f"lane {lane} differs, {a[1][world, lane]} and {b[1][world, lane]}"


def _misplaced(graph: Graph) -> list[str]:
    """Instructions on an accumulator that lives where they do not execute, or is another one."""
    found: list[str] = []
    for n in graph.nodes:
        if n.name != "Store":
            continue
        values = [v for s in graph.classes[n.cls] for v in graph.classes.get(s.args[2], ())]  # type: ignore[call-overload]
        places = {v.args[1] for v in values if v.name == "Move"}
        for v in values:
            record = find(str(v.args[0])) if v.name == "MultiplyAdd" else None
            families = {f for p in places for f in EXECUTES.get(Location(p), ())}
            if record is not None and record.family not in families:
                found.append(f"{record.name} does not execute in {sorted(map(str, places))}")
            if record is not None and not _in_place(graph, n, v.args[4]):
                found.append(f"{record.name} adds to something else than what is stored")
    return list(dict.fromkeys(found))


def _in_place(graph: Graph, store: Node, accumulator: object) -> bool:
    """Whether a class is what the stored elements were before."""
    loads = (n for n in graph.classes.get(accumulator, ()) if n.name == "Load")  # type: ignore[call-overload]
    return any(n.args[1:3] == store.args[:2] for n in loads)


def _compare_claims(engine: Engine, world: World, result: Soundness) -> None:
    for name, rows in read_tables(engine.graph, CLAIMS).items():
        for row in rows:
            try:
                holds = CLAIMS[name](world, row)
            except KeyError:  # a class without a value: its nodes are mismatches already
                continue
            except ValueError:  # lanes that are no matrix of the claimed extents
                holds = False
            result.claims += 1
            if not holds:
                result.mismatches.append(f"{name} does not hold: {_shown_row(world, name, row)}")


def _shown_row(world: World, name: str, row: Sequence[object]) -> str:
    best = world.graph.best
    shown = [_short(best[v][1]) if v in best else str(v) for v in row]  # type: ignore[index]
    return f"({name} {' '.join(shown)})"
