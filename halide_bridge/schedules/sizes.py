"""Sizes that a schedule is made for: what is declared, what the user says, else what is usual.

They decide what is fast, never what is right: a kernel takes any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from halide_bridge.names import plain
from halide_bridge.schedules.recognise.program import Member, Program, accesses
from selector.diagnostics import ScheduleError
from selector.ir.evaluator import evaluate_scalar
from selector.ir.nodes import Expr
from selector.ir.traverse import free_vars

USUAL = 2048  # elements of a dimension that nothing is known of

Sizes = Sequence[int] | Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Guess:
    """``known``: extents by the name that Halide has for them."""

    known: Mapping[str, int]

    def value(self, e: Expr) -> int:
        """Of an expression of sizes."""
        env = {name: self.known.get(name, _usual(name)) for name in free_vars(e)}
        try:
            return evaluate_scalar(e, env)
        except (ArithmeticError, KeyError, NotImplementedError, TypeError, ValueError):
            return USUAL

    def extent(self, member: Member, d: int) -> int:
        declared = member.bounds.get(member.args[d])
        if declared is not None:
            return declared
        low, high = member.region[d] if d < len(member.region) else (None, None)
        if low is None or high is None:
            return USUAL
        return max(1, self.value(high) - self.value(low) + 1)


def _usual(name: str) -> int:
    return USUAL if ".extent." in name else 0


def guess(program: Program, sizes: Sizes | None, location: str) -> Guess:
    """From the sizes of outputs and arguments, in NumPy's order, and from estimates of outputs.
    ``ScheduleError`` for a name that the pipeline does not have, and for a wrong number of them.
    """
    known: dict[str, int] = {}
    outputs = [program.members[name] for name in program.outputs]
    for member in outputs:
        for d, arg in enumerate(member.args):
            if arg in member.estimates:
                known[f"{member.name}.extent.{d}"] = member.estimates[arg]
    if sizes is None:
        return Guess(known)
    named = sizes if isinstance(sizes, Mapping) else {outputs[0].label: sizes}
    places = {plain(m.name).removesuffix("_im"): m for m in program if is_argument(m, program)}
    places |= {m.label: m for m in outputs}
    for name, shape in named.items():
        member = places.get(name)
        if member is None or len(shape) != len(member.args):
            raise ScheduleError(
                f"sizes has {tuple(shape)} for `{name}`",
                why="that is no output and no argument of the pipeline"
                if member is None
                else f"it has {len(member.args)} dimensions",
                hint="a shape in NumPy's order, or shapes by the names of outputs and arguments",
                where=location,
            )
        read = next(accesses(member.stages[0].values[0]), None)
        buffer = member.name if member in outputs or read is None else read.func
        known |= {f"{buffer}.extent.{d}": int(n) for d, n in enumerate(reversed(shape))}
    return Guess(known)


def is_argument(member: Member, program: Program) -> bool:
    """Whether a Func is that of an ImageParam."""
    if not member.pure or member.name in program.outputs:
        return False
    read = list(accesses(member.stages[0].values[0]))
    return (
        len(read) == 1
        and read[0].func not in program.members
        and (read[0].indices == member.stages[0].indices)
    )
