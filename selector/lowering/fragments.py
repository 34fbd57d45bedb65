"""Which 8-row blocks a run of accumulate statements needs, and in which order.

The unit of everything is the *block*: 8 rows x 16 bytes of an operand, one 32-bit register per lane, what one
matrix of ``ldmatrix`` delivers. An m16n8 instruction takes 2 x 2 blocks of A and 1 x 2 of B (half of that for its
short form, whose depth is one block). Blocks at equal addresses are the same value: overlapping windows of a row,
or an operand shared by several tiles, are fetched once.

The order decides registers and reuse. Where A's blocks overlap between tiles (convolution), instructions go by the
address of their A block, so that few blocks are alive at a time; else depth is outermost (matrix product).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from selector.ir.affine import Affine
from selector.lowering.tiles import Access, Accumulate, Banded, Operand

BLOCK_ROWS = 8
BLOCK_BYTES = 16


@dataclass(frozen=True, slots=True)
class Block:
    """Rows ``8 * row ...`` and depth ``per * depth ...`` of an operand; equal keys are equal values."""

    operand: Operand
    row: int
    depth: int
    key: Hashable

    @property
    def per(self) -> int:
        """Elements of depth in one block."""
        return BLOCK_BYTES // self.operand.type.bytes

    @property
    def origin(self) -> Affine:
        """Index of element (0, 0) of the block, for an operand in memory."""
        assert isinstance(self.operand, Access)
        o = self.operand
        return o.base + o.row_stride * (BLOCK_ROWS * self.row) + o.depth_stride * (
            self.per * self.depth
        )

    @property
    def ragged(self) -> bool:
        """Whether some of its depth lies past the operand's."""
        return (self.depth + 1) * self.per > self.operand.depth


def make_block(operand: Operand, row: int, depth: int) -> Block:
    """A block with its identity."""
    per = BLOCK_BYTES // operand.type.bytes
    if isinstance(operand, Banded):
        return Block(operand, row, depth, (operand, row, depth))
    whole = operand.meets_band or (depth + 1) * per <= operand.depth
    plain = operand.predicate is None and whole
    origin = (
        operand.base
        + operand.row_stride * (BLOCK_ROWS * row)
        + operand.depth_stride * (per * depth)
    )
    where = (operand.buffer, origin, operand.row_stride, operand.depth_stride)
    return Block(operand, row, depth, where if plain else (where, operand, row, depth))


def depth_blocks(operand: Operand) -> int:
    """Blocks along the depth of an operand."""
    return -(-operand.depth * operand.type.bytes // BLOCK_BYTES)


def chunk_of(block: Block) -> range:
    """Depth blocks of a banded operand that lie together in its table: runs of 4, then 2, then 1."""
    total, start = depth_blocks(block.operand), 0
    for size in (4, 2, 1):
        while start + size <= total:
            if block.depth < start + size:
                return range(start, start + size)
            start += size
    raise AssertionError("a block is in one chunk")


@dataclass(frozen=True, slots=True)
class MatrixOp:
    """One m16n8 instruction: accumulator tile (row, column) of a statement, its A and B blocks.

    ``a`` is (rows 0-7, rows 8-15) of the first depth block, then of the second; ``b`` is one block per depth block.
    With ``swapped`` the roles are exchanged: the tile holds the transposed product.
    """

    statement: int
    tile: tuple[int, int]
    a: tuple[Block, ...]
    b: tuple[Block, ...]


def is_swapped(statement: Accumulate) -> bool:
    """Whether the instruction's m is too short for an m16n8 tile, so that the product is taken transposed."""
    return statement.m % 16 != 0


def expand(statements: list[Accumulate]) -> list[MatrixOp]:
    """All instructions of the statements, in the order in which they should run.

    A depth of an odd number of blocks leaves half an instruction; two such halves of one accumulator tile, from
    different statements, make a whole one: the blocks of an instruction need not be neighbours.
    """
    ops: list[tuple[int, MatrixOp]] = []
    halves: dict[Hashable, tuple[int, MatrixOp]] = {}
    for s, statement in enumerate(statements):
        for step, op in _expand_one(s, statement):
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


def _expand_one(s: int, statement: Accumulate) -> list[tuple[int, MatrixOp]]:
    a, b, m, n = statement.a, statement.b, statement.m, statement.n
    if is_swapped(statement):
        a, b, m, n = b, a, n, m
    blocks = depth_blocks(a)
    ops: list[tuple[int, MatrixOp]] = []
    for step in range(0, blocks, 2):
        deep = range(step, min(step + 2, blocks))
        for i in range(m // 16):
            for j in range(n // 8):
                left = tuple(make_block(a, 2 * i + h, d) for d in deep for h in (0, 1))
                right = tuple(make_block(b, j, d) for d in deep)
                ops.append((step, MatrixOp(s, (i, j), left, right)))
    return ops


def _windows_overlap(ops: list[MatrixOp]) -> bool:
    """Whether some block of A is used by ops of different tile rows or steps of one column."""
    seen: dict[Hashable, tuple[int, int, int]] = {}
    for op in ops:
        for block in op.a:
            place = (block.row, block.depth, 0)
            if seen.setdefault(block.key, place) != place:
                return True
    return False


def _by_address(item: tuple[int, MatrixOp]) -> tuple[str, int, int]:
    """By the last of its A blocks: an instruction runs when all of them are there."""
    step, op = item
    if not isinstance(op.a[0].operand, Access):
        return ("", step, op.statement)
    origins = [block.origin for block in op.a]
    symbolic = repr((op.a[0].operand.buffer, origins[0] - origins[0].offset))
    return (symbolic, max(o.offset for o in origins), op.statement)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Blocks to bring into registers together (up to four)."""

    blocks: tuple[Block, ...]


Event = Fetch | MatrixOp


def schedule(ops: list[MatrixOp], together: int, registers: int) -> list[Event]:
    """Fetches placed before the ops that need them; at most ``registers`` blocks are kept for reuse.

    ``together`` blocks at most form one fetch. When the registers are full, the block whose next use is farthest
    away is dropped and fetched again later (Belady's rule).
    """
    uses = _next_uses(ops)
    held: dict[Hashable, int] = {}
    events: list[Event] = []
    for now, op in enumerate(ops):
        for block in (*op.a, *op.b):
            if block.key not in held:
                group = _group(ops, now, block, held, together)
                events.append(Fetch(group))
                for member in group:
                    held.setdefault(member.key, now)
        events.append(op)
        _evict(held, uses, now, registers)
    return events


def _group(
    ops: list[MatrixOp], now: int, first: Block, held: dict[Hashable, int], together: int
) -> tuple[Block, ...]:
    """The missing block and those needed next that can come with it in one fetch."""
    if isinstance(first.operand, Banded):
        return tuple(make_block(first.operand, first.row, d) for d in chunk_of(first))
    if together > 1:
        mates = _upcoming(ops, now, first, held)
        for count in (4, 2):
            if count <= together and len(mates) >= count:
                # In the order of use: an instruction wants its blocks in consecutive registers.
                for some in (mates[:count], sorted(mates[:count], key=lambda b: b.origin.offset)):
                    if _is_grid(some):
                        return tuple(some)
    return (first,)


def _upcoming(
    ops: list[MatrixOp], now: int, first: Block, held: dict[Hashable, int]
) -> list[Block]:
    found: dict[Hashable, Block] = {first.key: first}
    family = _family(first)
    for op in ops[now : now + 16]:
        for block in (*op.a, *op.b):
            if block.key in held or block.key in found or isinstance(block.operand, Banded):
                continue
            if _family(block) == family:
                found[block.key] = block
            if len(found) == 4:
                return list(found.values())
    return list(found.values())


def _family(block: Block) -> Hashable:
    """Blocks of one family differ by a constant offset only."""
    o = block.operand
    assert isinstance(o, Access)
    origin = block.origin
    symbolic = origin - Affine.of(origin.offset)
    ragged = block.ragged or o.predicate is not None
    return (o.buffer, symbolic, o.row_stride, o.depth_stride, ragged, o.predicate)


def _is_grid(blocks: list[Block]) -> bool:
    """Offsets o, o+p, o+q, o+p+q in this order: one address per lane reaches all of them."""
    c = [b.origin.offset for b in blocks]
    return len(c) == 2 or c[1] - c[0] == c[3] - c[2]


def _next_uses(ops: list[MatrixOp]) -> dict[Hashable, list[int]]:
    uses: dict[Hashable, list[int]] = {}
    for number, op in enumerate(ops):
        for block in (*op.a, *op.b):
            uses.setdefault(block.key, []).append(number)
    return uses


def _evict(
    held: dict[Hashable, int], uses: dict[Hashable, list[int]], now: int, registers: int
) -> None:
    for key in list(held):
        while uses[key] and uses[key][0] <= now:
            uses[key].pop(0)
        if not uses[key]:
            del held[key]
    while len(held) > registers:
        del held[max(held, key=lambda key: uses[key][0])]
