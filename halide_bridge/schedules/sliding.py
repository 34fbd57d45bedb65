"""Directives for chains of stencils that one kernel computes (``recognise.sliding``)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from halide_bridge.schedules.kernels import LANES, Grid, fused, new_variables
from halide_bridge.schedules.plan import Plan
from halide_bridge.schedules.recognise.program import Member, Program
from halide_bridge.schedules.recognise.sliding import LONGEST, Slide
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.stock import REGISTER
from selector.ir.nodes import Binary, BinaryOp, IntImm
from selector.ir.traverse import walk_expr
from selector.machine import Machine

WARPS = 4  # of a block, below each other
BLOCKS = 4  # of a multiprocessor, which 128 registers a thread let be
FOLDED = 16  # results of one at most where threads at an edge divide, which others wait for
ROWS = (LONGEST, 24, 16, 12, 8, 6, 4)  # results of a thread, one below the other


def rows_of(extents: Sequence[int], slide: Slide, machine: Machine) -> int:
    """How many rows a thread has, so that all are done soonest: what each computes before its
    first row counts, and so does the last round of blocks, however few they are.
    """
    x, y, *others = extents
    wide = -(-x // (LANES * slide.lanes)) * prod(others)
    at_once = BLOCKS * machine.multiprocessors
    rounds = {rows: -(-(wide * -(-y // (WARPS * rows))) // at_once) for rows in ROWS}
    return min(ROWS, key=lambda rows: rounds[rows] * (rows + slide.before))


def _folds(member: Member) -> bool:
    """Whether elements beyond an edge are others that a division says: mirrored, say."""
    found = (e for a in member.accesses() for i in a.indices for e in walk_expr(i))
    return any(
        isinstance(e, Binary) and e.op is BinaryOp.MOD and not isinstance(e.b, IntImm)
        for e in found
    )


def slid(script: Script, member: Member, program: Program, plan: Plan) -> Grid:
    """The kernel of the last Func of a chain of stencils, which computes all of the chain."""
    slide, members = plan.slides[member.label], program.members

    def func(name: str) -> Recorded:
        return script.func(members[name].label, members[name].handle)

    extents = [plan.known.extent(member, d) for d in range(slide.dims)]
    loads = [func(name).in_(*map(func, readers)) for name, readers in slide.loaded.items()]
    stages = {name: func(name) for name in slide.spans}
    sums = [stage for name, stage in stages.items() if not members[name].pure]
    last = stages.pop(member.name)
    chain = [*loads, *stages.values(), *([] if member.pure else [last])]
    reader = last if member.pure else last.in_()
    each = len(member.args) > slide.dims  # what it waits for at each row
    rows = ROWS[-1] if each else rows_of(extents, slide, plan.machine)
    if any(map(_folds, program)):
        rows = min(rows, FOLDED)
    return _by_rows(script, reader, chain, sums, slide.lanes, rows, slide.dims)


def _by_rows(
    script: Script,
    reader: Recorded,
    stages: Sequence[Recorded],
    sums: Sequence[Recorded],
    lanes: int,
    rows: int,
    dims: int,
) -> Grid:
    """Threads store columns of ``lanes`` neighbours in so many ``rows``, from above to below, and
    have those rows of all ``stages``, among them ``sums``, that they still read in registers. What
    is behind the reader's first ``dims`` dimensions, a thread has at each of its rows.
    """
    x, y, *outer = reader.args()[:dims]
    each = reader.args()[dims:]
    xo, xi, xl = new_variables(script, x, "xo", "xi", "xl")
    yo, yi, yl = new_variables(script, y, "yo", "yi", "yl")
    reader.compute_root().split(x, xo, xi, LANES * lanes).split(xi, xi, xl, lanes)
    reader.vectorize(xl).split(y, yo, yi, WARPS * rows).split(yi, yi, yl, rows)
    z = fused(script, reader, outer)
    reader.reorder(xl, *each, yl, xi, yi, xo, yo, *z).gpu_blocks(xo, yo, *z).gpu_threads(xi, yi)
    for stage in stages:
        along, down = stage.args()[:2]
        kept = stage.in_() if stage in sums else stage
        if kept is not reader:
            kept.store_at(reader, xi).compute_at(reader, yl).store_in(REGISTER)
            kept.vectorize(along).unroll(down)
        if stage in sums:
            turns = stage.rvars(0)
            stage.compute_at(kept, yl if kept is reader else down).store_in(REGISTER)
            term = stage.vectorize(along).update(0).reorder(along, *turns).vectorize(along)
            for r in turns:
                term.unroll(r)
    text = f"{LANES} x {WARPS} threads, {lanes} neighbours each down {rows} rows"
    return Grid(xi, rows, lanes, y, xo, text)
