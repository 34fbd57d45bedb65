"""Nodes of memory: where something lies, what a thread stores, and the copies of the engine and of
threads.

A queue or a barrier says when an asynchronous copy is complete; both are nodes of ``nodes``.
"""

from __future__ import annotations

from math import prod

from selector.dataclass import unguarded
from selector.gpu.ir.views import View
from selector.ir.nodes import Expr, IntImm
from selector.ir.types import Type

# Of a map: how many elements of a box there are from one to the next, and dimensions, at most (CUDA
# Driver API, cuTensorMapEncodeTiled).
MOST_APART, MOST_DIMENSIONS = 8, 5
BOX_ROWS = 16  # of a box that a warp stores


@unguarded
class Map:
    """A tensor map: what the copy engine takes the array ``of`` a call for, ``extents`` elements in
    each dimension and ``strides`` elements apart in all but the innermost, and how many of them a
    ``box`` has, whose rows lie swizzled by their bytes; what single floats ``become`` on the way.
    A box has every so many elements along each dimension: ``steps``, 1 where there are none.
    """

    name: str
    of: str
    type: Type
    extents: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    become: str = ""
    steps: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        return self.box[0] * self.type.bytes

    @property
    def bytes(self) -> int:
        """Of a box."""
        return prod(self.box) * self.type.bytes

    def step(self, dimension: int) -> int:
        """From one element of a box to the next."""
        return self.steps[dimension] if self.steps else 1


@unguarded
class Prefetch:
    """The copy engine is going to need a ``map``."""

    map: str


@unguarded
class Point:
    """A pointer to what is of ``kind``: to an element of shared memory or of an argument. ``by``
    terms: those of the index are added to the pointer one after the other, of which compilers make
    other code.
    """

    name: str
    kind: str
    of: View
    by: str = ""


@unguarded
class EngineCopy:
    """A box of a tensor ``map``, which begins ``at`` these coordinates, to shared memory of all
    ``blocks`` of a mask; its bytes arrive at a barrier.
    """

    to: View
    map: str
    at: tuple[Expr, ...]
    barrier: Expr
    bytes: int
    blocks: int = 0


@unguarded
class EngineStore:
    """The same way back."""

    source: View
    map: str
    at: tuple[Expr, ...]


@unguarded
class CopyAsync:
    """``CHUNK`` bytes from a pointer to global memory to an address in shared memory, both
    multiples of as many, by cp.async, where they are ``wanted``; ``cache``: past the first one, or
    through it.
    """

    to: Expr
    source: Expr
    cache: str
    wanted: Expr | None = None


@unguarded
class CopyElement:
    """Element ``index`` from a pointer to a ``kind`` is set, where it is ``wanted``, to what
    another pointer has at ``source``, or to zero where that is not ``inside``.
    """

    to: str
    kind: str
    index: Expr
    pointer: str
    source: Expr
    inside: Expr
    wanted: Expr | None = None


@unguarded
class CopyRun:
    """``bytes`` from a pointer to an address by the copy engine; a barrier waits for them."""

    to: Expr
    source: Expr
    bytes: Expr
    barrier: Expr


@unguarded
class LoadShifted:
    """The vectors that hold ``valid`` bytes at ``from`` are on their way to ``to``, as a ``part``
    of what the thread stores at once.
    """

    part: str
    valid: Expr


@unguarded
class Array:
    """``count`` elements of a thread's own, at a multiple of ``alignment`` bytes, if it matters."""

    name: str
    kind: str
    count: int
    alignment: int = 0


@unguarded
class Store:
    """A thread's variable, or an ``element`` of an array or of memory, is set."""

    to: Expr
    value: Expr


@unguarded
class StoreChunk:
    """``CHUNK`` bytes from a pointer to a pointer, both multiples of as many."""

    to: Expr
    source: Expr


@unguarded
class LoadVector:
    """Elements of a thread's array ``to`` from the ``first`` on are set to as many behind a pointer
    to memory: at once, 4, 8 or 16 bytes at a multiple of as many, zeros where they are not
    ``wanted``; or so many bytes that lie ``anywhere``, with whole words of the array.
    """

    to: Expr
    first: Expr
    source: Expr
    bytes: int
    lie: str = ""
    wanted: Expr | None = None


@unguarded
class StoreVector:
    """4, 8 or 16 bytes the same way back."""

    to: Expr
    source: Expr
    first: int
    bytes: int


@unguarded
class StoreWords:
    """The words of a chunk are set, to zeros where they are not ``wanted``; the terms of the index
    are added one after the other.
    """

    to: View
    words: tuple[Expr, ...]
    wanted: Expr | None = None


@unguarded
class StorePair:
    """Two neighbours from a view on are set at once, or both by what one register packs; where
    memory has no type of its own, they are of a ``kind``. The terms of the index are added one
    after the other.
    """

    to: View
    values: tuple[Expr, ...]
    kind: str = ""


@unguarded
class StoreQuad:
    """Four neighbours are set at once, by all lanes of a warp: lanes 2 i and 2 i + 1 have two
    ``values`` each of two tiles side by side, and exchange them. View ``to``: the first one of a
    lane's own.
    """

    to: View
    values: tuple[Expr, ...]


@unguarded
class StoreEight:
    """Eight neighbours of 16 bits are set at once, by all lanes of a warp: lanes 4 i to 4 i + 3
    have a pair each, packed, of two tiles side by side, and of both in a row ``below``; they
    exchange these ``values``. View ``to``: a lane's own first pair.
    """

    to: View
    below: View
    values: tuple[Expr, ...]


@unguarded
class StoreRun:
    """Neighbours of 16 bits are set, from any element on, by all lanes of a warp. So many ``lanes``
    have a pair each, packed, of what each value is of: pieces that follow each other. View ``to``:
    a lane's own first pair.
    """

    to: View
    values: tuple[Expr, ...]
    lanes: int


@unguarded
class StoreRows:
    """A box of 16 rows in shared memory, swizzled by their bytes, goes to an array, ``stride``
    elements from row to row in a ``run`` and ``above`` from run to run: by all lanes of a warp, and
    as many ``rows`` of each, ``runs`` and ``columns`` as lie inside.
    """

    to: View
    source: View
    row_bytes: int
    stride: Expr
    rows: Expr
    columns: Expr
    run: int = BOX_ROWS
    above: Expr = IntImm(0)
    runs: Expr = IntImm(1)


@unguarded
class StoreThere:
    """``value``, of 32 bits, as an element of shared memory that another ``block`` of the cluster
    has at the same place. It has begun, and is not over before a barrier of the cluster.
    """

    to: Expr
    value: Expr
    block: Expr


@unguarded
class Evaluate:
    """A call for what it does to memory, not for its value."""

    call: Expr


StoreElements = StorePair | StoreQuad | StoreEight | StoreRun
"""Of several elements, whose ``values`` are computed."""

StoreNode = (
    Array | Store | StoreChunk | StoreElements | StoreWords
    | StoreRows | LoadVector | StoreVector | StoreThere | Evaluate
)  # fmt: skip
"""What a thread does alone with values and memory, and is done with then."""

MemoryNode = (
    Map | Prefetch | EngineCopy | EngineStore | Point | CopyAsync | CopyElement | CopyRun
    | LoadShifted | StoreNode
)  # fmt: skip
