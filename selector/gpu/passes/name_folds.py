"""Where a coordinate that mirrors or comes around lies gets a name: ``floor_mod(x, 2 * width)`` is
several times in the text of a load, and compilers divide each time, since each is on a condition of
its own. Few are so far beyond an edge that it takes a division at all. Those that a loop does not
change are found out before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from itertools import count

from selector.gpu.ir.memory import LoadVector, Store
from selector.gpu.ir.mentioned import mentioned
from selector.gpu.ir.nodes import (
    Advance,
    Assign,
    Body,
    For,
    Fused,
    If,
    Kernel,
    Let,
    Local,
    Node,
    State,
    walk,
)
from selector.gpu.passes.rebuilt import values_of, with_values
from selector.ir.nodes import Call, Expr, IntImm, Var
from selector.ir.traverse import expr_children, free_vars, replaced_all
from selector.ir.types import INT32

FOLD, NEAR = "floor_mod", "floor_mod_near"


def name_folds(kernel: Kernel) -> Kernel:
    """The kernel with those names."""
    names = _Names(kernel.body)
    body, before = names.of(kernel.body)
    assert not before
    return kernel if body is kernel.body else replace(kernel, body=body)


class _Names:
    """Names that are free, those of variables that change, and in how many loads and stores each
    coordinate is.
    """

    def __init__(self, body: Body) -> None:
        self.states = {x for n in walk(body) for x in _set(n)}
        self.nodes = Counter(e for n in walk(body) for e in _repeated(n))
        taken = mentioned(body)
        self.free = (name for n in count() if (name := f"folded{n}") not in taken)

    def of(
        self, body: Body, loop: str = "", *, turns: bool = False
    ) -> tuple[Body, dict[Expr, str]]:
        """The body with names, and those that are to be declared before its ``loop``; ``turns``:
        it is of a loop, not of what a thread does once.
        """
        found, known, before, own = list[Node](), dict[Expr, str](), dict[Expr, str](), {loop}
        for node in body:
            worth = {e for e in _repeated(node) if turns or self.nodes[e] > 1}
            worth = {e for e in worth if free_vars(e).isdisjoint(self.states)}
            new, wanted = self._node(node, worth, known | before, turns=turns)
            for e, name in wanted.items():
                if loop and free_vars(e).isdisjoint(own):
                    before[e] = name
                else:
                    known[e] = name
                    found.append(_let(e, name))
            own |= {*_declared(new)}
            found.append(new)
        same = len(found) == len(body) and all(a is b for a, b in zip(found, body, strict=True))
        return (body if same else tuple(found)), before

    def _node(
        self, node: Node, worth: Set[Expr], known: dict[Expr, str], *, turns: bool
    ) -> tuple[Node, dict[Expr, str]]:
        match node:
            case For(body=inner):
                body, wanted = self.of(inner, node.var, turns=True)
                new = node if body is inner else replace(node, body=body)
                return new, wanted
            case Local(inner) | Fused(inner):
                body, _ = self.of(inner, turns=turns)
                return (node if body is inner else replace(node, body=body)), {}
            case If(_, then, otherwise):
                (a, _), (b, _) = (self.of(inner, turns=turns) for inner in (then, otherwise))
                same = a is then and b is otherwise
                return (node if same else replace(node, then=a, otherwise=b)), {}
            case Store() | LoadVector() if worth:
                names = {e: known.get(e) or next(self.free) for e in _repeated(node) if e in worth}
                instead = {e: Var(name, INT32) for e, name in names.items()}
                new = with_values(node, lambda e: replaced_all(e, instead))
                return new, {e: name for e, name in names.items() if e not in known}
            case _:
                return node, {}


def _repeated(node: Node) -> Iterator[Expr]:
    """What a load or a store has several times."""
    if isinstance(node, Store | LoadVector):
        uses = Counter(e for value in values_of(node) for e in _folds(value))
        yield from (e for e, n in uses.items() if n > 1)


def _let(e: Expr, name: str) -> Let:
    assert isinstance(e, Call)
    return Let("int", (name,), (Call(e.type, NEAR, e.args),))


def _set(node: Node) -> Iterable[str]:
    """Variables that a node changes."""
    match node:
        case Assign(name=name):
            return (name,)
        case Advance(phase=phase):
            return ("slot", phase)
        case For(var=name, start=None):  # a variable from before the loop
            return (name,)
        case _:
            return ()


def _declared(node: Node) -> Iterable[str]:
    return node.names if isinstance(node, Let | State) else ()


def _folds(e: Expr) -> Iterator[Expr]:
    """Those in an expression that have no other inside."""
    inner = [x for c in expr_children(e) for x in _folds(c)]
    if inner or not _is_fold(e):
        yield from inner
    else:
        yield e


def _is_fold(e: Expr) -> bool:
    match e:
        case Call(t, name, (_, by)):
            return t == INT32 and name == FOLD and not isinstance(by, IntImm)
        case _:
            return False
