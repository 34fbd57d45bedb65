"""The kinds of operators, loops, memories, buffers and grids that the nodes of the IR name."""

from __future__ import annotations

from enum import Enum


class BinaryOp(Enum):
    """Lane-wise operators with one result type; ``AND`` and ``OR`` are for booleans."""

    __hash__ = object.__hash__  # members are unique: identity, at C speed

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"
    MIN = "min"
    MAX = "max"
    AND = "&&"
    OR = "||"


class CompareOp(Enum):
    """Lane-wise comparisons; the result is boolean."""

    __hash__ = object.__hash__  # members are unique: identity, at C speed

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class ReduceOp(Enum):
    """Operators of ``VectorReduce``; the rules know ``ADD``."""

    __hash__ = object.__hash__  # members are unique: identity, at C speed

    ADD = "add"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"


class Location(Enum):
    """Where a value lives, for ``LocToLoc``."""

    __hash__ = object.__hash__  # members are unique: identity, at C speed

    MEM = "mem"
    WMMA = "wmma"
    WGMMA = "wgmma"
    AMX = "amx"


class Memory(Enum):
    """Where an allocation lives."""

    __hash__ = object.__hash__  # members are unique: identity, at C speed

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


class ForKind(Enum):
    """How the iterations of a loop are executed."""

    __hash__ = object.__hash__  # members are unique: identity, at C speed

    SERIAL = "for"
    PARALLEL = "parallel"
    UNROLLED = "unrolled"
    VECTORIZED = "vectorized"
    GPU_BLOCK = "gpu_block"
    GPU_THREAD = "gpu_thread"
    GPU_LANE = "gpu_lane"


class Role(Enum):
    __hash__ = object.__hash__

    INPUT = "input"
    OUTPUT = "output"


class GridKind(Enum):
    """What is asked of a grid: ``RESIDENT`` blocks have to fit a multiprocessor; the grid runs as
    so many ``PERSISTENT`` blocks a multiprocessor, each of which does one block's work after the
    other, by so many ``TEAMS`` in turn; so many neighbours along the innermost loop are a
    ``CLUSTER`` and share what they load; a ``SELF_FED`` block has no group of warps of its own that
    feeds the others.
    """

    RESIDENT = "resident"
    PERSISTENT = "persistent"
    TEAMS = "teams"
    CLUSTER = "cluster"
    SELF_FED = "self_fed"
