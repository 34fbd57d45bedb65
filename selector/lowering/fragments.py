"""Which 8-row blocks a run of accumulate statements needs, and in which order.

The unit of everything is the *block*: 8 rows x 16 bytes of an operand, one 32-bit register per
lane, what one matrix of ``ldmatrix`` delivers. An m16n8 instruction takes 2 x 2 blocks of A and 1 x
2 of B (half of that for its short form, whose depth is one block). Blocks at equal addresses are
the same value: overlapping windows of a row, or an operand shared by several tiles, are fetched
once.

The order decides registers and reuse. Where A's blocks overlap between tiles (convolution),
instructions go by the address of their A block, so that few blocks are alive at a time; else depth
is outermost (matrix product).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable

from selector.dataclass import dataclass, unguarded
from selector.ir.affine import Affine
from selector.lowering.tiles import Access, Accumulate, Banded, Operand

BLOCK_ROWS = 8
BLOCK_BYTES = 16

_NOWHERE = Affine()  # where blocks of bands lie


@dataclass(slots=True, eq=False)
class Block:
    """Rows ``8 * row ...`` and depth ``per * depth ...`` of an operand; equal keys are equal
    values. A run makes a thousand, and nothing changes one: to freeze them takes longer than to
    make them.

    Element (0, 0) of a block in memory is at ``symbolic + offset``; blocks of one ``family`` differ
    in the offset only. ``ragged``: some of its depth lies past the operand's; ``stops``: it must
    not be read there.
    """

    operand: Operand
    row: int
    depth: int
    key: int
    family: int
    symbolic: Affine
    offset: int
    ragged: bool
    stops: bool

    @property
    def per(self) -> int:
        """Elements of depth in one block."""
        return BLOCK_BYTES // self.operand.type.bytes

    @property
    def origin(self) -> Affine:
        """Index of element (0, 0) of the block, for an operand in memory."""
        return self.symbolic + self.offset


class Numbers(dict[Hashable, int]):
    """A number for each value, which equal ones share."""

    def __missing__(self, value: Hashable) -> int:
        self[value] = number = len(self)
        return number


class Blocks:
    """Makes blocks; what is equal gets the same number, so that comparing is cheap."""

    def __init__(self) -> None:
        self._numbers = Numbers()
        self._columns: dict[int, Column] = {}
        self._operands: dict[int, tuple[Operand, int]] = {}  # by identity: hashing one is slow

    def of(self, operand: Operand) -> Column:
        """The blocks of an operand, which equal ones share."""
        if id(operand) not in self._operands:
            self._operands[id(operand)] = (operand, self._numbers[operand])
        who = self._operands[id(operand)][1]
        if who not in self._columns:
            self._columns[who] = Column(operand, who, self._numbers)
        return self._columns[who]


class Column:
    """The blocks of one operand, of number ``who``: what they have in common is found out once."""

    def __init__(self, operand: Operand, who: int, numbers: Numbers) -> None:
        self._operand, self._who, self._numbers = operand, who, numbers
        self._made: dict[tuple[int, int], Block] = {}
        self._parts: dict[tuple[int, int, bool], tuple[Affine, int, int, int]] = {}
        per = BLOCK_BYTES // operand.type.bytes
        self._whole = operand.depth // per  # the first block with less than whole depth
        if isinstance(operand, Access):
            self._units = (operand.row_stride * BLOCK_ROWS, operand.depth_stride * per)
            self._steps = (self._units[0].constant, self._units[1].constant)

    def at(self, row: int, depth: int) -> Block:
        """The block at (row, depth), counted in blocks."""
        place = (row, depth)
        block = self._made.get(place)
        if block is None:
            block = self._made[place] = self._make(row, depth)
        return block

    def _make(self, row: int, depth: int) -> Block:
        o, ragged = self._operand, depth >= self._whole
        place = (self._who, row, depth)
        if isinstance(o, Banded):
            return Block(o, row, depth, self._numbers[place], -1, _NOWHERE, 0, ragged, False)
        stops = ragged and not o.meets_band
        masked = stops or o.predicate is not None or o.value is not None
        down, across = self._steps
        part = (row if down is None else 0, depth if across is None else 0, masked)
        if part not in self._parts:
            self._parts[part] = self._part(o, *part)
        symbolic, offset, where, family = self._parts[part]
        offset += (down or 0) * row + (across or 0) * depth
        if o.strips is not None:
            offset = o.strips.place(offset)
        key = self._numbers[where, offset, place if masked else None]
        return Block(o, row, depth, key, family, symbolic, offset, ragged, stops)

    def _part(self, o: Access, row: int, depth: int, masked: bool) -> tuple[Affine, int, int, int]:
        """What blocks in steps of known size from this one on share: the index of its element (0,
        0) as (symbolic part, constant), and the numbers of where that is and how it goes on, and
        of that with their masks."""
        index = o.base + self._units[0] * row + self._units[1] * depth
        symbolic = index - index.offset
        where = self._numbers[o.buffer, symbolic, o.row_stride, o.depth_stride]
        return symbolic, index.offset, where, self._numbers[where, masked, o.predicate]


def depth_blocks(operand: Operand) -> int:
    """Blocks along the depth of an operand."""
    return -(-operand.depth * operand.type.bytes // BLOCK_BYTES)


@unguarded
class MatrixOp:
    """One m16n8 instruction: accumulator tile (row, column) of a statement, its A and B blocks.

    ``a`` is (rows 0-7, rows 8-15) of the first depth block, then of the second; ``b`` is one block
    per depth block. With ``swapped`` the roles are exchanged: the tile holds the transposed
    product.
    """

    statement: int
    tile: tuple[int, int]
    a: tuple[Block, ...]
    b: tuple[Block, ...]


def is_swapped(statement: Accumulate) -> bool:
    """Whether the instruction's m is too short for an m16n8 tile, so that the product is taken
    transposed.
    """
    return statement.m % 16 != 0


def expand(statements: list[Accumulate]) -> list[MatrixOp]:
    """All instructions of the statements, in the order in which they should run.

    A depth of an odd number of blocks leaves half an instruction; two such halves of one
    accumulator tile, from different statements, make a whole one: the blocks of an instruction need
    not be neighbours.
    """
    ops: list[tuple[int, MatrixOp]] = []
    blocks = Blocks()
    halves: dict[Hashable, tuple[int, MatrixOp]] = {}
    for s, statement in enumerate(statements):
        for step, op in _expand_one(s, statement, blocks):
            tile = (statement.accumulator, statement.offset, statement.instruction, op.tile)
            if len(op.b) == 2:
                ops.append((step, op))
            elif tile in halves:
                _, first = halves.pop(tile)
                ops.append((step, MatrixOp(s, op.tile, first.a + op.a, first.b + op.b)))
            else:
                halves[tile] = (step, op)
    ops += halves.values()
    if _windows_overlap([op for _, op in ops]):
        return [op for _, op in sorted(ops, key=_by_address)]
    return [op for _, op in sorted(ops, key=lambda item: item[0])]


def _expand_one(s: int, statement: Accumulate, blocks: Blocks) -> list[tuple[int, MatrixOp]]:
    a, b, m, n = statement.a, statement.b, statement.m, statement.n
    if is_swapped(statement):
        a, b, m, n = b, a, n, m
    total = depth_blocks(a)
    rows, columns = blocks.of(a), blocks.of(b)
    ops: list[tuple[int, MatrixOp]] = []
    for step in range(0, total, 2):
        deep = range(step, min(step + 2, total))
        right = [tuple([columns.at(j, d) for d in deep]) for j in range(n // 8)]
        for i in range(m // 16):
            left = tuple([rows.at(2 * i + h, d) for d in deep for h in (0, 1)])
            ops += [(step, MatrixOp(s, (i, j), left, right[j])) for j in range(n // 8)]
    return ops


def _windows_overlap(ops: list[MatrixOp]) -> bool:
    """Whether some block of A is used by ops of different tile rows or steps of one column."""
    seen: dict[int, tuple[int, int]] = {}
    for op in ops:
        for block in op.a:
            place = (block.row, block.depth)
            if seen.setdefault(block.key, place) != place:
                return True
    return False


def _by_address(item: tuple[int, MatrixOp]) -> tuple[int, int, int]:
    """By the last of its A blocks: an instruction runs when all of them are there."""
    step, op = item
    if isinstance(op.a[0].operand, Banded):
        return (-1, step, op.statement)
    return (op.a[0].family, max([block.offset for block in op.a]), op.statement)


@unguarded
class Fetch:
    """Blocks to bring into registers together (up to four)."""

    blocks: tuple[Block, ...]


Event = Fetch | MatrixOp


def schedule(ops: list[MatrixOp], together: int, registers: int, ahead: int = 0) -> list[Event]:
    """Fetches placed ``ahead`` ops before the ones that need them; at most ``registers`` blocks are
    kept for reuse.

    ``together`` blocks at most form one fetch. When the registers are full, the block whose next
    use is farthest away is dropped and fetched again later (Belady's rule).
    """
    return _advance(_place_fetches(ops, together, registers), ahead)


def _advance(events: list[Event], ahead: int) -> list[Event]:
    """Every fetch moved up by ``ahead`` ops, so that its latency passes behind them."""
    slots: list[list[Event]] = []
    pending: list[Event] = []
    for event in events:
        pending.append(event)
        if isinstance(event, MatrixOp):
            slots.append(pending)
            pending = []
    moved: list[list[Event]] = [[] for _ in slots]
    for number, slot in enumerate(slots):
        moved[max(0, number - ahead)] += slot[:-1]
    return [e for fetches, slot in zip(moved, slots, strict=True) for e in (*fetches, slot[-1])]


def _place_fetches(ops: list[MatrixOp], together: int, registers: int) -> list[Event]:
    uses = _next_uses(ops)
    held: dict[int, int] = {}
    events: list[Event] = []
    for now, op in enumerate(ops):
        for block in (*op.a, *op.b):
            if block.key not in held:
                group = _group(ops, now, block, held, together)
                events.append(Fetch(group))
                for member in group:
                    held.setdefault(member.key, now)
        events.append(op)
        _evict(held, uses, op, now, registers)
    return events


def _group(
    ops: list[MatrixOp], now: int, first: Block, held: dict[int, int], together: int
) -> tuple[Block, ...]:
    """The missing block and those needed next that can come with it in one fetch."""
    if together > 1 and not isinstance(first.operand, Banded):
        mates = _upcoming(ops, now, first, held)
        for count in (4, 2):
            if count <= together and len(mates) >= count:
                # In the order of use: an instruction wants its blocks in consecutive registers.
                for some in (mates[:count], sorted(mates[:count], key=lambda b: b.offset)):
                    if _is_grid(some):
                        return tuple(some)
    return (first,)


def _upcoming(ops: list[MatrixOp], now: int, first: Block, held: dict[int, int]) -> list[Block]:
    found: dict[int, Block] = {first.key: first}
    for op in ops[now : now + 16]:
        for block in (*op.a, *op.b):
            if block.family != first.family or block.key in held or block.key in found:
                continue
            if _start_alike(block, first):
                found[block.key] = block
            if len(found) == 4:
                return list(found.values())
    return list(found.values())


def _start_alike(a: Block, b: Block) -> bool:
    """Whether ldmatrix may take both or neither: its rows start at multiples of 16 bytes, and it
    reads all of them."""
    o = a.operand
    assert isinstance(o, Access)
    if a.stops != b.stops:
        return False
    rows = o.depth_stride.constant == 1 or (o.row_stride.constant == 1 and o.type.bytes == 2)
    return not rows or (a.offset - b.offset) % a.per == 0


def _is_grid(blocks: list[Block]) -> bool:
    """Offsets o, o+p, o+q, o+p+q in this order: one address per lane reaches all of them."""
    c = [b.offset for b in blocks]
    return len(c) == 2 or c[1] - c[0] == c[3] - c[2]


def _next_uses(ops: list[MatrixOp]) -> dict[int, list[int]]:
    uses: dict[int, list[int]] = {}
    for number, op in enumerate(ops):
        for block in (*op.a, *op.b):
            uses.setdefault(block.key, []).append(number)
    return uses


def _evict(
    held: dict[int, int], uses: dict[int, list[int]], op: MatrixOp, now: int, registers: int
) -> None:
    """Drop what is not used after ``op``, and what there is no room for; only blocks of ``op`` are
    used ``now``."""
    for block in (*op.a, *op.b):
        if uses[block.key][-1] == now:
            held.pop(block.key, None)  # an op may have a block twice
    while len(held) > registers:
        del held[max(held, key=lambda key: uses[key][bisect_right(uses[key], now)])]
