"""Options of the cases on the command line, and the problems that they describe."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from casestudies.common.case import Case, Option, Problem
from casestudies.common.registry import all_cases
from selector.diagnostics import UserError

COMMON = "--size, --schedule, --device, --target, --seed, --json, --out"


def add_options(parser: argparse.ArgumentParser, cases: Iterable[Case]) -> None:
    """The options of all cases, as text: ``own_values`` reads them as the case at hand does."""
    owners: dict[str, list[tuple[str, Option]]] = {}
    for case in cases:
        for option in case.arguments:
            owners.setdefault(option.name, []).append((case.name, option))
    for name, found in owners.items():
        whose = ", ".join(case for case, _ in found)
        parser.add_argument(f"--{name}", help=f"{found[0][1].help} ({whose})")


def listing(case: Case) -> str:
    """A case's own options in one line."""
    own = [
        f"--{o.name}" + (f" {'|'.join(o.choices)}" if o.choices else f" ({o.help})")
        for o in case.arguments
    ]
    media = ["--image"] * bool(case.pictures) + ["--sound"] * bool(case.sounds)
    return ", ".join((*own, *media, COMMON))


def refuse_unknown(case: Case, name: str) -> None:
    """``UserError`` for an option that a case does not have."""
    raise UserError(f"{case.name} has no {name.split('=')[0]}", hint=f"options: {listing(case)}")


def own_values(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """What the user gave for the options of a case, None where nothing; ``UserError`` for options
    of other cases and for values that mean nothing.
    """
    own = {option.name for option in case.arguments}
    for other in (o.name for c in all_cases() for o in c.arguments):
        if other not in own and _given(options, other) is not None:
            refuse_unknown(case, f"--{other}")
    return {option.name: _value(case, option, options) for option in case.arguments}


def chosen(options: argparse.Namespace) -> bool:
    """Whether the user describes a problem at all."""
    names = {option.name for case in all_cases() for option in case.arguments}
    return any(_given(options, name) is not None for name in ("size", *names))


def problem_of(case: Case, options: argparse.Namespace, size: tuple[int, ...] | None) -> Problem:
    """The problem of that size that the options describe."""
    values = own_values(case, options)
    problem: Problem = case.options({"size": size, **values})
    return problem


def _given(options: argparse.Namespace, name: str) -> str | None:
    text: str | None = getattr(options, name.replace("-", "_"), None)
    return text


def _value(case: Case, option: Option, options: argparse.Namespace) -> Any:
    text = _given(options, option.name)
    if text is None:
        return None
    if option.choices and text not in option.choices:
        raise UserError(
            f"{case.name}: --{option.name} cannot be {text!r}",
            hint=f"it is one of {', '.join(option.choices)}",
        )
    try:
        return option.parse(text)
    except ValueError as error:
        raise UserError(
            f"{case.name}: --{option.name} cannot be {text!r}", why=str(error), hint=option.help
        ) from None
