"""What the rules know of the target: instruction shapes and types, written as facts from the
records."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from selector.eqsat.encode import text
from selector.intrinsics import TensorInstruction, for_target
from selector.ir.nodes import Location
from selector.targets import Target

EXECUTES: dict[Location, tuple[str, ...]] = {
    Location.WMMA: ("wmma", "mma", "tf32"),
    Location.WGMMA: ("wgmma", "tcgen05"),
    Location.AMX: ("amx",),
}
"""Families of instructions whose accumulators live in each location."""


def legal_instructions(
    target: Target, only: Iterable[str] | None = None
) -> tuple[TensorInstruction, ...]:
    """The target's instructions; ``only`` restricts families (``wmma``) or names. Those that have
    to be asked for (``tf32``, ``fp8``) are called so, whatever their family; without it there are
    none."""
    if only is None:
        return tuple(i for i in for_target(target) if not i.asked)
    allowed = frozenset(only)
    return tuple(
        i for i in for_target(target) if i.name in allowed or (i.asked or i.family) in allowed
    )


@cache
def instruction_facts(instructions: tuple[TensorInstruction, ...]) -> str:
    """``(instruction location name m n a b c)`` for each record and each location it serves, and
    what its operands have to be; ``(part location name m n apart a b c)`` for parts."""
    lines = [
        f"({'part' if i.apart else 'instruction'} {text(location.value)} {text(i.name)} "
        f"{i.m} {i.n} {f'{i.apart} ' if i.apart else ''}"
        f"{text(str(i.a_type))} {text(str(i.b_type))} {text(str(i.c_type))})"
        for location, families in EXECUTES.items()
        for i in instructions
        if i.family in families
    ]
    lines += [f"(packing {text(i.name)} {i.packing})" for i in instructions]
    lines += [f"(configurable {text(i.name)})" for i in instructions if i.configurable]
    return "\n".join(lines)
