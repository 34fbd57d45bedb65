"""The text of wgmma whose A is windows of raw rows: one ``asm`` statement for a run.

As statements of their own, instructions take the compiler ten times as long. Where their
accumulators change, each is complete before the next one starts: instructions under way at once may
only share whole accumulators (PTX ISA: wgmma.mma_async). Where the rows arrive
in pieces, the statement waits for each before it is read, and passes it on as soon as the
instructions that read it are complete: groups whose windows begin at different rows work at
different times, and so do their stores.
"""

from __future__ import annotations

from dataclasses import replace

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.instructions import ptx_type
from selector.gpu.codegen.warpgroups.core_bands import CORE_BYTES, Entry, Pair
from selector.gpu.ir.expressions import FIRST_OF_GROUP, barrier, number
from selector.gpu.ir.layouts import Strided, core_matrices
from selector.gpu.ir.nodes import Arrive, Await, Body, Comment, Commit, Drain, Fused, If, Node
from selector.gpu.ir.products import GROUP_ROWS, Descriptor, InMemory, Mma, Record
from selector.gpu.ir.views import View
from selector.ir.affine import Affine
from selector.lowering.fragments import BLOCK_BYTES

STEP_BYTES = 2 * BLOCK_BYTES  # of depth, in one instruction,
K = STEP_BYTES // 2  # which has elements of 16 bits
WIDEST = 256  # columns of one
WINDOWS = 64  # of one


@dataclass(frozen=True, slots=True)
class BandAddress:
    """Where an instruction's band begins: bytes into a ``table``, and bytes from its first 16 bytes
    of depth to the next ones, and from 8 columns to the next.
    """

    table: str
    place: int
    along: int
    across: int

    @property
    def layout(self) -> Strided:
        """Of a column and a byte of depth: bytes from the place."""
        return core_matrices(self.along, self.across)


@dataclass(slots=True)
class WindowProduct:
    """One wgmma, or a part of one: accumulator pieces ``first`` ... of ``n`` columns += windows
    that start ``offset`` bytes into ``buffer``, times step ``step`` of the depth of ``entry`` and
    those that follow it.
    Windows that meet a pair go on in the next row, ``along`` bytes further. Instructions know where
    their ``band`` lies.
    """

    accumulator: str
    first: int
    n: int
    buffer: str
    symbolic: Affine  # bytes
    offset: int
    along: int  # bytes between the two chunks of a window
    step: int
    entry: Entry | Pair
    band: BandAddress | None = None

    @property
    def window(self) -> tuple[object, ...]:
        """What products share that can be one instruction."""
        return (
            self.accumulator, self.buffer, self.symbolic, self.offset, self.along, self.step,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pieces:
    """A stage's rows, ``row_bytes`` apart, arrive ``rows`` at a time in ``count`` pieces. Of these
    a group reads ``needed``, from number ``first`` on. ``users``: how many groups read each.
    """

    rows: int
    count: int
    needed: int
    first: Affine  # of thread variables
    row_bytes: int
    users: tuple[int, ...]

    def holding(self, p: WindowProduct) -> int:
        """The piece of a group that holds the rows of a product."""
        return p.offset // self.row_bytes // self.rows


class WindowCode:
    """Writes one run. With ``pieces``, the C variables ``ready`` and ``passed`` are the barriers of
    the group's first piece, ``round`` is the phase.
    """

    def __init__(
        self, context: KernelContext, products: list[WindowProduct], pieces: Pieces | None
    ) -> None:
        self.context = context
        self.products, self.pieces = products, pieces
        self._descriptors: dict[tuple[View, int, int], Descriptor] = {}
        self._one = len({_accumulators(p) for p in products}) == 1

    def write(self) -> None:
        w, names = self.context.writer, dict.fromkeys(p.accumulator for p in self.products)
        with w.block():
            w.add(Comment(f"{', '.join(names)}: {len(self.products)} instructions"))
            if self.pieces is None:
                body = self._complete(self.products)
            else:
                body = self._by_pieces(self.pieces)
            w.add(Fused((*self._descriptors.values(), *body)))

    def _by_pieces(self, pieces: Pieces) -> Body:
        held: list[list[WindowProduct]] = [[] for _ in range(pieces.needed)]
        for p in self.products:
            held[pieces.holding(p)].append(p)
        found: list[Node] = []
        for piece, products in enumerate(held):
            found.append(Await("asleep", barrier("ready", piece), number("round")))
            found += self._complete(products)
            found.append(If(FIRST_OF_GROUP, (Arrive(barrier("passed", piece)),)))
        return tuple(found)

    def _complete(self, products: list[WindowProduct]) -> Body:
        """Instructions, until they are complete: together where all of the run are added to the
        same accumulators. The compiler waits for each anyway where these change; when that is left
        to it, it takes twice as long.
        """
        found: list[Node] = []
        for part in [products] if self._one else [[p] for p in products]:
            found += (*map(self._product, part), Commit("matrix"))
            found.append(Drain("matrix", 0))
        return tuple(found)

    def _product(self, p: WindowProduct) -> Mma:
        c, band = self.context, p.band
        assert band is not None
        accumulator = c.registers.accumulators[p.accumulator]
        behind = c.number(p.symbolic.to_expr()) if p.symbolic.terms else None
        windows = replace(c.storages[p.buffer].view, at=behind)
        a = self._operand(windows, p.along, CORE_BYTES, p.offset)
        b = self._operand(View(band.table), band.along, band.across, band.place)
        kind = ptx_type(p.entry.operand.type)
        record = Record(GROUP_ROWS, p.n, K, "f16" if accumulator.half else "f32", kind, kind)
        return Mma("add", record, accumulator.register, p.first, a, b)

    def _operand(self, view: View, along: int, across: int, at: int) -> InMemory:
        """Core matrices, by the descriptor that all have in common which lie alike."""
        key = (view, along, across)
        if key not in self._descriptors:
            self._descriptors[key] = Descriptor(f"d{len(self._descriptors)}", *key)
        return InMemory(self._descriptors[key].name, at, across=False)


def _accumulators(p: WindowProduct) -> tuple[str, int, int]:
    return p.accumulator, p.first, p.n
