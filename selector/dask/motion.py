"""Whether an output can be computed window by window, and what of the inputs a window needs.

A program is followed as its window moves: output dimension ``d`` begins ``T*s`` elements later, for
every ``s``, and inputs that are cut begin ``step*s`` later in each of their dimensions. Each
integer expression then changes by a polynomial in ``s``. If indices of the output and of cut
inputs change by just their shift, and nothing else that decides a value changes at all, the moved
program does what the whole one does on those elements, operation by operation: the same bits. ``T``
is the smallest shift at which all divisions come out even, a multiple of the schedule's own tile.

An edge of the whole image (a clamp, or a comparison with 0 or with the image's extent) is idle from
some tile on, and up to some distance from the extent: a window is computed with so much around it
that only the true edges act. What the position itself is used for in any other way stands in the
way of cutting, and is the reason that a user is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import assert_never

from selector.dask.changes import NONE, Changes, S, Stride, end_of
from selector.dask.ranges import Range
from selector.dask.regions import Side, Stuck, Uneven, steps_of
from selector.dataclass import dataclass
from selector.ir.access import access
from selector.ir.affine import Affine, split_by_strides
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Block,
    BufferParam,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Load,
    Role,
    Stmt,
    Store,
    Var,
)  # fmt: skip
from selector.ir.traverse import walk_all_exprs, walk_stmt

_LARGEST_TILE = 1 << 20
_INDEPENDENT = (ForKind.GPU_BLOCK, ForKind.GPU_THREAD, ForKind.GPU_LANE, ForKind.PARALLEL)


@dataclass(frozen=True, slots=True)
class Motion:
    """How a window moves along one output dimension: ``tile`` outputs on, each input side is read
    ``steps`` elements further on.

    ``margin``: tiles that have to be computed before the first one that is right, unless the
    window begins at the image's edge. ``after``: tile ``i`` needs the elements below
    ``steps*i + after`` of a side, as far as the image has them. ``aligned``: a window ends with a
    tile, or with the whole output, and is no smaller than a tile, unless that is.
    """

    tile: int
    steps: Mapping[Side, int]
    margin: int = 0
    after: Mapping[Side, int] = field(default_factory=dict[Side, int])
    aligned: bool = False


def motion_along(module: Module, dim: int, cut: frozenset[str]) -> Motion:
    """The motion along one dimension of the only output, where the inputs ``cut`` are cut, too.

    ``Stuck`` if there is none.
    """
    tile = 1
    while tile <= _LARGEST_TILE:
        try:
            return _Mover(module, dim, cut, tile).motion()
        except Uneven as error:
            tile *= error.factor
    raise Stuck("no tile of up to a million outputs repeats itself")


class _Mover:
    """One attempt, with one size of the tile."""

    def __init__(self, module: Module, dim: int, cut: frozenset[str], tile: int) -> None:
        self._module, self._tile = module, tile
        self._output = next(b for b in module.buffers if b.role is Role.OUTPUT)
        self._dim = dim
        self._steps = steps_of(module, dim, cut, tile)
        self._growing = 0  # loops around that have more iterations in a larger window
        self._outside = 0  # allocations around that all tiles share
        self._shared = False  # whether tiles read what other tiles write
        self._reach: Range | None = None  # of the outputs of a tile
        inputs = {b.name: b for b in module.buffers if b.role is Role.INPUT}
        self._changes = Changes(inputs, cut)
        for b in inputs.values():
            self._changes.moves[b.name] = self._input(b)
        extent, stride = self._output.dims[dim].extent, self._output.dims[dim].stride
        self._bind(extent, Affine.of(S) * tile, Range(1, tile))
        self._changes.moves[self._output.name] = Affine.of(S) * tile * Affine.of(stride)

    def motion(self) -> Motion:
        self._run(self._module.body)
        found = self._changes
        if found.margin or found.after:
            reach = self._reach or Range()
            low, high = reach.low, reach.high
            if self._shared or low is None or high is None or low < 0 or high >= self._tile:
                raise Stuck("what the image's edges reach is computed for several tiles at once")
        name = self._output.name
        asked = any((r.buffer, r.dim) == (name, self._dim) for r in self._module.requirements)
        return Motion(self._tile, self._steps, found.margin, found.after, found.bounded or asked)

    def _input(self, buffer: BufferParam) -> Affine:
        """What the indices of an input move by; where they do, its extents move likewise, and end
        anywhere."""
        total = NONE
        for k, d in enumerate(buffer.dims):
            if (buffer.name, k) in self._steps:
                step = Affine.of(S) * self._steps[buffer.name, k]
                total = total + step * Affine.of(d.stride)
                self._bind(d.extent, step + end_of(buffer.name, k), Range())
        return total

    def _bind(self, where: Expr, moves: Affine, reach: Range) -> None:
        if isinstance(where, Var):
            self._changes.env[where.name] = moves
            self._changes.ranges.known[where.name] = reach
        else:
            raise Stuck("an extent along it is fixed in the compiled kernel")

    # Statements.

    def _run(self, s: Stmt) -> None:
        match s:
            case Block(stmts):
                for child in stmts:
                    self._run(child)
            case Store():
                self._store(s)
            case Evaluate(value):
                self._changes.still(value)
            case LetStmt(name, value, body):
                self._scoped(name, self._changes.of(value), self._changes.ranges.of(value), body)
            case For():
                self._loop(s)
            case IfThenElse(condition, then, otherwise):
                self._changes.still(condition)
                self._run(then)
                if otherwise is not None:
                    self._run(otherwise)
            case Allocate():
                self._allocate(s)
            case Atomic(_, body):
                self._run(body)
            case _:
                assert_never(s)

    def _allocate(self, s: Allocate) -> None:
        moves, strides = self._changes.moves, self._changes.strides
        outer = moves.pop(s.name, None)
        found = (Stride.of(f"${s.name}.{k}", e) for k, e in enumerate(s.extents[:-1]))
        strides[s.name] = tuple(x for x in found if x is not None)
        self._outside += not self._growing
        self._run(s.body)
        self._outside -= not self._growing
        moves.pop(s.name, None)
        if outer is not None:
            moves[s.name] = outer

    def _scoped(self, name: str, moves: Affine, reach: Range, body: Stmt) -> None:
        self._changes.within(name, moves, reach, partial(self._run, body))

    def _loop(self, s: For) -> None:
        first, more = self._changes.of(s.min), self._changes.of(s.extent)
        low = self._changes.ranges.of(s.min)
        if not more.terms:
            count = self._changes.ranges.of(s.extent).high
            high = low.high + count - 1 if low.high is not None and count is not None else None
            self._scoped(s.name, first, Range(low.low, high), s.body)
            return
        each = more.coefficient(S).constant
        if each is None or each <= 0 or more.rest(S).terms:
            raise Stuck(self._changes.whole(s.extent))
        _refuse_carried(s)
        high = None if low.high is None else low.high + each - 1
        self._shared |= bool(self._outside) or _reads(s, self._output.name)
        self._growing += 1
        self._scoped(s.name, first + more, Range(low.low, high), s.body)
        self._growing -= 1

    def _store(self, s: Store) -> None:
        self._changes.at(s.buffer, s.index)
        self._changes.still(s.value)
        if s.predicate is not None:
            self._changes.still(s.predicate)
        if s.buffer == self._output.name:
            self._note_outputs(s.index)

    def _note_outputs(self, index: Expr) -> None:
        """How far the outputs of a tile reach along the dimension, for programs with edges."""
        found, dims = access(index), self._output.dims
        total = Range() if found is None else Range(0, 0)
        parts = [] if found is None else [(found.base, 2), *found.levels]
        for part, count in parts:
            split = split_by_strides(part.to_expr(), dims)
            reach = Range() if split is None else self._changes.ranges.of(split[self._dim])
            last = reach.times(count - 1)
            total = total + (last if part is parts[0][0] else Range(0, 0).joined(last))
        self._reach = total if self._reach is None else self._reach.joined(total)


def _refuse_carried(s: For) -> None:
    """What one tile leaves must not be what another reads; Halide has seen to that in parallel
    loops."""
    if s.kind in _INDEPENDENT:
        return
    inside = {x.name for x in walk_stmt(s.body) if isinstance(x, Allocate)}
    stored = {x.buffer for x in walk_stmt(s.body) if isinstance(x, Store)} - inside
    loaded = {e.buffer for e in walk_all_exprs(s.body) if isinstance(e, Load)}
    carried = sorted(stored & loaded)
    if carried:
        raise Stuck(f"each value of `{carried[0]}` depends on those before it")


def _reads(s: For, buffer: str) -> bool:
    return any(isinstance(e, Load) and e.buffer == buffer for e in walk_all_exprs(s.body))
