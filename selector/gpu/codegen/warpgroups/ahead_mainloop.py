"""Pipelined loops whose iterations begin with products of one part of a stage and end with products
of the other and of what was made of the first, as attention's do.

    S = Q K(0);  W = w(S)
    for i from 1 on:  issue S = Q K(i)  and  O += W V(i - 1)
                      when S is there, as much of w(S) as touches neither W nor O
                      when O is there, the rest
    O += W V(last)

So tensor units are busy with values while weights are made. K and V come and go by themselves: the
next K is asked for when S is there.

That is for two groups, of which both may weigh at once: of three and more one multiplies meanwhile.
And it is for products with values that last: of 128 channels, and as many as there are keys in a
run (of 64 channels it takes 1.09 to 1.15 times as long, of 256 0.80 to 0.82 of the time).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from selector.dataclass import dataclass
from selector.gpu.codegen.pipelines.pipeline import Pipeline
from selector.gpu.codegen.units import Unit
from selector.gpu.codegen.warpgroups.clusters import ask
from selector.gpu.codegen.warpgroups.iterations import (
    first_products,
    only_region,
    trailing_accumulators,
)
from selector.gpu.codegen.warpgroups.warp_specialised import WarpSpecialised
from selector.gpu.ir.expressions import flag, less, number
from selector.gpu.ir.nodes import Drain, Let
from selector.ir.nodes import Allocate, Stmt, Store
from selector.ir.traverse import free_vars, walk_all_exprs, walk_stmt
from selector.lowering.structure import in_order, loaded_names, stored_names
from selector.lowering.tiles import as_accumulate

GROUPS = 2  # that multiply
LASTING = 16  # pieces of 8 columns of last products, at least
NOW, TIMES = "now", "times"  # the stage of the iteration before, and how often it came around


@dataclass(frozen=True, slots=True)
class Split:
    """An iteration: the ``first`` products, what is ``early`` and ``late`` of what follows (in
    order: ``rest``), and the ``last`` products, which add to ``sums`` and read the ``second`` part
    of the staged buffers. ``held``: registers that last products read, ``own``: the others.
    """

    loops: list[tuple[str, int]]
    first: list[Stmt]
    rest: list[Stmt]
    early: list[Stmt]
    late: list[Stmt]
    last: list[Stmt]
    scores: list[str]
    sums: list[str]
    held: list[Allocate]
    own: list[Allocate]
    second: frozenset[str]


def split_of(consumers: list[Stmt], staged: frozenset[str], variable: str) -> Split | None:
    """An iteration so; None for any other."""
    sums, (loops, body) = trailing_accumulators(consumers), only_region(consumers)
    stmts = list(in_order(body))
    head, tail = first_products(stmts)
    first, rest, last = stmts[:head], stmts[head:tail], stmts[tail:]
    products = [as_accumulate(s) if isinstance(s, Store) else None for s in last]
    second = staged.intersection(*map(loaded_names, last)) if last else frozenset[str]()
    own = staged.intersection(frozenset[str]().union(*map(loaded_names, first)))
    others = frozenset[str]().union(*map(loaded_names, rest))
    made = {o.buffer for p in products if p is not None for o in (p.a, p.b)} - staged
    varies = any(variable in free_vars(e) for s in last for e in walk_all_exprs(s))
    if not sums or not rest or varies or not second or not own or own | second != staged:
        return None
    if own & second or others & staged or not made:
        return None
    late = _late(rest, frozenset(sums) | made)
    allocations = [x for x in walk_stmt(body) if isinstance(x, Allocate)]
    return Split(
        loops, first, rest, [s for s in rest if s not in late], late, last,
        sorted(frozenset[str]().union(*map(stored_names, first))), sums,
        [a for a in allocations if a.name in made], [a for a in allocations if a.name not in made],
        second,
    )  # fmt: skip


def _late(stmts: list[Stmt], names: frozenset[str]) -> list[Stmt]:
    """Statements that touch some memory, and those that cannot go ahead of one that does."""
    late: list[Stmt] = []
    for s in stmts:
        reads, writes = loaded_names(s), stored_names(s)
        behind = any(stored_names(x) & (reads | writes) or loaded_names(x) & writes for x in late)
        if behind or (reads | writes) & names:
            late.append(s)
    return late


class AheadMainloop(WarpSpecialised):
    """Such a loop, or an ordinary one (``split`` is None then). Parts of stages have barriers of
    their own.
    """

    @cached_property
    def split(self) -> Split | None:
        """Its iterations."""
        return self._split()

    def _split(self) -> Split | None:
        block, names = self.context.block, frozenset(self.work.names)
        alone = block.cluster == block.teams == 1 and block.warps == GROUPS
        alone = alone and self.work.counts is None  # the next one is the next number
        if not alone or self.stages < 2 or not self._trailing():
            return None
        found = split_of(self.work.consumers, names, self.work.loop.name)
        return found if found is not None and self._lasts(found) else None

    def _lasts(self, split: Split) -> bool:
        """Whether last products have many columns, and as many as the first ones."""
        own = self.context.registers.accumulators
        first, last = (
            sum(own[n].fragments for n in names if n in own) for names in (split.scores, split.sums)
        )
        return last >= max(first, LASTING)

    @property
    def parts(self) -> tuple[Pipeline, Pipeline]:
        """Their barriers."""
        return self.pipeline, replace(self.pipeline, part=1)

    def _make(self) -> None:
        if self.split is not None:
            self.pipeline = Pipeline(self.context, self.stages, self.how, parts=2)
        super()._make()

    def _ask(self, *, early: bool = False) -> None:
        if self.split is None:
            super()._ask(early=early)
            return
        self._point("slot")
        for part in self.parts:
            if part.part and not early:
                with self.context.writer.when(flag("round")):
                    part.acquire()
            second = self.split.second
            boxes = [b for b in self.feed.boxes or () if (b.to in second) is bool(part.part)]
            ask(boxes, part, self.context)

    def _fill_stage(self, unit: Unit) -> None:
        if self.split is None:
            super()._fill_stage(unit)
            return
        whole = self.pipeline
        for part in self.parts:
            if part.part:
                with self.context.writer.when(flag("round")):
                    part.acquire()
            own = [x for x in self.work.producers if self._is_second(x) is bool(part.part)]
            self.pipeline = part
            self._produce(own, "slot", unit)
            self._complete(unit)
        self.pipeline = whole

    def _is_second(self, x: Stmt) -> bool:
        return self.split is not None and bool(stored_names(x) & self.split.second)

    def _consume(self, groups: Unit) -> None:
        split, w, emitter = self.split, self.context.writer, self.emitter
        if split is None:
            super()._consume(groups)
            return
        if not self.persistent:
            self.pipeline.begin()
        emitter.groups.hold(split.sums)  # ptxas: nothing else defines them inside
        before = emitter.pipelines.in_consumers
        emitter.pipelines.in_consumers = True
        emitter.pipelines.depth += 1
        with w.when(less(self.work.low, self.work.stop)):
            emitter.begin_again(self.work.consumers, groups)
            with emitter.region(split.loops, self.work.consumers[0], groups) as unit:
                for a in split.held:
                    emitter.placement.place(a, unit, in_warp=True)
                self._begin(split, unit)
                with emitter.loop_head(self.work.loop, 1):
                    self._go_on(split, unit)
                self._end_with(split, unit)
        emitter.pipelines.depth -= 1
        emitter.pipelines.in_consumers = before

    def _begin(self, split: Split, unit: Unit) -> None:
        """All of the first iteration but its last products."""
        with self.context.writer.block():
            self.context.writer.add(Let("int", (self.work.variable,), (number(self.work.low),)))
            self._issue_first(split, unit)
            self._first_landed(split, 0)
            self.emitter.statements(split.rest, unit, in_warp=True)

    def _go_on(self, split: Split, unit: Unit) -> None:
        w, (_, values) = self.context.writer, self.parts
        w.add(Let("int", (NOW, TIMES), (number("slot"), number("round"))))
        self.pipeline.advance()
        self._issue_first(split, unit)
        values.wait(NOW, TIMES)
        self._issue_last(split, unit, NOW)
        self._first_landed(split, 1)
        self.emitter.statements(split.early, unit, in_warp=True)
        self._last_landed(split)
        self._release(values.freed(NOW))
        self.emitter.statements(split.late, unit, in_warp=True)

    def _end_with(self, split: Split, unit: Unit) -> None:
        """The last iteration's last products."""
        _, values = self.parts
        values.wait()
        self._issue_last(split, unit, "slot")
        self._last_landed(split)
        if self.persistent:
            self._release(values.freed())
            self.pipeline.advance()

    def _issue_first(self, split: Split, unit: Unit) -> None:
        self.pipeline.wait()
        self._point("slot")
        for a in split.own:
            self.emitter.placement.place(a, unit, in_warp=True)
        self._issue(split.first, unit)

    def _issue_last(self, split: Split, unit: Unit, slot: str) -> None:
        self._point(slot)
        self._issue(split.last, unit)

    def _issue(self, stmts: list[Stmt], unit: Unit) -> None:
        self.emitter.groups.deferred = True
        self.emitter.statements(stmts, unit, in_warp=True)
        self.emitter.groups.deferred = False

    def _first_landed(self, split: Split, after: int) -> None:
        """The first products are complete, and all but so many runs ``after`` them."""
        self.context.writer.add(Drain("matrix", after))
        self.emitter.groups.hold(split.scores)
        self._release()
        self._tiles_read()

    def _last_landed(self, split: Split) -> None:
        self.context.writer.add(Drain("matrix", 0))
        self.emitter.groups.hold(split.sums)
