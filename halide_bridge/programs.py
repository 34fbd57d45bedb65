"""Programs of a plain pipeline, each with the schedule for its sizes.

A schedule looks at some extents of outputs and arguments, and notes which (``schedules.sizes``):
these, rounded, are the class of the program. Any call whose extents round to the same has it,
whatever sizes of the class it was made for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from halide_bridge.remembered import Note, pipelines_of
from halide_bridge.unscheduled import source_of
from selector.diagnostics import ScheduleError
from selector.report import Report
from selector.runtime.classes import Shapes, SizeClass, rounded, typical
from selector.runtime.plan import Plan
from selector.runtime.sizes import axis_of, constant_extents

if TYPE_CHECKING:
    from halide_bridge.schedules.sizes import Sizes
    from selector.api import Kernel

_one_at_a_time = threading.Lock()  # calls make programs in whatever thread they are


class Programs:
    """Those of one pipeline, which is kept as it was. ``options`` are ``selector.compile``'s."""

    def __init__(
        self,
        output: Any,
        name: str | None,
        inputs: Sequence[object] | None,
        target: str,
        options: Mapping[str, Any],
    ) -> None:
        self._source = source_of(output, name, inputs)
        self._target, self._options = target, dict(options)
        if (allowed := options.get("instructions")) is not None:
            self._options["instructions"] = tuple(allowed)  # asked for again for each program
        self._known = pipelines_of(self._source, target, self._options)
        self._plan: Plan | None = None
        self._made_of: dict[str, Kernel] = {}  # by the text of the loops, or in the cache

    def kernel(self, sizes: Sizes | Sequence[Sizes] | None) -> Kernel:
        """One program for one set of sizes; else one for each class, where it depends on them."""
        from selector.api import SizedKernel

        if sizes is not None and not _is_list(sizes):
            return self._compiled(cast("Sizes", sizes))[0]
        several = cast("Sequence[Sizes]", sizes or ())
        base, depends = self._compiled(_typical(several[0]) if several else None)
        if not depends:
            return base
        self._plan = base.plan
        kernel = SizedKernel(base, {}, self._made)
        for each in several:
            kernel.compile_for(each)
        return kernel

    def _made(self, shapes: Shapes) -> tuple[SizeClass, Kernel]:
        """The class of some shapes, by the names of the plan, and a program made for these."""
        assert self._plan is not None
        fixed = {b.name: constant_extents(b)[::-1] for b in self._plan.buffers}
        wanted = {
            name: tuple(
                typical(n) if known is None else known
                for n, known in zip(shape, fixed[name], strict=True)
            )
            for name, shape in shapes.items()
        }
        with _one_at_a_time:
            kernel, depends = self._compiled(wanted, some=True)
        asked: list[tuple[str, tuple[int | None, ...]]] = []
        for b in self._plan.buffers:
            axes = {
                axis_of(b, d) for d in depends.get(b.name, ()) if constant_extents(b)[d] is None
            }
            if axes and b.name not in wanted:
                raise ScheduleError(
                    f"sizes lacks the shape of `{b.name}`",
                    why="the schedule depends on it",
                    hint="give the shapes of all inputs, or of all inputs and outputs",
                    where=self._source.location,
                )
            if axes:
                shape = map(rounded, shapes[b.name])
                asked.append((b.name, tuple(n if i in axes else None for i, n in enumerate(shape))))
        return SizeClass(tuple(asked)), kernel

    def _compiled(
        self, sizes: Sizes | None, some: bool = False
    ) -> tuple[Kernel, dict[str, set[int]]]:
        """A program, and on what of the sizes it depends; as it was noted, if it was."""
        key = None if self._known is None else self._known.key(sizes, some)
        found = None if key is None else self._compiled_before(key)
        if found is not None:
            return found
        kernel, depends, precisions = self._compiled_anew(sizes, some)
        if key is not None and self._known is not None and kernel.cache_key is not None:
            self._known.write(key, Note(kernel.cache_key, depends, precisions))
        return kernel, depends

    def _compiled_before(self, key: str) -> tuple[Kernel, dict[str, set[int]]] | None:
        from selector.api import compiled_before

        assert self._known is not None
        note = self._known.note(key)
        if note is None:
            return None
        kernel = self._made_of.get(note.kernel) or compiled_before(self._known.cache, note.kernel)
        if kernel is None:
            return None
        if note.kernel not in self._made_of:
            kernel.report = _with(kernel.report, note.precisions)
            self._made_of[note.kernel] = kernel
        return kernel, dict(note.depends)

    def _compiled_anew(
        self, sizes: Sizes | None, some: bool
    ) -> tuple[Kernel, dict[str, set[int]], Mapping[str, str]]:
        import selector
        from halide_bridge.schedules.auto import lower_auto

        start = time.perf_counter()
        allowed = self._options.get("instructions")
        module, depends, precisions = lower_auto(
            self._source, target=self._target, sizes=sizes, instructions=allowed, some=some
        )
        seconds, text = time.perf_counter() - start, str(module)
        if text not in self._made_of:
            kernel = selector.compile(module, target=self._target, **self._options)
            known = self._made_of.get(kernel.cache_key or "")
            if known is None:
                kernel.lowered_in(seconds)
                kernel.report = _with(kernel.report, precisions)
            self._made_of[text] = known or kernel
            if kernel.cache_key is not None:
                self._made_of[kernel.cache_key] = self._made_of[text]
        return self._made_of[text], depends, precisions


def _with(report: Report, precisions: Mapping[str, str]) -> Report:
    """A report with what is known of the precision of products, by Func."""
    known = (
        replace(s, precision=precisions.get(s.func, s.precision)) if s.block else s
        for s in report.statements
    )
    return replace(report, statements=tuple(known)) if precisions else report


def _typical(sizes: Sizes) -> Sizes:
    """Those that a class is scheduled for. What is declared counts before what is said here."""
    if isinstance(sizes, Mapping):
        return {name: tuple(map(typical, shape)) for name, shape in sizes.items()}
    return tuple(map(typical, sizes))


def _is_list(sizes: Any) -> bool:
    """Whether these are several sizes, no shape and no shapes by name."""
    if sizes is None or isinstance(sizes, Mapping):
        return False
    return any(isinstance(each, (Mapping, Sequence)) for each in sizes)
