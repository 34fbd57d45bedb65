"""What becomes of a pipeline on a CPU: which sums are products in tile registers, as the compiler
takes them, tried on a copy; else what Halide's own search makes of it.
"""

from __future__ import annotations

from functools import partial

from halide_bridge.checks import halide_errors, in_words
from halide_bridge.schedules import factors
from halide_bridge.schedules.host import search
from halide_bridge.schedules.host.plan import HostPlan
from halide_bridge.schedules.host.products import Kinds, candidates, kinds_of, product_for
from halide_bridge.schedules.recognise.products import Product, source_type
from halide_bridge.schedules.recognise.products import factors as factors_of
from halide_bridge.schedules.recognise.program import Member, Program, read_program
from halide_bridge.schedules.sizes import Guess, Sizes, guess, is_argument
from halide_bridge.schedules.trials import Trials
from selector.diagnostics import ScheduleError
from selector.eqsat.facts import legal_instructions
from selector.families import tiles
from selector.machine import HOST

LONGEST = 200_000  # characters of C, which compilers take seconds for


def planned(trials: Trials, sizes: Sizes | None, some: bool = False) -> tuple[HostPlan, str]:
    """The plan, and Python for the parts of sums that are Funcs from now on."""
    outputs, wanted = trials.source.outputs, trials.wanted
    kinds = kinds_of(legal_instructions(wanted.target, wanted.instructions))
    program = read_program(outputs)
    known = guess(program, sizes, trials.source.location, some)
    steps = (
        partial(factors.set_sums_apart, known=known),
        partial(factors.set_products, known=known),
        factors.set_divided,
        factors.set_counted,
        partial(factors.set_zero_points, known=known),
        partial(_set_operands, known=known, kinds=kinds),
    )
    program, lines = factors.rewritten(outputs, program, steps if kinds else ())
    plan = HostPlan(known)
    for member in program:
        found = "" if member.fixed else product_for(member, program, known, kinds)
        plan = _having(member, found, trials, program, plan)
    _refuse_unused(trials, plan)
    if not plan.tensor and not any(m.fixed for m in program):
        plan = _searched(trials, program, plan)
    return plan, "\n".join(lines)


def _set_operands(program: Program, known: Guess, kinds: Kinds) -> list[str]:
    """Make Funcs of factors that are computed, of sums for tile registers. Lines of Python."""

    def is_product(member: Member) -> bool:
        return not isinstance(product_for(member, program, known, kinds), str)

    lines: list[str] = []
    for member in program:
        pair = factors_of(member)
        if pair is not None and tuple(map(source_type, pair)) in kinds:
            asked = partial(is_product, member)
            lines += factors.operands_apart(member, program, known, asked)
    return lines


def _having(
    member: Member, found: Product | str, trials: Trials, program: Program, plan: HostPlan
) -> HostPlan:
    """The plan with a product, if the compiler takes it."""
    if isinstance(found, str):
        return plan.without(member.label, found) if found else plan
    given, why = trials.wanted.tilings.get(member.label), ""
    operands = [
        operand.label
        for operand in (program.members[f.func] for f in (found.a, found.b))
        if not is_argument(operand, program)
    ]
    choice = candidates(found, program, plan.known, HOST)
    for tiling in choice if given is None else (given,):
        assert isinstance(tiling, tiles.Tiling)
        more = plan.having(member.label, found, tiling, operands)
        miss = trials.why_not(more)
        if not miss:
            return more
        why = why or miss
    return plan.without(member.label, why)


def _refuse_unused(trials: Trials, plan: HostPlan) -> None:
    """``ScheduleError`` for a tiling that was given and cannot be."""
    for label, tiling in trials.wanted.tilings.items():
        if label not in plan.tensor:
            raise ScheduleError(
                f"`{label}` cannot have the tiling {tiling.label}",
                why=plan.misses.get(label) or "it is no product of matrices",
                hint="leave it out of `tilings`, and the machine model chooses",
                where=trials.wanted.location,
            )


def _searched(trials: Trials, program: Program, plan: HostPlan) -> HostPlan:
    """The plan with what Halide's own search finds, if the compiler takes that."""
    try:
        found = search.search(program, plan.known, HOST)
    except halide_errors() as error:
        return plan.not_finding(in_words(str(error)))
    except ScheduleError as error:
        return plan.not_finding(error.what)
    more = plan.finding(found)
    why = trials.why_not(more, longest=LONGEST)
    return plan.not_finding(why) if why else more
