"""Staged copies of rows that start anywhere: 16-byte vectors that hold a chunk, shifted into place.

Element by element such a chunk takes 8 loads and 8 stores. Here it takes two loads, which reach
past the chunk but never past an aligned vector that holds a part of it, and one store. What lies
outside of the source becomes 0.
"""

from __future__ import annotations

from collections.abc import Container

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.copies.chunks import (
    addresses,
    decode,
    element_predicate,
    element_type,
    note_rounded,
)
from selector.gpu.codegen.copies.recognise import CHUNK_BYTES, Copy
from selector.gpu.ir.expressions import (
    POINTER,
    at_least,
    below,
    both,
    chosen,
    element,
    least,
    less,
    minus,
    not_zero,
    number,
    plus,
    pointer,
    times,
)
from selector.gpu.ir.expressions import most as most_of
from selector.gpu.ir.memory import Array, Evaluate, LoadShifted, StoreChunk
from selector.gpu.ir.nodes import Leave, Let
from selector.ir.affine import to_affine
from selector.ir.nodes import Call, Compare, CompareOp, Expr, IntImm, Var
from selector.ir.traverse import free_vars
from selector.lowering.predicates import TRUE, holds_everywhere

TOGETHER = (8, 4, 2)  # chunks that a thread loads before it stores the first


def starts_inside(copy: Copy, context: KernelContext, counted: Container[str] = ()) -> Expr | None:
    """The uniform condition under which a copy can be written by ``emit_shifted``; None if it
    cannot. ``counted``: variables that are never negative.
    """
    predicate, source = copy.predicate, context.storages[copy.source.buffer].param
    if source is None or copy.carries(source):
        return None
    if copy.continued or not (copy.rounded or copy.length % copy.per == 0):
        return None
    if predicate is not None and copy.x.var.name in free_vars(predicate):
        return None
    low = Compare(CompareOp.LE, IntImm(0), copy.coordinates[0])
    digits = {d.var: d.count or 1 for d in (copy.x, *copy.rows)}
    rest = to_affine(copy.coordinates[0])
    for digit in digits:
        rest = rest.rest(digit) if (rest.coefficient(digit).constant or 0) > 0 else rest
    terms = [(factors, count) for factors, count in rest if factors]
    names = (x.name if isinstance(x, Var) else "" for factors, _ in terms for x in factors)
    if rest.offset >= 0 and all(n > 0 for _, n in terms) and all(x in counted for x in names):
        return TRUE
    return holds_everywhere(low, digits)


def emit_shifted(
    copy: Copy,
    context: KernelContext,
    thread: Expr,
    size: int,
    most: int = TOGETHER[0],
    *,
    inside: bool = False,
    held: bool = False,
) -> None:
    """Write the copy, spread over ``size`` threads numbered ``thread``; up to ``most`` chunks of a
    thread are loaded before the first is stored. ``inside``: all of it lies in its source; or all
    rows do, and chunks beyond their ends are ``held`` there.
    """
    w = context.writer
    note_rounded(copy, context)
    total = copy.chunks * copy.count
    steps = -(-total // size)
    together = next((n for n in TOGETHER if n <= most and steps % n == 0), 1)
    if inside or held:  # in as few turns as there are
        together = -(-steps // -(-steps // most))
    whole = total % size == 0 and steps % together == 0
    item = plus(thread, times(plus("first", "part"), size))
    some = None if whole else total
    with w.loop("first", number(0), number(steps), "rolled", number(together)):
        w.add(Array("parts", "Shifted", together))
        with w.loop("part", number(0), number(together), "unrolled"):
            w.add(Let("int", ("i",), (item,)))
            values = decode(copy, context)
            addresses(copy, context, values, inside or held, held)
            valid, tests = (number(CHUNK_BYTES), []) if inside or held else _valid(
                copy, context, values
            )  # fmt: skip
            tests += [] if some is None else [less("i", some)]
            w.add(LoadShifted("part", chosen(both(*tests), valid, 0) if tests else valid))
        with w.loop("part", number(0), number(together), "unrolled"):
            if some is not None:
                with w.when(at_least(item, some)):
                    w.add(Leave("loop"))
            moved = element(POINTER, pointer("parts"), "part")
            w.add(Evaluate(Call(POINTER, "store_shifted", (moved,))))
            if held:
                w.add(Let("int", ("i",), (item,)))
                addresses(copy, context, decode(copy, context), inside=True, held=True)
                _hold(copy, context)


def _hold(copy: Copy, context: KernelContext) -> None:
    """What lies beyond an end of its row is the element at that end, in what a chunk has stored."""
    w, t = context.writer, copy.source.type
    further = minus("begin", "c0")
    with w.when(not_zero(further)):
        w.add(Array("run", element_type(copy, context), copy.per, CHUNK_BYTES))
        with w.loop("e", number(0), number(copy.per), "unrolled"):
            at = most_of(least(plus("e", further), copy.per - 1), 0)
            w.store(element(t, pointer("run"), "e"), element(t, pointer("to"), at))
        w.add(StoreChunk(pointer("to"), pointer("run")))


def _valid(copy: Copy, context: KernelContext, values: dict[str, Expr]) -> tuple[Expr, list[Expr]]:
    """Bytes of a chunk that lie before its row's end, and when the row is one of the source's."""
    source = context.storages[copy.source.buffer]
    assert source.param is not None
    extents = [context.scalar.number(d.extent) for d in source.param.dims]
    tests = [below(f"c{n}", e) for n, e in enumerate(extents) if n]
    wanted = element_predicate(copy, values)
    if wanted is not None:
        tests.append(context.scalar.legal(wanted))
    left = least(minus(extents[0], "c0"), copy.per)
    return times(left, source.type.bytes), tests
