"""Buffers that are filled by the pipeline and read by tensor instructions only, in VNNI order from
the start.

A schedule that copies a row-major operand next to its use (``B.in_(mm).compute_at(...)``) leaves a
buffer whose every read is swizzled. Then the buffer itself is laid out as it is read: its stores
are moved, and no swizzled temporary is made of it. With another reader, or where a store cuts
through groups, the buffer stays as it was and ``hoist`` makes a swizzled copy.
"""

from __future__ import annotations

from dataclasses import replace

from selector.dataclass import dataclass
from selector.intrinsics import VNNI
from selector.ir.access import Level, access, merge, walk
from selector.ir.affine import Affine, split_by_strides, to_affine
from selector.ir.lanes import lane
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Call,
    Dim,
    Expr,
    ExprVar,
    For,
    IntImm,
    Load,
    Memory,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, div, mod, mul
from selector.ir.traverse import map_expr, map_stmt, walk_all_exprs
from selector.lowering.ranges import Ranges, loop_bounds

_K, _N = Var("$k"), Var("$n")
_PLAIN = (Memory.AUTO, Memory.HEAP, Memory.STACK, Memory.REGISTER)


def swizzle_preloaded(module: Module) -> Module:
    """The module with such buffers in VNNI order; its meaning is unchanged."""
    return replace(module, body=_visit(module.body, Ranges()))


def _visit(s: Stmt, ranges: Ranges) -> Stmt:
    match s:
        case Allocate(memory=memory) if memory in _PLAIN:
            s = _swizzled(s, ranges) or s
        case For():
            ranges = ranges.extended({s.name: loop_bounds(s)})
        case _:
            pass
    return map_stmt(s, lambda x: _visit(x, ranges), lambda e: e)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Rows of ``pitch`` elements, ``group`` of them interleaved."""

    buffer: str
    pitch: int
    group: int

    def split(self, index: Affine, ranges: Ranges, columns: int) -> tuple[Affine, Affine] | None:
        """Row and first column of a run of ``columns`` elements; None if it may cross rows."""
        dims = (_dim(1), _dim(self.pitch))
        parts = split_by_strides(index.to_expr(), dims)
        if parts is None:
            return None
        column, row = (to_affine(p) for p in parts)
        starts = Affine.of(self.pitch - columns + 1)
        return (row, column) if ranges.inside(column, starts) else None

    def load(self, e: ExprVar, ranges: Ranges) -> Load | None:
        """A swizzled read as a read of the buffer in VNNI order."""
        match e.value:
            case Call(t, name, (IntImm(k), IntImm(n), IntImm(group), Load(_, _, index, None))) if (
                name == VNNI and group == self.group and k % group == 0
            ):
                at = to_affine(lane(index, ((_N, n), (_K, k))))
                base = at.rest(_K).rest(_N)
                place = self.split(base, ranges, n)
                if place is None or at.coefficient(_N).constant != 1:
                    return None
                row, column = place
                if at.coefficient(_K).constant != self.pitch or row.divided_by(group) is None:
                    return None
                start = row * self.pitch + column * group
                levels = ((Affine.of(1), group * n), (Affine.of(self.pitch * group), k // group))
                return Load(t, self.buffer, walk(start, merge(levels)))
            case _:
                return None

    def store(self, s: Store, ranges: Ranges) -> Store | None:
        """A store at the places that its elements have in VNNI order."""
        seen = access(s.index)
        if seen is None or any(stride.constant is None for stride, _ in seen.levels):
            return None
        levels = [(stride.constant or 0, count) for stride, count in seen.levels]
        columns = [(s, n) for s, n in levels if s % self.pitch]
        width = 1 + sum(s * (n - 1) for s, n in columns)
        place = self.split(seen.base, ranges, width)
        if place is None or min((s for s, _ in levels), default=0) < 0:
            return None
        index = self._moved(place, levels)
        return None if index is None else replace(s, index=index)

    def _moved(self, place: tuple[Affine, Affine], levels: list[tuple[int, int]]) -> Expr | None:
        """The index of these levels (stride, count) in VNNI order; None if it cuts through
        groups."""
        row, column = place
        rows = [(s // self.pitch, n) for s, n in levels if s % self.pitch == 0 and s]
        whole = row.divided_by(self.group)
        if rows and (whole is None or len(rows) > 1 or rows[0][0] != 1 or rows[0][1] % self.group):
            return None
        number, group = row.to_expr(), IntImm(self.group)
        start = (
            add(mul(div(number, group), IntImm(self.group * self.pitch)), mod(number, group))
            if whole is None
            else (whole * (self.group * self.pitch)).to_expr()
        )
        moved: list[Level] = []
        for stride, count in levels:
            if stride % self.pitch == 0 and stride:
                moved += [
                    (Affine.of(1), self.group),
                    (Affine.of(self.group * self.pitch), count // self.group),
                ]
            else:
                moved.append((Affine.of(stride * self.group), count))
        return walk(Affine.of(start) + column * self.group, merge(tuple(moved)))


def _swizzled(s: Allocate, ranges: Ranges) -> Allocate | None:
    """The allocation in VNNI order; None where it has to stay as it is."""
    groups = {
        e.value.args[2]
        for e in walk_all_exprs(s.body)
        if isinstance(e, ExprVar) and _reads(e, s.name) and isinstance(e.value, Call)
    }
    reads = [e for e in walk_all_exprs(s.body) if isinstance(e, Load) and e.buffer == s.name]
    swizzled = [e for e in walk_all_exprs(s.body) if isinstance(e, ExprVar) and _reads(e, s.name)]
    if len(groups) != 1 or len(reads) != len(swizzled) or len(s.extents) < 2:
        return None
    (group,), pitch = groups, s.extents[0]
    if not isinstance(pitch, IntImm) or not isinstance(group, IntImm):
        return None
    rows: Expr = IntImm(1)
    for extent in s.extents[1:]:
        rows = mul(rows, extent)
    if to_affine(rows).divided_by(group.value) is None:
        return None
    layout = _Layout(s.name, pitch.value, group.value)
    body = _rewritten(s.body, layout, ranges)
    if body is None:
        return None
    return replace(s, body=body)


def _rewritten(s: Stmt, layout: _Layout, ranges: Ranges) -> Stmt | None:
    """The body over the new layout; None if one access cannot be moved."""
    failed: list[Stmt] = []

    def statement(x: Stmt, inside: Ranges) -> Stmt:
        if isinstance(x, For):
            inside = inside.extended({x.name: loop_bounds(x)})
        if isinstance(x, Store) and x.buffer == layout.buffer:
            moved = layout.store(x, inside)
            if moved is None:
                failed.append(x)
                return x
            x = moved
        return map_stmt(x, lambda b: statement(b, inside), lambda e: expr(e, x, inside))

    def expr(e: Expr, around: Stmt, inside: Ranges) -> Expr:
        if isinstance(e, ExprVar) and _reads(e, layout.buffer):
            load = layout.load(e, inside)
            if load is None:
                failed.append(around)
            return e if load is None else load
        return map_expr(e, lambda c: expr(c, around, inside))

    result = statement(s, ranges)
    return None if failed else result


def _reads(e: ExprVar, buffer: str) -> bool:
    match e.value:
        case Call(_, name, (_, _, _, Load(_, source, _, _))):
            return name == VNNI and source == buffer
        case _:
            return False


def _dim(stride: int) -> Dim:
    return Dim(IntImm(0), IntImm(0), IntImm(stride))
