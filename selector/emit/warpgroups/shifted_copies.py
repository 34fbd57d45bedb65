"""Staged copies of rows that start anywhere: 16-byte vectors that hold a chunk, shifted into place.

Element by element such a chunk takes 8 loads and 8 stores. Here it takes two loads, which reach
past the chunk but never past an aligned vector that holds a part of it, and one store. What lies
outside of the source becomes 0.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from selector.emit.context import KernelContext
from selector.emit.copies import Copy
from selector.emit.copy_code import addresses, decode, element_predicate
from selector.ir.affine import to_affine
from selector.ir.nodes import Compare, CompareOp, Expr, IntImm, Var
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
    if any(copy.clamped) or not (copy.rounded or copy.length % copy.per == 0):
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
    copy: Copy, context: KernelContext, rank: str, size: int, most: int = TOGETHER[0]
) -> None:
    """Write the copy, spread over ``size`` threads numbered ``rank``; up to ``most`` chunks of a
    thread are loaded before the first is stored.
    """
    w, scalar = context.writer, context.scalar
    source = context.storages[copy.source.buffer]
    assert source.param is not None
    if copy.rounded:
        to = context.storages[copy.to]
        context.storages[copy.to] = replace(to, rounded_rows=True)
    total = copy.chunks
    for d in copy.rows:
        total *= d.count or 1
    steps = -(-total // size)
    together = next((n for n in TOGETHER if n <= most and steps % n == 0), 1)
    w.line("#pragma unroll 1")
    with w.block(f"for (int first = 0; first < {steps}; first += {together})"):
        w.line(f"Shifted parts[{together}];")
        w.line("#pragma unroll")
        with w.block(f"for (int part = 0; part < {together}; ++part)"):
            w.line(f"const int i = {rank} + (first + part) * {size};")
            values = decode(copy, context)
            addresses(copy, context, values)
            extents = [scalar.index(d.extent) for d in source.param.dims]
            tests = [f"(u32)c{n} < (u32){e}" for n, e in enumerate(extents) if n]
            wanted = element_predicate(copy, values)
            tests += [] if wanted is None else [scalar.expr(wanted)]
            valid = f"min({extents[0]} - c0, {copy.per}) * {source.type.bytes}"
            tests += [f"i < {total}"] if total % size else []
            if tests:
                valid = f"{' && '.join(tests)} ? {valid} : 0"
            w.line(f"parts[part] = load_shifted(to, from, {valid});")
        w.line("#pragma unroll")
        with w.block(f"for (int part = 0; part < {together}; ++part)"):
            if total % size:
                w.line(f"if ({rank} + (first + part) * {size} >= {total}) break;")
            w.line("store_shifted(parts[part]);")
