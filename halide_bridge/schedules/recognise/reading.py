"""What Funcs of a pipeline are made of, and where they read it."""

from __future__ import annotations

from halide_bridge.schedules.recognise.program import Access, Member, Program
from selector.ir.nodes import Expr, Var
from selector.ir.traverse import free_vars


def below(member: Member, program: Program) -> list[Member]:
    """Funcs that it is made of, through pure ones, arguments apart."""
    found: dict[str, Member] = {}
    waiting = [member]
    while waiting:
        for f in read(waiting.pop(), program):
            if f.name not in found and f.name != member.name and computes(f, program):
                found[f.name] = f
                waiting += [f] if f.pure else []
    return list(found.values())


def computes(member: Member, program: Program) -> bool:
    """Whether it is more than an argument."""
    return not member.pure or any(a.func in program.members for a in member.accesses())


def read(member: Member, program: Program) -> list[Member]:
    names = dict.fromkeys(a.func for a in member.accesses())
    return [program.members[n] for n in names if n in program.members and n != member.name]


def names_of(access: Access) -> list[str]:
    """Of the variables at which it reads; "" for what is none."""
    return [_name(i) for i in access.indices]


def variables_of(access: Access) -> set[str]:
    return {name for i in access.indices for name in free_vars(i)}


def _name(e: Expr) -> str:
    return e.name if isinstance(e, Var) else ""
