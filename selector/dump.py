"""What ``SELECTOR_DUMP`` leaves behind: a folder for each compilation, numbered files for its
stages.
"""

from __future__ import annotations

import re
from pathlib import Path

from selector.ir.module import Module
from selector.ir.nodes import Allocate, Stmt
from selector.ir.traverse import stmt_children
from selector.targets import Target


def new_folder(folder: Path, module: Module, target: Target) -> Path:
    """A folder of its own, such as ``000-conv1d-sm_90a``; the number is the first that is free."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", module.name)
    number = sum(1 for _ in folder.iterdir())
    while True:
        path = folder / f"{number:03d}-{name}-{target.name}"
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path


def write(folder: Path, number: int, stage: str, texts: dict[str, str]) -> None:
    """Write what a stage left, by file suffix: ``01-select.vir``, ``01-select.egg`` and so on."""
    for suffix, text in texts.items():
        (folder / f"{number:02d}-{stage}{suffix}").write_text(text, encoding="utf-8")


def egg_program(module: Module, target: Target, instructions: tuple[str, ...] | None) -> str:
    """The rules, the facts of the target and the statements of a module as one egglog program.

    Each accumulator scope is between ``(push)`` and ``(pop)``, with one round of each phase: how
    often a phase runs is decided in Python (``selector.eqsat.saturate``).
    """
    from rules import rule_files
    from selector.eqsat.facts import instruction_facts, legal_instructions
    from selector.eqsat.saturate import PHASES
    from selector.eqsat.scopes import open_scope
    from selector.operands.movement import annotate_movement

    lines = [f"; {name}\n{text}" for name, text in rule_files()]
    lines += [f"; {target.name}", instruction_facts(legal_instructions(target, instructions))]
    for allocation in _scopes(annotate_movement(module.body)):
        lines += [f"; scope of {allocation.name}", "(push)"]
        terms = open_scope(allocation).distinct
        lines += [f"(set (statement {i}) {term})" for i, term in enumerate(terms)]
        lines += [schedule for _, schedule, _ in PHASES]
        lines += [f"(extract (statement {i}))" for i in range(len(terms))]
        lines.append("(pop)")
    return "\n".join(lines) + "\n"


def _scopes(body: Stmt) -> list[Allocate]:
    """The outermost allocations in tensor memory, in program order."""
    from selector.operands.accumulators import is_tensor

    found: list[Allocate] = []
    stack = [body]
    while stack:
        s = stack.pop()
        if isinstance(s, Allocate) and is_tensor(s):
            found.append(s)
        else:
            stack.extend(reversed(stmt_children(s)))
    return found
