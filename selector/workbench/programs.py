"""The programs that rules are tried on: files of the text form, or those beside the tests."""

from __future__ import annotations

import sys
from pathlib import Path

from rules import program_files
from selector.diagnostics import UserError
from selector.ir.module import Module
from selector.ir.nodes import Allocate, Memory
from selector.ir.parser import parse_module
from selector.ir.traverse import walk_stmt
from selector.ir.verify import verify_given


def read_program(name: str) -> Module:
    """Parse and verify a file of the text form, ``-`` for standard input; ``UserError`` if it
    cannot be read.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {name}", str(error)) from None
    module = parse_module(text, "<stdin>" if name == "-" else name)
    verify_given(module)
    return module


def corpus() -> tuple[Module, ...]:
    """The programs of ``rules/tests/programs``."""
    return tuple(parse_module(text, f"rules/tests/{name}") for name, text in program_files())


def default_target(module: Module) -> str:
    """A target for a program, by the memory of its accumulators: ``amx`` or ``sm_80``."""
    memories = {s.memory for s in walk_stmt(module.body) if isinstance(s, Allocate)}
    return "amx" if Memory.AMX_TILE in memories else "sm_80"
