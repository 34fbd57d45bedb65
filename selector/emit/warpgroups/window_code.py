"""The text of wgmma whose A is windows of raw rows: one ``asm`` statement for a run.

As statements of their own, instructions take the compiler ten times as long. Where their
accumulators change, each is complete before the next one starts: instructions under way at once may
only share whole accumulators (PTX ISA: wgmma.mma_async). Where the rows arrive
in pieces, the statement waits for each before it is read, and passes it on as soon as the
instructions that read it are complete: groups whose windows begin at different rows work at
different times, and so do their stores.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from selector.emit.context import KernelContext
from selector.emit.names import comment
from selector.emit.warpgroups.core_bands import COLUMNS, CORE_BYTES, Entry, Pair
from selector.gpu.ir.expressions import FIRST_OF_GROUP, barrier, number
from selector.gpu.ir.layouts import Strided, core_matrices
from selector.gpu.ir.nodes import Arrive, Await, Body, Commit, Drain, Fence, Fused, If, Node, Raw
from selector.ir.affine import Affine
from selector.lowering.fragments import BLOCK_BYTES

STEP_BYTES = 2 * BLOCK_BYTES  # of depth, in one instruction
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
    """A slot's rows, ``row_bytes`` apart, arrive ``rows`` at a time in ``count`` pieces. Of these a
    group reads ``needed``, from number ``first`` on. ``users``: how many groups read each.
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
        self,
        context: KernelContext,
        products: list[WindowProduct],
        pieces: Pieces | None,
    ) -> None:
        self.context = context
        self.products, self.pieces = products, pieces
        self.names = list(dict.fromkeys(p.accumulator for p in products))
        self.half = context.accumulators[self.names[0]].half
        registers = self._registers()
        self.numbers = {name: i for i, name in enumerate(registers)}
        self.inputs: list[tuple[str, str]] = []  # constraint, text
        self._operands: dict[Hashable, int] = {}
        self._one = len({_accumulators(p) for p in products}) == 1

    def write(self) -> None:
        w = self.context.writer
        lines = ["{ .reg .b64 a, b; .reg .pred done, first;"]
        if self.pieces is None:
            lines += self._complete(self.products)
        else:
            lines += self._by_pieces(self.pieces)
        lines.append("}")
        constraint = "r" if self.half else "f"
        results = ", ".join(f'"+{constraint}"({name})' for name in self.numbers)
        given = ", ".join(f'"{kind}"({text})' for kind, text in self.inputs)
        asm = ("asm volatile(", *(f'  "{text}\\n"' for text in lines), f"  : {results}")
        with w.block(""):
            w.line(comment(f"{', '.join(self.names)}: {len(self.products)} instructions"))
            if self.pieces is not None:
                w.line(f"rows_awaited(ready, {self.pieces.needed}, round & 1);")
            w.add(Fused(self._meaning(), (Raw((*asm, f'  : {given} : "memory");')),)))

    def _meaning(self) -> Body:
        """What the statement does with barriers and queues."""
        complete = (Fence("matrix"), Commit("matrix"), Drain("matrix", 0))
        if self.pieces is None:
            return complete
        found: list[Node] = []
        for piece in range(self.pieces.needed):
            found.append(Await("asleep", barrier("ready", piece), number("round")))
            found += complete
            found.append(If(FIRST_OF_GROUP, (Arrive(barrier("passed", piece)),)))
        return tuple(found)

    def _by_pieces(self, pieces: Pieces) -> list[str]:
        ready, passed = self._input("r", "ready"), self._input("r", "passed")
        phase, thread = self._input("r", "round & 1"), self._input("r", "threadIdx.x & 127")
        lines = [f"setp.eq.u32 first, {thread}, 0;"]

        held: list[list[WindowProduct]] = [[] for _ in range(pieces.needed)]
        for p in self.products:
            held[pieces.holding(p)].append(p)
        for piece, products in enumerate(held):
            test = (
                f"mbarrier.try_wait.parity.shared::cta.b64 done, [{ready} + {8 * piece}], {phase};"
            )
            lines.append(f"ready{piece}: {test} @!done bra ready{piece};")
            lines += self._complete(products)
            lines.append(f"@first mbarrier.arrive.shared::cta.b64 _, [{passed} + {8 * piece}];")
        return lines

    def _complete(self, products: list[WindowProduct]) -> list[str]:
        """Instructions, until they are complete: together where all of the run are added to the
        same accumulators. The compiler waits for each anyway where these change; when that is left
        to it, it takes twice as long.
        """
        together = [products] if self._one else [[p] for p in products]
        lines: list[str] = []
        for part in together:
            lines.append("wgmma.fence.sync.aligned;")
            lines += [text for p in part for text in self._product(p)]
            lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
        return lines

    def _product(self, p: WindowProduct) -> list[str]:
        a = self._input("l", self._window_text(p))
        assert p.band is not None
        b = self._input("l", self._band_text(p.band))
        at = f"add.s64 a, {a}, {p.offset // 16}; add.s64 b, {b}, {p.band.place // 16};"
        return [at, self._instruction(p)]

    def _input(self, constraint: str, text: str) -> str:
        if text not in self._operands:
            self._operands[text] = len(self.numbers) + len(self.inputs)
            self.inputs.append((constraint, text))
        return f"%{self._operands[text]}"

    def _registers(self) -> list[str]:
        found: list[str] = []
        for name in self.names:
            a = self.context.accumulators[name]
            each = 2 if self.half else 4
            found += [f"{a.register}[{i}][{e}]" for i in range(a.fragments) for e in range(each)]
        return found

    def _instruction(self, p: WindowProduct) -> str:
        accumulator = self.context.accumulators[p.accumulator]
        first = self.numbers[f"{accumulator.register}[{p.first}][0]"]
        count = p.n // COLUMNS * (2 if self.half else 4)
        registers = ",".join(f"%{first + i}" for i in range(count))
        kinds = {"float16": "f16", "bfloat16": "bf16"}
        operands = kinds[str(p.entry.operand.type)]
        form = f"m64n{p.n}k16.{'f16' if self.half else 'f32'}.{operands}.{operands}"
        return f"wgmma.mma_async.sync.aligned.{form} {{{registers}}}, a, b, 1,1,1,0,0;"

    def _window_text(self, p: WindowProduct) -> str:
        start = f"shared_address({self.context.storages[p.buffer].pointer})"
        if p.symbolic.terms:
            start += f" + {self.context.scalar.index(p.symbolic.to_expr())}"
        return f"core_descriptor({start}, {p.along}, {CORE_BYTES})"

    def _band_text(self, band: BandAddress) -> str:
        return f"core_descriptor(shared_address({band.table}), {band.along}, {band.across})"


def _accumulators(p: WindowProduct) -> tuple[str, int, int]:
    return p.accumulator, p.first, p.n
