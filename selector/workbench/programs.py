"""Programs from files: of the text form, or what Halide lowers; and those beside the tests."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from rules import program_files
from selector.diagnostics import UserError
from selector.ir.module import Module
from selector.ir.nodes import Allocate, Memory
from selector.ir.parser import parse_module
from selector.ir.traverse import walk_stmt
from selector.ir.verify import verify_given

LOWERED = (".py", ".hlpipe")
"""Files of pipelines: Python that calls one ``output``, and what Halide has serialized."""


def read_program(name: str, target: str = "sm_90a", schedule: str | None = None) -> Module:
    """Parse and verify a file of the text form, ``-`` for standard input; or run and lower a
    pipeline's (``LOWERED``) for a target, if need be with the compiler's own ``schedule``.
    ``UserError`` if it cannot be read, and for its mistakes.
    """
    if name.endswith(LOWERED):
        return _lowered(name, target, schedule)
    if schedule is not None:
        raise UserError(
            "a program in the text form has its schedule",
            why=f"{name} is what a pipeline was lowered to",
            hint=f"give the pipeline: a file that ends in {' or '.join(LOWERED)}",
        )
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {name}", str(error)) from None
    module = parse_module(text, "<stdin>" if name == "-" else name)
    verify_given(module)
    return module


def _lowered(name: str, target: str, schedule: str | None) -> Module:
    try:
        source = import_module("halide_bridge.source")
    except ImportError as error:
        raise UserError(
            f"{name} is a pipeline of Halide, which is not installed",
            why=str(error),
            hint="pip install tensor-selector[compile], or give its loops in the text form",
        ) from None
    found: Module = source.lower_file(name, target, schedule)
    return found


def corpus() -> tuple[Module, ...]:
    """The programs of ``rules/tests/programs``."""
    return tuple(parse_module(text, f"rules/tests/{name}") for name, text in program_files())


def default_target(module: Module) -> str:
    """A target for a program, by the memory of its accumulators: ``amx`` or ``sm_80``."""
    memories = {s.memory for s in walk_stmt(module.body) if isinstance(s, Allocate)}
    return "amx" if Memory.AMX_TILE in memories else "sm_80"
