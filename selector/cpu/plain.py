"""Plain code in C: stores inside loops, in the form that compilers vectorize.

A vector store becomes loops over its lanes. What would have to be tested for every element (is a
load inside its buffer, does a condition hold) is tested once ahead of the loops where that can be
said, and the loops are written twice: without tests, and with (``cover``). Accesses start at
pointers made ahead of the loops: compilers vectorize short loops inside others only where little
else is in their indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

from selector.cpu.context import CContext
from selector.cpu.cover import Covering
from selector.cpu.lanes import LaneLoops, Reduction, ScalarValue, lane_loops
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.gpu.codegen.threads.nests import as_nest, independent, where
from selector.ir.affine import Affine, to_affine
from selector.ir.contents import holds
from selector.ir.nodes import BufferParam, Expr, FloatImm, For, IntImm, Load, ReduceOp, Store, Var
from selector.ir.traverse import free_vars, map_expr, walk_stmt
from selector.lowering.ranges import digit_bounds

_COMBINE = {
    ReduceOp.ADD: "{0} + {1}",
    ReduceOp.MUL: "{0} * {1}",
    ReduceOp.MIN: "min({0}, {1})",
    ReduceOp.MAX: "max({0}, {1})",
    ReduceOp.AND: "{0} && {1}",
    ReduceOp.OR: "{0} || {1}",
}
_UNROLLED = 4  # lanes of an innermost loop that are written one after the other


class PlainCode:
    """Writes plain stores."""

    def __init__(self, context: CContext) -> None:
        self.context = context
        self.covering = Covering(context)

    # ------------------------------------------------------------------ stores

    def store(self, s: Store) -> None:
        """A store of any number of lanes."""
        self.form(lane_loops(s))

    def form(self, form: LaneLoops) -> None:
        """A scalar store inside loops; through a copy where it reads what other lanes store."""
        if form.digits and self._reads_itself(form):
            self._through_copy(form)
            return
        if self.context.guarded:
            self._nest(form)
        else:
            cover = self.covering.cover_form(form) if form.digits else None
            self.covering.versions(cover, lambda: self._nest(form))

    def _reads_itself(self, form: LaneLoops) -> bool:
        place = to_affine(form.store.index)
        return any(
            x.buffer == form.store.buffer and to_affine(x.index) != place for x, _ in form.loads()
        )

    def _through_copy(self, form: LaneLoops) -> None:
        """All lanes are evaluated before the first is stored."""
        s, c = form.store, self.context
        t = s.value.type.element
        total, index = 1, to_affine(IntImm(0))
        for var, extent in form.digits:
            index += to_affine(var) * total
            total *= extent
        name = f"$copy.{s.buffer}"
        pointer = c.names.fresh(f"{c.names.get(s.buffer)}_lanes")
        with c.writer.block(""):
            c.writer.line(f"{c_type(t)} {pointer}[{total}];")
            with c.stored(name, Storage(pointer, t, Space.LOCAL)):
                made = Store(name, index.to_expr(), s.value)
                self.form(LaneLoops(form.digits, form.reductions, made))
                value = Load(t, name, index.to_expr())
                self.form(LaneLoops(form.digits, (), Store(s.buffer, s.index, value, s.predicate)))

    def _nest(self, form: LaneLoops) -> None:
        """The loops of a store, with pointers to where each of them begins: compilers vectorize
        the short loops inside others only when nothing else is in their indices.
        """
        if not form.digits:
            self._one(form)
            return
        pointers = Pointers(self.context, form)
        with ExitStack() as stack:
            if pointers.lines:
                stack.enter_context(self.context.writer.block(""))
                self.context.writer.lines("\n".join(pointers.lines))
            for name, storage in pointers.storages.items():
                stack.enter_context(self.context.stored(name, storage))
            self._loops(pointers.form, len(form.digits) - 1)

    def _loops(self, form: LaneLoops, level: int) -> None:
        c = self.context
        if level < 0:
            self._one(form)
            return
        var, extent = form.digits[level]
        if level == 0 and len(form.digits) > 1 and extent <= _UNROLLED and self._is_free(form):
            for number in range(extent):  # side by side, so that the loop around is vectorized
                self._one(_at(form, var, number))
            return
        name = c.names.get(var.name)
        c.writer.line("INDEPENDENT")
        with (
            c.writer.block(f"for (int {name} = 0; {name} < {extent}; ++{name})"),
            c.inside(digit_bounds({var.name: extent})),
        ):
            self._loops(form, level - 1)

    def _is_free(self, form: LaneLoops) -> bool:
        """Whether nothing is tested or summed for each element."""
        if form.reductions or form.store.predicate is not None:
            return False
        homes = self.context.storages
        return all(
            x.predicate is None and homes[x.buffer].elements is None for x, _ in form.loads()
        )

    def _one(self, form: LaneLoops) -> None:
        """The innermost statement."""
        c, s = self.context, form.store
        test = s.predicate
        if test is not None and test not in c.holding:
            with c.writer.block(f"if ({c.scalar.condition(test)})"):
                self._assign(form)
        elif form.reductions:
            with c.writer.block(""):
                self._assign(form)
        else:
            self._assign(form)

    def _assign(self, form: LaneLoops) -> None:
        c, s = self.context, form.store
        for reduction in form.reductions:
            self._reduce(reduction)
        target = c.scalar.address(c.storages[s.buffer], s.index)
        c.writer.line(f"{target} = {c.scalar.expr(s.value)};")

    def _reduce(self, r: Reduction) -> None:
        c = self.context
        total, counter = c.names.get(r.total.name), c.names.get(r.counter.name)
        if r.first is None:
            initial = "0" if r.op is ReduceOp.ADD else "1"
            if r.total.type.is_float:
                initial = c.scalar.expr(FloatImm(float(initial), r.total.type))
        else:
            initial = self._value(r.first)
        c.writer.line(f"{c_type(r.total.type)} {total} = {initial};")
        first = 0 if r.first is None else 1
        head = f"for (int {counter} = {first}; {counter} < {r.factor}; ++{counter})"
        with c.writer.block(head), c.inside(digit_bounds({r.counter.name: r.factor})):
            value = self._value(r.rest)
            c.writer.line(f"{total} = {_combined(c, r, total, value)};")

    def _value(self, v: ScalarValue) -> str:
        for reduction in v.reductions:
            self._reduce(reduction)
        return self.context.scalar.expr(v.value)

    def is_independent(self, s: For) -> bool:
        """Whether the iterations of a plain loop around one store may run in any order."""
        if any(isinstance(x, Store) and x.value.type.lanes > 1 for x in walk_stmt(s)):
            return False  # the loops over its lanes are
        nest = as_nest(s)
        return nest is not None and independent(nest, self._param(nest.store))

    def _param(self, s: Store) -> BufferParam | None:
        storage = self.context.storages.get(s.buffer)
        return None if storage is None else storage.param


def _at(form: LaneLoops, digit: Var, number: int) -> LaneLoops:
    """The store for one value of the innermost digit."""
    store = where(form.store, {digit.name: IntImm(number)})
    return LaneLoops(form.digits[1:], form.reductions, store)


def _combined(c: CContext, r: Reduction, total: str, value: str) -> str:
    t = r.total.type
    if not (t.is_float and t.bits == 16):
        return _COMBINE[r.op].format(total, value)
    narrow = "to_bf16" if c_type(t) == "bf16" else "to_f16"
    return f"{narrow}({_COMBINE[r.op].format(f'to_f32({total})', f'to_f32({value})')})"


class Pointers:
    """A store in loops whose safe accesses start at pointers made ahead of the loops."""

    def __init__(self, context: CContext, form: LaneLoops) -> None:
        self.context = context
        self.lines: list[str] = []
        self.storages: dict[str, Storage] = {}
        self._inner = {v.name for v, _ in form.digits} | set(_counters(form.reductions))
        self._made: dict[tuple[str, Affine], str] = {}
        s = form.store
        kept = None if s.predicate in context.holding else s.predicate
        self._target = s.buffer
        value = self._moved(s.value)
        reductions = tuple(self._reduction(r) for r in form.reductions)
        buffer, index = self._place(s.buffer, s.index)
        self.form = LaneLoops(form.digits, reductions, Store(buffer, index, value, kept))

    def _place(self, buffer: str, index: Expr) -> tuple[str, Expr]:
        """A pointer to the part of an index that the loops do not change, and the rest."""
        place = to_affine(index)
        fixed = Affine(tuple(t for t in place if not self._varies(t[0])))
        shared = fixed - fixed.offset
        if not shared.terms:
            home = self.context.storages[buffer]
            self.storages[f"$at.{buffer}"] = Storage(home.pointer, home.type, home.space)
            return f"$at.{buffer}", index
        key = (buffer, shared)
        if key not in self._made:
            c = self.context
            home = c.storages[buffer]
            name = c.names.fresh(f"{home.pointer}_at")
            const = "" if buffer == self._target else "const "
            start = c.scalar.index(shared.to_expr())
            self.lines.append(f"{const}{c_type(home.type)} *{name} = {home.pointer} + {start};")
            self._made[key] = f"$at.{name}"
            self.storages[f"$at.{name}"] = Storage(name, home.type, home.space)
        return self._made[key], (place - shared).to_expr()

    def _varies(self, atoms: tuple[Expr, ...]) -> bool:
        return any(free_vars(a) & self._inner or holds(a, Load) for a in atoms)

    def _moved(self, e: Expr) -> Expr:
        match e:
            case Load(t, buffer, index, predicate) if self._is_safe(e):
                moved, rest = self._place(buffer, index)
                kept = None if predicate in self.context.holding else predicate
                return Load(t, moved, rest, kept)
            case Load():
                return e
            case _:
                return map_expr(e, self._moved)

    def _is_safe(self, e: Load) -> bool:
        c = self.context
        storage = c.storages[e.buffer]
        return not holds(e.index, Load) and (storage.elements is None or e in c.safe)

    def _reduction(self, r: Reduction) -> Reduction:
        first = None if r.first is None else self._value(r.first)
        return replace(r, first=first, rest=self._value(r.rest))

    def _value(self, v: ScalarValue) -> ScalarValue:
        return ScalarValue(tuple(map(self._reduction, v.reductions)), self._moved(v.value))


def _counters(reductions: tuple[Reduction, ...]) -> Iterator[str]:
    for r in reductions:
        yield r.counter.name
        for part in (r.first, r.rest):
            if part is not None:
                yield from _counters(part.reductions)
