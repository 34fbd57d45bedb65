"""A choice that a thread computes several times gets a name, where one of its arms has a function
of many steps, ``x < limit ? a * x : powf(x, 2.4f)``, or, in what stores side by side have in
common, a load: ``x < width ? a[x] : 0.0f``; unless these are more than there are registers for.

A compiler makes branches of it, and does not find out that those of two such choices are the same,
be they in one value or in those of a pixel's channels. What is computed only on a condition is not
named for that use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, groupby

from selector.gpu.cuda.expressions import TYPES
from selector.gpu.ir.memory import Store
from selector.gpu.ir.nodes import Body, Kernel, Local, Node
from selector.gpu.passes.name_repeated import always, let
from selector.gpu.passes.rebuilt import rebuilt_bodies
from selector.ir.nodes import Call, Expr, IntImm, Select, Var
from selector.ir.traverse import expr_children, free_vars, replaced_all, walk_expr

_NAMES = (
    "exp", "log", "pow", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh",
)  # fmt: skip
MOST = 64  # names at a time: what has one waits in a register
_STEPS = frozenset((*_NAMES, *(f"{name}f" for name in _NAMES)))
"""Functions that a compiler computes for no arm that is not taken."""


def name_choices(kernel: Kernel) -> Kernel:
    """The kernel with those names."""
    body = rebuilt_bodies(kernel.body, _named)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _named(body: Body) -> Body:
    found: list[Node] = []
    for is_store, run in groupby(body, lambda node: isinstance(node, Store)):
        nodes = [*run]
        found += _with_names([s for s in nodes if isinstance(s, Store)]) if is_store else nodes
    return tuple(found)


def _with_names(stores: Sequence[Store]) -> Sequence[Node]:
    """Stores side by side."""
    parts = tuple(_repeated(stores))
    if not 0 < len(parts) <= MOST:
        return stores
    names: dict[Expr, Expr] = {}
    taken = frozenset[str]().union(*(free_vars(e) for s in stores for e in (s.to, s.value)))
    free = (name for n in count() if (name := f"value{n}") not in taken)
    lets = tuple(let(e, next(free), names) for e in parts)  # each with the names before it
    left = (replace(s, value=replaced_all(s.value, names)) for s in stores)
    return (Local((*lets, *left)),)


def _repeated(stores: Sequence[Store]) -> Iterator[Expr]:
    """What is worth a name, each behind those that it has: nothing of what is stored there."""
    values, stored = [s.value for s in stores], {_base(s.to) for s in stores}
    if not any(isinstance(e, Select) for value in values for e in walk_expr(value)):
        return
    branches: dict[Expr, tuple[bool, bool]] = {}
    for e in values:
        _branches(e, branches, loads=len(stores) > 1)
    known: dict[Expr, frozenset[Expr]] = {}
    sure = frozenset[Expr]().union(*(always(e, known) for e in values))
    found = {
        e
        for e, (_, chosen) in branches.items()
        if chosen and e in sure and e.type in TYPES and free_vars(e).isdisjoint(stored)
    }
    uses = Counter[Expr]()

    def count_uses(e: Expr) -> None:
        uses[e] += 1
        if uses[e] == 1 or e not in found:
            for c in expr_children(e):
                count_uses(c)

    for e in values:
        count_uses(e)
    yield from (e for e in branches if e in found and uses[e] > 1)  # operands first


def _branches(e: Expr, known: dict[Expr, tuple[bool, bool]], *, loads: bool) -> tuple[bool, bool]:
    """Whether an expression has something that a compiler makes a branch for, and on a condition;
    ``loads`` are that, too.
    """
    if e not in known:
        inner = [_branches(c, known, loads=loads) for c in expr_children(e)]
        own = isinstance(e, Call) and (e.name in _STEPS or (loads and _is_load(e)))
        arms = inner[1:] if isinstance(e, Select) else ()
        chosen = any(c for _, c in inner) or any(some for some, _ in arms)
        known[e] = own or any(some for some, _ in inner), chosen
    return known[e]


def _is_load(e: Call) -> bool:
    """Whether it is an element of memory, or may be: registers have known places."""
    return e.name == "element" and not isinstance(e.args[-1], IntImm)


def _base(to: Expr) -> str:
    """The variable that a store sets, or the pointer to what it sets."""
    return next(e.name for e in walk_expr(to) if isinstance(e, Var))
