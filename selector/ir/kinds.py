"""The kinds of operators, loops, memories, buffers and grids that the nodes of the IR name."""

from __future__ import annotations

from enum import Enum


class Named(Enum):
    """An enumeration whose members hash by identity, at C speed: they are unique."""

    __hash__ = object.__hash__


class BinaryOp(Named):
    """Lane-wise operators with one result type; ``AND`` and ``OR`` are for booleans."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"
    MIN = "min"
    MAX = "max"
    AND = "&&"
    OR = "||"


class CompareOp(Named):
    """Lane-wise comparisons; the result is boolean."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class ReduceOp(Named):
    """Operators of ``VectorReduce``; the rules know ``ADD``."""

    ADD = "add"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"

    @property
    def joins(self) -> BinaryOp:
        """What joins two terms."""
        return BinaryOp[self.name]


class Location(Named):
    """Where a value lives, for ``LocToLoc``."""

    MEM = "mem"
    WMMA = "wmma"
    WGMMA = "wgmma"
    AMX = "amx"


class Memory(Named):
    """Where an allocation lives."""

    AUTO = "Auto"
    HEAP = "Heap"
    STACK = "Stack"
    REGISTER = "Register"
    GPU_SHARED = "GPUShared"
    WMMA_ACCUMULATOR = "WMMAAccumulator"
    WGMMA_ACCUMULATOR = "WGMMAAccumulator"
    AMX_TILE = "AMXTile"

    @property
    def location(self) -> Location:
        """The location that values loaded from such an allocation have."""
        match self:
            case Memory.WMMA_ACCUMULATOR:
                return Location.WMMA
            case Memory.WGMMA_ACCUMULATOR:
                return Location.WGMMA
            case Memory.AMX_TILE:
                return Location.AMX
            case _:
                return Location.MEM


class ForKind(Named):
    """How the iterations of a loop are executed."""

    SERIAL = "for"
    PARALLEL = "parallel"
    UNROLLED = "unrolled"
    VECTORIZED = "vectorized"
    GPU_BLOCK = "gpu_block"
    GPU_THREAD = "gpu_thread"
    GPU_LANE = "gpu_lane"


class Role(Named):
    INPUT = "input"
    OUTPUT = "output"


class GridKind(Named):
    """What is asked of a grid: ``RESIDENT`` blocks have to fit a multiprocessor; the grid runs as
    so many ``PERSISTENT`` blocks a multiprocessor, each of which does one block's work after the
    other, by so many ``TEAMS`` in turn; so many neighbours along the innermost loop are a
    ``CLUSTER`` and share what they load; a ``SELF_FED`` block has no group of warps of its own that
    feeds the others; the blocks of all loops are numbered ``IN_LINE``.
    """

    RESIDENT = "resident"
    PERSISTENT = "persistent"
    TEAMS = "teams"
    CLUSTER = "cluster"
    SELF_FED = "self_fed"
    IN_LINE = "in_line"
