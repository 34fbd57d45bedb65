"""The way from a module to a plan: one flat list of named stages.

Each stage is timed. ``SELECTOR_CHECK=1`` verifies the program after each that changes it;
``SELECTOR_DUMP=folder`` writes what each leaves behind as a numbered file. Stages import their
rooms when they run, so that a saved kernel is loaded and called without the rules, the rule
engine or the emitters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING

from selector import dump, environment
from selector.dataclass import dataclass
from selector.diagnostics import InternalError, UserError
from selector.garbage import collector_paused
from selector.ir.module import Module
from selector.report import Report, Search, StatementReport
from selector.runtime.plan import Plan
from selector.targets import Target

if TYPE_CHECKING:
    from selector.gpu.ir.nodes import Kernel


@dataclass(frozen=True, slots=True)
class Work:
    """A compilation on its way: what is known after the stages that ran. Each stage returns a new
    one.

    ``rules`` are (file name, text) of rules in addition to the standard ones; ``kernels``: what a
    GPU's source is printed from, after each pass, by its name.
    """

    module: Module
    target: Target
    strict: bool
    instructions: tuple[str, ...] | None = None
    statements: tuple[StatementReport, ...] = ()
    searches: tuple[Search, ...] = ()
    kernels: tuple[tuple[str, tuple[Kernel, ...]], ...] = ()
    plan: Plan | None = None
    rules: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """A step with its name; ``dump`` gives what to write, from the work before it and after it.

    ``family``: only for targets of that family; empty: for all.
    """

    name: str
    run: Callable[[Work], Work]
    dump: Callable[[Work, Work], dict[str, str]]
    family: str = ""


@dataclass(slots=True)
class Clock:
    """Seconds by stage, in the order in which the stages ran."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def time(self, name: str, start: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def run(work: Work, clock: Clock, watch: Callable[[str], None] = lambda stage: None) -> Work:
    """Run every stage; the last one leaves a plan. ``watch`` is told each stage that begins."""
    root = environment.dump_directory()
    check = environment.checks_enabled()
    folder = None if root is None else dump.new_folder(root, work.module, work.target)
    stages = [s for s in STAGES if s.family in ("", work.target.family)]
    with collector_paused():
        for number, stage in enumerate(stages):
            watch(stage.name)
            start = time.perf_counter()
            before, work = work, stage.run(work)
            clock.time(stage.name, start)
            if folder is not None:
                dump.write(folder, number, stage.name, stage.dump(before, work))
            if check and work.module is not before.module:
                _check(stage.name, work)
    return work


def _verify(work: Work) -> Work:
    from selector.ir.verify import verify

    verify(work.module)
    return work


def _select(work: Work) -> Work:
    from selector.eqsat.select import select

    engine = None
    if work.rules:
        from selector.workbench.extended import extended_bench

        engine = extended_bench(work.rules, work.instructions).engine((work.target.name,))
    selection = select(work.module, work.target, work.strict, work.instructions, engine)
    return replace(work, module=selection.module, statements=selection.reports,
                   searches=selection.searches)  # fmt: skip


def _explain(work: Work) -> Work:
    """The chain of rules of each result."""
    return replace(work, statements=tuple(s.explained() for s in work.statements))


def _hoist(work: Work) -> Work:
    """Temporaries in memory, for targets whose operands lie there."""
    from selector.lowering.hoist import hoist
    from selector.lowering.preload import swizzle_preloaded

    return replace(work, module=hoist(swizzle_preloaded(work.module)))


def _emit(work: Work) -> Work:
    match work.target.family:
        case "cuda":
            from selector.gpu.codegen.program import emit_kernels
            from selector.gpu.passes import Trace
            from selector.lowering.choices import share_choices

            trace, module = Trace(), share_choices(work.module)
            _, plan = emit_kernels(module, work.target, environment.patience(), trace.add)
            return replace(work, module=module, kernels=tuple(trace.kernels.items()), plan=plan)
        case "amx":
            from selector.cpu import emit

            return replace(work, plan=emit(work.module, work.target))
        case family:
            raise InternalError(f"no emitter for the family {family!r}")


def kernels_text(work: Work, after: str | None = None) -> str:
    """The IR of the kernels that a source was printed from, or of what the pass ``after`` has left
    of it.
    """
    from selector.gpu.ir.text import print_kernels

    passes = dict(work.kernels)
    if after is not None and after not in passes:
        raise UserError(f"there is no pass `{after}`", hint=f"one of {', '.join(passes)}")
    return print_kernels(work.kernels[-1][1] if after is None else passes[after])


def _program(_: Work, after: Work) -> dict[str, str]:
    return {".vir": str(after.module)}


def _selected(before: Work, after: Work) -> dict[str, str]:
    return {
        ".vir": str(after.module),
        ".egg": dump.egg_program(before.module, before.target, before.instructions),
    }


def _reported(_: Work, after: Work) -> dict[str, str]:
    return {".report.txt": f"{Report(after.statements)}\n"}


def _source(_: Work, after: Work) -> dict[str, str]:
    source = "" if after.plan is None else after.plan.source
    if after.target.family == "amx":
        return {".c": source}
    from selector.gpu.ir.text import print_kernels

    passes = {
        f".{number:02}-{name}.kir": print_kernels(kernels)
        for number, (name, kernels) in enumerate(after.kernels)
    }
    return {**passes, ".kir": kernels_text(after), ".cu": source}


STAGES = (
    Stage("verify", _verify, _program),
    Stage("select", _select, _selected),
    Stage("explain", _explain, _reported),
    Stage("hoist", _hoist, _program, "amx"),
    Stage("emit", _emit, _source),
)


def _check(stage: str, work: Work) -> None:
    """``InternalError`` that names the stage which broke the program."""
    from selector.ir.verify import verify

    try:
        verify(work.module)
    except Exception as error:
        raise InternalError(f"the program is not valid after stage {stage!r}: {error}") from error
