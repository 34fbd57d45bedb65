"""Nodes of products: fragments, how they come into registers, descriptors, tensor instructions.

A fragment is registers of all lanes of a warp, or of the four warps of a group; a lane map
(``lane_maps``) says which lane has which element. Arrays of them are declared by ``Fragment``;
blocks of 8 rows x 16 bytes, one register each, come by ``LoadFragment``, which declares them.
"""

from __future__ import annotations

import re

from selector.dataclass import unguarded
from selector.diagnostics import InternalError
from selector.gpu.ir.layouts import Layout
from selector.gpu.ir.views import View
from selector.ir.known import Hashed, node
from selector.ir.nodes import Expr

_RECORD = re.compile(r"(tcgen05\.)?m(\d+)n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+)")
FLOAT8 = ("e4m3", "e5m2")  # operands of bytes that are floats
GROUP_ROWS = 64  # of an instruction of four warps
ADDS = {"fresh": 0, "add": 1}  # whether a product is added to what is there; else a variable says


@node
class Record(Hashed):
    """A tensor instruction of PTX: m x k elements of type ``a`` times k x n of ``b``, added to m x
    n of ``c``. That of a group of four warps (wgmma) is asynchronous: it reads memory and registers
    until it is drained. ``tensor``: the accumulators lie in tensor memory (``gpu.ir.tensor``).
    """

    m: int
    n: int
    k: int
    c: str
    a: str
    b: str
    tensor: bool = False

    @property
    def asynchronous(self) -> bool:
        return self.m == GROUP_ROWS and not self.tensor

    @property
    def bytes(self) -> int:
        """Of an element of an operand."""
        return 1 if self.a in FLOAT8 else int(self.a.strip("bfstu")) // 8

    def __str__(self) -> str:
        family = "tcgen05." if self.tensor else ""
        return f"{family}m{self.m}n{self.n}k{self.k}.{self.c}.{self.a}.{self.b}"


def parse_record(text: str) -> Record:
    """The record that prints so."""
    found = _RECORD.fullmatch(text)
    if found is None:
        raise InternalError(f"`{text}` is no tensor instruction")
    family, m, n, k, *types = found.groups()
    return Record(int(m), int(n), int(k), *types, tensor=bool(family))


@unguarded
class Register:
    """Of a thread: a variable of its own, or number ``index`` of an array of registers or tiles."""

    name: str
    index: int | None = None

    def __str__(self) -> str:
        return self.name if self.index is None else f"{self.name}[{self.index}]"


def parse_register(text: str) -> Register:
    """The register that prints so."""
    name, _, index = text.partition("[")
    return Register(name, int(index.removesuffix("]")) if index else None)


@unguarded
class InRegisters:
    """An operand: its blocks, in the order of the lane map."""

    registers: tuple[Register, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.registers))


@unguarded
class InMemory:
    """An operand: so many bytes behind the start of a ``descriptor``. ``across``: its rows (m or
    n), not its depth, run along memory.
    """

    descriptor: str
    at: int
    across: bool

    def __str__(self) -> str:
        return f"{self.descriptor} + {self.at}{' across' * self.across}"


Operand = InRegisters | InMemory


def parse_operand(text: str) -> Operand:
    """The operand that prints so."""
    descriptor, plus, at = text.partition(" + ")
    if not plus:
        return InRegisters(tuple(map(parse_register, text.split(", "))))
    across = at.endswith(" across")
    return InMemory(descriptor, int(at.removesuffix(" across")), across)


# ------------------------------------------------------------------ nodes


@unguarded
class Fragment:
    """An array of registers of C's type ``kind``: tiles of so many each, blocks of one, or numbers
    of rows. The lane map is that of a tile, of a block, or of all.
    """

    name: str
    kind: str
    registers: tuple[int, ...]
    layout: Layout


@unguarded
class SetTile:
    """All registers of tile number ``piece`` of a fragment are set."""

    to: str
    piece: int
    values: tuple[Expr, ...]


@unguarded
class MatrixRows:
    """The address of the row of 16 bytes that a lane gives to ``ldmatrix``: lane l that of row l %
    8 of matrix l / 8. Rows are ``step`` elements apart, ``first`` elements from the begin of a view
    on; the second of two matrices is ``apart`` elements behind the first, the second two of four as
    far as the other number says behind the first two.
    """

    name: str
    view: View
    first: Expr
    step: Expr
    apart: tuple[int, ...]


BYTE_PAIRS = ("u8_pair", "s8_pair", "u8_pair_odd", "s8_pair_odd")


@unguarded
class LoadFragment:
    """Blocks into registers of their own. ``how``: by ``ldmatrix`` or ``ldmatrix_trans``, from the
    rows (``MatrixRows``) ``at`` bytes further; a ``word``, number ``at`` from a lane's pointer on;
    two bytes there as two f16 (``BYTE_PAIRS``: those named ``odd`` lie anywhere), where the one of
    ``elements`` holds, else zeros; a ``byte_word`` of four bytes there, of a pointer to words and
    ``at`` anywhere; by ``elements``, packed; or from ``tensor`` memory, into tiles
    of a fragment or added to them.
    """

    registers: tuple[Register, ...]
    how: str
    base: str = ""
    at: int = 0
    elements: tuple[Expr, ...] = ()


@unguarded
class Descriptor:
    """An operand of wgmma in shared memory, as that takes it: ``leading`` and ``stride`` bytes
    between its parts (``descriptors``), rows of so many bytes swizzled (0: core matrices).
    ``version`` 1: of tcgen05.
    """

    name: str
    view: View
    leading: int
    stride: int
    swizzle: int = 0
    version: int = 0


@unguarded
class Mma:
    """A tensor instruction: a product is added to the tiles of a fragment from number ``piece`` on;
    ``how``: ``fresh`` where these need no value before, else ``add``; in tensor memory also the
    variable that says whether to add.
    """

    how: str
    record: Record
    to: str
    piece: int
    a: Operand
    b: Operand


@unguarded
class Busy:
    """What asynchronous instructions that follow each other have until they are drained: fragments,
    and the bytes ``first`` to ``last`` behind each of these descriptors' starts. All that is left
    of them where a kernel is followed without its data.
    """

    fragments: tuple[str, ...]
    descriptors: tuple[str, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]


@unguarded
class Pin:
    """A fragment is written before this and read after it, whatever the compiler moves."""

    name: str


ProductNode = Fragment | SetTile | MatrixRows | LoadFragment | Descriptor | Mma | Pin | Busy
