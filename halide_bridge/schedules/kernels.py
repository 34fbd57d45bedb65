"""A GPU kernel for any stage, on CUDA cores.

Threads go along the innermost dimension first, so that neighbours read and write side by side; a
thread computes as many neighbours as fill a vector, or several rows of outputs, whose loads it
shares. What only updates in its own order
(scans, scatters) keeps it, one line a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from halide_bridge.schedules.recognise.facts import Placement
from halide_bridge.schedules.recognise.program import Access, Stage, accesses
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import Guess
from halide_bridge.stock import is_rvar
from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import Var
from selector.ir.recurrences import ORDER
from selector.ir.traverse import free_vars

LANES, WARPS = 32, 8  # threads of a block along the two inner dimensions
LINE = 256  # threads of a block where there is one dimension
ROWS = 4  # outputs of a thread
FUSED = 2  # dimensions in one loop: of more Halide does not know that it is at one value of each
MOST_ACROSS = 65535  # blocks along y, and along z
ONE = "one thread: an update may read, or store again, what those before it have stored"
MODEST = 150  # operations of an output: beyond that a thread computes one


@dataclass(frozen=True, slots=True)
class Grid:
    """Where the loops of a stage went: ``inner`` is the innermost one around the ``rows`` outputs
    of a thread along the dimension ``along``, or its ``lanes``; ``block``: the innermost one over
    blocks; ``each``: dimensions of which it has all; ``text`` is for the report.
    """

    inner: Any = None
    rows: int = 1
    lanes: int = 1
    along: Any = None
    block: Any = None
    text: str = "one thread"
    each: tuple[Any, ...] = ()


def spread(
    script: Script,
    stage: Recorded,
    parallel: Sequence[Any],
    serial: Sequence[Any] = (),
    rows: int = 1,
    lanes: int = 1,
    extents: Sequence[int] = (),
    turn: int = 0,
    length: int | None = None,
    near: bool = False,
    over: int = 0,
    told: bool = False,
) -> Grid:
    """Give each block and thread its part of a stage. ``parallel``: dimensions, innermost first,
    about so long (``extents``), or just so (``told``); ``serial``: loops inside a thread, innermost
    first; ``rows`` along the second dimension, or ``lanes`` along the first, of which a thread has
    those of every ``turn``, if there is one. ``length``: of the first dimension, where it is
    certain. ``near``: blocks next to each other are those of the outer dimensions, which read the
    same. ``over``: multiprocessors that are to have blocks where threads run through long loops.
    """
    if not parallel:
        stage.gpu_single_thread()
        return Grid()
    x, *others = parallel
    if not others:
        line = _few(extents, over) if serial else LINE
        return _line(script, stage, x, serial, 1 if serial else rows, lanes, line)
    y, *outer = others
    serial, outer = (*serial, *outer[FUSED:]), outer[:FUSED]
    turns: tuple[Any, ...] = ()
    if turn:
        xt, xp = new_variables(script, x, "xt", "xp")
        stage.split(x, xt, xp, turn).unroll(xt)
        x, turns, length, extents = xp, (xt,), turn, (turn, *extents[1:])
    xo, xi = new_variables(script, x, "xo", "xi")
    yo, yi, yu = new_variables(script, y, "yo", "yi", "yu")
    wide, high = _threads(extents, rows, lanes)
    inner = (*vectors(script, stage, x, wide, lanes), *turns, *serial)
    stage.split(y, yo, yi, high * rows)
    if rows > 1:
        stage.split(yi, yi, yu, rows).unroll(yu)
        inner = (*inner, yu)
    outer, third, deep = _third(script, stage, outer, extents, wide * high)
    extents = [-(-n // deep) if d == 2 else n for d, n in enumerate(extents)]
    one = length is not None and length <= wide * lanes  # block along the first dimension
    z = tuple(outer) if one else fused(script, stage, outer)
    plane = (yo,) if one else (xo, yo)
    blocks = (*z, *plane) if near else (*plane, *z)
    if told:
        far = extents[2 : 2 + len(outer)]
        counts = [-(-n // e) for n, e in zip(extents, (wide * lanes, high * rows), strict=False)]
        counts += far if one else [prod(far)]
        blocks = _longest_first(blocks, dict(zip(map(id, (xo, yo, *z)), counts, strict=False)))
    stage.reorder(*inner, xi, yi, *third, *((xo,) if one else ()), *blocks)
    stage.gpu_blocks(*blocks).gpu_threads(xi, yi, *third)
    text = _said((wide, high, deep), rows, lanes, turn)
    first, along = serial[0] if serial else xi, y if rows > 1 else parallel[0]
    return Grid(first, rows, lanes, along, blocks[0], text)


def _longest_first(blocks: tuple[Any, ...], counts: Mapping[int, int]) -> tuple[Any, ...]:
    """Loops over blocks, with the longest one first where another one has more than a grid has
    along y and z.
    """
    if all(counts.get(id(v), 0) <= MOST_ACROSS for v in blocks[1:]):
        return blocks
    return tuple(sorted(blocks, key=lambda v: -counts.get(id(v), 0)))


def _threads(extents: Sequence[int], rows: int, lanes: int) -> tuple[int, int]:
    """Those of a block along the two inner dimensions: where the first is short, more along the
    second, as many as are least too many.
    """
    if not extents:
        return LANES, WARPS
    wide = min(LANES, power_of_two(-(-extents[0] // lanes)))
    most = LANES * WARPS // wide
    if wide == LANES:  # fewer where there are few along the second
        most = min(most, power_of_two(-(-extents[1] // rows)))
        return LANES * WARPS // most, most
    high = [h for h in (most, most // 2, most // 4) if h == most or h >= WARPS]
    found = min(high, key=lambda h: -(-extents[1] // (h * rows)) * h)
    if len(extents) > 2:  # the others are along the third
        found = min(found, power_of_two(-(-extents[1] // rows)))
    return wide, found


def power_of_two(n: int) -> int:
    """The smallest that is not less."""
    return 1 << max(0, n - 1).bit_length()


def _third(
    script: Script, stage: Recorded, outer: Sequence[Any], extents: Sequence[int], threads: int
) -> tuple[Sequence[Any], tuple[Any, ...], int]:
    """Loops over blocks, and over threads of a block along the third dimension, where the first two
    have few ``threads``; how many these are.
    """
    room = LANES * WARPS // threads
    if not outer or len(extents) < 3 or min(room, extents[2]) < 2:
        return outer, (), 1
    deep = min(room, 1 << extents[2].bit_length() - 1)
    zo, zi = new_variables(script, outer[0], "zo", "zi")
    stage.split(outer[0], zo, zi, deep)
    return (zo, *outer[1:]), (zi,), deep


def _said(threads: tuple[int, int, int], rows: int, lanes: int, turn: int) -> str:
    wide, high, deep = threads
    text = f"{wide} x {high}" + f" x {deep}" * (deep > 1) + " threads"
    text += f", {rows} rows each" * (rows > 1)
    return text + f", {lanes} neighbours each" * (lanes > 1) + f" in every {turn}" * bool(turn)


def vectors(script: Script, stage: Recorded, x: Any, threads: int, lanes: int) -> tuple[Any, ...]:
    """Split a dimension into blocks of so many threads (``xo``, ``xi``) and vectors, whose variable
    is returned, if there are any.
    """
    xo, xi, xl = new_variables(script, x, "xo", "xi", "xl")
    stage.split(x, xo, xi, threads * lanes)
    if lanes == 1:
        return ()
    stage.split(xi, xi, xl, lanes).vectorize(xl)
    return (xl,)


def _few(extents: Sequence[int], over: int) -> int:
    """Threads of a block, where there are so few that blocks of fewer have more multiprocessors."""
    threads = LINE
    while extents and threads > LANES and -(-extents[0] // threads) < over:
        threads //= 2
    return threads


def _line(
    script: Script,
    stage: Recorded,
    x: Any,
    serial: Sequence[Any],
    rows: int,
    lanes: int,
    line: int,
) -> Grid:
    xo, xi, xu = new_variables(script, x, "xo", "xi", "xu")
    if lanes > 1:
        (xl,) = vectors(script, stage, x, line, lanes)
        stage.reorder(xl, *serial, xi, xo).gpu_blocks(xo).gpu_threads(xi)
        text = f"{line} threads, {lanes} outputs each"
        return Grid((*serial, xi)[0], block=xo, text=text)
    stage.split(x, xo, xi, line * rows)
    inner = tuple(serial)
    if rows > 1:
        stage.split(xi, xu, xi, line)
        inner = (xu,)
    if inner:
        stage.reorder(*inner, xi, xo)
    if rows > 1:
        stage.unroll(xu)
    stage.gpu_blocks(xo).gpu_threads(xi)
    text = f"{line} threads" + (f", {rows} outputs each" if rows > 1 else "")
    return Grid((*serial, xu if rows > 1 else xi)[0], block=xo, text=text)


def fused(script: Script, stage: Recorded, outer: Sequence[Any], most: int = 1) -> tuple[Any, ...]:
    """At most one block dimension for all that is left; ``most`` where these are too many for one
    loop (``FUSED``).
    """
    left = list(outer)
    loops = most if len(left) > FUSED else 1
    while len(left) > loops:
        (z,) = new_variables(script, left[0], f"z{len(left)}")
        stage.fuse(left[0], left[1], z)
        left = [z, *left[2:]] if loops == 1 else [*left[2:], z]
    return tuple(left)


def new_variables(script: Script, like: Any, *names: str) -> tuple[Any, ...]:
    """New variables of the kind of another one."""
    if is_rvar(like):
        return script.rvars(*(f"r{name}" for name in names))
    return script.variables(*names)


def aligned(func: Recorded, x: Any, elements: int) -> None:
    """Rows of what is stored begin at multiples of so many elements, for those who read them."""
    if elements > 1:
        func.align_bounds(x, elements).align_storage(x, elements)


def update_kernel(
    script: Script, func: Recorded, stage: Stage, placement: Placement, known: Guess, over: int
) -> Grid:
    """An update of a Func that is stored: whatever may run at once does, in the order of memory;
    all else in its own order. ``over``: multiprocessors.
    """
    rvars = func.rvars(stage.number - 1) if stage.reduced else ()
    own = (a for e in stage.values for a in accesses(e) if a.func == stage.func)
    back = {r for access in own for r in _looked_back(stage, access)}
    pairs = zip(stage.reduced, rvars, strict=True)
    free = {r.name: v for r, v in pairs if r.free and r.name not in back}
    member = placement.program.members[stage.func]
    own = dict(zip(member.args, func.args(), strict=True))
    parallel: list[Any] = []
    for index, arg in zip(stage.indices, stage.free, strict=True):
        if arg is not None:
            parallel.append(own[arg])
        else:
            parallel += [free.pop(name) for name in sorted(free_vars(index) & free.keys())]
    serial = [v for v in rvars if not any(_same(v, p) for p in parallel)]
    parallel, more = fusible(parallel)
    lines = [
        known.extent(member, d) for d, a in enumerate(stage.free) if a and known.tells(member, d)
    ]
    update, extents = func.update(stage.number - 1), lines if len(parallel) == 1 else ()
    grid = spread(script, update, parallel, [*serial, *more], extents=extents, over=over)
    return grid if parallel else replace(grid, text=ONE)


def fusible(parallel: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Without variables of a domain that loops over others would be fused with, and those."""
    plane, outer = parallel[:2], parallel[2:]
    more = [p for p in outer if is_rvar(p)]
    if len(more) in (0, len(outer)):
        return [*parallel], []
    return [*plane, *(p for p in outer if not is_rvar(p))], more


def _looked_back(stage: Stage, read: Access) -> set[str]:
    """Variables that a recurrence goes along, in so few steps that none reads what another
    stores; those along which all that is read lies between steps are none.
    """
    found = set[str]()
    for stored, index in zip(stage.indices, read.indices, strict=True):
        form = Affine.of(stored)
        back = (form - Affine.of(index)).constant
        if back is None or not 0 < abs(back) <= ORDER:
            continue
        for v in free_vars(stored):
            step = form.coefficient(Var(v)).constant
            found |= {v} if not step or back % step == 0 else set[str]()
    return found


def _same(a: Any, b: Any) -> bool:
    return is_rvar(a) == is_rvar(b) and a.name() == b.name()
