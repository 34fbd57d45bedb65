"""Which kernels compute the sweeps of a pipeline (``recognise.rows``), and their directives
(``rows``).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from halide_bridge.records import ELEMENT
from halide_bridge.schedules import rows
from halide_bridge.schedules.kernels import LINE, Grid
from halide_bridge.schedules.lanes import lanes_of
from halide_bridge.schedules.recognise.facts import Placement
from halide_bridge.schedules.recognise.program import Member, number
from halide_bridge.schedules.recognise.rows import Shared, Sweep, is_row, share, sweep_of
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import Guess
from selector.ir.nodes import Call, Expr, Var
from selector.ir.traverse import free_vars, walk_expr

FEW = 256  # elements that are no work for all warps of a GPU


class Sweeps:
    """Those of one pipeline; ``known``: sizes to be fast at; ``tiled``: Funcs that are stored by
    the blocks of products; ``spread``: over how many multiprocessors long rows are, if several
    blocks may have one.
    """

    def __init__(
        self,
        script: Script,
        placement: Placement,
        known: Guess,
        tiled: frozenset[str],
        spread: int = 0,
    ) -> None:
        self.script, self.placement, self.known, self.spread = script, placement, known, spread
        self.sweeps = {m.name: sweep_of(m, placement) for m in placement.program if m.reduction}
        self.shared = share(placement, tiled)

    def of_reader(self, member: Member) -> Grid | None:
        """The kernel of a Func whose blocks compute sweeps that it reads; None if they do not."""
        shared = self.shared.get(member.name)
        if shared is None:
            return None
        reader = self._func(member)
        args = {a.name(): a for a in reader.args()}
        mine = [self.placement.program.members[name] for name in shared.funcs]
        if (x := self._sweep(mine[0]).kept) != "":
            at = self._elements(member, mine[0])
            found = [self._columns(m) for m in mine]
            return rows.columns(self.script, reader, args[at[x]], found, 1)
        parts = [
            self._part(m, self._own(member, m, shared), m.name not in shared.once) for m in mine
        ]
        inner = [a for name, a in args.items() if name not in shared.rows]
        of_rows = [args[name] for name in shared.rows]
        lanes, each = 1, min(part.lanes for part in parts)
        if inner:
            body = self.placement.bodies[member.name][0]
            stored, along = member.types[0].bytes, inner[0].name()
            lanes = lanes_of(body, along, stored, rows=frozenset(shared.rows))
            each = min(lanes, each)
            if each > 1:  # an element is of one thread all through the kernel
                lanes, parts = each, [replace(part, lanes=each) for part in parts]
        bytes_ = self._bytes(member, mine, shared)
        threads = self._threads(mine, each, bytes_=bytes_, stored=bool(inner))
        if self.spread and threads == rows.MOST and inner and each > 1:
            number = [n for n, a in enumerate(member.args) if a in shared.rows]
            count = prod(self.known.extent(member, n) for n in number)
            most = rows.most_threads(count, self.spread)
            threads = self._threads(mine, each, most, bytes_)
        return rows.by_blocks(self.script, reader, of_rows, inner, parts, threads, lanes)

    def of_itself(self, member: Member) -> Grid | None:
        """The kernel of a sweep that is stored; None if it is none."""
        sweep = self.sweeps.get(member.name)
        if sweep is None:
            return None
        func = self._func(member)
        if not member.args:
            return rows.joined(self.script, func, self._in_parts(member))
        if sweep.kept:
            found = self._columns(member)
            return rows.columns(self.script, func.in_(), found.x, [found], 1)
        y, *others = func.args()
        part = self._part(member, y, False)
        return rows.by_blocks(
            self.script, func.in_(), (y, *others), (), [part], self._threads([member], part.lanes)
        )

    def _func(self, member: Member) -> Recorded:
        return self.script.func(member.label, member.handle)

    def _sweep(self, member: Member) -> Sweep:
        found = self.sweeps[member.name]
        assert found is not None
        return found

    def _columns(self, member: Member) -> rows.Columns:
        func, sweep = self._func(member), self._sweep(member)
        x = next(a for a in func.args() if a.name() == sweep.kept)
        extent = member.stages[1].reduced[sweep.along].extent
        lanes = self._neighbours(member, sweep.kept)
        width = self.known.extent(member, member.args.index(sweep.kept))
        height, told = number(extent), self._extent(extent) or 0
        return rows.columns_in_parts(self.script, func, x, sweep.along, height, lanes, width, told)

    def _part(self, member: Member, own: Any, shared: bool) -> rows.Part:
        func, sweep, lanes = self._func(member), self._sweep(member), self._lanes(member)
        if self._is_whole(member):
            return rows.Part(func, own, func.rvars(0)[sweep.along], shared=shared, lanes=lanes)
        return rows.Part(func, own, self._in_parts(member), shared=shared)

    def _in_parts(self, member: Member) -> Any:
        func, sweep, lanes = self._func(member), self._sweep(member), self._lanes(member)
        sizes = [number(r.extent) for r in member.stages[1].reduced]
        return rows.in_parts(self.script, func, sweep.along, sizes, lanes)

    def _lanes(self, member: Member) -> int:
        """Neighbours along a row that a thread adds up beside each other."""
        body = self.placement.bodies[member.name][1]
        return self._neighbours(member, body.stage.reduced[self._sweep(member).along].name)

    def _neighbours(self, member: Member, along: str) -> int:
        """Those of one value, of which none is left out."""
        body = self.placement.bodies[member.name][1]
        alike = len(member.types) == 1 and body.predicate is None
        return lanes_of(body, along) if alike else 1

    def _is_whole(self, member: Member) -> bool:
        """Whether a block adds up a whole row: there are enough, or no more of one than a block
        adds up.
        """
        sweep, total = self._sweep(member), 1
        if not is_row(member, sweep):
            return False
        for d in range(len(member.args)):
            total *= self.placement.extent(member.name, d) or FEW + 1
        length = self._extent(member.stages[1].reduced[sweep.along].extent)
        return total > FEW or (length is not None and length <= rows.CHUNK)

    def _bytes(self, reader: Member, mine: list[Member], shared: Shared) -> int:
        """Of all arrays that are read, for an element of a row, but for what all rows share."""
        along = {*(r.name for m in mine for r in m.stages[1].reduced), *reader.args}
        along -= {*shared.rows}
        of_rows = {*shared.rows, *(a for m in mine for a in m.args)}
        bodies = (body for m in (reader, *mine) for body in self.placement.bodies[m.name])
        found = {
            part.name: part.type.bytes
            for body in bodies
            for e in body.expressions
            for part in walk_expr(e)
            if isinstance(part, Call)
            and ELEMENT in part.name
            and all(any(free_vars(i) & names for i in part.args) for names in (along, of_rows))
        }
        return max(1, sum(found.values()))

    def _threads(
        self,
        members: list[Member],
        lanes: int,
        most: int = rows.MOST,
        bytes_: int = 1,
        *,
        stored: bool = True,
    ) -> int:
        """Those of a row, which read so many ``lanes`` at once; ``most`` of them. ``bytes_``: of
        all that is read for an element; whether elements are ``stored``, too.
        """
        if not all(map(self._is_whole, members)):
            return LINE
        sweeps = ((m, self._sweep(m)) for m in members)
        extents = [self._extent(m.stages[1].reduced[s.along].extent) for m, s in sweeps]
        known = [e for e in extents if e is not None]
        extent = max(known) if len(known) == len(extents) else None
        once = len(members) == 1
        return rows.threads_of(extent, lanes, most, bytes_, stored=stored, once=once)

    def _extent(self, e: Expr) -> int | None:
        """A number, or what the user says of it."""
        names = free_vars(e)
        said = bool(names) and None not in [self.known.get(name) for name in names]
        return self.known.value(e) if said else number(e)

    def _elements(self, reader: Member, member: Member) -> dict[str, str]:
        """The argument of a reader at which each of a sweep's own is, where it reads it itself."""
        reads = self.placement.bodies[reader.name][0].reads()
        found = next((a for a in reads if a.func == member.name), None)
        if found is None:
            return {}
        pairs = zip(member.args, found.indices, strict=True)
        return {arg: i.name for arg, i in pairs if isinstance(i, Var)}

    def _own(self, reader: Member, member: Member, shared: Shared) -> Any:
        """A sweep's argument along the first dimension of the rows."""
        at = self._elements(reader, member)
        args = self._func(member).args()
        return next((a for a in args if at.get(a.name()) == shared.rows[0]), args[0])
