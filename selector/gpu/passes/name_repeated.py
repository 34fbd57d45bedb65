"""What a store of an accumulator's elements computes several times gets a name: the text of an
activation has its argument several times, each of these what that is made of, and there is a copy
of it all for each register. Two copies suffice of what is long.

A value that is computed only on a condition (one arm of a choice) is not named for that use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, count, islice

from selector.gpu.cuda.expressions import TYPES
from selector.gpu.ir.memory import StoreEight, StorePair, StoreQuad, StoreRun
from selector.gpu.ir.nodes import Body, Kernel, Let, Local, Node
from selector.gpu.passes.rebuilt import rebuilt
from selector.ir.nodes import Binary, BinaryOp, Expr, Select, Var
from selector.ir.traverse import expr_children, free_vars, map_expr, replaced_all, walk_expr
from selector.ir.types import FLOAT32, INT32

LEAST, SAVED = 8, 24  # nodes of an expression that is worth a name, and of its further copies


def name_repeated(kernel: Kernel) -> Kernel:
    """The kernel with those names."""
    body = rebuilt(kernel.body, _named)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _named(node: Node) -> Body:
    match node:
        case StorePair() | StoreQuad() | StoreEight() | StoreRun() if _is_long(node.values):
            found = tuple(_repeated(node.values))
            if not found:
                return (node,)
            names: dict[Expr, Expr] = {}
            taken = frozenset[str]().union(*map(free_vars, node.values))
            free = (name for n in count() if (name := f"value{n}") not in taken)
            lets = tuple(let(e, next(free), names) for e in found)  # each with the names before it
            values = tuple(replaced_all(v, names) for v in node.values)
            return (Local((*lets, replace(node, values=values))),)
        case _:
            return (node,)


def _is_long(values: tuple[Expr, ...]) -> bool:
    """Whether there are nodes enough for something that is worth a name."""
    nodes = chain.from_iterable(map(walk_expr, values))
    return next(islice(nodes, LEAST + SAVED - 1, None), None) is not None


def let(e: Expr, name: str, names: dict[Expr, Expr]) -> Let:
    """Of an expression, in which those that have names already are these."""
    value = map_expr(e, lambda c: replaced_all(c, names))
    names[e] = Var(name, e.type)
    return Let(TYPES[e.type], (name,), (value,))


def _repeated(values: tuple[Expr, ...]) -> Iterator[Expr]:
    """What is worth a name, each behind those that it has."""
    uses, sizes, sure = Counter[Expr](), dict[Expr, int](), dict[Expr, frozenset[Expr]]()

    def counted(e: Expr) -> int:
        uses[e] += 1
        if e not in sizes:
            sizes[e] = 1 + sum(map(counted, expr_children(e)))
        return sizes[e]

    for e in values:
        counted(e)
    computed = frozenset[Expr]().union(*(always(e, sure) for e in values))
    for e in sizes:  # operands first
        worth = sizes[e] >= LEAST and (uses[e] - 1) * sizes[e] >= SAVED
        if worth and e.type in (FLOAT32, INT32) and e in computed:
            yield e


def always(e: Expr, known: dict[Expr, frozenset[Expr]]) -> frozenset[Expr]:
    """What of an expression is computed whatever the rest is."""
    if e not in known:
        match e:
            case Select(condition, a, b):
                either = always(a, known) & always(b, known)
                inner = always(condition, known) | either
            case Binary(BinaryOp.AND | BinaryOp.OR, a, _):
                inner = always(a, known)
            case _:
                inner = frozenset[Expr]().union(*(always(c, known) for c in expr_children(e)))
        known[e] = inner | {e}
    return known[e]
