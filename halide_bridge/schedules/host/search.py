"""What Halide's own autoscheduler for CPUs finds (Adams2019, of its wheel), as our directives.

The search takes a pipeline without schedules and sizes that are numbers, and prints C++; that is
read, and said to the pipeline anew (``Script``), so that it can be pasted as any other schedule.

    Func blur = pipeline.get_func(4);
    Var x(blur.get_schedule().dims()[0].var);
    Var xi("xi");
    blur
        .split(x, x, xi, 16, TailStrategy::ShiftInwards)
        .vectorize(xi);
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import halide

from halide_bridge.native import native
from halide_bridge.schedules.recognise.program import Member, Program
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import Guess
from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError
from selector.ir.nodes import Expr, Var
from selector.ir.traverse import free_vars
from selector.machine import Host

NAME = "Adams2019"
KEPT = 1  # schedules that are gone on with: 32, as by default, take a minute for four Funcs
# The same schedule on every machine: vectors of 64 bytes, which compilers cut where need be.
_TARGET = "x86-64-linux-avx-avx2-f16c-fma-sse41-avx512-avx512_skylake"
_FUNC = re.compile(r"Func (\w+) = pipeline\.get_func\((\d+)\)")
_LOOP = re.compile(
    r"R?Var (\w+)\((\w+)(?:\.update\((\d+)\))?\.get_schedule\(\)\.dims\(\)\[(\d+)\]\.var\)"
)
_NEW = re.compile(r'(R?)Var (\w+)\("[^"]+"\)')
_STAGE = re.compile(r"(\w+)(?:\.update\((\d+)\))?((?:\s*\.\w+\([^()]*\))*)")
_DIRECTIVE = re.compile(r"\.(\w+)\(([^()]*)\)")
_Loops = Sequence[tuple[str, Sequence[Sequence[str]]]]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: one that a Func's ``stage`` has from the first on, by Halide's name, or a new one."""

    name: str
    func: str = ""
    stage: int = 0
    reduced: bool = False


@dataclass(frozen=True, slots=True)
class Directive:
    """``func`` (Halide's name) or an update of it, and what is said of that; a ``str`` among the
    arguments is a Func's name.
    """

    func: str
    stage: int
    name: str
    arguments: tuple[Any, ...]


Found = tuple[Directive, ...]
_LEFT_OUT = "unroll"
"""Compilers of C unroll short loops, and take long for the text of many; and loops that no split
has made have a constant number of turns at the sizes of the search alone.
"""


@cache
def _load() -> None:
    folder = Path(str(halide.__file__)).parent
    plugin = next(folder.glob(f"lib*/libautoschedule_{NAME.lower()}.so"))
    getattr(halide, "load_plugin")(str(plugin))  # noqa: B009 - the wheel has no stubs


def search(program: Program, known: Guess, host: Host) -> Found:
    """The schedule for those sizes; errors are Halide's, or ScheduleError: it cannot be read."""
    _load()
    outputs = [program.members[name] for name in program.outputs]
    extents = [[known.extent(m, d) for d in range(len(m.args))] for m in outputs]
    names = {v for m in program for e in _sizes_in(m) for v in free_vars(e) if ".extent." in v}
    sizes = {name: known.value(Var(name)) for name in sorted(names)}
    options = {"parallelism": str(host.cores), "beam_size": str(KEPT)}
    text, loops = native().search(
        [m.handle for m in outputs], sizes, extents, _TARGET, NAME, options
    )
    return tuple(_read(text, loops))


def _sizes_in(member: Member) -> Iterator[Expr]:
    for stage in member.stages:
        yield from stage.expressions
        for r in stage.reduced:
            yield from (r.minimum, r.extent)


def _read(text: str, loops: _Loops) -> Iterator[Directive]:
    """``loops``: of each Func that the text may name, by its number, the loops of its stages."""
    funcs: dict[str, int] = {}
    names: dict[str, Any] = {}
    for statement in filter(None, (s.strip() for s in text.split(";"))):
        if m := _FUNC.fullmatch(statement):
            funcs[m[1]] = int(m[2])
            names[m[1]] = loops[int(m[2])][0]
        elif m := _LOOP.fullmatch(statement):
            func, stages = loops[funcs[m[2]]]
            stage = 0 if m[3] is None else int(m[3]) + 1
            names[m[1]] = Loop(stages[stage][int(m[4])], func, stage, statement.startswith("R"))
        elif m := _NEW.fullmatch(statement):
            names[m[2]] = Loop(m[2], reduced=bool(m[1]))
        else:
            m = _STAGE.fullmatch(statement)
            if m is None:  # Halide prints a Func's name as it is
                raise ScheduleError(f"no statement of a schedule: `{statement}`")
            stage = 0 if m[2] is None else int(m[2]) + 1
            for name, said in _DIRECTIVE.findall(m[3]):
                if name == _LEFT_OUT:
                    continue
                given = tuple(map(partial(_argument, names=names), re.findall(r"[\w:]+", said)))
                yield Directive(loops[funcs[m[1]]][0], stage, name, given)


def _argument(text: str, names: dict[str, Any]) -> Any:
    if text.isdigit():
        return int(text)
    if "::" in text:
        kind, _, member = text.partition("::")
        return getattr(getattr(halide, kind), member)
    return names[text]


def repeat(found: Found, script: Script, program: Program) -> None:
    """Say it to a pipeline."""
    for directive in found:
        of = _func(directive.func, script, program)
        of = of.update(directive.stage - 1) if directive.stage else of
        given = [_value(a, script, program) for a in directive.arguments]
        getattr(of, directive.name)(*given)


def _func(name: str, script: Script, program: Program) -> Recorded:
    member = program.members[name]
    return script.func(member.label, member.handle)


def _value(argument: Any, script: Script, program: Program) -> Any:
    match argument:
        case str():
            return _func(argument, script, program)
        case Loop(name, "", _, reduced):
            return (script.rvars if reduced else script.variables)(name)[0]
        case Loop(name, func, stage, reduced):
            of = _func(func, script, program)
            own = of.rvars(stage - 1) if reduced else of.args()
            return next(v for v in own if v.name() == name)
        case _:
            return argument


def where_to(member: Member, found: Found, program: Program) -> str:
    """Where a Func is computed, in words."""
    said = [d for d in found if d.func == member.name]
    at = next((d.arguments for d in said if d.name == "compute_at"), None)
    if at is None and not any(d.name == "compute_root" for d in said):
        return "inside those that read it"
    where = "in loops of its own"
    if at is not None:
        func, loop = at
        where = f"at the loop over {loop.name} of `{program.members[func].label}`"
    lanes = max((_lanes(d, said) for d in said if d.name == "vectorize"), default=1)
    where += f", vectors of {lanes}" if lanes > 1 else ""
    return where + (", on all cores" if any(d.name == "parallel" for d in said) else "")


def _lanes(vectorized: Directive, said: Sequence[Directive]) -> int:
    """Of the loop, which a split has made."""
    (loop,) = vectorized.arguments
    splits = [d for d in said if d.name == "split" and d.arguments[2] == loop]
    return int(splits[-1].arguments[3]) if splits else 1
