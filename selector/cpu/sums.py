"""What goes into accumulators and comes out of them: fills, and stores of sums to memory.

Zeros and whole blocks of rows go straight between registers and memory; everything else by way of
an image of the accumulator on the stack, to which plain code applies.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from selector.cpu.context import CContext
from selector.cpu.lanes import scalar_lane
from selector.cpu.operands import COLUMN, ROW, TILE_BYTES, TILE_ROWS
from selector.cpu.plain import PlainCode
from selector.cpu.registers import Sums, TileScope
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.intrinsics import TILE_FILL, TILE_READ
from selector.ir.affine import Affine, to_affine
from selector.ir.contents import holds, loaded
from selector.ir.nodes import Call, Expr, IntImm, Load, Ramp, Stmt, Store
from selector.ir.simplify import constant, float_constant
from selector.ir.traverse import walk_all_exprs
from selector.lowering.predicates import TRUE
from selector.lowering.ranges import Ranges, digit_bounds, holds_in
from selector.lowering.structure import loaded_names
from selector.lowering.tiles import first_lane


class SumsCode:
    """Writes fills and read-outs of the accumulators of one scope."""

    def __init__(self, context: CContext, plain: PlainCode, scope: TileScope) -> None:
        self.context = context
        self.plain = plain
        self.scope = scope
        self._image = ""  # the pointer of the image made last

    def fill(self, s: Store) -> None:
        """Any store to an accumulator but a product."""
        value = _bare(s.value)
        blocks = self._whole_blocks(s.index, s.buffer)
        zero = 0 in (constant(value), float_constant(value))
        if blocks is not None and s.predicate is None and zero:
            for b in blocks:
                for register in b.registers.values():
                    self.context.writer.line(f"tile_zero({register});")
            return
        with self.context.writer.block(""):
            partly = blocks is None or s.predicate is not None
            filled = partly or s.buffer in loaded(value)
            with self.in_memory(s.buffer, filled=filled), self.context.fresh_guard():
                self.plain.store(Store(s.buffer, s.index, value, s.predicate))
            for b in self.scope.of(s.buffer) if blocks is None else blocks:
                self._moved(b, self._image, spilled=False)

    def _whole_blocks(self, index: Expr, accumulator: str) -> list[Sums] | None:
        """The blocks that a dense index covers exactly; None if it covers others in part."""
        if not isinstance(index, Ramp) or index.stride != IntImm(1):
            return None
        first = first_lane(index).constant
        if first is None:
            return None
        last = first + index.type.lanes
        found = [b for b in self.scope.of(accumulator) if first <= b.offset and b.end <= last]
        touched = [b for b in self.scope.of(accumulator) if b.offset < last and first < b.end]
        covered = sum(b.m * b.n for b in found) == last - first
        return found if found == touched and covered else None

    def read_out(self, s: Store) -> None:
        """A store to ordinary memory whose value reads accumulators."""
        block = self._bare_read(s)
        if block is None or not self._read_in_place(s, block):
            self.through_memory(s, lambda: self.plain.store(s))

    def through_memory(self, s: Stmt, write: Callable[[], None], tested: bool = False) -> None:
        """Write a statement that only reads accumulators, from an image of them in memory.

        ``tested``: what can be tested ahead does not hold.
        """
        read = loaded_names(s)
        names = [a for a in dict.fromkeys(b.accumulator for b in self.scope.blocks) if a in read]
        with self.context.writer.block(""), ExitStack() as stack:
            for name in names:
                stack.enter_context(self.in_memory(name, filled=True, read_by=s))
            guard = self.context.covered(frozenset(), frozenset())
            stack.enter_context(guard if tested else self.context.fresh_guard())
            write()

    def in_memory(
        self, accumulator: str, *, filled: bool, read_by: Stmt | None = None
    ) -> AbstractContextManager[None]:
        """An image of an accumulator on the stack; ``filled``: with what the registers hold, or as
        much of it as a statement reads.
        """
        c = self.context
        home = c.storages[accumulator]
        pointer = c.names.fresh(f"{home.pointer}_image")
        assert isinstance(home.elements, IntImm)
        kind = c_type(home.type)
        c.writer.line(f"_Alignas(64) {kind} {pointer}[{home.elements.value}];")
        image = Storage(pointer, home.type, Space.LOCAL, None, home.elements)
        if filled:
            for b in self.scope.of(accumulator):
                if read_by is None or _may_read(read_by, b):
                    self._moved(b, pointer, spilled=True)
        self._image = pointer
        return c.stored(accumulator, image)

    def _moved(self, b: Sums, pointer: str, *, spilled: bool) -> None:
        """The registers of a block to an image, or from it."""
        w, how = self.context.writer, "store" if spilled else "load"
        for (i, j), register in b.registers.items():
            at, bytes_ = b.offset + 16 * i * b.n + 16 * j, 4 * b.columns(j)
            if not self._padded(b, i, j):
                w.line(f"tile_{how}({register}, &{pointer}[{at}], {4 * b.n});")
                continue
            with w.block(""):
                w.line(f"_Alignas(64) u8 scratch[{TILE_ROWS * TILE_BYTES}];")
                if spilled:
                    w.line(f"tile_store({register}, scratch, {TILE_BYTES});")
                    row = f"&{pointer}[{at} + i * {b.n}], scratch + {TILE_BYTES} * i, {bytes_}"
                    with w.block(f"for (int i = 0; i < {b.rows(i)}; ++i)"):
                        w.line(f"memcpy({row});")
                else:
                    size, place = f"sizeof {pointer}", f"{4 * at}, {4 * b.n}"
                    rows = f"{b.rows(i)}, {bytes_}, {place}, {size}"
                    call = f"tile_copy(scratch, {pointer}, {size}, {place}, {rows})"
                    w.line(f"tile_load({register}, {call}, {TILE_BYTES});")

    def _padded(self, b: Sums, i: int, j: int) -> bool:
        return self.scope.shapes[b.registers[i, j]] != (b.rows(i), 4 * b.columns(j))

    def _bare_read(self, s: Store) -> Sums | None:
        """The one block that a store writes as it is, if it is that."""
        value = _bare(s.value)
        if not isinstance(value, Load) or value.predicate is not None:
            return None
        blocks = self.scope.of(value.buffer)
        home = self.context.storages.get(s.buffer)
        if not blocks or home is None or home.type != value.type.element:
            return None
        found = self._whole_blocks(value.index, value.buffer)
        return found[0] if found is not None and len(found) == 1 else None

    def _read_in_place(self, s: Store, b: Sums) -> bool:
        """Store the tiles straight to memory; False if the rows there are not dense."""
        digits = ((COLUMN, b.n), (ROW, b.m))
        parts = to_affine(scalar_lane(s.index, digits)).parts(ROW, COLUMN)
        if parts is None or (b.n > 1 and parts[2].constant != 1):
            return False
        base, step, _ = parts
        if any(self._padded(b, i, j) for i, j in b.registers):
            return False
        tests: tuple[Expr, ...] = ()
        if s.predicate is not None:
            p = s.predicate
            condition = scalar_lane(p, digits) if p.type.lanes > 1 else p
            bounds = digit_bounds({ROW.name: b.m, COLUMN.name: b.n})
            covers = holds_in(condition, Ranges(bounds, self.context.ranges.nonnegative))
            if covers is None or holds(covers, Load):
                return False
            tests = () if covers == TRUE else (covers,)
        c = self.context
        if tests:
            with c.writer.block(f"if ({c.conjunction(tests)})"):
                self._store_block(s, b, base, step)
            c.writer.line("else")
            self.through_memory(s, lambda: self.plain.store(s), tested=True)
        else:
            self._store_block(s, b, base, step)
        return True

    def _store_block(self, s: Store, b: Sums, base: Affine, step: Affine) -> None:
        c = self.context
        pointer = c.storages[s.buffer].pointer
        stride = c.scalar.index((step * 4).to_expr())
        for (i, j), register in b.registers.items():
            place = c.scalar.index((base + step * (16 * i) + 16 * j).to_expr())
            c.writer.line(f"tile_store({register}, &{pointer}[{place}], {stride});")


def _may_read(s: Stmt, b: Sums) -> bool:
    """Whether a statement reads elements of a block; dense indices are looked at closely."""
    for e in walk_all_exprs(s):
        if not isinstance(e, Load) or e.buffer != b.accumulator:
            continue
        first = first_lane(e.index).constant
        dense = isinstance(e.index, Ramp) and e.index.stride == IntImm(1)
        if not dense or first is None or (first < b.end and b.offset < first + e.type.lanes):
            return True
    return False


def _bare(e: Expr) -> Expr:
    """A value without the marks of fills and read-outs."""
    while isinstance(e, Call) and e.name in (TILE_FILL, TILE_READ):
        e = e.args[0]
    return e
