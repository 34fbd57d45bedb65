"""Kernels with more blocks along an outer loop, at the sizes that are told, than y and z of a grid
have room for: theirs are numbered in line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from halide_bridge.schedules.kernels import MOST_ACROSS
from halide_bridge.schedules.sizes import Guess
from selector.diagnostics import InternalError
from selector.ir.evaluator import evaluate_scalar
from selector.ir.kinds import GridKind
from selector.ir.module import Module
from selector.ir.nodes import Expr, For, ForKind, LetStmt, Stmt
from selector.ir.traverse import stmt_children

Sizes = Mapping[str, int]


def may_be_long(known: Guess) -> bool:
    """Whether some output or argument has so many rows."""
    rows = dict[str, int]()
    for name, n in known.known.items():
        buffer, _, d = name.rpartition(".extent.")
        rows[buffer] = rows.get(buffer, 1) * (n if d != "0" else 1)
    return any(n > MOST_ACROSS for n in rows.values())


def long_grids(module: Module, known: Guess) -> frozenset[str]:
    """The Funcs that such kernels compute. Persistent grids and those of clusters are none: they
    have an order of their own.
    """
    sizes = dict[str, int]()
    for name in known.known:
        buffer, _, d = name.rpartition(".extent.")
        extent = known.get(name)
        if buffer in known.names and extent is not None:
            sizes[f"{known.names[buffer]}.extent.{d}"] = extent
    ordered = {g.func for g in module.grids if g.kind in (GridKind.PERSISTENT, GridKind.CLUSTER)}
    return frozenset(_long(module.body, sizes, ())) - ordered


def _long(s: Stmt, sizes: Sizes, outer: tuple[int, ...]) -> Iterator[str]:
    """``outer``: blocks along the loops around a statement."""
    match s:
        case LetStmt(name, value, body):
            found = _value(value, sizes)
            yield from _long(body, sizes if found is None else {**sizes, name: found}, outer)
        case For(kind=ForKind.GPU_BLOCK, name=name, extent=extent, body=body):
            *others, y = outer or (1,)
            if y > MOST_ACROSS or prod(others) > MOST_ACROSS:
                yield name.split(".")[0]
            yield from _long(body, sizes, (*outer, _value(extent, sizes) or 1))
        case _:
            for child in stmt_children(s):
                yield from _long(child, sizes, outer)


def _value(e: Expr, sizes: Sizes) -> int | None:
    """A number of blocks; None where something else has a say in it."""
    try:
        return evaluate_scalar(e, sizes)
    except (ArithmeticError, InternalError):
        return None
