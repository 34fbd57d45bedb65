"""The command line of the bench: ``python -m selector rules <command>``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from selector.diagnostics import UserError
from selector.targets import find_target

Command = Callable[[argparse.Namespace], int]


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Give the ``rules`` parser its commands."""
    commands = parser.add_subparsers(
        required=True, metavar="check | test | list | coverage | trace | graph"
    )
    check = commands.add_parser("check", help="check rules and tests")
    _command(check, run_check, "check rules and tests: the standard ones, or FILEs")
    check.add_argument("files", nargs="*", metavar="FILE", help="rules or tests, told by content")
    check.add_argument("--alone", action="store_true", help="without the standard rules")
    test = commands.add_parser("test", help="run the tests of rules")
    _command(test, run_test, "run the tests of rules")
    test.add_argument("files", nargs="*", metavar="FILE", help="tests; without, those of the rules")
    test.add_argument(
        "-k", dest="pattern", default="", metavar="PATTERN", help="only matching ones"
    )
    for command in (check, test):
        command.add_argument("--target", action="append", default=[], help="instructions of it")
        command.add_argument("--instructions", help="families or names, with commas")
    _rules_option(test)


def _command(command: argparse.ArgumentParser, run: Command, what: str) -> None:
    command.description = what
    command.add_argument("--json", action="store_true", help="as data")
    command.set_defaults(command=run)


def _rules_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--rules", action="append", default=[], metavar="EXTRA.egg", help="more rules"
    )


def say(text: str) -> None:
    sys.stdout.write(text.rstrip("\n") + "\n")


def say_json(data: object) -> None:
    say(json.dumps(data, indent=2))


def instructions(options: argparse.Namespace) -> tuple[str, ...] | None:
    """The restriction of instructions; ``UserError`` for a name that none has."""
    if options.instructions is None:
        return None
    from selector.intrinsics import INSTRUCTIONS

    names = tuple(n.strip() for n in options.instructions.split(",") if n.strip())
    known = {i.name for i in INSTRUCTIONS} | {i.family for i in INSTRUCTIONS}
    for name in names:
        if name not in known:
            families = ", ".join(sorted({i.family for i in INSTRUCTIONS}))
            raise UserError(
                f"no instruction or family is called {name!r}", hint=f"families: {families}"
            )
    return names


def targets(options: argparse.Namespace) -> tuple[str, ...]:
    """The targets that were asked for; ``TargetError`` for one that there is not."""
    return tuple(find_target(t).name for t in options.target)


def run_check(options: argparse.Namespace) -> int:
    from selector.workbench.check import check

    result = check(options.files, targets(options), instructions(options), options.alone)
    say_json(result.as_dict()) if options.json else say(str(result))
    return result.code


def run_test(options: argparse.Namespace) -> int:
    from selector.workbench.check import run_tests

    result = run_tests(
        options.pattern, options.files, options.rules, targets(options), instructions(options)
    )
    say_json(result.as_dict()) if options.json else say(str(result))
    return result.code
