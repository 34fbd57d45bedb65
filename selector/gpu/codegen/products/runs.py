"""Runs of tensor statements: neighbours that are written together.

Accumulates that follow each other are one run, and so are the read-outs of their tiles behind them,
products by windows (``warpgroups.window_products``), and read-outs that stand alone. A statement
that continues no run ends the open ones; fills with zeros wait for the run that may take their
place.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from selector.diagnostics import EmitError
from selector.gpu.codegen.emitter import Emitter
from selector.gpu.codegen.epilogues.row_sums import joined_sums
from selector.gpu.codegen.units import Unit
from selector.gpu.codegen.warpgroups.products import is_zero_fill
from selector.gpu.codegen.warpgroups.windows import is_window
from selector.ir.nodes import Expr, Stmt, Store
from selector.ir.traverse import walk_stmt
from selector.lowering.normalize import is_read_out
from selector.lowering.structure import loaded_names, stored_names
from selector.lowering.tiles import Accumulate


class Runs:
    """The open runs among statements that a unit executes one after the other."""

    def __init__(self, emitter: Emitter, unit: Unit, *, in_warp: bool) -> None:
        self.emitter, self.context = emitter, emitter.context
        self.unit, self.in_warp = unit, in_warp
        self.products: list[Accumulate] = []
        self.finished: list[Store] = []  # read-outs among the products
        self.windows: list[Stmt] = []
        self.reads: list[Store] = []
        self.filled: dict[str, Expr] | None = None  # known before the open run of fills

    def write(self, stmts: Iterable[Stmt]) -> None:
        """All of them, in order."""
        for s in joined_sums(stmts, self.context):
            if isinstance(s, tuple):
                self._flush()
                self.emitter.sum_rows(s, self.unit)
            else:
                self._add(s)
        self._end_fills()
        self._flush()
        self.emitter.groups.write_zeros()

    def _add(self, s: Stmt) -> None:
        group, groups = self.context.block.group, self.emitter.groups
        if not self.windows and self._reads_more(s):
            return
        self._flush_reads()
        if group and is_window(s):
            self._flush_products()
            groups.write_zeros()
            self._enter(s, first=not self.windows)
            self.windows.append(s)
            return
        self._flush_windows()
        if group and isinstance(s, Store) and is_zero_fill(s):
            self._flush_products()
            self._enter(s, first=True)
            groups.zero(s)
            return
        accumulate = self.context.as_accumulate(s) if isinstance(s, Store) else None
        self._share_fills(s)
        if accumulate is None and not self.products:
            groups.write_zeros()
        if self.finished or accumulate is None:
            if self._finishes(s):
                return
            self._flush_products()
        if accumulate is None:
            self.emitter.statement(s, self.unit, in_warp=self.in_warp)
            return
        self._enter(s, first=not self.products)
        self.products.append(accumulate)

    def _share_fills(self, s: Stmt) -> None:
        """Fills that follow each other, of rows of tiles with one bias say, load it once."""
        regions = self.emitter.tiles.regions
        if self.context.block.group and isinstance(s, Store) and self.emitter.is_argument_fill(s):
            self.filled = dict(regions.known) if self.filled is None else self.filled
            regions.prepare_fill(s)
        else:
            self._end_fills()

    def _end_fills(self) -> None:
        if self.filled is not None:
            self.emitter.tiles.regions.known, self.filled = self.filled, None

    def _enter(self, s: Stmt, *, first: bool) -> None:
        """Before a statement of a run: only the ``first`` one may need a barrier."""
        if first:
            self.emitter.before(s, self.unit)
            return
        reads, writes = self.emitter.touched(s)
        if self.unit.must_wait(reads, writes):
            raise EmitError("memory is written between the parts of one run of tensor statements")
        self.unit.touch(reads, writes)

    def _reads_more(self, s: Stmt) -> bool:
        """Whether ``s`` is a read-out of a group's tile that is written with those before."""
        if self.products or not self.context.block.group:
            return False
        if not isinstance(s, Store) or not is_read_out(s):
            return False
        placement = self.emitter.placement
        if _depends(s, placement.by_rows.keys() | placement.in_registers):
            return False
        self.emitter.groups.write_zeros()
        if self.reads and self.unit.must_wait(*self.emitter.touched(s)):
            return False
        self._enter(s, first=not self.reads)
        self.reads.append(s)
        return True

    def _finishes(self, s: Stmt) -> bool:
        """Whether ``s`` is a read-out that is written among the instructions of the products."""
        if not self.products or not isinstance(s, Store) or not is_read_out(s):
            return False
        reads, writes = self.emitter.touched(s)
        operands = {name for a in self.products for o in (a.a, a.b) for name in o.sources}
        if s.buffer in operands or self.unit.must_wait(reads, writes):
            return False
        if _depends(s, self.emitter.placement.by_rows.keys()):
            return False
        self.unit.touch(reads, writes)
        self.finished.append(s)
        return True

    # ------------------------------------------------------------------ text

    def _flush(self) -> None:
        self._flush_products()
        self._flush_reads()
        self._flush_windows()

    def _flush_products(self) -> None:
        emitter = self.emitter
        if not self.products:
            return
        if self.context.block.group:
            emitter.groups.accumulate(self.products)
            emitter.tiles.regions.read_outs(self.finished)
        else:
            emitter.tiles.accumulate(self.products, self.finished)
        self.products.clear()
        self.finished.clear()

    def _flush_reads(self) -> None:
        self.emitter.tiles.regions.read_outs(self.reads)
        self.reads.clear()

    def _flush_windows(self) -> None:
        if not self.windows:
            return
        slot = self.emitter.groups.slot
        if slot is not None:
            slot.enter()
        self.emitter.windows.emit(tuple(self.windows))
        if slot is not None:
            slot.leave(sum(isinstance(x, Store) for s in self.windows for x in walk_stmt(s)))
        self.windows.clear()


def _depends(s: Store, kept: Set[str]) -> bool:
    """Whether a read-out touches what is ``kept`` in registers: it is written where it stands."""
    return bool((stored_names(s) | loaded_names(s)) & kept)
