"""The command line of the bench: ``python -m selector rules <command>``."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from selector.diagnostics import UserError
from selector.targets import find_target

if TYPE_CHECKING:
    from selector.workbench.bench import Bench

Command = Callable[[argparse.Namespace], int]


class _Commands:
    """Those of ``rules``."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._all = parser.add_subparsers(
            required=True,
            metavar="check | watch | lsp | test | list | explain | coverage | soundness | prove "
            "| infer | trace | graph",
        )

    def add(
        self, name: str, run: Command, about: str, what: str = "", data: bool = True
    ) -> argparse.ArgumentParser:
        """A command; ``about`` it in the list of all, ``what`` it does in its own help, and whether
        it can say so as data."""
        made = self._all.add_parser(name, help=about, description=what or about)
        if data:
            made.add_argument("--json", action="store_true", help="as data")
        made.set_defaults(command=run)
        return made


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Give the ``rules`` parser its commands."""
    commands = _Commands(parser)
    for add in (_add_checks, _add_laws, _add_trials, _add_proofs, _add_programs):
        add(commands)


def _add_checks(commands: _Commands) -> None:
    """For while rules are written."""
    more = "the standard ones, or FILEs"
    about = "check rules and tests"
    check = commands.add("check", run_check, about, f"{about}: {more}")
    check.add_argument("files", nargs="*", metavar="FILE", help="rules or tests, told by content")
    check.add_argument("--alone", action="store_true", help="without the standard rules")
    about = "check rules and tests each time one is saved"
    watched = commands.add("watch", run_watch, about, data=False)
    about = "rules or tests; without, those of the package"
    watched.add_argument("files", nargs="*", metavar="FILE", help=about)
    about = "a language server for editors, on standard input and output"
    commands.add("lsp", run_lsp, about, data=False).add_argument(
        "--stdio", action="store_true", help="as editors say it; there is nothing else"
    )
    test = commands.add("test", run_test, "run the tests of rules")
    test.add_argument("files", nargs="*", metavar="FILE", help="tests; without, those of the rules")
    _add_pattern(test)
    for tested in (check, test):
        tested.add_argument("--target", action="append", default=[], help="instructions of it")
        tested.add_argument("--instructions", help="families or names, with commas")
    _add_rules(test)


def _add_laws(commands: _Commands) -> None:
    """What rules say."""
    listing = commands.add("list", run_list, "name every rule: ruleset, place, law")
    _add_pattern(listing)
    _add_rules(listing)
    about = "a law by examples: loops, and small memory"
    explained = commands.add("explain", run_explain, about)
    explained.add_argument("name", metavar="RULE", help="its name, as `list` has it")
    _add_rules(explained)


def _add_trials(commands: _Commands) -> None:
    """What rules do in many programs."""
    covered = commands.add(
        "coverage", run_coverage, "which rules fired, and which never",
        "which rules fired in the tests and in programs, which never",
    )  # fmt: skip
    sound = commands.add(
        "soundness", run_soundness, "compare all terms with the interpreter",
        "compare every term of a class on random memory",
    )  # fmt: skip
    programs = (
        (covered, "those that come with the rules"),
        (sound, "all tests and programs we have"),
    )
    for one, what in programs:
        one.add_argument("programs", nargs="*", metavar="PROGRAM.vir", help=f"without, {what}")
    covered.add_argument("--no-tests", action="store_true", help="count programs only")
    covered.add_argument("--require-all", action="store_true", help="exit 1 if a rule never fired")
    for one in (covered, sound):
        _add_selection(one)


def _add_proofs(commands: _Commands) -> None:
    """What holds for every size."""
    proved = commands.add("prove", run_prove, "prove rules for every size (needs z3-solver)")
    about = "look for sizes and values that break what is not proved"
    proved.add_argument("--refute", action="store_true", help=about)
    _add_pattern(proved)
    _add_rules(proved)
    about = "equalities that the rules miss (needs z3-solver)"
    _add_infer(commands.add("infer", run_infer, about))


def _add_programs(commands: _Commands) -> None:
    """What rules do in one program."""
    about = "which rules led a program to its instructions"
    traced = commands.add("trace", run_trace, about)
    about = "draw the e-graph of a program"
    drawn = commands.add("graph", run_graph, f"{about} (.svg, .dot)", about)
    for one in (traced, drawn):
        what = "a program in the text form, - for input"
        one.add_argument("program", metavar="PROGRAM.vir", help=what)
    _add_drawing(drawn)
    for one in (traced, drawn):
        _add_selection(one)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    about = "by default amx or sm_80, by the program's memory"
    parser.add_argument("--target", help=about)
    parser.add_argument("--instructions", help="families or names, with commas")
    _add_rules(parser)


def _add_infer(parser: argparse.ArgumentParser) -> None:
    """What is looked for, and for how long."""
    parser.add_argument("holes", nargs="*", metavar="HOLE", help="index, predicate, ...; all")
    parser.add_argument("--size", type=int, default=4, metavar="N", help="of terms, 1 to 7 (4)")
    about = "no further pair after so long, then no further cost after as long again (60)"
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help=about)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of random memory (0)")
    about = "leave this rule out: is it found again?"
    parser.add_argument("--without", action="append", default=[], metavar="RULE", help=about)
    parser.add_argument("--no-cost", action="store_true", help="do not time them on the corpus")
    parser.add_argument("--markdown", action="store_true", help="as a table")
    _add_rules(parser)


def _add_drawing(parser: argparse.ArgumentParser) -> None:
    """What is drawn, and where it goes."""
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="out.svg or out.dot")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument(
        "--statement", type=int, metavar="N", help="as `trace` counts; the first update"
    )
    parser.add_argument(
        "--nodes", type=int, default=5, metavar="N", help="most nodes of a class (5)"
    )
    parser.add_argument(
        "--all", action="store_true", help="every class below it, not only what was used"
    )


def _add_pattern(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-k", dest="pattern", default="", metavar="PATTERN", help="only matching ones"
    )


def _add_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rules", action="append", default=[], metavar="EXTRA.egg", help="more rules"
    )


def say(text: str) -> None:
    sys.stdout.write(text.rstrip("\n") + "\n")


def say_now(text: str) -> None:
    say(text)
    sys.stdout.flush()


def say_json(data: object) -> None:
    say(json.dumps(data, indent=2))


def instructions(options: argparse.Namespace) -> tuple[str, ...] | None:
    """The restriction of instructions; ``UserError`` for a name that none has."""
    if options.instructions is None:
        return None
    from selector.intrinsics.records import check_names

    names = tuple(n.strip() for n in options.instructions.split(",") if n.strip())
    check_names(names, UserError)
    return names


def targets(options: argparse.Namespace) -> tuple[str, ...]:
    """The targets that were asked for; ``TargetError`` for one that there is not."""
    return tuple(find_target(t).name for t in options.target)


def run_check(options: argparse.Namespace) -> int:
    from selector.workbench.check import check

    result = check(options.files, targets(options), instructions(options), options.alone)
    say_json(result.as_dict()) if options.json else say(str(result))
    return result.code


def run_watch(options: argparse.Namespace) -> int:
    """Until it is interrupted; exit code 1 if something is wrong then."""
    from selector.workbench.live.watch import watch

    return watch(options.files, say_now)


def run_lsp(options: argparse.Namespace) -> int:
    from selector.workbench.live.server import Server

    code = Server(sys.stdin.buffer, sys.stdout.buffer).run()
    # Not by way of the interpreter's end: a check may still be inside egglog, which cannot be told
    # to stop and does not survive that.
    os._exit(code)


def run_test(options: argparse.Namespace) -> int:
    from selector.workbench.check import run_tests

    result = run_tests(
        options.pattern, options.files, options.rules, targets(options), instructions(options)
    )
    say_json(result.as_dict()) if options.json else say(str(result))
    return result.code


def run_list(options: argparse.Namespace) -> int:
    from selector.workbench.listing import list_rules, matching_rules

    rules = matching_rules(rule_files(options), options.pattern)
    say_json([r.as_dict() for r in rules]) if options.json else say(list_rules(rules))
    return 0


def run_explain(options: argparse.Namespace) -> int:
    from selector.workbench.cases import load
    from selector.workbench.files import read_given, with_standard
    from selector.workbench.laws import explain

    given = read_given(options.rules)
    found = explain(options.name, with_standard(given.rules), (*given.cases, *load()))
    say_json(found.as_dict()) if options.json else say(str(found))
    return 0


def run_coverage(options: argparse.Namespace) -> int:
    from selector.workbench.cases import load
    from selector.workbench.listing import coverage
    from selector.workbench.programs import corpus, default_target, read_program

    modules = [read_program(p) for p in options.programs] or corpus()
    programs = [(m, target_of(options) or default_target(m)) for m in modules]
    cases = () if options.no_tests else load()
    result = coverage(bench(options), cases, programs)
    say_json(result.as_dict()) if options.json else say(str(result))
    return 1 if options.require_all and result.never else 0


def run_soundness(options: argparse.Namespace) -> int:
    """Exit code 1 if terms disagree, or if a rule took no part in the whole run."""
    from selector.workbench.cases import load
    from selector.workbench.programs import corpus, default_target, read_program
    from selector.workbench.sound import soundness

    whole = not options.programs
    modules = [read_program(p) for p in options.programs] or corpus()
    programs = [(m, target_of(options) or default_target(m)) for m in modules]
    cases = load() if whole else ()
    result = soundness(rule_files(options), programs, cases, whole, instructions(options))
    say_json(result.as_dict()) if options.json else say(str(result))
    return result.code


def _need_solver() -> None:
    """``UserError`` if z3 is missing."""
    if importlib.util.find_spec("z3") is None:
        raise UserError(
            "proofs need the solver z3",
            hint="install `z3-solver`, or this package with its extra `prove`",
        )


def run_infer(options: argparse.Namespace) -> int:
    _need_solver()
    from selector.workbench.infer.run import Options, infer

    chosen = Options(
        tuple(options.holes), options.size, options.seconds, options.seed,
        tuple(options.without), not options.no_cost,
    )  # fmt: skip
    plain = not (options.json or options.markdown)
    result = infer(rule_files(options), chosen, (lambda c: say(c.law)) if plain else lambda c: None)
    if options.json:
        say_json(result.as_dict())
    else:
        say(result.as_markdown() if options.markdown else f"\n{result}")
    return 0


def run_prove(options: argparse.Namespace) -> int:
    """Exit code 1 if a rule is not proved."""
    _need_solver()
    from selector.workbench.prove.verdicts import prove

    result = prove(rule_files(options), options.pattern, options.refute)
    say_json(result.as_dict()) if options.json else say(str(result))
    return result.code


def run_trace(options: argparse.Namespace) -> int:
    """Exit code 1 if a statement was not selected."""
    from selector.workbench.programs import default_target, read_program
    from selector.workbench.trace import trace

    module = read_program(options.program)
    found = trace(bench(options), module, target_of(options) or default_target(module))
    text = "\n\n".join(map(str, found)) or "no statement is placed on a tensor unit"
    say_json([t.as_dict() for t in found]) if options.json else say(text)
    return 1 if any(t.entry.miss for t in found) else 0


def run_graph(options: argparse.Namespace) -> int:
    from selector.workbench.picture import Options, draw
    from selector.workbench.programs import default_target, read_program
    from selector.workbench.rendering import may_write, write

    may_write(options.out, options.force)
    module = read_program(options.program)
    target = target_of(options) or default_target(module)
    picture = draw(
        bench(options), module, target, Options(options.statement, options.nodes, options.all)
    )
    write(picture, options.out)
    say_json(picture.as_dict()) if options.json else say(f"{options.out}: {picture.summary}")
    return 0


def rule_files(options: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """The standard rule files and those of ``--rules``."""
    from selector.workbench.files import read_given, with_standard

    return with_standard(read_given(options.rules).rules)


def bench(options: argparse.Namespace) -> Bench:
    from selector.workbench.bench import Bench

    return Bench(rule_files(options), instructions(options))


def target_of(options: argparse.Namespace) -> str:
    """The one target that was asked for; empty if none was."""
    return "" if options.target is None else find_target(options.target).name
