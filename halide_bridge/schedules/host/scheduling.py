"""Directives for every Func of a pipeline on a CPU, at the place that it was given."""

from __future__ import annotations

from halide_bridge.schedules.asked import from_zero
from halide_bridge.schedules.contraction import Contraction, Operand
from halide_bridge.schedules.host import loops, search
from halide_bridge.schedules.host.loops import Loops
from halide_bridge.schedules.host.plan import HostPlan
from halide_bridge.schedules.host.products import multiply
from halide_bridge.schedules.recognise.facts import Place, Placement
from halide_bridge.schedules.recognise.products import Factor, starts_at_zero
from halide_bridge.schedules.recognise.program import Access, Member, Program
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import is_argument
from selector.ir.nodes import Var

_WORDS = {
    Place.THREAD: "where a vector of what reads it is computed",
    Place.KERNEL: "in loops of its own",
}


class HostScheduling:
    """One pipeline's; ``script`` has the directives after ``run``."""

    def __init__(self, program: Program, placement: Placement, plan: HostPlan) -> None:
        self.program, self.placement, self.plan = program, placement, plan
        self.script = Script(program.variables)
        self._lines: list[str] = []
        for name, reader in list(placement.reader.items()):
            if not self._fits(program.members[name], program.members[reader]):
                placement.places[name] = Place.KERNEL
                del placement.reader[name]

    def _fits(self, member: Member, reader: Member) -> bool:
        """Whether a sum can be added up where its only reader is computed: a product, if that has
        its dimensions in their order, and nothing else is there; others, if the reader has loops
        over vectors.
        """
        alone = sum(r == reader.name for r in self.placement.reader.values()) == 1
        if member.label in self.plan.tensor:
            reads = self.placement.bodies[reader.name][0].reads()
            own = tuple(map(Var, member.args))
            return (
                alone
                and reader.args == member.args
                and all(a.indices == own for a in reads if a.func == member.name)
            )
        others = [m for m in self.placement.at_threads_of(reader) if m.label in self.plan.tensor]
        return not others and len(member.types) == 1

    def run(self) -> None:
        if self.plan.found is not None:
            search.repeat(self.plan.found, self.script, self.program)
        for member in self.program:
            if is_argument(member, self.program):
                continue
            self._lines.append(f"{member.label}: {self._became(member)}")
            why = self.plan.misses.get(member.label)
            self._lines += [f"  not in tile registers: {why}"] if why else []
        if self.plan.found is not None:
            self._lines.append(f"loops as Halide's autoscheduler {search.NAME} has them")
        elif self.plan.unfound:
            self._lines.append(f"loops not by Halide's autoscheduler: {self.plan.unfound}")

    @property
    def report(self) -> str:
        return "\n".join(self._lines)

    def _became(self, member: Member) -> str:
        """Schedule a Func, unless that is done; what it became, in words."""
        if self.plan.found is not None:
            return search.where_to(member, self.plan.found, self.program)
        where = self.placement.places[member.name]
        text = f", {self._stored(member).text}" if where is Place.KERNEL else ""
        if member.label in self.plan.tensor:
            return f"in tile registers, {self.plan.tensor[member.label][1].label}"
        return f"{_WORDS.get(where, where.value)}{text}"

    def _func(self, member: Member) -> Recorded:
        return self.script.func(member.label, member.handle)

    def _stored(self, member: Member) -> Loops:
        """The loops of a Func that is stored."""
        if member.label in self.plan.tensor:
            return self._product(member, self._func(member).in_())
        if member.pure:
            return self._pure(member)
        if member.reduction and len(member.types) == 1:
            return self._sum(member)
        func = self._func(member)
        found = loops.by_vectors(self.script, func, member, self.placement)
        for stage in member.stages[1:]:
            found = loops.update(self.script, func, stage, member)
        return found

    def _pure(self, member: Member) -> Loops:
        mine, reader = self.placement.at_threads_of(member), self._func(member)
        if len(mine) == 1 and mine[0].label in self.plan.tensor:
            return self._product(mine[0], reader)
        if len(mine) == 1 and (found := self._rows(mine[0], reader)) is not None:
            return found
        found = loops.by_vectors(self.script, reader, member, self.placement)
        reads = self.placement.bodies[member.name][0].reads()
        for m in mine:
            access = next(a for a in reads if a.func == m.name)
            loops.sum_at(self.script, m, reader, found, access)
        return found

    def _rows(self, member: Member, reader: Recorded | None) -> Loops | None:
        return loops.rows(self.script, member, reader, self.placement)

    def _sum(self, member: Member) -> Loops:
        """A sum that several read, or none but the caller: at the loops of what stores it."""
        func = self._func(member)
        if not member.args:
            found = self._rows(member, None)
            if found is None:
                func.compute_root()
            return found or Loops()
        stored = func.in_()
        found = self._rows(member, stored)
        if found is None:
            found = loops.by_vectors(self.script, stored, member, self.placement)
            own = Access(member.name, 0, tuple(map(Var, (a.name() for a in stored.args()))))
            loops.sum_at(self.script, member, stored, found, own)
        return found

    def _product(self, member: Member, stored: Recorded) -> Loops:
        """A product, and what is stored of it."""
        product, tiling = self.plan.tensor[member.label]
        func = self._func(member)
        stored.compute_root()
        if not starts_at_zero(member.stages[0]):
            from_zero(func, stored)
        n, *batch = func.args()
        m = batch.pop(product.m - 1)
        turns = [*func.rvars(0)]
        k = turns.pop(product.k)
        a, b = self._operand(product.a, "A"), self._operand(product.b, "B")
        multiply(Contraction(stored, func, a, b, n, m, k, tuple(batch), tuple(turns)), tiling)
        return Loops(text="blocks on all cores")

    def _operand(self, factor: Factor, name: str) -> Operand:
        source = self._func(self.program.members[factor.func])
        return Operand(source, name, factor.along, factor.outer)
