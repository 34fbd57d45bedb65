"""Plans tried on a copy of the pipeline: the compiler says which it takes.

The loops of the plan that was tried last are kept: mostly it is the one that is taken.
"""

from __future__ import annotations

import warnings
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from halide_bridge.checks import halide_errors, in_words
from halide_bridge.lowering import lower_copy
from halide_bridge.schedules.host.plan import HostPlan
from halide_bridge.schedules.host.scheduling import HostScheduling
from halide_bridge.schedules.places import Scheduling
from halide_bridge.schedules.plan import Plan
from halide_bridge.schedules.recognise.facts import place
from halide_bridge.schedules.recognise.program import read_program
from halide_bridge.schedules.wanted import Wanted
from halide_bridge.unscheduled import Source
from selector import notebook
from selector.dataclass import dataclass
from selector.diagnostics import PerformanceWarning, UserError
from selector.ir.module import Module
from selector.ir.nodes import Allocate, For, ForKind, IntImm
from selector.ir.remarks import Promise
from selector.ir.traverse import walk_stmt

_GRID = (ForKind.GPU_BLOCK, ForKind.GPU_THREAD)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What ``autoschedule`` has applied.

    ``source``: Python that does the same to ``output``, the same pipeline built anew. ``report``:
    what each Func became, in the order in which they are computed.
    """

    source: str
    report: str

    def __str__(self) -> str:
        return self.source

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each Func, and the source."""
        parts = (line.partition(": ") for line in self.report.splitlines())
        rows = [(notebook.paragraphs(func), notebook.paragraphs(what)) for func, _, what in parts]
        source = notebook.folded("as Python", notebook.code(self.source), opened=True)
        return notebook.table(("Func", "became"), rows) + source


def applied(outputs: list[Any], plan: Plan | HostPlan) -> Schedule:
    """A plan carried out on a pipeline."""
    program = read_program(outputs)
    if isinstance(plan, HostPlan):
        scheduling = HostScheduling(program, place(program, plan.stored), plan)
    else:
        scheduling = Scheduling.of(program, plan)
    scheduling.run()
    return Schedule(scheduling.script.source, scheduling.report)


@dataclass(slots=True)
class Trials:
    """What is tried of the ``source`` for what is ``wanted``."""

    source: Source
    wanted: Wanted
    _last: tuple[Plan | HostPlan, Module] | None = None

    def lowered(self, plan: Plan | HostPlan) -> Module:
        """The loops of a copy with that plan."""
        if self._last is None or self._last[0] is not plan:
            module = lower_copy(
                self.source.outputs,
                lambda copies: applied(copies, plan),
                target=self.wanted.target,
                name=self.source.name,
                inputs=self.source.inputs,
                pipeline=self.source.pipeline,
            )
            self._last = plan, module
        return self._last[1]

    def why_not(self, plan: Plan | HostPlan, longest: int | None = None) -> str:
        """Why the compiler does not take a plan, or gives more than so many characters of code for
        it; empty if it does.
        """
        import selector

        wanted = self.wanted
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PerformanceWarning)
                module = self.lowered(plan)
                kernel = selector.compile(
                    module, wanted.target.name, instructions=wanted.instructions
                )
        except (UserError, *halide_errors()) as error:
            return _said(error)
        length = len(kernel.source)
        if longest is not None and length > longest:
            return f"its code would have {length} characters, which takes long to compile"
        return ""

    def refused(self, plan: Plan) -> str:
        """Why there are no loops of a plan, or memory in them is as large as the call says; empty
        if that is not so. Takes less time than to compile them.
        """
        try:
            module = self.lowered(plan)
        except (UserError, *halide_errors()) as error:
            return _said(error)
        return "" if _is_fixed(module) else "what a thread keeps has no constant size"

    def promises(self, plan: Plan) -> frozenset[Promise] | None:
        """What has to hold at a call of a plan; None if it cannot, or where memory of a kernel is
        as large as the call says.
        """
        try:
            with redirect_stdout(StringIO()):  # where Halide warns of what cannot hold
                module = self.lowered(plan)
        except UserError:
            return None
        return frozenset(module.promises) if _is_fixed(module) else None


def _said(error: Exception) -> str:
    """Why; of Halide's, that a directive does not fit this pipeline."""
    if isinstance(error, UserError):
        return error.why or error.what
    return f"Halide refuses its schedule: {in_words(str(error))}"


def _is_fixed(module: Module) -> bool:
    """Whether all memory of kernels has a constant size."""
    kernels = (s for s in walk_stmt(module.body) if isinstance(s, For) and s.kind in _GRID)
    memory = (s for kernel in kernels for s in walk_stmt(kernel) if isinstance(s, Allocate))
    return all(isinstance(extent, IntImm) for s in memory for extent in s.extents)
