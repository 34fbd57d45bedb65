"""What a graph holds, as egglog text: the cheapest terms of a class, the rows of a relation.

Failures of checks, the trace and the picture show terms this way.
"""

from __future__ import annotations

from selector.eqsat.bindings import egglog
from selector.eqsat.encode import real, text
from selector.eqsat.extract import Graph, read_graph
from selector.eqsat.saturate import Engine
from selector.eqsat.stepping import run_text

MOST = 4
"""Terms or rows that are shown."""
WIDTH = 160
"""Characters of a term that are shown."""


def show_term(term: object) -> str:
    """A decoded term (nested tuples) as egglog text."""
    match term:
        case (str(name), *args):
            return f"({' '.join((name, *map(show_term, args)))})"
        case ():
            return "(vec-empty)"
        case tuple():
            return f"(vec-of {' '.join(map(show_term, term))})"
        case str():
            return text(term)
        case float():
            return real(term)
        case _:
            return str(term)


def cut(shown: str, width: int = WIDTH) -> str:
    return shown if len(shown) <= width else f"{shown[: width - 4]} ..."


def class_terms(graph: Graph, cls: object, first: str = "") -> list[str]:
    """The terms of a class, one a node over the cheapest terms of its arguments; those that begin
    with the constructor ``first`` before the others, then the cheapest.
    """
    found: list[tuple[bool, int, str]] = []
    for node in graph.classes.get(cls, ()):  # type: ignore[call-overload]
        term = graph.term(node)
        if term is not None:
            found.append((node.name != first, term[0], show_term(term[2])))
    return [shown for _, _, shown in sorted(set(found))]


class Explainer:
    """Says what a graph holds where a fact fails. The graph is left as it was."""

    def __init__(self, engine: Engine) -> None:
        self.egglog = engine.graph
        self.graph = read_graph(engine.graph, 0)

    def fact(self, fact: object) -> list[str]:
        """What the sides of a fact are in the graph, as lines."""
        run_text(self.egglog, "(push)")
        try:
            match fact:
                case egglog.Eq():
                    left, right = fact.left, fact.right
                    if self._one_class(left, right):
                        return self._listed("both are", left, "")
                    return [*self._side(left, right), *self._side(right, left)]
                case egglog.Fact():
                    return self._side(fact.expr, None)
                case _:
                    return []
        finally:
            run_text(self.egglog, "(pop)")

    def _side(self, side: object, other: object) -> list[str]:
        shown = cut(" ".join(str(side).split()))
        match side:
            case egglog.Lit():
                return []
            case egglog.Call() if side.name in self._tables():
                return self._rows(side)
            case egglog.Call() | egglog.Var() if _ground(side):
                if isinstance(side, egglog.Call) and not self._holds(side):
                    return [f"{shown} is not in the graph"]
                wanted = other.name if isinstance(other, egglog.Call) else ""
                return self._listed(f"{shown} is", side, wanted)
            case _:
                return [f"nothing matches {shown}"] if isinstance(side, egglog.Call) else []

    def _one_class(self, left: object, right: object) -> bool:
        """Whether two terms of the graph are one class of it."""
        sides = (left, right)
        if not all(_ground(s) and not isinstance(s, egglog.Lit) and self._holds(s) for s in sides):
            return False
        value = self._value(left)
        return value == self._value(right) and value in self.graph.classes

    def _listed(self, head: str, side: object, first: str) -> list[str]:
        """The terms of a side's class under a heading."""
        terms = class_terms(self.graph, self._value(side), first)
        more = [f"  and {len(terms) - MOST} more"] if len(terms) > MOST else []
        return [head, *(f"  {cut(t)}" for t in terms[:MOST]), *more]

    def _tables(self) -> dict[str, str]:
        """Functions and relations that are no constructors, with the sort of their output."""
        functions = self.egglog.freeze().functions
        terms = ("Expr", "Stmt", "Args")
        return {n: f.output_sort for n, f in functions.items() if f.output_sort not in terms}

    def _rows(self, call: egglog.Call) -> list[str]:
        """The rows of a relation or function that come nearest to a call of it."""
        known = [self._value(a) if _ground(a) and self._holds(a) else None for a in call.args]
        table = self.egglog.freeze().functions[call.name]
        rows: list[tuple[int, str]] = []
        for row in table.rows:
            same = sum(k is not None and k == v for k, v in zip(known, row.inputs, strict=True))
            shown = [
                self._shown(v, s, a)
                for v, s, a in zip(row.inputs, table.input_sorts, call.args, strict=True)
            ]
            line = f"({' '.join((call.name, *shown))})"
            if table.output_sort in ("i64", "f64", "String"):
                line = f"(= {line} {self._plain(row.output, table.output_sort)})"
            rows.append((-same, line))
        if not rows:
            return [f"there is no {call.name}"]
        best = [line for _, line in sorted(rows)[:MOST]]
        more = [f"  and {len(rows) - MOST} more"] if len(rows) > MOST else []
        return [f"of {call.name} there are", *(f"  {cut(line)}" for line in best), *more]

    def _shown(self, value: egglog.Value, sort: str, asked: object) -> str:
        named = isinstance(asked, egglog.Var) and asked.name.startswith("$")
        if isinstance(asked, egglog.Var) and named and self._value(asked) == value:
            return asked.name
        return self._plain(value, sort)

    def _plain(self, value: egglog.Value, sort: str) -> str:
        match sort:
            case "i64":
                return str(self.egglog.value_to_i64(value))
            case "f64":
                return real(self.egglog.value_to_f64(value))
            case "String":
                return text(self.egglog.value_to_string(value))
            case _:
                best = self.graph.best.get(value)
                return show_term(best[2]) if best is not None else "?"

    def _holds(self, side: object) -> bool:
        """Whether a ground term is in the graph."""
        if not isinstance(side, egglog.Call):
            return True
        try:
            run_text(self.egglog, f"(check {side})")
        except egglog.EggSmolError:
            return False
        return True

    def _value(self, side: object) -> egglog.Value:
        return self.egglog.eval_expr(side)[1]  # type: ignore[arg-type]


def _ground(side: object) -> bool:
    """Whether an expression has no pattern variable."""
    match side:
        case egglog.Var():
            return side.name.startswith("$")
        case egglog.Call():
            return all(_ground(a) for a in side.args)
        case _:
            return True
