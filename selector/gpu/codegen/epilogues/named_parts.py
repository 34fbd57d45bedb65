"""Large values whose places are written out for each element that they read: what occurs in them
several times is computed once, ahead of them, and has a name.

Where a row's neighbours come around or are mirrored, the place of each is some fifty operations,
and most of these are the same for all of a row or a column. A compiler finds that, too, but NVRTC
takes seconds for it.
"""

from __future__ import annotations

from collections import Counter

from selector.gpu.codegen.context import KernelContext
from selector.gpu.ir.nodes import Let
from selector.ir.nodes import Call, Expr, Var
from selector.ir.traverse import map_expr, replaced_all, walk_expr
from selector.ir.types import INT32

LARGE = 10_000  # nodes of a value: each thousand takes NVRTC the better part of a second
SMALL = 5  # nodes that are not worth a name


def named_parts(value: Expr, context: KernelContext) -> Expr:
    """A legal value with its parts' names, which are written ahead of it."""
    if sum(1 for _ in walk_expr(value)) < LARGE:
        return value
    sizes = dict[Expr, int]()
    counts = Counter(e for e in walk_expr(value) if e.type == INT32 and _size(e, sizes) > SMALL)
    uses = Counter[Expr]()
    _count({e for e, n in counts.items() if n > 1}, value, uses)
    names = dict[Expr, Expr]()
    for part in sorted((e for e, n in uses.items() if n > 1), key=lambda e: sizes[e]):
        name = context.names.fresh("part")
        own = map_expr(part, lambda c: replaced_all(c, names))
        context.writer.add(Let("int", (name,), (own,)))
        names[part] = Var(name, INT32)
    return replaced_all(value, names)


def _size(e: Expr, sizes: dict[Expr, int]) -> int:
    """Nodes of an expression; 0 where it loads something."""
    if e not in sizes:
        nodes = [*walk_expr(e)]
        sizes[e] = 0 if any(map(_is_load, nodes)) else len(nodes)
    return sizes[e]


def _is_load(e: Expr) -> bool:
    return isinstance(e, Call) and e.name == "element"


def _count(parts: set[Expr], e: Expr, uses: Counter[Expr]) -> None:
    """How often each part is used by what is no such part, or by one of them."""
    if e in parts:
        uses[e] += 1
        if uses[e] > 1:
            return

    def below(c: Expr) -> Expr:
        _count(parts, c, uses)
        return c

    map_expr(e, below)
