"""Sizes that a schedule is made for: what is declared, what the user says, else what is usual.

They decide what is fast, never what is right: a kernel takes any size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import SupportsIndex

from halide_bridge.names import plain
from halide_bridge.schedules.recognise.program import Member, Program, accesses
from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError
from selector.ir.evaluator import evaluate_scalar
from selector.ir.nodes import Expr
from selector.ir.traverse import free_vars

USUAL = 2048  # elements of a dimension that nothing is known of

Sizes = Sequence[int] | Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Guess:
    """``known``: extents by the name that Halide has for them; ``names``: whose each is, by the
    name in front; ``asked``: of those, which have been looked at.
    """

    known: Mapping[str, int]
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    asked: set[str] = field(default_factory=set[str])

    def get(self, name: str) -> int | None:
        """An extent, if it is known. What is decided must not follow from anything else."""
        if ".extent." in name:
            self.asked.add(name)
        return self.known.get(name)

    def depends_on(self) -> dict[str, set[int]]:
        """The axes, from the last one on, of outputs and arguments that have been looked at."""
        found: dict[str, set[int]] = {}
        for name in self.asked:
            buffer, _, d = name.rpartition(".extent.")
            if buffer in self.names:
                found.setdefault(self.names[buffer], set()).add(int(d))
        return found

    def value(self, e: Expr) -> int:
        """Of an expression of sizes."""
        env = {name: _or_usual(self.get(name), name) for name in free_vars(e)}
        try:
            return evaluate_scalar(e, env)
        except (ArithmeticError, KeyError, NotImplementedError, TypeError, ValueError):
            return USUAL

    def tells(self, member: Member, d: int) -> bool:
        """Whether an extent is known, and not just what is usual."""
        ends = member.region[d] if d < len(member.region) else (None,)
        names = {name for e in ends if e is not None for name in free_vars(e)}
        known = None not in ends and all(self.get(n) is not None for n in names if ".extent." in n)
        return known or member.args[d] in member.bounds

    def extent(self, member: Member, d: int) -> int:
        declared = member.bounds.get(member.args[d])
        if declared is not None:
            return declared
        low, high = member.region[d] if d < len(member.region) else (None, None)
        if low is None or high is None:
            return USUAL
        return max(1, self.value(high) - self.value(low) + 1)


def _or_usual(value: int | None, name: str) -> int:
    if value is not None:
        return value
    return USUAL if ".extent." in name else 0


def guess(program: Program, sizes: Sizes | None, location: str, some: bool = False) -> Guess:
    """From the sizes of outputs and arguments, in NumPy's order, and from estimates of outputs.
    ``some``: of those that the pipeline has. Else ``ScheduleError`` for a name that it does not
    have; for a wrong number of them as well.
    """
    known: dict[str, int] = {}
    outputs = [program.members[name] for name in program.outputs]
    for member in outputs:
        for d, arg in enumerate(member.args):
            if arg in member.estimates:
                known[f"{member.name}.extent.{d}"] = member.estimates[arg]
    places = {plain(m.name).removesuffix("_im"): m for m in program if is_argument(m, program)}
    places |= {m.label: m for m in outputs}
    buffers = {label: _buffer(m, program) for label, m in places.items()}
    named = {} if sizes is None else sizes
    if not isinstance(named, Mapping):
        named = {outputs[0].label: named}
    for name, shape in named.items():
        member = places.get(name)
        if member is None and some:
            continue
        if member is None or len(shape) != len(member.args):
            raise ScheduleError(
                f"sizes has {tuple(shape)} for `{name}`",
                why="that is no output and no argument of the pipeline"
                if member is None
                else f"it has {len(member.args)} dimensions",
                hint="a shape in NumPy's order, or shapes by the names of outputs and arguments",
                where=location,
            )
        if not all(map(_is_size, shape)):
            raise ScheduleError(
                f"sizes has {tuple(shape)} for `{name}`",
                why="a size is a whole number, and none is negative",
                where=location,
            )
        known |= {f"{buffers[name]}.extent.{d}": int(n) for d, n in enumerate(reversed(shape))}
    return Guess(known, {buffer: label for label, buffer in buffers.items()})


def _is_size(n: object) -> bool:
    return isinstance(n, SupportsIndex) and int(n) >= 0


def _buffer(member: Member, program: Program) -> str:
    """The name that Halide has for an output or an argument."""
    read = next(accesses(member.stages[0].values[0]), None)
    return member.name if member.name in program.outputs or read is None else read.func


def sources_of(name: str, program: Program) -> Iterator[Member]:
    """The Func that holds what is read under a name: itself, or that of an argument."""
    if name in program.members:
        yield program.members[name]
    for m in program:
        if is_argument(m, program) and any(a.func == name for a in m.accesses()):
            yield m


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
