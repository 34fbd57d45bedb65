"""Pipelines whose stages arrive and leave in pieces: rows that wgmma reads in windows.

The windows of a group go down its rows. So a stage has barriers for every few rows: a group starts
when its first rows are there, and the rows of the next stage's tile are asked for as soon as nobody
needs these. Groups whose rows begin further down start later, so that some multiply while others
store. The four warps of the feeding group take turns with the pieces.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from selector.gpu.codegen.copies.forms import write_part
from selector.gpu.codegen.copies.recognise import Copy, copy_of
from selector.gpu.codegen.pipelines.pipeline import Pipeline
from selector.gpu.codegen.threads.nests import Digit
from selector.gpu.codegen.units import Unit
from selector.gpu.codegen.warpgroups.ahead_mainloop import AheadMainloop
from selector.gpu.codegen.warpgroups.window_code import Pieces
from selector.gpu.codegen.warpgroups.windows import is_window
from selector.gpu.ir.expressions import (
    BARRIER_BYTES,
    THREAD,
    chosen,
    flag,
    less,
    masked,
    minus,
    number,
    plus,
    remainder,
    shifted,
    times,
)
from selector.gpu.ir.nodes import Await, Let
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Allocate, Expr, For, IntImm, LetStmt, Load, Stmt
from selector.ir.traverse import substitute
from selector.lowering.normalize import sequence
from selector.lowering.structure import loaded_names, peel_threads

ROWS = (4, 2, 1)
FEEDERS = 4  # warps


class WindowMainloop(AheadMainloop):
    """A pipeline of one staged buffer in pieces, if ``plan`` finds any; else an ordinary one."""

    pieces: Pieces | None = None
    copy: Copy | None = None

    def plan(self) -> None:
        """Find out whether rows may arrive in pieces."""
        self.copy = self._only_copy()
        if self.copy is None:
            return
        for rows in ROWS:
            self.pieces = self._pieces(self.copy, rows)
            if self.pieces is not None:
                return

    def _only_copy(self) -> Copy | None:
        """The one producer, where it is rows that the copy engine takes, one pitch apart."""
        c = self.context
        one = len(self.work.staged) == len(self.work.producers) == 1 and self.work.counts is None
        if not one or not self._readers():
            return None
        windows = c.shared.layouts.windows.get(self.work.staged[0].name)
        copy = copy_of(self.work.producers[0], c)
        if windows is None or copy is None or len(copy.rows) != 1:
            return None
        plain = Affine.of(copy.x.var) + Affine.of(copy.rows[0].var) * windows.pitch
        read_only = copy.source.buffer not in self.emitter.exchanged
        return copy if read_only and copy.index == plain and copy.rows[0].count else None

    def _pieces(self, copy: Copy, rows: int) -> Pieces | None:
        """Pieces of so many rows; None if a group would begin inside of one, or one is read by
        nobody.
        """
        run, loops = self._run()
        products = self.emitter.windows.run(run) if run else []
        if not products or len({p.symbolic for p in products}) != 1:
            return None
        staged = self.work.staged[0]
        row_bytes = self.context.shared.layouts.windows[staged.name].pitch * staged.type.bytes
        first = products[0].symbolic.divided_by(row_bytes * rows)
        low = min(p.offset for p in products)
        if first is None or low < 0:
            return None
        part = row_bytes * rows
        if any((p.offset + p.along) // part != p.offset // part for p in products):
            return None  # an instruction reads two pieces
        count = -(-(copy.rows[0].count or 0) // rows)
        needed = max(p.offset for p in products) // row_bytes // rows + 1
        users = [0] * count
        for digits in product(*(range(extent) for _, extent in loops)):
            values: dict[str, Expr] = {
                name: IntImm(digit) for (name, _), digit in zip(loops, digits, strict=True)
            }
            start = to_affine(substitute(first.to_expr(), values)).constant
            if start is None or start < 0 or start + needed > count:
                return None
            for piece in range(start, start + needed):
                users[piece] += 1
        if 0 in users:
            return None
        return Pieces(rows, count, needed, first, row_bytes, tuple(users))

    def _run(self) -> tuple[tuple[Stmt, ...], list[tuple[str, int]]]:
        """The statements that read a stage, if they are one run, and the thread loops around."""
        region = self.work.consumers[0]
        assert isinstance(region, For)
        loops, body = peel_threads(region)
        while isinstance(body, Allocate | LetStmt):
            body = body.body
        name = self.work.staged[0].name
        stmts = sequence(body)
        reading = [i for i, x in enumerate(stmts) if name in loaded_names(x)]
        if not reading or reading[-1] - reading[0] + 1 != len(reading):
            return (), loops
        run = stmts[reading[0] : reading[-1] + 1]
        return (run if all(is_window(x) for x in run) else ()), loops

    # ------------------------------------------------------------------ text

    def _make(self) -> None:
        if self.pieces is None:
            super()._make()
            return
        p = self.pieces
        self.pipeline = Pipeline(self.context, self.stages, self.how, p.count)
        piece = Let("int", ("piece",), (remainder("i", p.count),))
        free = _choice(p.users)
        self.pipeline.make(
            self._first_feeder(), number(32), free, before=piece, then=self._begin_early
        )

    def _copy_rows(self) -> None:
        if self.pieces is None or self.copy is None:
            super()._copy_rows()
            return
        w, p = self.context.writer, self.pieces
        self.pipeline.begin()
        feeder, count = masked(shifted(THREAD, 5), FEEDERS - 1), number(p.count)
        with self.emitter.loop_head(self.work.loop):
            self._point("slot")
            with w.loop("piece", feeder, count, "rolled", number(FEEDERS)):
                place = times(BARRIER_BYTES, plus(times("slot", count), "piece"))
                w.add(Let("u32", ("at",), (place,)))
                with w.when(flag("round")):
                    w.add(Await("asleep", plus("free_", "at"), minus("round", 1)))
                self._one_piece(self.copy, p)
                self.pipeline.commit_stores(plus("full", "at"))
            self.pipeline.advance()

    def _one_piece(self, copy: Copy, p: Pieces) -> None:
        """The rows of one piece, by a warp."""
        piece = self.context.names.variable("piece")
        row, total = copy.rows[0].var, copy.rows[0].count or 0
        moved: dict[str, Expr] = {row.name: (Affine.of(row) + Affine.of(piece) * p.rows).to_expr()}
        source = replace(copy.source, index=substitute(copy.source.index, moved))
        assert isinstance(source, Load)
        part = replace(
            copy,
            index=to_affine(substitute(copy.index.to_expr(), moved)),
            source=source,
            coordinates=tuple(substitute(e, moved) for e in copy.coordinates),
            rows=(Digit(row, IntImm(p.rows)),),
            predicate=None if copy.predicate is None else substitute(copy.predicate, moved),
            folded=tuple(None if e is None else substitute(e, moved) for e in copy.folded),
        )
        limit = minus(total, times("piece", p.rows)) if total % p.rows else None
        write_part(part, self.context, plus("full", "at"), limit)

    def _consume(self, groups: Unit) -> None:
        self.emitter.windows.pieces = self.pieces
        super()._consume(groups)
        self.emitter.windows.pieces = None

    def _acquire(self) -> None:
        """The barriers of the group's first piece; its instructions wait for themselves."""
        if self.pieces is None:
            super()._acquire()
            return
        w, p = self.context.writer, self.pieces
        first = self.context.number(p.first.to_expr())
        ready = self.pipeline.filled(plus(times("slot", p.count), first))
        w.add(Let("u32", ("ready",), (ready,)))
        w.add(Let("u32", ("passed",), (plus("ready", BARRIER_BYTES * self.stages * p.count),)))

    def _release(self, free: Expr | None = None, used: Expr | None = None) -> None:
        if self.pieces is None:
            super()._release(free, used)


def _choice(values: tuple[int, ...]) -> Expr:
    """The one of these numbers whose place is ``piece``."""
    choice, last = number(values[-1]), values[-1]
    for i in reversed(range(len(values))):
        if values[i] != last:
            choice, last = chosen(less("piece", i + 1), values[i], choice), values[i]
    return choice
