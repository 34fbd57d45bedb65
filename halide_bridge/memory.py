"""What stock Halide's schedules cannot say: tensor units' memory, and copies in flight.

The directives live in a table of our own, keyed by the Func's name (Halide makes it unique in the
process), so a Func with such a directive still compiles with stock Halide, which never sees it.
Copies of a pipeline have its names: what is said of them is said in a table of theirs (``apart``).
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from enum import Enum
from typing import TypeVar

from halide_bridge.names import plain
from halide_bridge.native import native
from halide_bridge.stock import Func, is_func, is_image_param
from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError, Where
from selector.ir.kinds import GridKind
from selector.ir.nodes import Memory

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_F = TypeVar("_F")


class MemoryType(Enum):
    """A tensor unit's memory, where a Func's accumulator tiles live."""

    WMMAAccumulator = Memory.WMMA_ACCUMULATOR.value
    """The registers of a warp. In a kernel with such a Func, ``gpu_threads`` loops count warps. A
    product's operands may lie in global or in shared memory."""
    WGMMAAccumulator = Memory.WGMMA_ACCUMULATOR.value
    """The registers of a warpgroup, four warps: ``gpu_threads`` loops count groups. Both operands
    of a product have to be staged in shared memory, as plain tiles, or one of them as an image
    whose windows along x and y they are; the first may come from other accumulators, rounded in
    registers. A convolution is statements of 512 neighbouring outputs, 256 or 128 where these lie 2
    or 4 pixels apart, its rows staged as they are. Staged tiles lie swizzled, as the hardware wants
    them; where their copies are staged ahead, the copy engine (TMA) brings them.

    On ``sm_100a`` sums lie in tensor memory, 128 or 64 rows of an instruction, until a group loads
    them into its registers: both operands are plain tiles, staged ahead in one loop, and blocks are
    persistent. Nobody has run that on a GPU."""
    AMXTile = Memory.AMX_TILE.value
    """The tile registers of a CPU thread, of which there are eight, 16 rows of 64 bytes each. There
    are no blocks and threads; ``parallel`` loops run on all cores."""

    @property
    def memory(self) -> Memory:
        return Memory(self.value)


@dataclass(frozen=True, slots=True)
class Directives:
    """What was asked for one Func, and where in the user's program."""

    func: str
    kind: MemoryType | None = None
    stages: int = 1
    grids: tuple[tuple[GridKind, int], ...] = ()
    along: tuple[str, ...] = ()  # sums that are taken along with this maximum
    location: str = ""


@dataclass(frozen=True, slots=True)
class _Table:
    given: dict[str, Directives] = field(default_factory=dict[str, Directives])
    unseen: dict[str, weakref.ref[Func]] = field(default_factory=dict[str, "weakref.ref[Func]"])
    """Marked, and in no pipeline lowered so far."""


_users = _Table()
_current: ContextVar[_Table] = ContextVar("directives")


def _table() -> _Table:
    return _current.get(_users)


def said() -> dict[str, Directives]:
    """All that has been said so far, for ``apart``."""
    return dict(_table().given)


@contextmanager
def apart(before: Mapping[str, Directives] | None = None) -> Generator[None]:
    """What is said inside of copies of a pipeline (``native().copy``), whose Funcs have the names
    of the user's, is not said of these; what was said of these (``before``) holds for the copies.
    """
    token = _current.set(_Table(said() if before is None else dict(before)))
    try:
        yield
    finally:
        _current.reset(token)


def caller_location() -> str:
    """``file:line`` of the innermost frame outside this package.

    Relative to the working directory where it lies below that.
    """
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and _inside_package(frame.f_code.co_filename):
        frame = frame.f_back
    path = os.path.abspath(frame.f_code.co_filename)
    here = os.path.join(os.getcwd(), "")
    return f"{path.removeprefix(here)}:{frame.f_lineno}"


def _inside_package(filename: str) -> bool:
    return os.path.abspath(filename).startswith(_PACKAGE + os.sep)


def _directives(func: object, directive: str, location: str) -> Directives:
    if is_image_param(func):
        raise ScheduleError(
            f"{directive} takes a Func, not the ImageParam `{plain(func.name())}`",
            hint=f"stage it with `{plain(func.name())}.in_(consumer)` and pass that Func",
            where=location,
        )
    if not is_func(func):
        raise ScheduleError(
            f"{directive} takes a halide.Func, not {type(func).__name__}", where=location
        )
    name = func.name()
    return _table().given.get(name, Directives(name, location=location))


def store_in(func: _F, kind: MemoryType) -> _F:
    """Keep ``func`` in a tensor unit's memory; its update has to become that unit's instructions.

    Vectorize the tile and, innermost, the reduction: ``func.update().atomic().vectorize(...)``.
    Compute ``func`` at the ``gpu_threads`` loop of its consumer, which is to read whole tiles.

    Returns ``func``. ``ScheduleError`` for what is no Func, and for stock Halide memory
    (``GPUShared`` and the like), which is asked for with ``func.store_in``.
    """
    location = caller_location()
    directives = _directives(func, "store_in", location)
    if not isinstance(kind, MemoryType):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScheduleError(
            f"store_in takes a halide_bridge.MemoryType, not {kind!r}",
            hint="stock memory types are set with Halide's own `func.store_in(...)`",
            where=Where(func=plain(directives.func), location=location),
        )
    assert is_func(func)
    _table().given[directives.func] = replace(directives, kind=kind, location=location)
    _table().unseen[directives.func] = weakref.ref(func)
    return func


def pipeline_stages(func: _F, stages: int) -> _F:
    """Keep ``stages`` copies of the staged ``func`` in flight, filled ahead by the loop around it.

    ``func`` lies in shared memory, which has to hold all copies. ``stages``: 1 to 16. Of sums in
    tile registers (AMX) 2 means software pipelining: the tiles of the next step of the loop over
    the sum are loaded among the products of this one, each as soon as its register is free. Returns
    ``func``; ``ScheduleError`` for another number.
    """
    location = caller_location()
    directives = _directives(func, "pipeline_stages", location)
    if not isinstance(stages, int) or not 1 <= stages <= 16:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScheduleError(
            f"pipeline_stages takes a number of copies from 1 to 16, not {stages!r}",
            where=Where(func=plain(directives.func), location=location),
        )
    _table().given[directives.func] = replace(directives, stages=stages)
    return func


def resident_blocks(func: _F, blocks: int) -> _F:
    """Let ``blocks`` blocks of the kernel that computes ``func`` run on a multiprocessor at once.

    A thread gets no more registers than that leaves it, and no fewer blocks than shared memory
    allows are asked for. ``blocks``: 1 to 32; 1, as without this, leaves the number to the
    compiler. Returns ``func``; ``ScheduleError`` for another number.
    """
    return _ask_of_grid(func, "resident_blocks", GridKind.RESIDENT, blocks, 32)


def persistent(func: _F, blocks: int = 1) -> _F:
    """Run the kernel that computes ``func`` as ``blocks`` blocks on each multiprocessor, however
    large its grid is: each of them does the work of one block of the grid after the other, in the
    order of the block loops (innermost first), so that what the next one needs is on its way while
    results leave.

    For kernels of warpgroups whose operands are staged ahead. ``blocks``: 1 to 32. Returns
    ``func``; ``ScheduleError`` for another number.
    """
    return _ask_of_grid(func, "persistent", GridKind.PERSISTENT, blocks, 32)


def teams(func: _F, count: int) -> _F:
    """Let ``count`` teams, each of as many warps or groups as the ``gpu_threads`` loops count, do
    the work of a persistent block in turn: one multiplies while the other's results leave (ping-
    pong). ``count``: 1 to 4. Returns ``func``; ``ScheduleError`` for another number.
    """
    return _ask_of_grid(func, "teams", GridKind.TEAMS, count, 4)


def self_fed(func: _F) -> _F:
    """Let the groups that multiply in the kernel that computes ``func`` stage their operands
    themselves (multistage), instead of a group that does nothing else (warp-specialized). Where
    warps multiply, let one of their threads have them brought by tensor maps (``sm_90`` on; from
    ``sm_100`` on that is done where it can be without this). Returns ``func``.
    """
    return _ask_of_grid(func, "self_fed", GridKind.SELF_FED, 1, 1)


def in_line(func: _F) -> _F:
    """Number the blocks of the kernel that computes ``func`` along one dimension of the grid: of
    all loops there may then be 2,147,483,647 together, of the outer ones without this 65,535 each.
    Loops of constant extents that are longer do not have to be told. A block divides twice for
    that. Returns ``func``.

    Source: CUDA C++ Programming Guide, technical specifications per compute capability.
    """
    return _ask_of_grid(func, "in_line", GridKind.IN_LINE, 1, 1)


def cluster(func: _F, blocks: int) -> _F:
    """Let ``blocks`` neighbours along the innermost block loop of the kernel that computes ``func``
    run as a cluster: what all of them stage is read once, and each brings its part of it to all.
    ``blocks``: 1 to 8. Returns ``func``; ``ScheduleError`` for another number.
    """
    return _ask_of_grid(func, "cluster", GridKind.CLUSTER, blocks, 8)


_SWITCHES = (GridKind.PERSISTENT, GridKind.SELF_FED, GridKind.IN_LINE)
"""What one block is not without being asked for."""


def _ask_of_grid(func: _F, directive: str, kind: GridKind, blocks: int, most: int) -> _F:
    location = caller_location()
    directives = _directives(func, directive, location)
    if not isinstance(blocks, int) or not 1 <= blocks <= most:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScheduleError(
            f"{directive} takes a number from 1 to {most}, not {blocks!r}",
            where=Where(func=plain(directives.func), location=location),
        )
    rest = tuple(g for g in directives.grids if g[0] is not kind)
    plain_grid = blocks == 1 and kind not in _SWITCHES
    grids = rest if plain_grid else (*rest, (kind, blocks))
    _table().given[directives.func] = replace(directives, grids=grids)
    return func


def online(maximum: _F, *sums: Func) -> _F:
    """Take ``sums``, whose terms are all ``exp(x - maximum)`` times something, in one loop with the
    ``maximum`` that they need: with its value so far, and rescaled whenever it grows.

    What both compute of an iteration is computed once, and a loop that a mask empties at an end
    (``select((k <= q) & (k > q - w), x, low)``) begins or ends where it does not: attention in one
    pass. Powers of 2 do as well. Sums start at 0. The loops that update them stand in one place of
    the schedule and are split alike. Returns ``maximum``; ``ScheduleError`` for a Func that is
    named twice.
    """
    location = caller_location()
    directives = _directives(maximum, "online", location)
    names = tuple(_directives(s, "online", location).func for s in sums)
    if not names or directives.func in names or len(set(names)) < len(names):
        raise ScheduleError(
            "online takes a maximum and the sums that go along with it, each once",
            where=Where(func=plain(directives.func), location=location),
        )
    _table().given[directives.func] = replace(directives, along=names, location=location)
    return maximum


def interleaved(stored: _F, channels: int, output: bool = True) -> _F:
    """Loops of their own for calls whose pixels lie next to each other, of so many ``channels``:
    where that is the distance of neighbours along the second dimension, in what is ``stored``, if
    that is an ``output``, and in each argument of as many dimensions, which has no channel more.
    All other calls have the same loops, too. To be said last of a Func; returns it.
    """
    if channels < 2:
        raise ScheduleError(
            f"interleaved: pixels of {channels} channels",
            why="they are next to each other in any case",
            where=caller_location(),
        )
    native().interleaved(stored, channels, output)
    return stored


def directives_of(names: list[str]) -> dict[str, Directives]:
    """The directives of those of the Funcs that have any; they count as used from now on."""
    table = _table()
    for name in names:
        table.unseen.pop(name, None)
    return {name: table.given[name] for name in names if name in table.given}


def unused_marks() -> list[tuple[Func, Directives]]:
    """Marked Funcs, still alive, that no lowered pipeline has contained; oldest first."""
    table = _table()
    alive: list[tuple[Func, Directives]] = []
    for name, reference in list(table.unseen.items()):
        func = reference()
        if func is None:
            del table.unseen[name]
        else:
            alive.append((func, table.given[name]))
    return alive
