"""The sizes of a contraction, and a schedule of one as data."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from selector.dataclass import dataclass
from selector.families import MOST_LANES

GROUP_ROWS = 64  # of a product by a warpgroup
TALL_ROWS = 128  # at most, in tensor memory
WARP_ROWS = 16  # of a product by a warp
COPY_BYTES = 16  # that the copy engine and wide copies take, at multiples of it
LINE = 128  # bytes
AT_ONCE = 4  # parts' sums that a thread loads in a turn
ALONE = 4 * AT_ONCE  # that are on their way at once, where one thread adds all
NEIGHBOURS = 16  # blocks on multiprocessors of one processing cluster of a GPU


@dataclass(frozen=True)
class Shape:
    """Extents of ``C[m, n] = sum_k A[m, k] * B[k, n]``; n is innermost in C. ``bytes`` of an
    operand's element, ``result_bytes`` of one of C. ``along_a``, ``along_b``: neighbours in the
    operand's memory are neighbours in the sum. ``batch``: products of that size, each of operands
    of its own. ``reads``: what becomes of the sums reads inputs; for each there are so many
    ``operations``. ``integers``: sums are of bytes, in 32 bits.
    """

    m: int
    n: int
    k: int
    bytes: int = 2
    result_bytes: int = 2
    along_a: bool = True
    along_b: bool = False
    batch: int = 1
    reads: bool = False
    operations: int = 0

    @property
    def integers(self) -> bool:
        return self.bytes == 1

    @property
    def single(self) -> bool:
        """Whether operands are single floats, which are multiplied as tf32."""
        return self.bytes == 4

    def row_bytes(self, name: str) -> int:
        """From a row in memory of operand "A" or "B" to the next, where they are dense."""
        extent = self.m if name == "A" else self.n
        return (self.k if self.along(name) else extent) * self.bytes

    def along(self, name: str) -> bool:
        return self.along_a if name == "A" else self.along_b

    @cached_property
    def odd(self) -> str:
        """Operands whose rows no tensor map describes."""
        return "".join(x for x in "AB" if self.row_bytes(x) % COPY_BYTES)

    @cached_property
    def across(self) -> str:
        """Operands that wgmma cannot read as they lie: it reads other elements than of two bytes
        along the sum only.
        """
        return "".join(x for x in "AB" if self.bytes != 2 and not self.along(x))

    @property
    def multiply_adds(self) -> int:
        return self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Tiling:
    """Block tile ``n`` x ``m`` and run of ``k``; its parts along n and m, one for each warpgroup
    (``unit`` "group", wgmma) or warp ("warp", mma.sync); a ring of ``stages`` runs.

    ``depth``: elements of the sum in an instruction of a group. ``tall``: that has 128 rows, in
    tensor memory (tcgen05). ``swapped``: the columns of C, not
    its rows, are the rows of the instruction, so that a narrow tile has few rows of C. ``band``:
    blocks are numbered down that many block rows first, then along n (0: along n first); ``wide``:
    along that many block columns first, then down m. Neighbours, a ``cluster``, share B, or A.
    ``copied``: operands (any of "AB") that a kernel of their own copies before, into rows that
    begin at multiples of 16 bytes; what is ``across`` also into rows along the sum.
    ``persistent``, ``teams``, ``cluster``, ``self_fed``: the directives of these names, 0, 1, 1 and
    False without them.
    ``part``: elements of the sum that a block sums; a second kernel adds the parts' sums, always in
    the same order (0: a block has the whole sum). ``adders``: threads that do so for a result.
    """

    n: int = 256
    m: int = 128
    k: int = 64
    parts_n: int = 1
    parts_m: int = 2
    stages: int = 4
    unit: Literal["group", "warp"] = "group"
    depth: int = 16
    swapped: bool = False
    band: int = 8
    persistent: int = 0
    teams: int = 1
    cluster: int = 1
    self_fed: bool = False
    copied: str = ""
    tall: bool = False
    part: int = 0
    adders: int = 1
    wide: bool = False

    @property
    def shared(self) -> str:
        """The operand that neighbours both read."""
        return "B" if self.band and not self.wide else "A"

    def sums(self, k: int) -> int:
        """Parts of a sum over ``k``."""
        return -(-k // self.part) if self.part else 1

    def own(self, k: int) -> int:
        """Elements of a sum over ``k`` that a block has."""
        return min(self.part, k) if self.part else k

    @property
    def part_n(self) -> int:
        return self.n // self.parts_n

    @property
    def part_m(self) -> int:
        return self.m // self.parts_m

    @property
    def rows(self) -> int:
        """Of a part, along the rows of an instruction."""
        return self.part_n if self.swapped else self.part_m

    @property
    def columns(self) -> int:
        """Of a part, along the columns of an instruction."""
        return self.part_m if self.swapped else self.part_n

    @property
    def instruction_rows(self) -> int:
        if self.tall:
            return TALL_ROWS
        return GROUP_ROWS if self.unit == "group" else WARP_ROWS

    @property
    def vector_k(self) -> int:
        """Elements of the sum in a vector statement."""
        return self.depth if self.unit == "group" else self.k

    @property
    def vector_columns(self) -> int:
        """Columns of a vector statement: the most that divide a part. Neighbours become one
        instruction.
        """
        lanes = self.instruction_rows * self.vector_k
        fitting = (c for c in (32, 16, 8) if self.columns % c == 0 and c * lanes <= MOST_LANES)
        return next(fitting, 8)

    @property
    def vector_n(self) -> int:
        return self.instruction_rows if self.swapped else self.vector_columns

    @property
    def vector_m(self) -> int:
        return self.vector_columns if self.swapped else self.instruction_rows

    @property
    def parts(self) -> int:
        return self.parts_n * self.parts_m

    @property
    def accumulators(self) -> int:
        """Registers of a thread."""
        return self.part_n * self.part_m // (128 if self.unit == "group" else 32)

    @property
    def threads(self) -> int:
        """Of a block, those of a group that only feeds the others among them."""
        if self.unit == "warp":
            return 32 * self.parts
        feeding = self.stages > 1 and not self.self_fed
        return 128 * (self.parts * self.teams + feeding)

    def slot_bytes(self, element_bytes: int) -> int:
        """Of both operands, for one run of k."""
        return (self.n + self.m) * self.k * element_bytes

    @property
    def label(self) -> str:
        """What tells it from others of one problem, for names of files."""
        unit = "g" if self.unit == "group" else "w"
        text = f"{self.m}x{self.n}x{self.k}-{unit}{self.parts_m}x{self.parts_n}-s{self.stages}"
        said = (
            ("-tall", self.tall),
            ("-swapped", self.swapped),
            (f"-band{self.band}", self.band not in (0, 8)),
            ("-wide", self.wide),
            (f"-persistent{self.persistent}", self.persistent),
            (f"-teams{self.teams}", self.teams > 1),
            (f"-cluster{self.cluster}", self.cluster > 1),
            ("-fed", self.self_fed),
            (f"-copied{self.copied}", self.copied),
            (f"-part{self.part}", self.part),
            (f"-adders{self.adders}", self.adders > 1),
        )
        return text + "".join(part for part, wanted in said if wanted)


def neighbours(t: Tiling, count: int, tiles_m: int, tiles_n: int) -> tuple[int, int]:
    """Rows and columns of the tiles of so many blocks whose numbers follow each other."""
    if t.wide:
        wide, tall = in_band(count, t.band, tiles_n, tiles_m)
        return tall, wide
    return in_band(count, t.band, tiles_m, tiles_n)


def in_band(count: int, band: int, tiles_m: int, tiles_n: int) -> tuple[int, int]:
    """The same where they go down a band first (0: along n)."""
    down = min(band or 1, tiles_m)
    across = min(tiles_n, -(-count // down))
    return min(tiles_m, down * max(1, count // (down * across))), across
