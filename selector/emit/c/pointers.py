"""Loops over lanes whose accesses start at pointers made ahead of the loops: compilers vectorize
short loops inside others only where little else is in their indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from selector.emit.c.context import CContext
from selector.emit.c.lanes import LaneLoops, Reduction, ScalarValue
from selector.emit.scalar import Storage, c_type
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Expr, Load, Store
from selector.ir.traverse import free_vars, map_expr, walk_expr


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
        return any(free_vars(a) & self._inner or _reads_memory(a) for a in atoms)

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
        return not _reads_memory(e.index) and (storage.elements is None or e in c.safe)

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


def _reads_memory(e: Expr) -> bool:
    return any(isinstance(x, Load) for x in walk_expr(e))
