"""Which kernels have their accumulators in tensor memory, and what these cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.arrangement import Arrangement
from selector.gpu.codegen.context import KernelContext
from selector.ir.nodes import Stmt, Store
from selector.ir.traverse import walk_stmt
from selector.lowering.tiles import Accumulate, Banded, as_accumulate

NAMES = frozenset(
    ("tensor", "sums", "read", "tile", "stage", "before", "uses", "part", "own", "turn")
)
"""That such kernels declare: no Func's memory is called so."""
ELSEWHERE = "place `{}` in MemoryType.WMMAAccumulator, or compile for sm_90a"


def arrange_tensor(body: Stmt, name: str, block: Arrangement) -> Arrangement:
    """A kernel whose blocks do the work of several, one after the other: what is asked for is one
    thread's work, so that groups may store results meanwhile.
    """
    statements = list(_accumulates(body))
    rows = {s.instruction.m for s in statements}
    for s in statements:
        if isinstance(s.a, Banded) or isinstance(s.b, Banded):
            raise _refused(
                s.accumulator,
                "it is a convolution with a band, whose windows overlap in memory",
                "tcgen05 reads rows of their own, in swizzled panels",
            )
    if len(rows) > 1:
        raise ScheduleError(
            f"`{name}` has products of {' and '.join(map(str, sorted(rows)))} rows",
            "lanes of tensor memory hold the rows of both in other orders",
            "give all accumulators of a kernel tiles of as many rows",
        )
    return replace(block, tensor=True, tall=128 in rows, persistent=block.persistent or 1)


def check_tensor(name: str, block: Arrangement) -> None:
    """``ScheduleError`` for what a schedule asks of such a kernel in vain."""
    why = ""
    if block.cluster > 1:
        why = f"blocks in clusters of {block.cluster} would have to free slots for each other"
        hint = "drop cluster(...)"
    elif block.teams > 1:
        why = f"{block.teams} teams would have to take turns with one thread that asks for products"
        hint = "drop teams(...): results are stored during the next products anyway"
    elif block.self_fed:
        why = "one thread asks for all products, and others bring operands"
        hint = "drop self_fed(...)"
    elif not block.producer:
        why = "operands come by one pipelined loop, which nothing stages ahead"
        hint = "give the staged operands pipeline_stages(...), in one loop"
    else:
        return
    raise ScheduleError(f"`{name}` cannot have its accumulators in tensor memory", why, hint)


def refuse_sums(c: KernelContext) -> None:
    """``ScheduleError`` for sums over the rows of instructions of 128 rows."""
    if c.block.tall:
        raise ScheduleError(
            f"`{c.name}` sums over rows of accumulators in tensor memory",
            "lanes have other rows of an instruction of 128 than numbers of rows are kept for",
            "vectorize 64 rows in a statement of the accumulator",
        )


def _accumulates(body: Stmt) -> Iterator[Accumulate]:
    for s in walk_stmt(body):
        statement = as_accumulate(s) if isinstance(s, Store) else None
        if statement is not None:
            yield statement


def _refused(accumulator: str, *why: str) -> ScheduleError:
    return ScheduleError(
        f"`{accumulator}` cannot be an accumulator in tensor memory",
        "; ".join(why),
        ELSEWHERE.format(accumulator),
        Where(func=accumulator),
    )
