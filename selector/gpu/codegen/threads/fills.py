"""Nests of copies, element by element, of which several of each thread are on their way before the
first is waited for: what fills shared memory from global memory, and what leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from math import prod

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space, c_type
from selector.gpu.codegen.threads.nests import Nest
from selector.gpu.ir.expressions import element, less, mixed_radix, number, plus, pointer, times
from selector.gpu.ir.memory import Array
from selector.gpu.ir.nodes import Let
from selector.ir.nodes import Expr, Load, Store
from selector.ir.traverse import walk_expr

FLIGHT, BYTES = 16, 32
"""Elements of a thread that are on their way at once, at most, and bytes of them."""


def flight_of(nest: Nest) -> int:
    """How many elements of a nest a thread may have on their way."""
    return min(FLIGHT, BYTES // nest.store.value.type.bytes)


@dataclass(frozen=True, slots=True)
class Flight:
    """Elements of ``size`` threads, so many at once; ``thread``: the number of one. ``total``: how
    many there are; None if that is all.
    """

    thread: Expr
    size: int
    total: Expr | None
    count: int


def brings(nest: Nest, context: KernelContext) -> bool:
    """Whether a nest stores in shared memory what it reads in global memory."""
    storages = context.storages
    loads = (e.buffer for e in walk_expr(nest.store.value) if isinstance(e, Load))
    return storages[nest.store.buffer].space is Space.SHARED and any(
        storages[name].space is Space.GLOBAL for name in loads if name in storages
    )


def bring(
    nest: Nest,
    flight: Flight,
    context: KernelContext,
    digits: Callable[[Nest, Iterable[Expr] | None], None],
    store: Callable[[Store, Expr | None, Expr], None],
) -> None:
    """All elements of a nest. ``digits`` declares those that it is given, else those of number
    ``i``; ``store`` stores what is held under a condition.
    """
    w, value = context.writer, nest.store.value
    name = context.names.fresh("held")
    held = element(value.type, pointer(name), "step")
    total, step = flight.total, number(flight.size * flight.count)
    first = flight.thread if total is None else number("first")
    own = _own_digits(nest, flight)
    with w.block() if total is None else w.loop("first", flight.thread, total, step=step):
        w.add(Array(name, c_type(value.type), flight.count))
        for stored in (False, True):
            with w.loop("step", number(0), number(flight.count), "unrolled"):
                if own is None:
                    w.add(Let("int", ("i",), (plus(first, times("step", flight.size)),)))
                with nullcontext() if total is None else w.when(less("i", total)):
                    digits(nest, own)
                    if stored:
                        store(nest.store, nest.condition, held)
                    else:
                        w.store(held, context.scalar.legal(value))


def _own_digits(nest: Nest, flight: Flight) -> tuple[Expr, ...] | None:
    """Those of a thread's element ``step``, where only the last one is another in each step."""
    below = [digit.count or 0 for digit in nest.digits[:-1]]
    if flight.total is not None or prod(below) < 2 or flight.size % prod(below):
        return None
    *same, last = mixed_radix(flight.thread, below)
    return (*same, plus(last, times("step", flight.size // prod(below))))
