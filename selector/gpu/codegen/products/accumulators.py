"""The accumulators of a kernel, found before its body is written; room for the bands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from math import prod

from selector.diagnostics import EmitError, ScheduleError, Where
from selector.gpu.codegen.context import KernelContext, slice_offset, thread_part
from selector.gpu.codegen.epilogues.regions import Accumulator, Region
from selector.gpu.codegen.products.banded import BandTables
from selector.ir.affine import Affine, to_affine
from selector.ir.contents import nodes_of
from selector.ir.nodes import Allocate, Expr, For, ForKind, IntImm, Load, Stmt, Store
from selector.ir.traverse import stmt_children, substitute, walk_stmt
from selector.lowering.fragments import is_swapped
from selector.lowering.normalize import TENSOR_MEMORY, is_tensor_store
from selector.lowering.structure import stored_names, thread_regions
from selector.lowering.tiles import Accumulate, Banded, first_lane

Loops = dict[str, For]


def collect_accumulators(body: Stmt, context: KernelContext, tables: BandTables) -> None:
    """Fill in the context's accumulators and variables of threads; add the bands to ``tables``."""
    accumulators = context.registers.accumulators
    for s in walk_stmt(body):
        if isinstance(s, Allocate) and s.memory in TENSOR_MEMORY:
            register = context.names.fresh(s.name)
            half = s.type.bits == 16
            accumulators[s.name] = Accumulator(register, 0, {}, half, s.type.is_integer)
    firsts: dict[str, dict[int, Accumulate]] = {}
    _visit(body, {}, context, tables, firsts)
    _register_idle(body, context)
    _check_owners(body, context)
    size = 8 * (64 if context.block.group else 16)
    for name, a in list(accumulators.items()):
        total = max((r.offset + r.m * r.n for r in a.regions.values()), default=0)
        placed = _placed(a, firsts.get(name, {}), size) if context.block.group else a.regions
        regions = dict(sorted(placed.items()))
        accumulators[name] = replace(a, fragments=-(-total // size), regions=regions)


def _placed(a: Accumulator, firsts: dict[int, Accumulate], size: int) -> dict[int, Region]:
    """Blocks in the order of their products, if one follows another there with the same rows, and
    not among the elements: so one instruction may have the columns of both. ``size``: elements of
    a fragment.
    """
    alike = {(r.m, r.n) for r in a.regions.values()}
    blocks = list(firsts.items())
    apart = any(s.a == t.a and o + s.m * s.n != p for (o, s), (p, t) in pairwise(blocks))
    if not apart or len(alike) != 1 or len(firsts) != len(a.regions):
        return a.regions
    ((m, n),) = alike
    if m * n % size:
        return a.regions
    return {o: replace(a.regions[o], place=i * m * n // size) for i, (o, _) in enumerate(blocks)}


def _visit(
    s: Stmt,
    loops: Loops,
    context: KernelContext,
    tables: BandTables,
    firsts: dict[str, dict[int, Accumulate]],
) -> None:
    """``firsts``: of an accumulator the first products of each block, by its offset, in order."""
    match s:
        case For(name, extent=extent, kind=kind):
            if kind is ForKind.GPU_THREAD and isinstance(extent, IntImm):
                context.registers.thread_vars[name] = extent.value
            loops = {**loops, name: s}
        case Store():
            statement = context.as_accumulate(s)
            if statement is not None:
                offset = _register(statement, loops, context, tables)
                firsts.setdefault(statement.accumulator, {}).setdefault(offset, statement)
        case _:
            pass
    for x in stmt_children(s):
        _visit(x, loops, context, tables, firsts)


def _register(s: Accumulate, loops: Loops, context: KernelContext, tables: BandTables) -> int:
    """Its block; the offset of that."""
    offset = slice_offset(s.offset, context, s.accumulator)
    rows = 64 if context.block.group else 16
    region = Region(offset, s.m, s.n, is_swapped(s), rows, context.block.tall)
    known = context.registers.accumulators[s.accumulator].regions.setdefault(offset, region)
    if known != region:
        raise EmitError(
            f"`{s.accumulator}` is used with tiles of {known.m} x {known.n} and {s.m} x {s.n}",
            "both start at the same element",
            hint="give all its updates one shape",
        )
    for operand in (s.a, s.b):
        if isinstance(operand, Banded):
            _check_taps(operand, loops)
            tables.add(operand, {name: (x.min, x.extent) for name, x in loops.items()})
    return offset


def _register_idle(body: Stmt, context: KernelContext) -> None:
    """Tiles that are filled and that no product is added to are of the others' shape."""
    for s in walk_stmt(body):
        known = context.registers.accumulators.get(s.buffer) if isinstance(s, Store) else None
        if known is None or not isinstance(s, Store) or not known.regions:
            continue
        offset = slice_offset(first_lane(s.index), context, s.buffer)
        like = next(iter(known.regions.values()))
        inside = any(r.offset <= offset < r.offset + r.m * r.n for r in known.regions.values())
        if not inside and s.index.type.lanes == like.m * like.n:
            known.regions[offset] = replace(like, offset=offset)


def _check_owners(body: Stmt, context: KernelContext) -> None:
    """Registers belong to the warp that filled them: every statement must find its tiles there."""
    owners: dict[str, tuple[Affine, ...]] = {}
    for loops, region in thread_regions(body):
        known: dict[Affine, tuple[Affine, ...]] = {}
        for name, index in _accumulator_uses(region, context):
            part = thread_part(first_lane(index), context)
            if part not in known:
                known[part] = by_warp(part, loops)
            if owners.setdefault(name, known[part]) != known[part]:
                raise ScheduleError(
                    f"`{name}` is read by other warps than those that hold it",
                    "an accumulator lies in the registers of the warp that computes it",
                    f"give all stages of `{name}` and its consumer the same gpu_threads loops",
                    Where(func=name),
                )


def _accumulator_uses(region: Stmt, context: KernelContext) -> Iterator[tuple[str, Expr]]:
    for s in walk_stmt(region):
        if not isinstance(s, Store) or not is_tensor_store(s):
            continue
        if s.buffer in context.registers.accumulators:
            yield s.buffer, s.index
            continue
        for e in nodes_of(s.value, Load):
            if e.buffer in context.registers.accumulators:
                yield e.buffer, e.index


def by_warp(part: Affine, loops: list[tuple[str, int]]) -> tuple[Affine, ...]:
    """What an index adds for each warp; ``loops`` are thread loops, innermost first."""
    if not part.terms:
        return (part,) * prod(extent for _, extent in loops)
    found: list[Affine] = []
    for digits in product(*(range(extent) for _, extent in reversed(loops))):
        values = zip(reversed(loops), digits, strict=True)
        numbers: dict[str, Expr] = {name: IntImm(digit) for (name, _), digit in values}
        found.append(to_affine(substitute(part.to_expr(), numbers)))
    return tuple(found)


def _check_taps(operand: Banded, loops: Loops) -> None:
    """A band is built once, before its first use: its taps must be there by then and stay."""
    for loop in loops.values():
        if not operand.sources.isdisjoint(stored_names(loop.body)):
            raise EmitError(
                f"`{operand.buffer}` holds taps and is computed anew in every iteration of a loop",
                f"the loop over {loop.name} is around the convolution, too",
                "compute the taps outside of that loop, for instance at the block",
            )
