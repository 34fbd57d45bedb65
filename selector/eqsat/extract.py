"""The best program of a saturated graph.

The rows of all constructors are read once; the cheapest term of every class follows bottom-up, ties
broken by text, so that the result does not depend on the engine's numbering. Multiply-add blocks
are chosen for all statements of a scope together: one accumulator has one fragment layout, hence
one instruction and one M x N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import field
from functools import cached_property

from selector.dataclass import dataclass
from selector.eqsat.bindings import egglog
from selector.eqsat.cost import IMPOSSIBLE, NODE, BlockCost, block_cost, total_cost
from selector.eqsat.decode import Term

Shape = tuple[str, int, int]
"""Instruction and block extents (name, M, N): what all updates of an accumulator have in common."""


@dataclass(frozen=True, slots=True)
class Node:
    """A row: constructor, arguments (class numbers of sorts in ``_CLASSES``, else plain values),
    its class."""

    name: str
    args: tuple[object, ...]
    sorts: tuple[str, ...]
    cls: egglog.Value

    def children(self) -> Iterator[egglog.Value]:
        """The classes that the node is made of."""
        for value, sort in zip(self.args, self.sorts, strict=True):
            if sort in _TERMS:
                yield value  # type: ignore[misc]
            elif sort == "Args":
                yield from value  # type: ignore[misc]


_TERMS = ("Expr", "Stmt")


@dataclass
class Graph:
    """A saturated e-graph, read out."""

    nodes: tuple[Node, ...]
    statements: tuple[egglog.Value, ...]
    best: dict[egglog.Value, tuple[int, str, Term]] = field(
        default_factory=dict[egglog.Value, tuple[int, str, Term]]
    )

    def __post_init__(self) -> None:
        self._relax([n for n in self.nodes if n.name not in ("MultiplyAdd", "Store")])

    @cached_property
    def classes(self) -> dict[egglog.Value, list[Node]]:
        """The nodes of every class."""
        table: dict[egglog.Value, list[Node]] = {}
        for n in self.nodes:
            table.setdefault(n.cls, []).append(n)
        return table

    def _relax(self, nodes: Sequence[Node]) -> None:
        """Rounds over the nodes; after the first, only those of which a child became better."""
        users: dict[egglog.Value, list[int]] = {}
        for i, n in enumerate(nodes):
            for child in n.children():
                users.setdefault(child, []).append(i)
        waiting = [True] * len(nodes)
        while any(waiting):
            for i, n in enumerate(nodes):
                if not waiting[i]:
                    continue
                waiting[i] = False
                candidate = self.term(n)
                if candidate is None:
                    continue
                old = self.best.get(n.cls)
                if old is None or candidate[:2] < old[:2]:
                    self.best[n.cls] = candidate
                    for user in users.get(n.cls, ()):
                        waiting[user] = True

    def term(self, n: Node) -> tuple[int, str, Term] | None:
        """Cost, text and term of a node from the best of its children; None if one has none yet."""
        cost = NODE.get(n.name, 1)
        shown, args = [n.name], list[object]()
        for value, sort in zip(n.args, n.sorts, strict=True):
            if sort in _TERMS:
                child = self.best.get(value)  # type: ignore[arg-type]
                if child is None:
                    return None
                cost += child[0]
                shown.append(child[1])
                args.append(child[2])
            elif sort == "Args":
                children = [self.best.get(v) for v in value]  # type: ignore[union-attr]
                if any(c is None for c in children):
                    return None
                cost += sum(c[0] for c in children if c)
                shown += [c[1] for c in children if c]
                args.append(tuple(c[2] for c in children if c))
            else:
                shown.append(str(value))
                args.append(value)
        return (cost, f"({' '.join(shown)})", (n.name, *args))

    def blocks(self, statement: int) -> dict[Shape, tuple[BlockCost, int, str, Term]]:
        """The cheapest multiply-add of a statement for each shape, as its Store term."""
        found: dict[Shape, tuple[BlockCost, int, str, Term]] = {}
        for store in self.classes.get(self.statements[statement], ()):
            for block in self.classes.get(store.args[2], ()):  # type: ignore[arg-type]
                if block.name != "MultiplyAdd":
                    continue
                name, m, n = block.args[:3]
                term = self.term(block)
                frame = [self.best.get(store.args[i]) for i in (1, 3)]  # type: ignore[arg-type]
                if term is None or frame[0] is None or frame[1] is None:
                    continue
                if term[0] - IMPOSSIBLE >= IMPOSSIBLE:
                    continue
                whole = ("Store", store.args[0], frame[0][2], term[2], frame[1][2])
                entry = (block_cost(term[2]), term[0], term[1], whole)
                key: Shape = (name, m, n)  # type: ignore[assignment]
                if key not in found or entry[:3] < found[key][:3]:
                    found[key] = entry
        return found

    def buffer(self, statement: int) -> str:
        """The buffer that a statement stores to."""
        return str(self.classes[self.statements[statement]][0].args[0])

    def is_accumulator(self, statement: int) -> bool:
        """Whether a statement stores into a tensor unit's memory."""
        values = (n.args[2] for n in self.classes[self.statements[statement]])
        return any(
            n.name in ("Move", "TileFill", "MultiplyAdd")
            for v in values
            for n in self.classes.get(v, ())  # type: ignore[arg-type]
            if n.name != "Move" or n.args[0] == "mem"
        )

    def plain(self, statement: int) -> tuple[int, str, Term] | None:
        """The cheapest form of a statement without a multiply-add."""
        forms = (
            self.term(n)
            for n in self.classes.get(self.statements[statement], ())
            if n.args[2] in self.best
        )
        return min((f for f in forms if f is not None), key=lambda f: f[:2], default=None)


def _converters(graph: egglog.EGraph) -> dict[str, Callable[[egglog.Value], object]]:
    return {
        "i64": graph.value_to_i64,
        "f64": graph.value_to_f64,
        "String": graph.value_to_string,
        "Args": lambda v: tuple(graph.value_to_vec(v)),
        "Expr": lambda v: v,
        "Stmt": lambda v: v,
    }


def read_graph(graph: egglog.EGraph, count: int) -> Graph:
    """Read the constructors' rows of a saturated graph with ``count`` statements."""
    (found,) = _read(graph, count, None).values()
    return found


def read_worlds(graph: egglog.EGraph, worlds: Set[int]) -> dict[int, Graph]:
    """What ``read_graph`` reads of one statement, of some worlds of a graph whose tables have a
    column for their number first (``worlds``)."""
    return _read(graph, 1, worlds)


def _read(graph: egglog.EGraph, count: int, worlds: Set[int] | None) -> dict[int, Graph]:
    functions, convert = graph.freeze().functions, _converters(graph)
    skipped = 0 if worlds is None else 1
    nodes: dict[int, list[Node]] = {w: [] for w in (worlds if worlds is not None else (0,))}
    roots: dict[int, dict[object, egglog.Value]] = {w: {} for w in nodes}
    for name, f in functions.items():
        if f.output_sort not in _TERMS or f.is_let_binding:
            continue
        sorts = tuple(f.input_sorts)[skipped:]
        readers = [convert[s] for s in sorts]
        for row in f.rows:
            world = graph.value_to_i64(row.inputs[0]) if skipped else 0
            if world not in nodes:
                continue
            args = tuple([read(v) for read, v in zip(readers, row.inputs[skipped:], strict=True)])
            if name == "statement":
                roots[world][args[0]] = row.output
            else:
                nodes[world].append(Node(name, args, sorts, row.output))
    return {w: Graph(tuple(n), tuple(roots[w][i] for i in range(count))) for w, n in nodes.items()}


def read_tables(graph: egglog.EGraph, names: Iterable[str]) -> dict[str, list[tuple[object, ...]]]:
    """The rows of relations and functions: plain values, and classes where the sort is a term. A
    function's row has its output last; a table that no rule file declares is missing."""
    functions, convert = graph.freeze().functions, _converters(graph)
    tables: dict[str, list[tuple[object, ...]]] = {}
    for name in names:
        if name not in functions:
            continue
        table = functions[name]
        readers = [convert[s] for s in table.input_sorts]
        output = convert.get(table.output_sort)
        tables[name] = [
            (
                *(read(v) for read, v in zip(readers, row.inputs, strict=True)),
                *(() if output is None else (output(row.output),)),
            )
            for row in table.rows
        ]
    return tables


def common_shape(options: Iterable[dict[Shape, tuple[BlockCost, int, str, Term]]]) -> Shape | None:
    """The shape that all updates of an accumulator can use, the cheapest in total; None if there is
    none."""
    tables = list(options)
    shared = set(tables[0]).intersection(*tables[1:]) if tables else set[Shape]()

    def preference(s: Shape) -> tuple[object, ...]:
        return (total_cost(t[s][0] for t in tables), sum(t[s][1] for t in tables), s)

    return min(shared, key=preference, default=None)
