"""A module's body cut into kernels: every outermost nest of gpu_block loops is one launch, but for
those that are joined (``joined_kernels``).

What lies outside may only allocate intermediates and bind names: work scheduled for the host has no
place in a pipeline that runs on a GPU, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError, Where
from selector.ir.contents import loaded
from selector.ir.kinds import GridKind
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    BufferParam,
    Compare,
    CompareOp,
    Dim,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Memory,
    Not,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import mul
from selector.ir.traverse import map_stmt, substitute, substitute_stmt, walk_expr, walk_stmt
from selector.ir.types import Type
from selector.lowering.apart import apart
from selector.lowering.carried import carry
from selector.lowering.forwarded import forward
from selector.lowering.interiors import copy_insides
from selector.lowering.joined_kernels import join_kernels
from selector.lowering.joined_rows import joined_rows
from selector.lowering.joined_sweeps import join_sweeps
from selector.lowering.kept_rows import kept_rows
from selector.lowering.near_sums import near_sums
from selector.lowering.normalize import normalize, sequence
from selector.lowering.one_turn import one_turn
from selector.lowering.own_parts import own_parts
from selector.lowering.races import refuse_races
from selector.lowering.roll import roll_stages
from selector.lowering.row_clusters import in_clusters
from selector.lowering.row_folds import MOST
from selector.lowering.row_values import row_values
from selector.lowering.scans import (
    Origin,
    begun_with,
    cascade,
    dims_of,
    none_left,
    recurrent,
    spread_scans,
    taken_reader,
    taken_starts,
    without_array,
)
from selector.lowering.sliding import begun_apart
from selector.lowering.structure import loaded_names, stored_names
from selector.lowering.trim import grows_with
from selector.lowering.whole_rows import whole_rows
from selector.lowering.whole_tiles import pull_factors, split_masks

_Read = tuple[Stmt, frozenset[str]]  # and what it reads that others have to store


@dataclass(frozen=True, slots=True)
class _Around:
    """What is known where a statement stands: how ``arrays`` lie, and which are ``read`` by others
    than that statement, or are the caller's. ``single``: recurrences stay kernels of their own;
    ``begun``: with what some of them have, where nobody stores that.
    """

    module: Module
    arrays: Mapping[str, tuple[Dim, ...]]
    read: frozenset[str]
    single: bool = False
    begun: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict[str, tuple[Expr, ...]])


@dataclass(frozen=True, slots=True)
class GridLoop:
    """One gpu_block loop, outermost first in ``Kernel.grid``. ``descending``: its last blocks have
    most to do, so they go first, and the short ones fill what is left at the end.
    """

    name: str
    min: Expr
    extent: Expr
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch: its grid and what a block does. ``own``: what each thread has its part of;
    ``resident``: blocks that are to run on a multiprocessor at once; ``known``: sizes that are such
    numbers wherever it has blocks; ``cluster``: blocks along the innermost loop that are one.
    """

    name: str
    grid: tuple[GridLoop, ...]
    body: Stmt
    own: frozenset[str] = frozenset()
    resident: int = 0
    known: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    cluster: int = 1

    @property
    def otherwise(self) -> bool:
        """Whether it is for calls that another kernel does not take."""
        return any(isinstance(e, Not) for loop in self.grid for e in walk_expr(loop.extent))

    def with_known(self, param: BufferParam) -> BufferParam:
        """An argument's dimensions with these numbers."""
        if not self.known:
            return param
        parts = (
            (substitute(e, self.known) for e in (d.min, d.extent, d.stride)) for d in param.dims
        )
        return replace(param, dims=tuple(Dim(*each) for each in parts))


@dataclass(frozen=True, slots=True)
class Buffer:
    """An allocation that lives across kernels."""

    name: str
    type: Type
    elements: Expr
    pitches: tuple[Expr, ...] = ()  # elements from one row to the next, from one plane to the next


@dataclass(frozen=True, slots=True)
class Program:
    """The kernels in order and the buffers between them."""

    kernels: tuple[Kernel, ...]
    buffers: tuple[Buffer, ...]


def split_kernels(module: Module) -> Program:
    """The launches of a selected module. ScheduleError for work outside GPU loops."""
    nests: list[For] = []
    buffers: list[Buffer] = []
    refuse_races(module.body)
    body = pull_factors(split_masks(forward(normalize(module.body))))
    arrays = {b.name: b.dims for b in module.buffers}
    _walk(body, _Around(module, arrays, frozenset(arrays)), nests, buffers)
    alone = {g.func for g in module.grids}
    joined = join_kernels(join_sweeps(nests, alone), alone)
    kernels = tuple(_kernel(s, module, n) for n, s in enumerate(joined))
    if not kernels:
        raise ScheduleError(
            f"`{module.name}` has no GPU loops",
            "nothing in its schedule asks for blocks",
            "tile the output and mark the outer loops with gpu_blocks(...)",
        )
    return Program(kernels, tuple(buffers))


def _walk(s: Stmt, around: _Around, nests: list[For], buffers: list[Buffer]) -> None:
    module = around.module
    match s:
        case Block(stmts):
            found, origins = _joined_scans(stmts, around)
            made = None if around.single else _cascade([s for s, _ in found], origins, around)
            if made is not None:
                condition, kernels = made
                nests += [k for k in (_where(condition, k) for k in kernels) if isinstance(k, For)]
                found = [(_where(Not(condition), s), read) for s, read in found]
                around = replace(around, single=True)
            else:
                found, begun = _computed_ends(found, origins, around)
                around = replace(around, begun={**around.begun, **begun})
                buffers[:] = [b for b in buffers if b.name not in begun]  # which nobody stores
            for n, (x, _) in enumerate(found):
                others = (read for m, (_, read) in enumerate(found) if n != m)
                here = replace(around, read=around.read.union(*others))
                _walk(x, here, nests, buffers)
        case Allocate(name, t, _, _, body, _):
            extents = s.extents
            elements, pitches = extents[0] if extents else IntImm(1), list[Expr]()
            for extent in extents[1:]:
                pitches.append(elements)
                elements = mul(elements, extent)
            buffers.append(Buffer(name, t, elements, tuple(pitches)))
            arrays = {**around.arrays, name: dims_of(extents)}
            _walk(body, replace(around, arrays=arrays), nests, buffers)
        case For(kind=ForKind.GPU_BLOCK):
            unread = around.arrays.keys() - around.read
            parts, ends = spread_scans(s, unread, around.begun)
            if ends is not None:
                buffers.append(Buffer(ends.name, ends.type, ends.elements))
            nests += parts
        case IfThenElse(condition, then, other):
            _walk(_where(condition, then), around, nests, buffers)
            if other is not None:
                _walk(_where(Not(condition), other), around, nests, buffers)
        case LetStmt(name, value, body) if loaded(value).isdisjoint(stored_names(body)):
            _walk(substitute_stmt(body, {name: value}), around, nests, buffers)
        case Evaluate():
            pass
        case _:
            raise ScheduleError(
                f"`{_stored(s, module)}` is computed on the host",
                f"its {type(s).__name__} statement lies outside every gpu_block loop",
                "give it gpu_blocks(...), or compute_at a Func that has them",
                Where(func=_stored(s, module)),
            )


def _joined_scans(stmts: Sequence[Stmt], around: _Around) -> tuple[list[_Read], dict[str, Origin]]:
    """The statements, recurrences with what the one before stores for them, and what the one behind
    makes of their outputs; and what each of them reads that a recurrence has to store; and what
    recurrences began with.
    """
    found, origins = list(stmts), dict[str, Origin]()
    for n in range(len(found) - 1):
        taken = taken_starts(found[n], found[n + 1], around.arrays)
        if taken is not None:
            found[n], found[n + 1], origins[recurrent(found[n + 1])] = taken
    read = [loaded_names(s) for s in found]
    for n in range(len(found) - 1):
        pair = taken_reader(found[n], found[n + 1], around.arrays)
        if pair is not None:
            found[n : n + 2] = pair
            read[n + 1] -= stored_names(found[n])  # what is left reads others of these
    return [*zip(found, read, strict=True)], origins


def _computed_ends(
    found: list[_Read], origins: Mapping[str, Origin], around: _Around
) -> tuple[list[_Read], dict[str, tuple[Expr, ...]]]:
    """Without the kernels that store what lies before and behind recurrences, where what is left
    behind these computes that; and what those have begun with.
    """
    for n, (scan, _) in enumerate(found[1:-1], 1):
        name, before = recurrent(scan), stored_names(found[n - 1][0])
        begun = begun_with([name], origins) if before == frozenset({name}) else {}
        left = without_array(found[n + 1][0], origins[name], name) if begun else None
        others = [s for m, (s, _) in enumerate(found) if abs(m - n) > 1]
        others_use = any(name in loaded_names(s) | stored_names(s) for s in others)
        if left is None or name in around.read or others_use or not _stores_more(scan, name):
            continue
        rest, more = _computed_ends(found[n + 2 :], origins, around)
        return [*found[: n - 1], found[n], (left, found[n + 1][1]), *rest], {**begun, **more}
    return found, {}


def _stores_more(scan: Stmt, name: str) -> bool:
    """Whether a recurrence stores what is made of its outputs."""
    return bool(stored_names(scan) - {name})


def _cascade(
    stmts: Sequence[Stmt], origins: Mapping[str, Origin], around: _Around
) -> tuple[Expr, list[For]] | None:
    """Recurrences that read each other, all of them in one kernel: when they may be, and that
    kernel, behind those that leave what lies before them if that is not known; None if there are
    none.
    """
    before, scans, between = list[Stmt](), list[Stmt](), set[str]()
    arrays, rest = around.arrays, list(stmts)
    while len(rest) == 3 and isinstance(rest[2], Allocate):
        before.append(rest[0])
        scans.append(rest[1])
        inner = rest[2]
        between |= stored_names(rest[1])
        arrays = {**arrays, inner.name: dims_of(inner.extents)}
        parts, more = _joined_scans(sequence(inner.body), replace(around, arrays=arrays))
        rest, origins = [s for s, _ in parts], {**origins, **more}
    if len(rest) != 3 or not scans:
        return None
    before.append(rest[0])
    scans.append(rest[1])
    begun = begun_with([recurrent(s) for s in scans], origins)
    if begun.keys() & around.read or not _stores_more(scans[-1], recurrent(scans[-1])):
        begun = {}
    found = cascade(scans, begun)
    if found is None or loaded_names(rest[2]) & between or around.read & between:
        return None
    kernels = [s for s in before if isinstance(s, For)]
    if len(kernels) < len(before):
        return None
    return none_left(rest[2]), [found] if begun else [*kernels, found]


def _where(condition: Expr, s: Stmt) -> Stmt:
    """Kernels that run under a condition: else they have no blocks."""
    match s:
        case For(kind=ForKind.GPU_BLOCK):
            return replace(s, extent=Select(condition, s.extent, IntImm(0)))
        case Block() | Allocate() | IfThenElse():
            return map_stmt(s, lambda inner: _where(condition, inner), lambda e: e)
        case _:
            return s


def _equal(extent: Expr) -> dict[str, Expr]:
    """Numbers that variables are wherever a loop has iterations."""
    match extent:
        case Select(condition, inner, IntImm(0)):
            return {**_equal(inner), **_equal(condition)}
        case Binary(BinaryOp.AND, a, b):
            return {**_equal(a), **_equal(b)}
        case Compare(CompareOp.EQ, Var(name), IntImm() as value):
            return {name: value}
        case _:
            return {}


def _stored(s: Stmt, module: Module) -> str:
    names = [x.buffer for x in walk_stmt(s) if isinstance(x, Store)]
    return names[0] if names else module.name


def _apart(grid: list[GridLoop], body: Stmt) -> tuple[list[GridLoop], Stmt]:
    found: list[GridLoop] = []
    for loop in grid:
        loops = ((loop.name, loop.extent),)
        if loop.min == IntImm(0):
            loops, body = apart(loops[0], body)
        found += [GridLoop(n, loop.min, extent, grows_with(body, n)) for n, extent in loops]
    return found, body


def _kernel(s: For, module: Module, number: int) -> Kernel:
    grid: list[GridLoop] = []
    body: Stmt = s
    while isinstance(body, For) and body.kind is ForKind.GPU_BLOCK:
        grid.append(GridLoop(body.name, body.min, body.extent, grows_with(body.body, body.name)))
        body = body.body
    stored = _stored(body, module)
    kinds = {g.kind for g in module.grids if g.func in {x.name.split(".")[0] for x in grid}}
    if len(grid) > 3:
        raise ScheduleError(
            f"`{stored}` has {len(grid)} block loops; a grid has three dimensions",
            hint="fuse some of them",
        )
    for x in walk_stmt(body):
        if isinstance(x, For) and x.kind is ForKind.GPU_BLOCK:
            raise ScheduleError(
                f"the block loops of `{stored}` are not nested directly",
                f"`{x.name}` lies inside other statements",
                "reorder the block loops outermost",
            )
    memories = {x.memory for x in walk_stmt(body) if isinstance(x, Allocate)}
    if GridKind.PERSISTENT in kinds or Memory.WGMMA_ACCUMULATOR in memories:
        body = one_turn(body)
    if GridKind.PERSISTENT in kinds and GridKind.CLUSTER not in kinds:
        grid, body = _apart(grid, body)
    name = s.name.split(".")[0]
    body, row = joined_rows(roll_stages(body, (loop.name for loop in grid)))
    resident, cluster = 0, 1
    if row is not None:
        arrays = {b.name: b.dims for b in module.buffers}
        body = near_sums(row_values(body))
        whole = whole_rows(body, row, arrays)
        if whole is not None and row.blocks > 1 and grid[-1].min == IntImm(0):
            body, own_name, extent = in_clusters(whole[0], row, grid[-1].name, grid[-1].extent)
            grid[-1], cluster = GridLoop(own_name, IntImm(0), extent), row.blocks
        elif row.blocks > 1:
            raise ScheduleError(
                f"a row of `{stored}` has {row.threads} threads",
                "those of several blocks take turns along rows that are read by whole vectors",
                f"at most {MOST} threads",
            )
        else:
            body, resident = whole or kept_rows(body, row)
    body, own = own_parts(copy_insides(body))
    known = {n: e for loop in grid for n, e in _equal(loop.extent).items()}
    name = f"{name}_{number}" if number else name
    return Kernel(name, tuple(grid), carry(begun_apart(body)), own, resident, known, cluster)
