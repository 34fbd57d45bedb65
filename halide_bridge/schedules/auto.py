"""Schedules that nobody writes: ``autoschedule``, for a plain pipeline and a GPU.

The definitions are read (``recognise``), each Func gets its place there, and here its directives
(``kernels``, ``reductions``, the family of contractions), which are applied to the user's pipeline
and written down at once (``recorder``). Nothing is refused: what has no better way is computed in a
kernel of its own. What is to go to a tensor unit is tried on a copy before.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Any

from halide_bridge import memory
from halide_bridge.checks import halide_errors, in_words, is_pipeline, output_funcs
from halide_bridge.lowering import lower_copy
from halide_bridge.memory import apart
from halide_bridge.names import plain
from halide_bridge.native import native
from halide_bridge.schedules import online
from halide_bridge.schedules.candidates import Given, candidates, form_of, forms, sum_of
from halide_bridge.schedules.factors import (
    set_apart,
    set_divided,
    set_narrow,
    set_together,
    set_zero_points,
)
from halide_bridge.schedules.made import chains
from halide_bridge.schedules.places import Scheduling
from halide_bridge.schedules.plan import Plan
from halide_bridge.schedules.recognise.apart import why_apart
from halide_bridge.schedules.recognise.attention import online_of
from halide_bridge.schedules.recognise.facts import place
from halide_bridge.schedules.recognise.program import Member, Program, read_program
from halide_bridge.schedules.recognise.resampling import is_banded, resampled_by
from halide_bridge.schedules.recognise.reuse import of_some
from halide_bridge.schedules.reductions import is_search
from halide_bridge.schedules.rows import ELEMENTS, MOST
from halide_bridge.schedules.sizes import Sizes, guess, is_argument
from halide_bridge.schedules.wanted import Wanted, wanted_of
from selector.dataclass import dataclass
from selector.diagnostics import PerformanceWarning, ScheduleError, UserError
from selector.families.bands import worth
from selector.ir.module import Module
from selector.ir.nodes import Allocate, For, ForKind, IntImm
from selector.ir.remarks import Promise
from selector.ir.traverse import walk_stmt
from selector.machine import machine_for
from selector.targets import Target

CLUSTERS = 90  # what GPUs can that have clusters
_GRID = (ForKind.GPU_BLOCK, ForKind.GPU_THREAD)
_scheduled: dict[str, str] = {}  # outputs, by Halide's name, and where that was


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


def autoschedule(
    output: Any,
    *,
    target: str | Target = "cuda",
    sizes: Sizes | None = None,
    instructions: Iterable[str] | None = None,
    tilings: Mapping[str, Given] | None = None,
) -> Schedule:
    """Schedule a plain pipeline for a GPU: a Func, several, or a Pipeline.

    Directives are applied to its Funcs, as a user would; those that have a schedule keep it, with
    what is computed at their loops. Returns the directives as text and a report. The same pipeline
    gives the same schedule.

    ``sizes``: what it is to be fast at, the output's shape in NumPy's order, or shapes of outputs
    and arguments by name; it takes any other size as well. Estimates (``set_estimates``) of outputs
    do the same. ``instructions``: the families (``"mma"``) or names that are allowed, as for
    ``selector.compile``; ``"tf32"`` has to be named, it rounds products of single floats, and
    ``"fp8"``, whose sums have about 14 bits. ``tilings``: of some sums, by the names of
    their Funcs, how a tensor unit has them (a ``Tiling`` of ``selector.families``), in place of
    what the machine model takes for best.

    ``ScheduleError`` for what is no output, for a second call, for a CPU target and for tilings
    that sums cannot have.
    """
    location = memory.caller_location()
    outputs = output_funcs(output, location)
    _refuse_scheduled(outputs, location)
    wanted = wanted_of(target, instructions, location, tilings)
    plan, first = _plan(outputs, wanted, sizes, location)
    schedule = _applied(outputs, plan)
    _scheduled.update((func.name(), location) for func in outputs)
    return replace(schedule, source=first + schedule.source)


def lower_auto(
    source: Source,
    *,
    target: str | Target,
    sizes: Sizes | None,
    instructions: Iterable[str] | None = None,
    some: bool = False,
) -> tuple[Module, dict[str, set[int]], Mapping[str, str]]:
    """The loops of a copy that is scheduled so, and on which axes of outputs and arguments (0 is
    the last) its schedule depends: the same rest gives the same. Then what is known of the
    precision of Funcs. ``some``: of the ``sizes``, those that the pipeline has.
    """
    with apart(source.said):
        outputs = native().copy(source.outputs)
        wanted = wanted_of(target, instructions, source.location)
        plan, _ = _plan(outputs, wanted, sizes, source.location, some)
        module = lower_copy(
            outputs,
            lambda copies: _applied(copies, plan),
            target=target,
            name=source.name,
            inputs=source.inputs,
            pipeline=source.pipeline,
        )
    return module, plan.known.depends_on(), plan.precisions


@dataclass(frozen=True, slots=True)
class Source:
    """A plain pipeline as it was: copies of its ``outputs``, what was ``said`` of its Funcs, and
    the requirements of the ``pipeline``, if it is one.
    """

    outputs: list[Any]
    said: Mapping[str, memory.Directives]
    pipeline: Any
    name: str | None
    inputs: Sequence[object] | None
    location: str


def source_of(output: Any, name: str | None, inputs: Sequence[object] | None) -> Source:
    """What a user hands in. ``ScheduleError`` for what is no output or has been scheduled."""
    location = memory.caller_location()
    outputs = output_funcs(output, location)
    _refuse_scheduled(outputs, location)
    pipeline = output if is_pipeline(output) else None
    return Source(native().copy(outputs), memory.said(), pipeline, name, inputs, location)


def _refuse_scheduled(outputs: Sequence[Any], location: str) -> None:
    for func in outputs:
        if func.name() in _scheduled:
            raise ScheduleError(
                f"`{plain(func.name())}` has been scheduled already",
                why=f"at {_scheduled[func.name()]}; directives add up, and these would not fit",
                hint="build the pipeline anew, or keep that schedule",
                where=location,
            )


def _applied(outputs: list[Any], plan: Plan) -> Schedule:
    program = read_program(outputs)
    scheduling = Scheduling(program, place(program, plan.stored), plan)
    scheduling.run()
    return Schedule(scheduling.script.source, scheduling.report)


def _plan(
    outputs: list[Any], wanted: Wanted, sizes: Sizes | None, location: str, some: bool = False
) -> tuple[Plan, str]:
    """Which sums go to a tensor unit, in which tiles: those that the compiler takes, tried on a
    copy; and Python for the parts of them that are Funcs from now on.
    """
    program, machine = read_program(outputs, wanted.asked), machine_for(wanted.target)
    known = guess(program, sizes, location, some)
    lines: list[str] = []
    stored, precisions = set[str](), dict[str, str]()
    zero_points = partial(set_zero_points, known=known)
    one = partial(set_together, known=known, factors=stored, precisions=precisions)
    apart = partial(set_apart, known=known, machine=machine, given=wanted.tilings)
    for step in (set_narrow, set_divided, zero_points, one, apart):
        changed = step(program)
        program = read_program(outputs, wanted.asked) if changed else program
        lines += changed
    lines = ["f = hb.funcs(output)", *lines, ""] if lines else []
    said = {m.label: precisions[m.name] for m in program if precisions.get(m.name)}
    plan = Plan({}, {}, known, machine, precisions=said)
    plan = plan.storing(m.label for m in program if m.name in stored)
    return _taken(outputs, program, plan, wanted), "\n".join(lines)


def _taken(outputs: list[Any], program: Program, plan: Plan, wanted: Wanted) -> Plan:
    """The plan with what the compiler takes."""
    known = plan.known
    plan = plan.storing(m.label for m in program if is_search(m, known))
    for member in program:
        plan = _attending(member, outputs, program, plan, wanted)
    taken = {name for found, _ in plan.online.values() for name in found.inside}
    plan = _told(outputs, program, plan, wanted)
    for member in program:
        given = member.fixed or member.name in taken or member.label in wanted.tilings
        found = "" if given else sum_of(member, program, known, plan.machine)
        if isinstance(found, str):
            if found:
                plan = plan.without(member.label, found)
            continue
        why = ""
        asked = program, known, plan.machine
        for form, tiling in ((f, t) for f in forms(found) for t in candidates(f, *asked)):
            more = plan.having(member.label, form, tiling)
            miss = _why_not(outputs, more, wanted)
            if not miss:
                plan = more
                break
            why = why or miss
        else:
            plan = plan.without(member.label, why or "it has no schedule for this target")
    plan = _made(outputs, program, plan, wanted)
    plan = _banded(outputs, program, plan, wanted)
    some = [m.label for m in program if of_some(m) and m.label not in plan.tensor]
    plan = _kept(outputs, plan, some, wanted.target) if some else plan
    return _spread(outputs, program, plan, wanted)


def _told(outputs: list[Any], program: Program, plan: Plan, wanted: Wanted) -> Plan:
    """The plan with the tilings that were given. ``ScheduleError`` for one that cannot be."""
    members = {m.label: m for m in program}
    for label, tiling in wanted.tilings.items():
        found: Any = "there is no such Func"
        if label in members:
            found = form_of(tiling, members[label], program, plan.known, plan.machine)
        if not isinstance(found, str):
            plan = plan.having(label, found, tiling)
            found = _why_not(outputs, plan, wanted)
        if isinstance(found, str) and (found or label not in plan.tensor):
            raise ScheduleError(
                f"`{label}` cannot have the tiling {tiling.label}",
                why=found or "it is no sum of the tiling's family",
                hint="leave it out of `tilings`, and the machine model chooses",
                where=wanted.location,
            )
    return plan


def _spread(outputs: list[Any], program: Program, plan: Plan, wanted: Wanted) -> Plan:
    """The plan with clusters of blocks for long rows, if there are such and the compiler takes
    them.
    """
    long = any(n > MOST * ELEMENTS for n in plan.known.known.values())
    if not long or wanted.target.capability < CLUSTERS or not any(m.reduction for m in program):
        return plan
    more = plan.spreading()
    return plan if _why_not(outputs, more, wanted) else more


def _made(outputs: list[Any], program: Program, plan: Plan, wanted: Wanted) -> Plan:
    """The plan with filters whose blocks make what they read, each in one chain at most."""
    done = {*wanted.tilings}
    for chain in chains(program, plan):
        names = {chain.last, *chain.before}
        if not done & names:
            more = plan.making(chain.last, chain.tiling, chain.before, chain.boxes)
            if not _why_not(outputs, more, wanted):
                plan, done = more, done | names
    return plan


def _banded(outputs: list[Any], program: Program, plan: Plan, wanted: Wanted) -> Plan:
    """The plan with the resamplings that the compiler takes on a tensor unit: of large images, and
    of what those become.
    """
    done = set[str]()
    for member in program:
        found = resampled_by(member, program)
        if found is None or not is_banded(found, program):
            continue
        source = program.members[found.source]
        extents = tuple(plan.known.extent(source, d) for d in range(len(source.args)))
        image = is_argument(source, program) and worth(extents)
        if image or found.source in done:
            more = plan.banding(program.members[found.func].label)
            if not _why_not(outputs, more, wanted):
                plan = more
                done.add(member.name)
    return plan


def _attending(
    member: Member, outputs: list[Any], program: Program, plan: Plan, wanted: Wanted
) -> Plan:
    """The plan with the attention whose second product a Func is, if the compiler takes it."""
    found = online_of(member, program)
    if found is None:
        return plan.in_loops(member.label, why_apart(member, program))
    why = ""
    for tiling in online.candidates(found, program, plan.known, plan.machine):
        more = plan.attending(found, tiling)
        miss = _why_not(outputs, more, wanted)
        if not miss:
            return more
        why = why or miss
    why = why or "registers do not hold so many channels"
    return plan.in_loops(member.label, why_apart(member, program, why))


def _why_not(outputs: list[Any], plan: Plan, wanted: Wanted) -> str:
    """Why the compiler does not take a plan; empty if it does."""
    import selector

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerformanceWarning)
            module = _lowered(outputs, plan, wanted.target)
            selector.compile(module, target=wanted.target.name, instructions=wanted.instructions)
    except UserError as error:
        return error.why or error.what
    except halide_errors() as error:  # a directive that does not fit this pipeline
        return f"Halide refuses its schedule: {in_words(str(error))}"
    return ""


def _kept(outputs: list[Any], plan: Plan, some: list[str], target: Target) -> Plan:
    """The plan, but for sums of ``some`` terms: Halide may take those for more than there are, and
    so what they read, which a schedule has to bound. Where nobody knows that its bounds hold, there
    are none.
    """
    last = plan.setting_apart(some)
    known = _promises(outputs, last, target)
    for found in (plan, plan.unstaging(some)):
        asked = _promises(outputs, found, target)
        if asked is not None and asked <= (known or frozenset()):
            return found
    return last


def _promises(outputs: list[Any], plan: Plan, target: Target) -> frozenset[Promise] | None:
    """What has to hold at a call of a plan; None if it cannot, or where memory of a kernel is as
    large as the call says.
    """
    try:
        with redirect_stdout(StringIO()):  # where Halide warns of what cannot hold
            module = _lowered(outputs, plan, target)
    except UserError:
        return None
    kernels = (s for s in walk_stmt(module.body) if isinstance(s, For) and s.kind in _GRID)
    memory = (s for kernel in kernels for s in walk_stmt(kernel) if isinstance(s, Allocate))
    fixed = all(isinstance(extent, IntImm) for s in memory for extent in s.extents)
    return frozenset(module.promises) if fixed else None


def _lowered(outputs: list[Any], plan: Plan, target: Target) -> Module:
    return lower_copy(
        outputs, lambda copies: _applied(copies, plan), target=target, name=None, inputs=None
    )
