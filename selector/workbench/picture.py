"""``rules graph``: the e-graph of one statement as boxes and edges.

A class is a box, its nodes are lines in it. Classes of constants, symbols and ``always`` are
written where they are used. What the selected program uses is marked, and so is the statement as it
was written; without ``everything`` only the classes of these two are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from selector.dataclass import dataclass
from selector.diagnostics import UserError
from selector.eqsat.decode import Term
from selector.eqsat.encode import text as quoted
from selector.eqsat.extract import Graph, Node, read_graph, read_tables
from selector.eqsat.reporting import where
from selector.eqsat.select import SolvedScope, solved_scopes
from selector.ir.module import Module
from selector.targets import find_target
from selector.workbench.bench import Bench, pushed


@dataclass(frozen=True, slots=True)
class Options:
    """Which statement (from 1, or its text in a report; none: the first update), most nodes of a
    class, which classes.
    """

    statement: int | str | None = None
    nodes: int = 5
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A node: its text, the boxes that it refers to, whether the selected program or the written
    statement has it.
    """

    text: str
    refers: tuple[int, ...]
    selected: bool
    written: bool


@dataclass(frozen=True, slots=True)
class Box:
    """A class: its number, title (lanes, nodes left out) and lines."""

    number: int
    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """The boxes in the order in which they are reached from the statement, which is the first."""

    title: str
    boxes: tuple[Box, ...]
    classes: int
    nodes: int

    @property
    def summary(self) -> str:
        lines = sum(len(b.lines) for b in self.boxes)
        return (
            f"{len(self.boxes)} of {self.classes} classes, {lines} of {self.nodes} nodes; "
            f"{self.title}"
        )

    def as_dict(self) -> dict[str, object]:
        """The picture as data, for JSON."""
        return {
            "title": self.title,
            "classes": self.classes,
            "nodes": self.nodes,
            "boxes": [
                {
                    "number": b.number,
                    "title": b.title,
                    "nodes": [
                        {
                            "text": line.text,
                            "refers": list(line.refers),
                            "selected": line.selected,
                            "written": line.written,
                        }
                        for line in b.lines
                    ],
                }
                for b in self.boxes
            ],
        }


def draw(bench: Bench, module: Module, target: str, options: Options) -> Picture:
    """The picture of a statement of a program. ``UserError`` if there is none of that number."""
    engine = bench.engine((target,))
    scopes = solved_scopes(module, find_target(target), bench.only, engine)
    number, solved, index = _chosen(module, scopes, options.statement)
    statement = solved.scope.distinct[index]
    with pushed(engine):
        engine.run(f"(set (statement 0) {statement})")
        engine.saturate()
        graph = read_graph(engine.graph, 1)
        lanes = {row[0]: row[1] for row in read_tables(engine.graph, ["lanes"])["lanes"]}
    store = solved.scope.stores[solved.scope.skeletons.index(_skeleton(solved, statement))]
    title = f"statement {number}: {store.buffer}, target {target}"
    return _Drawing(graph, lanes, options, solved.solution.terms[index], statement).picture(title)


def _skeleton(solved: SolvedScope, statement: str) -> object:
    return next(k for k in solved.scope.skeletons if k.term == statement)


def _chosen(
    module: Module, scopes: tuple[SolvedScope, ...], wanted: int | str | None
) -> tuple[int, SolvedScope, int]:
    """Number, scope and index of the statement that is asked for."""
    every = [(solved, i) for solved in scopes for i in range(len(solved.scope.distinct))]
    if not every:
        raise UserError("no statement is placed on a tensor unit")
    if wanted is None:
        updates = [n for n, (s, i) in enumerate(every) if "(Reduce " in s.scope.distinct[i]]
        at = updates[0] if updates else 0
    elif isinstance(wanted, str):
        named = [n for n, (s, i) in enumerate(every) if wanted in _texts(module, s, i)]
        if not named:
            raise UserError("there is no such statement", "no report of this program has that text")
        at = named[0]
    elif 1 <= wanted <= len(every):
        at = wanted - 1
    else:
        raise UserError(f"there is no statement {wanted}", f"the program has {len(every)}")
    return (at + 1, *every[at])


def _texts(module: Module, solved: SolvedScope, index: int) -> list[str]:
    """The statements that share a term, as a report prints them."""
    scope = solved.scope
    term = scope.distinct[index]
    pairs = zip(scope.stores, scope.skeletons, strict=True)
    return [where(module, scope, store).statement for store, s in pairs if s.term == term]


@dataclass
class _Drawing:
    graph: Graph
    lanes: dict[object, object]
    options: Options
    selected: Term | None
    statement: str
    used: set[int] = field(default_factory=set[int])
    written: set[int] = field(default_factory=set[int])
    numbers: dict[object, int] = field(default_factory=dict[object, int])

    def picture(self, title: str) -> Picture:
        root = self.graph.statements[0]
        if self.selected is not None:
            self._mark(root, self.selected, self.used)
        self._mark(root, read_term(self.statement), self.written)
        order = self._reached(root)
        self.numbers = {cls: i for i, cls in enumerate(order)}
        boxes = tuple(self._box(cls) for cls in order)
        return Picture(title, boxes, len(self.graph.classes), len(self.graph.nodes))

    def _mark(self, cls: object, term: object, marked: set[int]) -> bool:
        """Find the nodes of a term from a class down; whether it is there."""
        for node in self._nodes(cls):
            if node.name != term[0] or len(node.args) != len(term) - 1:  # type: ignore[index, arg-type]
                continue
            inner: set[int] = set()
            pairs = zip(node.args, node.sorts, term[1:], strict=True)  # type: ignore[index]
            if all(self._same(value, sort, part, inner) for value, sort, part in pairs):
                marked |= inner | {id(node)}
                return True
        return False

    def _same(self, value: object, sort: str, part: object, marked: set[int]) -> bool:
        match sort:
            case "Expr" | "Stmt":
                return self._mark(value, part, marked)
            case "Args":
                values, parts = tuple(value), tuple(part)  # type: ignore[arg-type]
                return len(values) == len(parts) and all(
                    self._mark(v, p, marked) for v, p in zip(values, parts, strict=True)
                )
            case _:
                return value == part

    def _reached(self, root: object) -> list[object]:
        """The classes that are drawn, breadth first."""
        order, seen = [root], {root}
        for cls in order:
            for node in self._kept(cls):
                for child in _children(node):
                    if child not in seen and not self._atom(child):
                        seen.add(child)
                        order.append(child)
        return order

    def _nodes(self, cls: object) -> list[Node]:
        return self.graph.classes.get(cls, [])  # type: ignore[call-overload]

    def _kept(self, cls: object) -> list[Node]:
        """The nodes that decide where edges go: the marked ones, or as many as are drawn."""
        shown = self._shown(cls)
        if self.options.everything:
            return shown
        return [n for n in shown if id(n) in self.used or id(n) in self.written]

    def _shown(self, cls: object) -> list[Node]:
        """The nodes of a class that are drawn: marked ones, then the cheapest."""

        def rank(n: Node) -> tuple[int, int, str]:
            term = self.graph.term(n)
            marked = (id(n) not in self.used) + (id(n) not in self.written)
            cost, shown = (1 << 60, n.name) if term is None else term[:2]
            return (marked, cost, shown)

        return sorted(self._nodes(cls), key=rank)[: max(1, self.options.nodes)]

    def _box(self, cls: object) -> Box:
        shown = self._shown(cls)
        left = len(self._nodes(cls)) - len(shown)
        lanes = self.lanes.get(cls)
        about = [f"{lanes} lanes"] if lanes is not None else []
        about += [f"{left} more"] if left else []
        number = self.numbers[cls]
        lines = tuple(self._line(n) for n in shown)
        return Box(number, ", ".join((f"c{number}", *about)), lines)

    def _line(self, node: Node) -> Line:
        words, refers = [node.name], list[int]()
        for value, sort in zip(node.args, node.sorts, strict=True):
            match sort:
                case "Expr" | "Stmt":
                    words.append(self._word(value, refers))
                case "Args":
                    words += [self._word(v, refers) for v in tuple(value)]  # type: ignore[arg-type]
                case "String":
                    words.append(quoted(str(value)))
                case _:
                    words.append(str(value))
        return Line(
            " ".join(words), tuple(dict.fromkeys(refers)), id(node) in self.used,
            id(node) in self.written,
        )  # fmt: skip

    def _word(self, cls: object, refers: list[int]) -> str:
        """How an argument is written: an atom as itself, a class by its number."""
        atom = self._atom(cls)
        if atom:
            return atom
        number = self.numbers.get(cls)
        if number is None:
            return "*"
        refers.append(number)
        return f"c{number}"

    def _atom(self, cls: object) -> str:
        """The text of a class of constants or symbols; empty for any other."""
        for node in self._nodes(cls):
            match node.name, node.args:
                case "Int", (value,):
                    return str(value)
                case "Sym", (name,):
                    return str(name)
                case (("Lit" | "FLit"), (kind, value)):
                    return f"{kind}({value})"
                case "Atom", (_, _, name):
                    return str(name)
                case "Always", (count,):
                    return f"always[{count}]"
                case _:
                    pass
        return ""


def _children(node: Node) -> Iterator[object]:
    for value, sort in zip(node.args, node.sorts, strict=True):
        if sort in ("Expr", "Stmt"):
            yield value
        elif sort == "Args":
            yield from tuple(value)  # type: ignore[arg-type]


def read_term(shown: str) -> Term:
    """An encoded term as nested tuples, as ``Graph.term`` gives them."""
    words = iter(re.findall(r'"(?:\\.|[^"\\])*"|[()]|[^\s()]+', shown))

    def node(word: str) -> object:
        if word == "(":
            parts = list[object]()
            for inner in words:
                if inner == ")":
                    break
                parts.append(node(inner))
            return tuple(parts[1:]) if parts[0] in (_VECTOR, _EMPTY) else tuple(parts)
        if word.startswith('"'):
            return re.sub(r"\\(.)", r"\1", word[1:-1])
        if re.fullmatch(r"-?\d+", word):
            return int(word)
        try:
            return float(word)
        except ValueError:
            return _VECTOR if word == "vec-of" else _EMPTY if word == "vec-empty" else word

    return node(next(words))  # type: ignore[return-value]


_VECTOR, _EMPTY = object(), object()
