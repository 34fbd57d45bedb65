"""The sizes of attention, and a schedule of it as data."""

from __future__ import annotations

from selector.dataclass import dataclass

DEPTH = 16  # of one vector statement
COLUMNS = 32  # of one vector statement, keys or channels
PADDING = 8  # elements after a row in shared memory that warps read
PANEL = 64  # elements of a row of 128 bytes, as warpgroups read it
GROUP_ROWS = 64  # of a product by a warpgroup
JOINED_AT_ONCE = 16  # parts that a thread loads before it joins them
AHEAD = 128  # channels of values at least, whose products next scores hide under


@dataclass(frozen=True)
class Shape:
    """Attention of ``heads`` times ``queries`` on ``keys``, of ``depth`` channels. ``causal``:
    query m has keys 0 ... m, or with a ``window`` the last so many of these. ``matrices``: arrays
    of keys and queries that a score reads. ``fixed``: the number of keys is a constant of the
    program, so that a loop over them has to have two turns. ``blocks``: of so many keys and queries
    one number says whether they count (0: there is none such).
    """

    heads: int
    queries: int
    keys: int
    depth: int
    causal: bool = False
    window: int = 0
    matrices: int = 0
    fixed: bool = False
    blocks: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Tiling:
    """``units`` warps of ``rows`` queries a block, or groups of four with ``groups``; ``keys`` of a
    run, and ``stages`` of them in shared memory. A vector statement has ``vector`` rows, and of
    values so many ``channels``. ``persistent``: blocks stay on a multiprocessor, that many.
    ``heads_first``: blocks are numbered along the heads first, then along the queries, where these
    differ in what there is to do. ``part``: keys of a block, where another kernel joins what the
    blocks of a tile have found (0: all). ``sharing``: so many heads with the same keys are rows of
    one, in parts.
    """

    units: int = 4
    rows: int = 16
    keys: int = 64
    stages: int = 2
    vector: int = 16
    groups: bool = False
    channels: int = COLUMNS
    persistent: int = 0
    heads_first: bool = False
    part: int = 0
    sharing: int = 1

    def parts(self, keys: int) -> int:
        """Of so many keys."""
        return -(-keys // self.part) if self.part else 1

    def ahead(self, shape: Shape) -> bool:
        """Whether the next scores are taken under the product with values: of three groups and more
        one multiplies anyway, and what else comes with keys is needed for the weights.
        """
        wide = padded(shape.depth) >= max(self.keys, AHEAD) and self.stages > 1
        return self.groups and self.units == 2 and wide and not shape.matrices

    @property
    def block(self) -> int:
        """Queries of a block."""
        return self.units * self.rows

    def leaves_out(self, shape: Shape) -> bool:
        """Whether one number says if a block has a run of keys."""
        keys, queries = shape.blocks
        return keys % self.keys == queries % self.block == 0

    @property
    def columns(self) -> int:
        """Keys of one vector statement."""
        return COLUMNS if self.keys % COLUMNS == 0 else COLUMNS // 2

    def shared_bytes(self, depth: int, matrices: int) -> int:
        """What a block has in shared memory: rows for warpgroups are whole panels, all rows for
        warps have 16 bytes more.
        """
        depth = padded(depth)
        row, scores = depth + PADDING, self.keys + PADDING
        if self.groups:
            row = _panels(depth)
            scores = _panels(self.keys)
        run = 2 * self.keys * row + matrices * self.block * scores
        return 2 * (self.block * row + self.stages * run)

    @property
    def label(self) -> str:
        """What tells it from others of one problem, for names of files."""
        unit = "g" if self.groups else "w"
        stays = f"-persistent{self.persistent}" if self.persistent else ""
        order = "-heads" if self.heads_first else ""
        part = f"-part{self.part}" if self.part else ""
        part += f"-shared{self.sharing}" if self.sharing > 1 else ""
        return f"{self.units}{unit}{self.rows}-k{self.keys}-s{self.stages}{stays}{order}{part}"


def padded(depth: int) -> int:
    """Channels of whole steps of a product: those beyond the last one are zeros."""
    return -(-depth // DEPTH) * DEPTH


def _panels(elements: int) -> int:
    """Elements of a row of whole panels; one of half a panel or less is as long as that takes."""
    if elements > PANEL:
        return -(-elements // PANEL) * PANEL
    return 64 if elements > 32 else 32 if elements > 16 else 16
