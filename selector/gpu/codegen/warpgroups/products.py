"""Accumulate statements of a warpgroup as wgmma (PTX ISA, "wgmma.mma_async").

Statements whose A is the same and whose B's lie side by side, as do their accumulators, become one
instruction of up to 256 columns: Halide's vectors are too short to say so. The instructions of a
run are one group, which is waited for at once, or by the pipeline around it.

An accumulator of m64nN is N / 8 pieces of 64 x 8; warp w of the group holds rows 16 w + g and
16 w + g + 8, so that lane 4 g + q holds four elements of each as in an m16n8 tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.context import KernelContext, slice_offset
from selector.gpu.codegen.instructions import group_record
from selector.gpu.codegen.unwritten import settled
from selector.gpu.ir.descriptors import steps_of
from selector.gpu.ir.lane_maps import BLOCKS
from selector.gpu.ir.layouts import GROUP_ROWS
from selector.gpu.ir.nodes import Comment, Commit, Drain
from selector.gpu.ir.products import Descriptor, InMemory, InRegisters, Mma, Pin, Register
from selector.intrinsics.records import TensorInstruction
from selector.ir.affine import Affine
from selector.ir.nodes import Call, Store
from selector.ir.printer import print_expr
from selector.ir.simplify import constant, float_constant
from selector.lowering.tiles import Access, Accumulate, first_lane

GROUP_M, WIDEST = 64, 256
PIECE = GROUP_M * 8  # elements


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand in panels: where it begins, and whether its depth runs along the rows' bytes."""

    buffer: str
    symbolic: Affine  # bytes, without the constant
    offset: int
    along: bool


@dataclass(frozen=True, slots=True)
class Held:
    """A first operand in registers: four blocks of 8 x 8 of every warp's 16 rows."""

    registers: tuple[Register, ...]


@dataclass(slots=True)
class Product:
    """One wgmma: accumulator pieces ``first`` ... of ``n`` columns."""

    accumulator: str
    instruction: TensorInstruction
    first: int
    n: int
    a: Matrix | Held
    b: Matrix


@dataclass(slots=True)
class Slot:
    """What the next ``left`` statements read: ``acquire`` is written before the first of them,
    ``release`` once the instructions of the last one are complete.
    """

    left: int
    acquire: Callable[[], None]
    release: Callable[[], None]
    acquired: bool = False

    def enter(self) -> None:
        """Before a statement that reads it."""
        if not self.acquired:
            self.acquire()
            self.acquired = True

    def leave(self, statements: int) -> None:
        """After ``statements`` whose instructions are complete."""
        self.left -= statements
        if not self.left:
            self.release()


class GroupEmitter:
    """Writes runs of accumulate statements. ``deferred``: the caller waits for the groups.

    ``trailing``: accumulators whose products run on into the next iteration of a loop, until the
    first wait there, after which ``landed`` is called. ``version``: of descriptors.
    """

    version = 0

    def __init__(self, context: KernelContext, fill: Callable[[Store], None]) -> None:
        self.context = context
        self.fill = fill
        self.deferred = False
        self.slot: Slot | None = None
        self.trailing: list[str] = []
        self.landed: Callable[[], None] | None = None
        self._zeros: list[Store] = []

    def accumulate(self, statements: list[Accumulate]) -> None:
        """A run of statements as one group of instructions."""
        statements = [settled(s, self.context) for s in statements]
        products = self._merged([p for s in statements for p in self._products(s)])
        fresh = self._fresh(products)
        self.write_zeros()
        names = list(dict.fromkeys(s.accumulator for s in statements))
        w, slot = self.context.writer, self.slot
        if slot is not None:
            slot.enter()
        with w.block():
            w.add(Comment(f"{', '.join(names)}: {len(products)} instructions"))
            descriptors: dict[tuple[str, Affine, bool], str] = {}
            for p in products:
                for matrix in (p.a, p.b):
                    if isinstance(matrix, Matrix):
                        self._descriptor(matrix, descriptors)
            for p, first in zip(products, fresh, strict=True):
                self._issue(p, descriptors, fresh=first)
            w.add(Commit("matrix"))
        if not self.deferred and not set(names) <= set(self.trailing):
            self.finish([*names, *self.trailing])
            if self.landed is not None:
                self.landed()
                self.landed = None
        if slot is not None:
            slot.leave(len(statements))

    def zero(self, s: Store) -> None:
        """Remember a fill with zeros: the first products after it add to nothing."""
        self._zeros.append(s)

    def write_zeros(self) -> None:
        """Write the fills that no product has taken the place of."""
        found, self._zeros = self._zeros, []
        for s in found:
            self.fill(s)

    def _fresh(self, products: list[Product]) -> list[bool]:
        """Which products are the first of their pieces since these were filled with zeros; fills
        that are covered by such products are forgotten.
        """
        pieces: dict[tuple[str, int], Store] = {}
        for s in self._zeros:
            offset = slice_offset(first_lane(s.index), self.context, s.buffer)
            accumulator = self.context.registers.accumulators[s.buffer]
            assert isinstance(s.value, Call)
            for start in range(offset, offset + s.value.type.lanes // PIECE * PIECE, PIECE):
                pieces[s.buffer, accumulator.fragment_at(start, PIECE)] = s
        left = set(pieces)
        fresh: list[bool] = []
        for p in products:
            own = {(p.accumulator, p.first + i) for i in range(p.n // 8)}
            fresh.append(own <= left)
            if own & left and not own <= left:
                return [False] * len(products)
            left -= own
        self._zeros = [s for s in self._zeros if any(pieces[x] is s for x in left)]
        return fresh

    def finish(self, names: list[str]) -> None:
        """Wait until accumulators may be read."""
        self.context.writer.add(Drain("matrix", 0))
        self.hold(names)

    def hold(self, names: list[str]) -> None:
        """Accumulators are written before and read after this, whatever the compiler moves."""
        for name in names:
            self.context.writer.add(Pin(self.context.registers.accumulators[name].register))

    # ------------------------------------------------------------------ from statements to products

    def _products(self, s: Accumulate) -> list[Product]:
        instruction, context = s.instruction, self.context
        a, b = s.a, s.b
        assert isinstance(a, Access)
        assert isinstance(b, Access)
        if s.k % instruction.k or a.predicate is not None or b.predicate is not None:
            raise ScheduleError(
                f"a product of depth {s.k} is no whole number of {instruction.name}",
                "wgmma reads its operands from shared memory as they are: nothing pads them",
                f"split the reduction by a multiple of {instruction.k}, and let the staged copy be "
                f"zero beyond it",
                Where(func=s.accumulator),
            )
        accumulator = context.registers.accumulators[s.accumulator]
        region = accumulator.regions[slice_offset(s.offset, context, s.accumulator)]
        found: list[Product] = []
        for step in range(s.k // instruction.k):
            for i in range(s.m // instruction.m):
                left = self._left(s, a, instruction.m * i, instruction.k * step)
                right = self._matrix(s, b, 0, instruction.k * step, s.n)
                first = region.fragment(i * instruction.m // GROUP_M, 0)
                found.append(Product(s.accumulator, instruction, first, s.n, left, right))
        return found

    def _left(self, s: Accumulate, a: Access, row: int, depth: int) -> Matrix | Held:
        """The first operand: in registers, as accumulators that it was made of, or in panels."""
        tiles = self.context.registers.tiles.get(a.buffer)
        if tiles is None:
            return self._matrix(s, a, row, depth, s.instruction.m)
        found: list[Register] = []
        for down, across in BLOCKS:
            at = depth + across // a.type.bytes
            origin = a.base + a.row_stride * (row + down) + a.depth_stride * at
            found.append(tiles.named(origin, a.row_stride, a.depth_stride))
        return Held(tuple(found))

    def _matrix(self, s: Accumulate, o: Access, row: int, depth: int, rows: int) -> Matrix:
        panels = self.context.shared.layouts.panels[o.buffer]
        along = o.depth_stride.constant == 1 and o.row_stride.constant == panels.pitch
        across = o.row_stride.constant == 1 and o.depth_stride.constant == panels.pitch
        at = o.base + o.row_stride * row + o.depth_stride * depth
        if across and panels.bytes != 2:
            raise _across(s, o.buffer)
        step = s.instruction.k if along else min(rows, panels.width)
        start = panels.start(at, step, 1 if along else GROUP_ROWS) if along or across else None
        if not along and not across:
            raise _apart(s, o, panels.pitch)
        if start is None:
            raise ScheduleError(
                f"`{o.buffer}` cannot be an operand of {s.instruction.name} as it lies",
                f"a matrix has its rows or its columns along the buffer's rows; it starts at a "
                f"multiple of {step} columns, and of {GROUP_ROWS} rows if its depth runs across",
                "stage it as a plain two-dimensional tile",
                Where(func=s.accumulator),
            )
        return Matrix(o.buffer, start - start.offset, start.offset, along)

    def _merged(self, products: list[Product]) -> list[Product]:
        """Products with one A, and B's and accumulators side by side, as one; order is kept."""
        found: list[Product] = []
        open_: dict[object, Product] = {}
        for p in products:
            key = (p.accumulator, p.a, p.b.buffer, p.b.symbolic, p.b.along, self._depth(p.b))
            last = open_.get(key)
            if last is not None and self._continues(last, p):
                last.n += p.n
                continue
            open_[key] = p
            found.append(p)
        return found

    def _depth(self, b: Matrix) -> int:
        """What two B's of one depth have in common."""
        row, column = self.context.shared.layouts.panels[b.buffer].element(b.offset)
        return column if b.along else row

    def _continues(self, last: Product, p: Product) -> bool:
        panels = self.context.shared.layouts.panels[p.b.buffer]
        row, column = panels.element(last.b.offset)
        inside = column % panels.width
        if not p.b.along and inside and inside + last.n + p.n > panels.width:
            return False
        after = (row + last.n, column) if p.b.along else (row, column + last.n)
        return (
            p.first == last.first + last.n // 8 * p.instruction.m // GROUP_M
            and _is_width(last.n + p.n, p.instruction)
            and panels.element(p.b.offset) == after
        )

    # ------------------------------------------------------------------ text

    def _descriptor(self, m: Matrix, known: dict[tuple[str, Affine, bool], str]) -> str:
        """The name of the descriptor of the matrix at offset 0."""
        key = (m.buffer, m.symbolic, m.along)
        if key not in known:
            name = f"d{len(known)}"
            c = self.context
            behind = c.number(m.symbolic.to_expr()) if m.symbolic.terms else None
            view = replace(c.storages[m.buffer].view, at=behind)
            steps = steps_of(c.shared.layouts.panels[m.buffer].layout, across=not m.along)
            c.writer.add(Descriptor(name, view, *steps, self.version))
            known[key] = name
        return known[key]

    def _issue(
        self, p: Product, descriptors: dict[tuple[str, Affine, bool], str], *, fresh: bool
    ) -> None:
        a, b = (
            InMemory(self._descriptor(x, descriptors), x.offset, not x.along)
            if isinstance(x, Matrix)
            else InRegisters(x.registers)
            for x in (p.a, p.b)
        )
        record, how = group_record(p.instruction, p.n), "fresh" if fresh else "add"
        register = self.context.registers.accumulators[p.accumulator].register
        self.context.writer.add(Mma(how, record, register, p.first, a, b))


def is_zero_fill(s: Store) -> bool:
    """Whether a statement fills accumulators with zeros."""
    match s:
        case Store(_, _, Call(_, "tile.fill", (value,)), None):
            return 0 in (constant(value), float_constant(value))
        case _:
            return False


def _is_width(n: int, instruction: TensorInstruction) -> bool:
    """Whether an instruction has ``n`` columns: bytes are multiplied by sixteens of them."""
    narrow = instruction.a_type.bytes > 1 or n in (8, 24)
    return n <= WIDEST and n % (8 if narrow else 16) == 0


def _apart(s: Accumulate, o: Access, pitch: int) -> ScheduleError:
    """An operand whose rows or columns are not neighbours in the buffer that holds them."""
    strides = [print_expr(x.to_expr()) for x in (o.row_stride, o.depth_stride)]
    return ScheduleError(
        f"`{o.buffer}` cannot be an operand of {s.instruction.name} as it lies",
        f"its rows are read {strides[0]} elements apart and its columns {strides[1]}, where the "
        f"staged rows lie {pitch} apart: one has to be 1, the other {pitch}",
        "stage what is multiplied and no more: a Func in GPUShared in which the operand's rows and "
        "columns are neighbours, such as `f(u, v) = a(u, 2*v)` for every second row, or "
        "`f(u, v, p) = a(u, 2*v + p)` where tap t reads row 2*v + t: that is `f(u, v + t/2, t%2)`",
        Where(func=s.accumulator),
    )


def _across(s: Accumulate, buffer: str) -> ScheduleError:
    what = "bytes" if s.instruction.a_type.bytes == 1 else "single floats"
    return ScheduleError(
        f"`{buffer}` cannot be an operand of {s.instruction.name} as it lies",
        f"wgmma reads {what} along the sum only: neighbours in memory have to be neighbours in the "
        "sum, and here they are of different rows or columns of the result",
        f"compute `{buffer}` transposed in a Func of its own before, or keep "
        f"`{s.accumulator}` in MemoryType.WMMAAccumulator",
        Where(func=s.accumulator),
    )
