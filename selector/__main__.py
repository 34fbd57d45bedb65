"""``python -m selector``: programs on the command line.

    python -m selector dump FILE           read, verify and print it (--json: as data)
    python -m selector select FILE         the selected program (--source: the emitted CUDA;
    --kernels: what that is printed from, --after PASS: before further passes)
    python -m selector explain FILE        what went to which instruction by which rules; what did
    not, and why
    python -m selector apply KERNEL ...    a saved kernel over images in files (apply --help)
    python -m selector aot FILE...         a C++ library of saved kernels or programs (aot --help)
    python -m selector rules ...           the rule author's bench (rules --help)
    python -m selector serve               the compile service (serve --help)
    python -m selector fuzz                random programs against every oracle (fuzz --help)

A FILE is a program in the text form (``-``: standard input), for which Halide is not needed; or, by
its name, a pipeline: FILE.py, Python that calls one ``output``, or FILE.hlpipe, which Halide has
serialized. ``--schedule auto`` lets the compiler schedule it. A mistake of the user ends in one
message and exit code 2; ``explain`` of a program with statements that were asked onto a tensor unit
and cannot go there in exit code 1.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from selector.diagnostics import UserError
from selector.ir.module import Module
from selector.service.command import add_options
from selector.targets import TARGETS, find_target
from selector.workbench.commands import add_commands
from selector.workbench.programs import LOWERED, read_program

if TYPE_CHECKING:
    from selector.kernel import Kernel

DEFAULT_TARGET = "sm_90a"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except UserError as error:
        if options.json:
            print(json.dumps(error.as_dict(), indent=2))
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe left
        sys.stderr.close()
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m selector",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(
        required=True, metavar="dump | select | explain | apply | aot | rules | serve | fuzz"
    )
    for name, run, what in (
        ("dump", dump, "read, verify and print a program"),
        ("select", select, "print the selected program"),
        ("explain", explain, "say what went to which instruction, and why"),
    ):
        command = commands.add_parser(name, help=what, description=what)
        command.add_argument("file", metavar="FILE", help="text form (- for input), .py or .hlpipe")
        _add_schedule(command)
        command.add_argument("--json", action="store_true", help="as data")
        command.add_argument("--out", type=Path, help="write there, not to standard output")
        command.set_defaults(command=run)
        command.add_argument("--target", default=DEFAULT_TARGET, help=", ".join(TARGETS))
        if name == "select":
            form = command.add_mutually_exclusive_group()
            form.add_argument("--source", action="store_true", help="print the emitted source")
            form.add_argument("--kernels", action="store_true", help="print the IR of its kernels")
            command.add_argument("--after", metavar="PASS", help="with --kernels: as that left it")
        if name == "explain":
            command.add_argument("--laws", action="store_true", help="the law of each rule as well")
    _add_aot(commands.add_parser("aot", help="write a C++ library of kernels"))
    rules = commands.add_parser("rules", help="check, test, list and trace the rules")
    add_commands(rules)
    served = commands.add_parser("serve", help="the compile service, over HTTP")
    served.description = "Serve compilations over HTTP until a signal says stop."
    add_options(served)
    for name, run, what in (
        ("apply", apply, "a saved kernel over images in files"),
        ("fuzz", fuzz, "random programs, by every oracle"),
    ):
        # Its options are its own: with another prefix all that follows are arguments to pass on.
        command = commands.add_parser(name, help=what, add_help=False, prefix_chars="+")
        command.add_argument("options", nargs="*")
        command.set_defaults(command=run, json=False)
    return parser


def _add_schedule(command: argparse.ArgumentParser) -> None:
    about = "auto: the compiler's own, of a pipeline"
    command.add_argument("--schedule", choices=("auto",), help=about)


def _add_aot(command: argparse.ArgumentParser) -> None:
    """``aot``: what a build calls."""
    command.description = "Write a C++ library with one function, for several targets if need be."
    command.add_argument(
        "files", nargs="+", metavar="FILE", help="saved kernels, or programs (.vir, .py, .hlpipe)"
    )
    _add_schedule(command)
    command.add_argument("--out", type=Path, required=True, help="the folder")
    command.add_argument("--name", help="the function's; default: that of the first kernel")
    command.add_argument("--target", action="append", help="for programs; may be given repeatedly")
    command.add_argument(
        "--trust", action="store_true", help="the files' code for the CPU is known to be good"
    )
    command.set_defaults(command=aot, json=False)


def aot(options: argparse.Namespace) -> int:
    """Export what was saved, and what is compiled now."""
    from selector.api import compile_module, load

    kernels: list[Kernel] = []
    for file in options.files:
        targets = options.target or [DEFAULT_TARGET]
        if file.endswith(LOWERED):
            modules = [read_program(file, target, options.schedule) for target in targets]
            kernels += map(compile_module, modules, targets)
        elif file == "-" or file.endswith(".vir"):
            module = read_program(file, schedule=options.schedule)
            kernels += [compile_module(module, target) for target in targets]
        else:
            kernels.append(load(file, trust=options.trust))
    first, *others = kernels
    first.export(options.name or first.name, options.out, *others)
    return 0


def write(text: str, path: Path | None) -> None:
    """Write text with one newline at its end."""
    text = text.rstrip("\n") + "\n"
    if path is None:
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}", why=str(error)) from None


def module_text(module: Module, as_json: bool) -> str:
    if not as_json:
        return str(module)
    from selector.ir.serialize import to_json

    return json.dumps(to_json(module))


def dump(options: argparse.Namespace) -> int:
    write(module_text(_read(options), options.json), options.out)
    return 0


def _read(options: argparse.Namespace) -> Module:
    return read_program(options.file, find_target(options.target).name, options.schedule)


def select(options: argparse.Namespace) -> int:
    """Print the selected program or its source; a miss is an error, as everywhere by default."""
    from selector import pipeline
    from selector.api import compile_module

    module, target = _read(options), find_target(options.target)
    if options.kernels and target.family != "cuda":
        raise UserError(
            f"{target.name} has no kernels", hint="`--source` prints what is emitted for it"
        )
    if options.kernels:
        work = pipeline.Work(module, target, strict=True)
        work = pipeline.run(work, pipeline.Clock())
        write(pipeline.kernels_text(work, options.after), options.out)
        return 0
    kernel = compile_module(module, target.name, cache=False)
    text = kernel.source if options.source else module_text(kernel.module, options.json)
    write(text, options.out)
    return 0


def explain(options: argparse.Namespace) -> int:
    """Print the report of a selection that lets misses pass."""
    from selector.eqsat.select import select as run_selection

    module = _read(options)
    report = run_selection(module, find_target(options.target), strict=False).report
    laws = options.laws
    text = json.dumps(report.as_dict(laws=laws), indent=2) if options.json else report.text(laws)
    write(text, options.out)
    return 1 if report.misses else 0


def apply(options: argparse.Namespace) -> int:
    """Run a saved kernel over files. ``UserError`` without the libraries that it takes."""
    return int(importlib.import_module("selector.dask.command").main(options.options))


def fuzz(options: argparse.Namespace) -> int:
    """Run the fuzzer, which is part of the tests: ``UserError`` without a checkout of them."""
    tests = Path(__file__).resolve().parent.parent / "tests"
    if not (tests / "fuzzing").is_dir():
        raise UserError(
            "the fuzzer is not installed",
            why="it is part of the tests, which are no part of the package",
            hint="run `python -m selector fuzz` in a checkout of the source",
        )
    sys.path.insert(0, str(tests))
    fuzzing = importlib.import_module("fuzzing.run")
    return int(fuzzing.main(options.options))


if __name__ == "__main__":
    sys.exit(main())
