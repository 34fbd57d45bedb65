"""What became of a variant: instructions or a reason, and the error of what it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from machines import Array, Machine, relative_error

from selector.diagnostics import SelectionError
from selector.eqsat import select
from selector.intrinsics import find
from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.ir.nodes import Call
from selector.ir.traverse import walk_all_exprs
from selector.targets import find_target


@dataclass(frozen=True)
class Outcome:
    """Names of the instructions, the reason of a miss, and the relative error against float64 of
    the program that results (for a miss: the plain one)."""

    calls: tuple[str, ...]
    why: str
    error: float


def judged(
    module: Module,
    arrays: Mapping[str, Array],
    expected: Callable[[Mapping[str, Array]], Array],
    machine: Machine,
    **options: object,
) -> Outcome:
    """Select a program, run what results, and compare; the one output may have any name."""
    try:
        result, why = select(module, find_target(machine.target)).module, ""
    except SelectionError as error:
        result, why = module, error.why
    calls = tuple(
        e.name
        for e in walk_all_exprs(result.body)
        if isinstance(e, Call) and find(e.name) is not None
    )
    (found,) = interpret(result, arrays, **options).values()  # type: ignore[arg-type]
    return Outcome(calls, why, relative_error(expected(arrays), found))


def assert_expected(found: Outcome, machine: Machine, statements: int, why: str) -> None:
    """The numbers are right; a miss has the reason ``why``, and without one there is an
    instruction of the machine for each statement.
    """
    assert found.error <= machine.tolerance, found
    if why:
        assert not found.calls, "selected by now: take it off the list of misses"
        assert why in found.why
        return
    assert not found.why
    assert len(found.calls) == statements
    assert all(call.startswith(machine.prefix) for call in found.calls)


def assert_rate(reasons: list[str], least: int) -> None:
    """Of ``least`` variants or more, at least 99 % are to be selected, each miss has a reason:
    ``assert_expected`` holds every variant to what the corpus says of it.
    """
    assert len(reasons) >= least
    assert reasons.count("") >= 0.99 * len(reasons)


def rate(outcomes: Iterable[Outcome]) -> float:
    """The share that was selected."""
    found = list(outcomes)
    return sum(not o.why for o in found) / len(found)


def summary(machine: str, found: Mapping[str, Outcome]) -> str:
    """The rate of a machine, and its misses with their reasons."""
    lines = [f"{machine}: {len(found)} variants, {rate(found.values()):.1%} selected"]
    lines += [f"  missed: {name}: {o.why}" for name, o in found.items() if o.why]
    return "\n".join(lines)
