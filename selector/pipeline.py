"""The way from a module to a plan: one flat list of named stages.

Each stage is timed. ``SELECTOR_CHECK=1`` verifies the program after each;
``SELECTOR_DUMP=folder`` writes what each leaves behind as a numbered file. Stages import their
rooms when they run, so that a saved kernel is loaded and called without the rules, the rule
engine or the emitters.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from selector import environment
from selector.diagnostics import InternalError
from selector.ir.nodes import Module
from selector.report import Report, StatementReport
from selector.runtime.plan import Plan
from selector.targets import Target


@dataclass(frozen=True, slots=True)
class Work:
    """A compilation on its way: what is known after the stages that ran. Each stage returns a new
    one.
    """

    module: Module
    target: Target
    strict: bool
    statements: tuple[StatementReport, ...] = ()
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A step with its name; ``dump`` is what it leaves behind, as (file suffix, text)."""

    name: str
    run: Callable[[Work], Work]
    dump: Callable[[Work], tuple[str, str]]


@dataclass(slots=True)
class Clock:
    """Seconds by stage, in the order in which the stages ran."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def time(self, name: str, start: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def run(work: Work, clock: Clock) -> Work:
    """Run every stage; the last one leaves a plan."""
    folder = environment.dump_directory()
    check = environment.checks_enabled()
    base = None if folder is None else _dump_folder(folder, work)
    for number, stage in enumerate(STAGES):
        start = time.perf_counter()
        work = stage.run(work)
        clock.time(stage.name, start)
        if base is not None:
            _dump(base, number, stage, work)
        if check:
            _check(stage.name, work)
    return work


def _verify(work: Work) -> Work:
    from selector.ir.verify import verify

    verify(work.module)
    return work


def _select(work: Work) -> Work:
    from selector.eqsat.select import select

    selection = select(work.module, work.target, work.strict)
    return replace(work, module=selection.module, statements=tuple(selection.reports))


def _emit(work: Work) -> Work:
    match work.target.family:
        case "cuda":
            from selector.emit.cuda import emit

            return replace(work, plan=emit(work.module, work.target))
        case "amx":  # no emitter yet: a plan without launches, good for `interpret`
            module = work.module
            plan = Plan(
                module.name,
                work.target.name,
                "",
                module.buffers,
                module.scalars,
                module.requirements,
                (),
                (),
            )
            return replace(work, plan=plan)
        case family:
            raise InternalError(f"no emitter for the family {family!r}")


def _program(work: Work) -> tuple[str, str]:
    return (".vir", str(work.module))


def _source(work: Work) -> tuple[str, str]:
    return (".cu", "" if work.plan is None else work.plan.source)


STAGES = (
    Stage("verify", _verify, _program),
    Stage("select", _select, _program),
    Stage("emit", _emit, _source),
)


def _check(stage: str, work: Work) -> None:
    """``InternalError`` that names the stage which broke the program."""
    from selector.ir.verify import verify

    try:
        verify(work.module)
    except Exception as error:
        raise InternalError(f"the program is not valid after stage {stage!r}: {error}") from error


def _dump_folder(folder: Path, work: Work) -> Path:
    """A folder of its own for each compilation, numbered from 0: ``000-conv1d-sm_90a``."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", work.module.name)
    number = sum(1 for _ in folder.iterdir())
    while True:
        base = folder / f"{number:03d}-{name}-{work.target.name}"
        try:
            base.mkdir()
        except FileExistsError:
            number += 1
        else:
            return base


def _dump(base: Path, number: int, stage: Stage, work: Work) -> None:
    suffix, text = stage.dump(work)
    (base / f"{number:02d}-{stage.name}{suffix}").write_text(text, encoding="utf-8")
    if stage.name == "select":
        report = str(Report(work.statements))
        (base / f"{number:02d}-{stage.name}.report.txt").write_text(report, encoding="utf-8")
