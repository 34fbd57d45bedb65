"""Schedules that nobody writes: ``autoschedule``, for a plain pipeline.

The definitions are read (``recognise``), each Func gets its place there, and here its directives
(``kernels``, ``reductions``, the family of contractions), which are applied to the user's pipeline
and written down at once (``recorder``). Nothing is refused: what has no better way is computed in a
kernel of its own. What is to go to a tensor unit is tried on a copy before. That is so for GPUs;
what a CPU gets is decided in ``host``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from halide_bridge import memory
from halide_bridge.checks import halide_errors, in_words, output_funcs
from halide_bridge.memory import apart
from halide_bridge.native import native
from halide_bridge.schedules import online
from halide_bridge.schedules.candidates import Given, candidates, form_of, forms, sum_of
from halide_bridge.schedules.factors import (
    rewritten,
    separated,
    set_apart,
    set_counted,
    set_divided,
    set_narrow,
    set_narrow_factors,
    set_products,
    set_separated,
    set_sums_apart,
    set_together,
    set_zero_points,
)
from halide_bridge.schedules.host.plan import HostPlan
from halide_bridge.schedules.host.planning import planned
from halide_bridge.schedules.long_grids import long_grids, may_be_long
from halide_bridge.schedules.made import chains
from halide_bridge.schedules.places import Scheduling
from halide_bridge.schedules.plan import Plan
from halide_bridge.schedules.recognise.apart import why_apart
from halide_bridge.schedules.recognise.attention import online_of
from halide_bridge.schedules.recognise.facts import Placement
from halide_bridge.schedules.recognise.program import Member, Program, read_program
from halide_bridge.schedules.recognise.resampling import is_banded, resampled_by
from halide_bridge.schedules.recognise.reuse import of_some
from halide_bridge.schedules.recognise.separable import rows_of, terms_of
from halide_bridge.schedules.recognise.sliding import Slide, chain_of
from halide_bridge.schedules.reductions import is_search
from halide_bridge.schedules.rows import ELEMENTS, MOST
from halide_bridge.schedules.sizes import Sizes, guess, is_argument
from halide_bridge.schedules.terms import (
    set_around,
    set_down,
    set_expanded,
    set_terms_apart,
    set_windows_together,
)
from halide_bridge.schedules.trials import Schedule, Trials, applied
from halide_bridge.schedules.wanted import wanted_of
from halide_bridge.unscheduled import Source, now_scheduled, refuse_scheduled
from selector.diagnostics import InternalError, ScheduleError
from selector.families import tiles
from selector.families.bands import has_few, worth
from selector.ir.module import Module
from selector.machine import machine_for
from selector.targets import Target

CLUSTERS = 90  # what GPUs can that have clusters
APART = 8  # operations between a window and its rows that is in no chain without those


def autoschedule(
    output: Any,
    *,
    target: str | Target = "cuda",
    sizes: Sizes | None = None,
    instructions: Iterable[str] | None = None,
    tilings: Mapping[str, Given | tiles.Tiling] | None = None,
) -> Schedule:
    """Schedule a plain pipeline for a GPU or a CPU: a Func, several, or a Pipeline.

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

    ``ScheduleError`` for what is no output, for a second call and for tilings that sums cannot
    have.
    """
    location = memory.caller_location()
    outputs = output_funcs(output, location)
    refuse_scheduled(outputs, location)
    source = Source(outputs, {}, None, None, None, location)
    trials = Trials(source, wanted_of(target, instructions, location, tilings))
    with _chosen():
        plan, first = _plan(trials, sizes)
        schedule = applied(outputs, plan)
    now_scheduled(outputs, location)
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
        copy = replace(source, outputs=native().copy(source.outputs))
        trials = Trials(copy, wanted_of(target, instructions, source.location))
        with _chosen():
            plan, _ = _plan(trials, sizes, some)
            return trials.lowered(plan), plan.known.depends_on(), plan.precisions


@contextmanager
def _chosen() -> Generator[None]:
    """What Halide refuses of a schedule that nobody wrote is a defect of this compiler."""
    try:
        yield
    except halide_errors() as error:
        raise InternalError(
            f"Halide refuses the schedule that was chosen: {in_words(str(error))}; a Func that has "
            "a schedule of yours keeps it"
        ) from error


def _plan(trials: Trials, sizes: Sizes | None, some: bool = False) -> tuple[Plan | HostPlan, str]:
    """What is decided for the target, and Python for what becomes a Func before."""
    gpu = trials.wanted.target.family == "cuda"
    return (_planned if gpu else planned)(trials, sizes, some)


def _planned(trials: Trials, sizes: Sizes | None, some: bool) -> tuple[Plan, str]:
    """Which sums go to a tensor unit, in which tiles: those that the compiler takes, tried on a
    copy; and Python for the parts of them that are Funcs from now on.
    """
    outputs, wanted = trials.source.outputs, trials.wanted
    program, machine = read_program(outputs, wanted.asked), machine_for(wanted.target)
    known = guess(program, sizes, trials.source.location, some)
    stored, precisions, windows = set[str](), dict[str, str](), dict[str, int]()
    zero_points = partial(set_zero_points, known=known)
    one = partial(set_together, known=known, factors=stored, precisions=precisions)
    apart = partial(set_apart, known=known, machine=machine, given=wanted.tilings)
    halves = partial(set_narrow_factors, known=known)
    sums = partial(set_sums_apart, known=known)
    products = partial(set_products, known=known)
    words = (
        partial(step, known=known) for step in (set_windows_together, set_expanded, set_terms_apart)
    )
    first = (*words, sums, set_narrow, products, set_divided, set_counted, set_around, set_down)
    nothing = Plan({}, {}, known, machine)
    rows = partial(_set_rows, outputs=outputs, plan=nothing, windows=windows)
    program, lines = rewritten(
        outputs, program, (*first, halves, zero_points, one, apart, set_separated, rows)
    )
    said = {m.label: precisions[m.name] for m in program if precisions.get(m.name)}
    plan = replace(nothing, precisions=said, windows=windows)
    plan = plan.storing(m.label for m in program if m.name in stored)
    return _taken(trials, program, plan), "\n".join(lines)


def _taken(trials: Trials, program: Program, plan: Plan) -> Plan:
    """The plan with what the compiler takes."""
    known = plan.known
    plan = plan.storing(m.label for m in program if is_search(m, known))
    for member in program:
        plan = _attending(member, trials, program, plan)
    taken = {name for found, _ in plan.online.values() for name in found.inside}
    plan = _told(trials, program, plan)
    for member in program:
        given = member.fixed or member.name in taken or member.label in trials.wanted.tilings
        found = "" if given else sum_of(member, program, known, plan.machine)
        if isinstance(found, str):
            if found:
                plan = plan.without(member.label, found)
            continue
        why = ""
        asked = program, known, plan.machine
        for form, tiling in ((f, t) for f in forms(found) for t in candidates(f, *asked)):
            more = plan.having(member.label, form, tiling)
            miss = trials.why_not(more)
            if not miss:
                plan = more
                break
            why = why or miss
        else:
            plan = plan.without(member.label, why or "it has no schedule for this target")
    plan = _made(trials, program, plan)
    plan = _banded(trials, program, plan)
    some = [m.label for m in program if of_some(m) and m.label not in plan.tensor]
    plan = _kept(trials, plan, some) if some else plan
    plan = _slid(trials, program, plan)
    return _in_line(trials, _spread(trials, program, plan))


def _told(trials: Trials, program: Program, plan: Plan) -> Plan:
    """The plan with the tilings that were given. ``ScheduleError`` for one that cannot be."""
    members = {m.label: m for m in program}
    for label, tiling in trials.wanted.tilings.items():
        found: Any = "there is no such Func"
        if label in members:
            found = form_of(tiling, members[label], program, plan.known, plan.machine)
        if not isinstance(found, str):
            plan = plan.having(label, found, tiling)
            found = trials.why_not(plan)
        if isinstance(found, str) and (found or label not in plan.tensor):
            raise ScheduleError(
                f"`{label}` cannot have the tiling {tiling.label}",
                why=found or "it is no sum of the tiling's family",
                hint="leave it out of `tilings`, and the machine model chooses",
                where=trials.wanted.location,
            )
    return plan


def _spread(trials: Trials, program: Program, plan: Plan) -> Plan:
    """The plan with clusters of blocks for long rows, if there are such and the compiler takes
    them.
    """
    long = any(n > MOST * ELEMENTS for n in plan.known.known.values())
    has_clusters = trials.wanted.target.capability >= CLUSTERS
    if not long or not has_clusters or not any(m.reduction for m in program):
        return plan
    more = plan.spreading()
    return plan if trials.why_not(more) else more


def _in_line(trials: Trials, plan: Plan) -> Plan:
    """The plan with blocks in line where there are too many along an outer loop."""
    if not may_be_long(plan.known) or trials.refused(plan):
        return plan
    long = long_grids(trials.lowered(plan), plan.known)
    more = replace(plan, in_line=long)
    return plan if not long or trials.refused(more) else more


def _made(trials: Trials, program: Program, plan: Plan) -> Plan:
    """The plan with filters whose blocks make what they read, each in one chain at most."""
    done = {*trials.wanted.tilings}
    for chain in chains(program, plan):
        names = {chain.last, *chain.before}
        if not done & names:
            more = plan.making(chain.last, chain.tiling, chain.before, chain.boxes)
            if not trials.why_not(more):
                plan, done = more, done | names
    return plan


def _banded(trials: Trials, program: Program, plan: Plan) -> Plan:
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
        if has_few(found.count, extents[found.placed], plan.known.extent(member, found.along)):
            continue
        image = is_argument(source, program) and worth(extents)
        if image or found.source in done:
            more = plan.banding(program.members[found.func].label)
            if not trials.why_not(more):
                plan = more
                done.add(member.name)
    return plan


def _slid(trials: Trials, program: Program, plan: Plan) -> Plan:
    """The plan with the chains of stencils that the compiler takes, each in one kernel."""
    more, slides = _sliding(program, plan)
    if more is plan or not trials.refused(more):
        return more
    for label, found in slides.items():
        more = plan.sliding(label, *found)
        if not trials.refused(more):
            plan = more
    return plan


def _sliding(program: Program, plan: Plan) -> tuple[Plan, Mapping[str, tuple[Slide, set[str]]]]:
    """The plan with all chains of stencils that one kernel could compute; those, by their ends."""
    others = {*plan.tensor, *plan.banded, *plan.apart, *plan.made, *plan.unstaged}
    more, slides = plan, dict[str, tuple[Slide, set[str]]]()
    placement = _placed(program, plan, ())
    for member in reversed([*program]):
        if len(member.args) > 1 and not member.fixed:
            stored = partial(_placed, program, more)
            found = chain_of(member, placement, stored, others, plan.windows)
            if found is not None:
                slides[member.label] = found
                more = more.sliding(member.label, *found)
                placement = _placed(program, more, ())
    return more, slides


def _set_rows(
    program: Program, outputs: list[Any], plan: Plan, windows: dict[str, int]
) -> list[str]:
    """Have windows add up rows where a chain of stencils keeps those in registers, so that they
    need not save what is stored between them: tried on a copy. ``windows`` gets the terms of each,
    by the name of its rows. Lines of Python.
    """
    if all(rows_of(m, program, 0) is None for m in program):
        return []
    if any(not isinstance(sum_of(m, program, plan.known, plan.machine), str) for m in program):
        return []  # what a tensor unit has is no stage, and that is tried later
    chained = _chained(program, plan)
    asked = {m.label: rows_of(m, program, 0 if m.name in chained else APART) for m in program}
    found = {label: at for label, at in asked.items() if at is not None}
    terms = {m.label: terms_of(m) for m in program if m.label in found}
    last = dict[str, int]()
    while found != last:
        copy = read_program(native().copy(outputs), program.asked)
        made = {m.label: separated(m, found[m.label]) for m in copy if m.label in found}
        copy = read_program([m.handle for m in copy if m.name in copy.outputs], copy.asked)
        own = {rows[0]: terms[label] for label, rows in made.items() if rows}
        kept, last = _chained(copy, replace(plan, windows=own)), found
        found = {n: at for n, at in found.items() if (rows := made[n]) and rows[0] in kept}
    lines = list[str]()
    for member in (m for m in program if m.label in found):
        if (rows := separated(member, found[member.label])) is not None:
            windows[rows[0]] = terms[member.label]
            lines.append(rows[1])
    return lines


def _chained(program: Program, plan: Plan) -> frozenset[str]:
    """What is a stage of a chain."""
    more, _ = _sliding(program, plan)
    return frozenset(name for slide in more.slides.values() for name in slide.spans)


def _placed(program: Program, plan: Plan, labels: Iterable[str]) -> Placement:
    """Where Funcs are if some are not inside others."""
    return Scheduling.of(program, plan.storing(labels)).placement


def _attending(member: Member, trials: Trials, program: Program, plan: Plan) -> Plan:
    """The plan with the attention whose second product a Func is, if the compiler takes it."""
    found = online_of(member, program)
    if found is None:
        return plan.in_loops(member.label, why_apart(member, program))
    why = ""
    for tiling in online.candidates(found, program, plan.known, plan.machine):
        more = plan.attending(found, tiling)
        miss = trials.why_not(more)
        if not miss:
            return more
        why = why or miss
    why = why or online.why_none(found, program)
    return plan.in_loops(member.label, why_apart(member, program, why))


def _kept(trials: Trials, plan: Plan, some: list[str]) -> Plan:
    """The plan, but for sums of ``some`` terms: Halide may take those for more than there are, and
    so what they read, which a schedule has to bound. Where nobody knows that its bounds hold, there
    are none.
    """
    last = plan.setting_apart(some)
    known = trials.promises(last)
    for found in (plan, plan.unstaging(some)):
        asked = trials.promises(found)
        if asked is not None and asked <= (known or frozenset()):
            return found
    return last
