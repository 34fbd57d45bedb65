"""Blocks of operands into registers: ldmatrix from shared memory where its rules allow, else
element by element.

``ldmatrix`` wants every row of 16 bytes to start at a multiple of 16 bytes (PTX ISA, "ldmatrix"):
proved from the index, not assumed. Rows may lie anywhere otherwise, so the overlapping windows of a
convolution need no copy.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.epilogues.regions import LANE_PAIR, LANE_ROW
from selector.gpu.codegen.products.banded import BandTables
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.gpu.codegen.unwritten import along_rows
from selector.gpu.codegen.warpgroups.panels import Panels
from selector.gpu.ir.expressions import element, negated, pointer, quotient, remainder
from selector.gpu.ir.layouts import GROUP_ROWS
from selector.gpu.ir.memory import Point
from selector.gpu.ir.products import InRegisters, LoadFragment, MatrixRows, Register
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Call, Cast, Compare, CompareOp, Expr, IntImm, Load, Select, Var
from selector.ir.simplify import literal
from selector.ir.traverse import substitute
from selector.ir.types import FLOAT16, UINT32
from selector.lowering.fragments import BLOCK_BYTES, BLOCK_ROWS, Block
from selector.lowering.predicates import conjunction
from selector.lowering.tiles import DEPTH, ROW, Access, Banded

LANE_PARTS = remainder("lane", 8), remainder(quotient("lane", 8), 2), quotient("lane", 16)
"""Of the row that a lane names to ``ldmatrix``: its number in a matrix, and which one of four."""


def matrix_load(block: Block, context: KernelContext) -> str | None:
    """The form of ldmatrix that can fetch the block, as it lies or transposed; None if none can."""
    o = block.operand
    assert isinstance(o, Access)
    if o.value is not None:
        return None
    storage = context.storages[o.buffer]
    per = BLOCK_BYTES // o.type.bytes
    if storage.space is not Space.SHARED or not context.is_multiple(block.origin, per):
        return None
    if along_rows(o, context):
        # Past the operand's depth it reads what follows in the row: harmless only where that meets
        # a band's zeros.
        return None if block.stops else "ldmatrix"
    transposed = o.row_stride.constant == 1 and context.is_multiple(o.depth_stride, per)
    return "ldmatrix_trans" if transposed and o.type.bytes == 2 and not block.ragged else None


def _at(e: Expr, row: Affine, depth: Affine) -> Expr:
    return substitute(e, {ROW.name: row.to_expr(), DEPTH.name: depth.to_expr()})


def _index(o: Access, row: Affine, depth: Affine) -> Affine:
    return o.base + o.row_stride * row + o.depth_stride * depth


def _is_plain(storage: Storage) -> bool:
    """Whether it is shared memory whose rows lie as their indices say."""
    return storage.space is Space.SHARED and storage.panels is None and storage.strips is None


class BlockFetcher:
    """Registers of one run of instructions, by the key of the block that they hold."""

    def __init__(self, context: KernelContext, tables: BandTables) -> None:
        self.context = context
        self.tables = tables
        self._held: dict[Hashable, Register] = {}
        self._bases: dict[Hashable, str] = {}
        self._bands: dict[Hashable, str] = {}
        self._count = 0

    def registers(self, blocks: tuple[Block, ...]) -> InRegisters:
        """Those that hold some blocks."""
        held = self._held
        return InRegisters(tuple([held[block.key] for block in blocks]))

    def fetch(self, blocks: tuple[Block, ...]) -> None:
        """Bring blocks into fresh registers."""
        first = blocks[0]
        if isinstance(first.operand, Banded):
            for block in blocks:
                self.tables.fetch(block, self._fresh(block), self._bands)
            return
        kept = self.context.registers.tiles.get(first.operand.buffer)
        if kept is not None:
            self._held |= {block.key: kept.get(block) for block in blocks}
            return
        form = matrix_load(first, self.context)
        if form is None:
            for block in blocks:
                self._gather(block)
        else:
            self._load_matrices(blocks, form)

    def _fresh(self, block: Block) -> Register:
        found = self._held[block.key] = Register(f"r{self._count}")
        self._count += 1
        return found

    # ------------------------------------------------------------------ ldmatrix

    def _load_matrices(self, blocks: tuple[Block, ...], form: str) -> None:
        if len(blocks) == 3:
            self._load_matrices(blocks[:2], form)
            blocks = blocks[2:]
        panels = self.context.storages[blocks[0].operand.buffer].panels
        if panels is None:
            base = self._lane_address(blocks, form)
            offset = blocks[0].offset * blocks[0].operand.type.bytes
        else:
            base, offset = self._swizzled_address(blocks, form, panels)
        registers = tuple(self._fresh(b) for b in blocks)
        self.context.writer.add(LoadFragment(registers, form, base, offset))
        for block, register in zip(blocks, registers, strict=True):
            self._mask(block, register.name)

    def _lane_address(self, blocks: tuple[Block, ...], form: str) -> str:
        """Shared address of the row that this lane names, without the constant offset of the first
        block.
        """
        first = blocks[0]
        o = first.operand
        assert isinstance(o, Access)
        offsets = [b.offset - first.offset for b in blocks]
        step = o.row_stride if form == "ldmatrix" else o.depth_stride
        if o.strips is not None:
            step = Affine.of(o.strips.per)
        symbolic = first.symbolic
        key = (first.family, form, tuple(offsets))
        if key not in self._bases:
            c, name = self.context, f"a{len(self._bases)}"
            index = c.number(symbolic.to_expr())
            view, apart = c.storages[o.buffer].view, tuple(offsets[1:3])
            c.writer.add(MatrixRows(name, view, index, c.number(step.to_expr()), apart))
            self._bases[key] = name
        return self._bases[key]

    def _swizzled_address(
        self, blocks: tuple[Block, ...], form: str, panels: Panels
    ) -> tuple[str, int]:
        """The same where rows are swizzled, and the bytes behind it at which the first block lies:
        as many rows and panels further as all of them are, every chunk lies alike.
        """
        first, step, each = blocks[0], GROUP_ROWS * panels.pitch, panels.width
        o = first.operand
        assert isinstance(o, Access)
        rows = min(b.offset // step for b in blocks)
        beside = min(b.offset % panels.pitch // each for b in blocks)
        behind = panels.byte(rows * GROUP_ROWS, beside)
        start = first.offset - rows * step - beside * each
        apart = [b.offset - first.offset for b in blocks][1:3]
        key = (first.family, form, start, tuple(apart))
        if key not in self._bases:
            c, name = self.context, f"a{len(self._bases)}"
            step_of = o.row_stride if form == "ldmatrix" else o.depth_stride
            index = first.symbolic + start
            for lanes, distance in zip(LANE_PARTS, (step_of, *apart), strict=False):
                index += Affine.of(lanes) * distance
            c.names.stand("lane", Var("lane"))
            place = panels.place(index)
            if place is not None:  # a division by the pitch less, which may be no power of two
                panels = replace(panels, pitch=panels.count * each)
                index = place[0] * panels.pitch + place[1]
            first_row = panels.index(c.number(index.to_expr()))
            c.writer.add(MatrixRows(name, c.storages[o.buffer].view, first_row, IntImm(0), ()))
            self._bases[key] = name
        return self._bases[key], behind

    # ------------------------------------------------------------------ masks and single elements

    def _element_condition(self, block: Block, number: int) -> Expr | None:
        """The condition on element ``number`` of this lane's register; None if always there."""
        o = block.operand
        assert isinstance(o, Access)
        row, depth = self._place(block, number)
        condition = None
        if o.predicate is not None:
            condition = _at(o.predicate, row, depth)
        if block.stops:
            inside = Compare(CompareOp.LT, depth.to_expr(), IntImm(o.depth))
            condition = inside if condition is None else conjunction(condition, inside)
        return condition

    def _place(self, block: Block, number: int) -> tuple[Affine, Affine]:
        """(row, depth) in the operand of element ``number`` of this lane's register."""
        count = 4 // block.operand.type.bytes
        row = Affine.of(LANE_ROW) + BLOCK_ROWS * block.row
        depth = Affine.of(LANE_PAIR) * count + (block.per * block.depth + number)
        return row, depth

    def _mask(self, block: Block, name: str) -> None:
        o = block.operand
        assert isinstance(o, Access)
        if o.predicate is None:
            return
        w, register, bits = self.context.writer, Var(name, UINT32), 8 * o.type.bytes
        for number in range(32 // bits):
            condition = self._element_condition(block, number)
            assert condition is not None
            keep = IntImm(0xFFFFFFFF ^ (((1 << bits) - 1) << (bits * number)), UINT32)
            with w.when(negated(self.context.scalar.legal(condition))):
                w.store(register, Call(UINT32, "bitwise_and", (register, keep)))

    def _byte_pair(self, block: Block) -> bool:
        """Whether a register is two neighbouring bytes of shared memory as f16, which then are
        brought and converted together.
        """
        o = block.operand
        assert isinstance(o, Access)
        first, second = (self._byte(o, block, number) for number in range(2))
        if first is None or second is None or first.buffer != second.buffer:
            return False
        place, c = to_affine(first.index), self.context
        beside = (to_affine(second.index) - place).constant
        storage = c.storages[first.buffer]
        if beside != 1 or not _is_plain(storage):
            return False
        if block.ragged and block.stops and o.depth % 2:
            return False  # the second element is beyond the depth, and would meet what is no zero
        condition: tuple[Expr, ...] = ()
        if block.ragged:
            _, depth = self._place(block, 0)
            inside = Compare(CompareOp.LT, depth.to_expr(), IntImm(o.depth))
            condition = (c.scalar.legal(inside),)
        base = self._pointer(first.buffer, place - place.offset)
        how = f"{c_type(storage.type)}_pair{'' if c.is_multiple(place, 2) else '_odd'}"
        c.writer.add(LoadFragment((self._fresh(block),), how, base, place.offset, condition))
        return True

    def _whole_word(self, block: Block) -> bool:
        """Whether a register is a float of shared memory, or four neighbouring bytes, brought by
        the words that hold them.
        """
        o, c = block.operand, self.context
        assert isinstance(o, Access)
        if o.value is not None or o.type.bytes not in (1, 4) or not _is_plain(c.storages[o.buffer]):
            return False
        if any(self._element_condition(block, n) is not None for n in range(4 // o.type.bytes)):
            return False
        place = _index(o, *self._place(block, 0))
        symbolic, bytes_ = place - place.offset, o.type.bytes == 1
        beside = o.depth_stride.constant == 1 and c.is_multiple(symbolic, 4) and place.offset >= 0
        if bytes_ and not beside:
            return False
        base = self._pointer(o.buffer, symbolic)
        load = LoadFragment((self._fresh(block),), "byte_word", base, place.offset)
        if not bytes_:
            value = element(o.type, pointer(base), IntImm(place.offset))
            load = LoadFragment(load.registers, "elements", elements=(value,))
        c.writer.add(load)
        return True

    def _pointer(self, buffer: str, symbolic: Affine) -> str:
        """A lane's pointer to elements of shared memory."""
        key, storage = ("pointer", buffer, symbolic), self.context.storages[buffer]
        if key not in self._bases:
            name, index = f"a{len(self._bases)}", self.context.number(symbolic.to_expr())
            place = Point(name, f"const {c_type(storage.type)}", storage.at(index))
            self.context.writer.add(place)
            self._bases[key] = name
        return self._bases[key]

    def _byte(self, o: Access, block: Block, number: int) -> Load | None:
        """The byte that an element of this lane's register is, as f16."""
        if o.value is None or o.type != FLOAT16:
            return None
        row, depth = self._place(block, number)
        value = _at(o.value, row, depth)
        while isinstance(value, Cast) and value.type.is_float:
            value = value.value
        match value:
            case Load(t, predicate=None) if t.is_integer and t.bytes == 1:
                return value
            case _:
                return None

    def _gather(self, block: Block) -> None:
        o = block.operand
        assert isinstance(o, Access)
        if self._byte_pair(block) or self._whole_word(block):
            return
        elements: list[Expr] = []
        for number in range(4 // o.type.bytes):
            row, depth = self._place(block, number)
            index = _index(o, row, depth).to_expr()
            condition = self._element_condition(block, number)
            loads = Load(o.type, o.buffer, index, condition)
            value = loads if o.value is None else self._computed(o, row, depth, block)
            elements.append(self.context.scalar.legal(value))
        register = self._fresh(block)
        self.context.writer.add(LoadFragment((register,), "elements", elements=tuple(elements)))

    def _computed(self, o: Access, row: Affine, depth: Affine, block: Block) -> Expr:
        """An element that is no load; zero past the operand's depth, whatever it meets there."""
        assert o.value is not None
        value = _at(o.value, row, depth)
        if not block.ragged:
            return value
        inside = Compare(CompareOp.LT, depth.to_expr(), IntImm(o.depth))
        return Select(inside, value, literal(0, o.type))
