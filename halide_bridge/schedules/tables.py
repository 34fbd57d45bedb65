"""Small tables of which data choose the elements, as a byte that is looked up: every block copies
them to shared memory, which serves a warp whose lanes read here and there sooner than L1 does.
"""

from __future__ import annotations

from halide_bridge.schedules.kernels import Grid
from halide_bridge.schedules.recognise.facts import Body, Place, Placement
from halide_bridge.schedules.recognise.program import accesses
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import sources_of
from halide_bridge.stock import GPU_SHARED
from selector.ir.nodes import Binary, BinaryOp, Cast, Expr, IntImm
from selector.ir.types import Kind

LARGEST = 1 << 10  # bytes of a table: 256 floats
BYTE = 8  # bits


def stage_tables(
    script: Script, func: Recorded, grid: Grid, body: Body, placement: Placement
) -> None:
    """Have the tables that a kernel looks up copied by its blocks: those that it reads itself, not
    by way of what is inside of it.
    """
    if grid.block is None:
        return
    program, counts = placement.program, dict[str, set[int | None]]()
    for a in body.reads():
        counts.setdefault(a.func, set()).add(_entries(a.indices))
    itself = {a.func for a in program.members[body.stage.func].accesses()}
    for name, (count, *others) in counts.items():
        member = next(sources_of(name, program), None)
        if member is None or count is None or others or len(member.types) != 1:
            continue
        if member.name not in itself:
            continue
        if member.name == name and placement.places[name] is not Place.KERNEL:
            continue
        if count * member.types[0].bytes <= LARGEST:
            source = script.func(member.label, member.handle).stored()
            table = source.in_(func).compute_at(func, grid.block).store_in(GPU_SHARED)
            table.bound_extent(*table.args(), count)


def _entries(indices: tuple[Expr, ...]) -> int | None:
    """How many elements data may choose from, the first one being number 0; None if they do not, or
    that is not known.
    """
    if len(indices) != 1 or not any(True for _ in accesses(indices[0])):
        return None
    low, high = _interval(indices[0])
    return high + 1 if low == 0 and high is not None else None


def _interval(e: Expr) -> tuple[int | None, int | None]:
    """The least and the greatest value, where they are known."""
    match e:
        case IntImm(value):
            return value, value
        case Cast(_, v) if v.type.kind is Kind.UINT and v.type.bits <= BYTE:
            return 0, (1 << v.type.bits) - 1
        case Binary(BinaryOp.MIN | BinaryOp.MAX as op, a, b):
            lows, highs = zip(_interval(a), _interval(b), strict=True)
            either = op is BinaryOp.MAX  # of both, one that is known is an end
            return _end(lows, op, either=either), _end(highs, op, either=not either)
        case _:
            return None, None


def _end(ends: tuple[int | None, ...], op: BinaryOp, *, either: bool) -> int | None:
    known = [end for end in ends if end is not None]
    if not known or (len(known) < len(ends) and not either):
        return None
    return max(known) if op is BinaryOp.MAX else min(known)
