"""Runs of accumulate statements of one warp: operands fetched, instructions in order, and the
read-outs of complete tiles among them (``read_outs``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from selector.gpu.codegen.context import KernelContext, slice_offset
from selector.gpu.codegen.epilogues.read_outs import RegionCode, tile_reads
from selector.gpu.codegen.instructions import warp_record
from selector.gpu.codegen.products.banded import BandTables
from selector.gpu.codegen.products.operands import BlockFetcher
from selector.gpu.codegen.unwritten import settled
from selector.gpu.ir.nodes import Comment
from selector.gpu.ir.products import Mma, Record
from selector.ir.nodes import Expr, Store
from selector.lowering.fragments import Fetch, MatrixOp, expand, schedule
from selector.lowering.predicates import TRUE, conjunction, holds_everywhere
from selector.lowering.tiles import DEPTH, ROW, Accumulate, Banded, first_lane

FETCH_TOGETHER = 4
FETCH_AHEAD = 8  # a GEMM of 1024 with four warps a block: 12.8 us instead of 17.4 on an H200


class TileEmitter:
    """Writes the tensor statements of a warp into the kernel's source."""

    def __init__(self, context: KernelContext, tables: BandTables) -> None:
        self.context = context
        self.tables = tables
        self.regions = RegionCode(context)
        self.interleaved: list[Callable[[], None]] = []  # code for among the next instructions

    def accumulate(self, statements: list[Accumulate], finished: Sequence[Store] = ()) -> None:
        """A run of accumulate statements: one scope of fetches and instructions.

        What is ``interleaved`` is written among the instructions, and
        each of the read-outs ``finished`` once its tiles are complete, so that their registers are
        free for what follows.
        """
        statements = [settled(s, self.context) for s in statements]
        everywhere = self._unmasked(statements)
        w = self.context.writer
        if everywhere is None or everywhere == TRUE:
            self._run(statements, finished)
        else:
            with w.when(self.context.scalar.legal(everywhere)):
                self._run([_without_predicates(s) for s in statements])
            with w.otherwise():
                self._run(statements)
            for s in finished:
                self.regions.read_out(s)
        self.interleaved = []

    def _unmasked(self, statements: list[Accumulate]) -> Expr | None:
        result: Expr | None = TRUE
        for s in statements:
            for operand, rows, depth in ((s.a, s.m, s.k), (s.b, s.n, s.k)):
                if isinstance(operand, Banded) or operand.predicate is None or result is None:
                    continue
                one = holds_everywhere(operand.predicate, {ROW: rows, DEPTH: depth})
                result = None if one is None else conjunction(result, one)
        return result

    def _run(self, statements: list[Accumulate], finished: Sequence[Store] = ()) -> None:
        ops = expand(statements)
        w = self.context.writer
        names = ", ".join(dict.fromkeys(s.accumulator for s in statements))
        with w.block():
            w.add(Comment(f"{names}: {len(ops)} instructions"))
            fetcher = BlockFetcher(self.context, self.tables)
            issued = 0
            pieces = _positions(self.interleaved, len(ops))
            offsets = [slice_offset(s.offset, self.context, s.accumulator) for s in statements]
            read_outs = self._complete(ops, statements, offsets, finished)
            budget = self._register_budget(statements)
            records: dict[tuple[int, int], Record] = {}
            for event in schedule(ops, FETCH_TOGETHER, budget, FETCH_AHEAD):
                match event:
                    case Fetch(blocks):
                        fetcher.fetch(blocks)
                    case MatrixOp():
                        n, depth = event.statement, len(event.b)
                        if (n, depth) not in records:
                            records[n, depth] = warp_record(statements[n].instruction, depth)
                        record = records[n, depth]
                        self._issue(record, statements[n], offsets[n], event, fetcher)
                        issued += 1
                        for piece in pieces.get(issued, ()):
                            piece()
                        for s in read_outs.get(issued, ()):
                            self.regions.read_out(s)

    def _complete(
        self,
        ops: list[MatrixOp],
        statements: list[Accumulate],
        offsets: list[int],
        finished: Sequence[Store],
    ) -> dict[int, list[Store]]:
        """After how many instructions each read-out goes; their order stays. ``offsets`` are those
        of the statements' accumulators."""
        last: dict[tuple[str, int], int] = {}
        for number, op in enumerate(ops, start=1):
            last[statements[op.statement].accumulator, offsets[op.statement]] = number
        places: dict[int, list[Store]] = {}
        place = 1
        for s in finished:
            for source in tile_reads(s.value):
                lanes = source.type.lanes
                for region, _ in self.regions.covered(
                    source.buffer, first_lane(source.index), lanes
                ):
                    place = max(place, last.get((source.buffer, region.offset), 0))
            places.setdefault(place, []).append(s)
        return places

    def _register_budget(self, statements: list[Accumulate]) -> int:
        places = {(s.accumulator, s.offset): s.m * s.n // 32 for s in statements}
        return max(24, 176 - sum(places.values()))

    def _issue(
        self, record: Record, s: Accumulate, offset: int, op: MatrixOp, fetcher: BlockFetcher
    ) -> None:
        accumulator = self.context.registers.accumulators[s.accumulator]
        region = accumulator.regions[offset]
        a, b = fetcher.registers(op.a), fetcher.registers(op.b)
        piece = region.fragment(*op.tile)
        self.context.writer.add(Mma("add", record, accumulator.register, piece, a, b))


def _positions(pieces: list[Callable[[], None]], ops: int) -> dict[int, list[Callable[[], None]]]:
    """After how many instructions each piece goes: the first after a quarter, the last before the
    end.
    """
    first, last = max(1, ops // 4), max(1, ops * 7 // 8)
    places: dict[int, list[Callable[[], None]]] = {}
    for number, piece in enumerate(pieces):
        place = first + (last - first) * number // max(1, len(pieces) - 1)
        places.setdefault(place, []).append(piece)
    return places


def _without_predicates(s: Accumulate) -> Accumulate:
    a = s.a if isinstance(s.a, Banded) else replace(s.a, predicate=None)
    b = s.b if isinstance(s.b, Banded) else replace(s.b, predicate=None)
    return replace(s, a=a, b=b)
