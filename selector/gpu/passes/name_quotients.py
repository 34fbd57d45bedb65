"""Quotients that many stores multiply by, such as that by the sum of a row, are worked out once,
ahead of the tests that the stores stand behind: a division of floats is a dozen instructions and a
branch to more, and stores come in several forms of which one runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, groupby

from selector.gpu.cuda.expressions import TYPES
from selector.gpu.ir.memory import Point, Store, StoreElements
from selector.gpu.ir.mentioned import mentioned
from selector.gpu.ir.nodes import Body, Comment, For, If, Kernel, Let, Local, Node, walk
from selector.gpu.ir.products import Fragment
from selector.gpu.passes.rebuilt import rebuilt
from selector.ir.contents import nodes_of
from selector.ir.nodes import Binary, BinaryOp, Expr, FloatImm, Var
from selector.ir.traverse import free_vars, replaced_all

OFTEN = 8  # stores: what is an element's own is in one of each form

_Stores = Store | StoreElements
_Quiet = If | Local | Let | Point | Comment | _Stores  # nothing waits for others, or comes again


def name_quotients(kernel: Kernel) -> Kernel:
    """The kernel with names for those whose operands are in registers all the while."""
    nodes = tuple(walk(kernel.body))
    held = frozenset(x.name for x in nodes if isinstance(x, Fragment))
    uses = Counter(q for x in nodes if isinstance(x, _Stores) for q in _quotients(x, held))
    if max(uses.values(), default=0) < OFTEN:
        return kernel
    taken = mentioned(kernel.body).union(p.name for p in kernel.parameters)
    names = (name for n in count() if (name := f"quotient{n}") not in taken)
    return replace(kernel, body=_ahead(kernel.body, held, names))


def _ahead(body: Body, held: frozenset[str], names: Iterator[str]) -> Body:
    """The body, in which they stand before the first of the nodes that do nothing but store."""
    found: list[Node] = []
    for quiet, group in groupby(body, key=lambda node: _is_quiet(node, held)):
        if not quiet:
            found += (_inside(node, held, names) for node in group)
            continue
        nodes = tuple(group)
        stores = (x for x in walk(nodes) if isinstance(x, _Stores))
        uses = Counter(q for x in stores for q in _quotients(x, held))
        known = {q: Var(next(names), q.type) for q, n in uses.items() if n >= OFTEN}
        found += (Let(TYPES[q.type], (v.name,), (q,)) for q, v in known.items())
        found += rebuilt(nodes, lambda x, known=known: (_with(x, known),)) if known else nodes
    return tuple(found)


def _is_quiet(node: Node, held: frozenset[str]) -> bool:
    """Whether a node and those inside it leave what is ``held`` as it is."""
    return all(
        isinstance(x, _Quiet) and not (isinstance(x, Store) and held & free_vars(x.to))
        for x in walk((node,))
    )


def _inside(node: Node, held: frozenset[str], names: Iterator[str]) -> Node:
    match node:
        case Local(body) | For(body=body):
            return replace(node, body=_ahead(body, held, names))
        case If(_, then, otherwise):
            new = _ahead(then, held, names), _ahead(otherwise, held, names)
            return replace(node, then=new[0], otherwise=new[1])
        case _:
            return node


def _values(node: _Stores) -> tuple[Expr, ...]:
    return (node.value,) if isinstance(node, Store) else node.values


def _quotients(node: _Stores, held: frozenset[str]) -> dict[Binary, None]:
    """Those of a store's values whose operands are numbers and what is ``held``, in their order;
    none of 0 and -0, which are equal.
    """
    divisions = (e for value in _values(node) for e in nodes_of(value, Binary))
    return {
        e: None
        for e in divisions
        if e.op is BinaryOp.DIV and e.type.is_float and free_vars(e) and free_vars(e) <= held
        if all(x.value for x in nodes_of(e, FloatImm))
    }


def _with(node: Node, known: dict[Binary, Var]) -> Node:
    """A store that names them."""
    if isinstance(node, Store):
        return replace(node, value=replaced_all(node.value, known))
    if isinstance(node, StoreElements):
        return replace(node, values=tuple(replaced_all(value, known) for value in node.values))
    return node
