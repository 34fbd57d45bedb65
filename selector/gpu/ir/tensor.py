"""Nodes of tensor memory, in which accumulators lie that no thread's registers hold.

A block has 128 lanes x 512 columns of 32 bits of it; an address is a column, and a lane 16 bits
above. One warp allocates columns and frees them again. An ``Mma`` there is asked for by one thread:
its ``to`` is a ``TensorTile``, its pieces are eight columns each. ``Arrive`` after ``matrix`` is
the arrival of all that the thread has asked for (``tcgen05.commit``). A warp fetches what lies in
its quarter of the lanes by ``LoadFragment``, ``at`` an address from the tile's on, until it drains
the queue ``tensor``. What one thread does there and another one next has a fence on either side:
``tensor_before`` the first one says so, ``tensor_after`` the other one has seen that.

Source: PTX ISA, "tcgen05" ("Tensor Memory", "Memory Consistency Model").
"""

from __future__ import annotations

from selector.dataclass import unguarded
from selector.ir.nodes import Expr

LANE = 1 << 16  # from an address to that one lane further
COLUMNS = 512
WARP_LANES = 32  # of a quarter, which one of four warps can reach
LOADED_LANES = 16  # by one load
PIECE = 8  # columns that a load has at least
MOST_PIECES = 32  # of one load
LOADS = ("tensor", "tensor_add")  # of LoadFragment: into registers, or added to them


@unguarded
class TensorAlloc:
    """``columns``, a power of two from 32 on, by all lanes of a warp; their address is written to
    shared memory at byte ``at``, for ``TensorMemory`` to read.
    """

    at: int
    columns: int


@unguarded
class TensorMemory:
    """A name for the columns that were allocated."""

    name: str
    at: int
    columns: int


@unguarded
class TensorTile:
    """``columns`` of a tensor memory, as far from its begin as ``start``, an address, says."""

    name: str
    base: str
    start: Expr
    columns: int


@unguarded
class TensorFree:
    """The columns are no more: by all lanes of the warp that has allocated them."""

    memory: str
    columns: int


@unguarded
class TensorBusy:
    """What is left of an ``Mma`` where a kernel is followed without its data: the tile, the first
    piece of it and how many, whether it adds to them, and the bytes behind the starts of its
    operands' descriptors.
    """

    to: str
    first: int
    pieces: int
    add: Expr
    descriptors: tuple[str, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]


@unguarded
class TensorLoad:
    """The same of a load: where it is ``at`` from the tile on, how many pieces, which fragment."""

    fragment: str
    base: str
    at: int
    pieces: int


TensorNode = TensorAlloc | TensorMemory | TensorTile | TensorFree | TensorBusy | TensorLoad
