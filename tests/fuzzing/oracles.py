"""One drawn program: compiled, run by every oracle, and what came of it.

The oracles: the lowered module and the selected program in the interpreter, the emitted text in the
emulation, Halide's own run of the unscheduled algorithm on the CPU, the GPU where it is asked for;
each is compared with float64. A user's error is an outcome like others; what else escapes is a
failure.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import emulation
import halide as hl
import numpy as np
from emulation import build as emulation_build

import halide_bridge as hb
import selector.intrinsics  # noqa: F401 - gives the interpreter the instructions' meaning
from fuzzing import formats, forms, reference
from fuzzing.device import outputs
from fuzzing.outcome import COMPILING, Outcome, template
from fuzzing.program import Program
from fuzzing.writing import pipeline_text
from selector.api import Kernel, compile_module
from selector.diagnostics import InternalError, UserError
from selector.ir.interpreter import evaluate_scalar, interpret
from selector.ir.module import Module
from selector.ir.nodes import Role

COMPILE_LIMIT = 20.0  # seconds of the processor from a Func to machine code
UNROUNDED = 2.0**-6
"""Halide's own run keeps in float32 what the program rounds to bfloat16: that much is allowed of
the result, of which an epilogue may have left little.
"""

Array = np.ndarray[Any, Any]


def _refusal(error: UserError) -> str:
    why = f" | {template(error.why)}" if error.why else ""
    return f"{type(error).__name__}: {template(error.what)}{why}"


class Clock:
    """Seconds of the processor by stage; ``said`` is told each stage that begins."""

    def __init__(self, said: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self.said = said

    def run(self, stage: str, work: Callable[[], Any]) -> Any:
        self.said(stage)
        start = time.process_time()
        children = _children()
        try:
            return work()
        finally:
            spent = time.process_time() - start + _children() - children
            self.seconds[stage] = round(spent, 4)

    @property
    def compiling(self) -> float:
        return sum(self.seconds.get(stage, 0.0) for stage in COMPILING)


def _children() -> float:
    """Seconds of processes that were waited for, such as g++."""
    spent = os.times()
    return spent.children_user + spent.children_system


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program that came through, with what is needed to run it."""

    program: Program
    module: Module
    kernel: Kernel
    arrays: Mapping[str, Array]
    expected: tuple[Array, ...]
    used: tuple[str, ...] = ()

    @property
    def shape(self) -> Any:
        """Of the output; where there are several, by name."""
        return forms.result_shape(self.program)


def run_program(
    p: Program, said: Callable[[str], None] = lambda stage: None, gpu: bool = False
) -> Outcome:
    """Compile a program and compare."""
    clock = Clock(said)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = compiled(p, clock)
        if isinstance(made, Outcome):
            return made
        return _compared(made, clock, gpu)


def compiled(p: Program, clock: Clock) -> Compiled | Outcome:
    """The kernel with inputs and expected output, or why there is none."""
    try:
        pipeline = pipeline_of(p)
        output = clock.run("build", pipeline)
        module = clock.run("lower", lambda: hb.lower(output, target=p.target, name="drawn"))
        kernel = clock.run("select", lambda: _select(p, module))
        clock.run("machine code", lambda: _machine_code(kernel))
        if clock.compiling > COMPILE_LIMIT:
            text = f"{clock.compiling:.0f} s: {clock.seconds}"
            return Outcome("slow", f"in {_longest(clock)}", text, clock.seconds)
        arrays = reference.inputs(p, needed_extents(module, p))
        expected = clock.run("float64", lambda: reference.results(p, arrays))
        return Compiled(p, module, kernel, arrays, expected, directives(pipeline))
    except UserError as error:
        return Outcome("refused", _refusal(error), str(error), clock.seconds)
    except InternalError as error:
        kind = "nvrtc" if "does not compile" in str(error) else "internal"
        return Outcome(kind, _error_class(error), str(error)[:4000], clock.seconds)
    except Exception as error:
        return Outcome("exception", _error_class(error), _traced(error), clock.seconds)


def _longest(clock: Clock) -> str:
    return max(clock.seconds, key=lambda s: clock.seconds[s])


def _error_class(error: Exception) -> str:
    text = str(error)
    found = re.search(r"error: (.*)", text) if "does not compile" in text else None
    if found is not None:
        return template(re.sub(r'"[^"]*"', "'...'", found[1]))
    return f"{type(error).__name__}: {template(text)}"


def _traced(error: Exception) -> str:
    import traceback

    return "".join(traceback.format_exception(error)[-6:])[-4000:]


def build(p: Program, scheduled: bool = True) -> Any:
    """The pipeline's output; unscheduled (its output and its parameters) for Halide's own run,
    where bfloat16 is float32."""
    return pipeline_of(p)(scheduled)


def pipeline_of(p: Program) -> Callable[..., Any]:
    """The function of the program's text."""
    space: dict[str, Any] = {"hl": hl, "hb": hb}
    exec(compile(pipeline_text(p), "<drawn>", "exec"), space)
    return space["pipeline"]


def directives(pipeline: Callable[..., Any]) -> tuple[str, ...]:
    """Those of this compiler in the schedule that it has given a pipeline; none where it has not
    been asked for one."""
    schedule: Any = getattr(pipeline, "schedule", None)
    parts = () if schedule is None else schedule.source.split("hb.")[1:]
    names = {part.split("(")[0] for part in parts}
    return tuple(sorted(f"scheduled by {name}" for name in names if name.isidentifier()))


def _select(p: Program, module: Module) -> Kernel:
    only = p.instructions or None
    return compile_module(module, target=p.target, cache=False, instructions=only)


def _machine_code(kernel: Kernel) -> None:
    if kernel.target.family == "cuda":
        kernel.cubin()
    else:
        kernel.library("software")


def needed_extents(module: Module, p: Program) -> dict[str, tuple[int, ...]]:
    """Extents that the compiled program asks of its inputs, dimension 0 first."""
    sizes = {name: extents for name, (_, extents) in reference.input_kinds(p).items()}
    env: dict[str, Any] = dict(reference.scalars(p))
    for b in module.buffers:
        extents = p.sizes if b.role is Role.OUTPUT else sizes[b.name]
        env |= {f"{b.name}.extent.{d}": n for d, n in enumerate(extents)}
    found: dict[str, tuple[int, ...]] = {}
    for name, extents in sizes.items():
        needs = [
            max((evaluate_scalar(r.maximum, env) + 1 for r in module.requirements
                 if r.buffer == name and r.dim == d), default=1)
            for d in range(len(extents))
        ]  # fmt: skip
        found[name] = tuple(int(n) for n in needs)
    return found


# -------------------------------------------------------------------- oracles


def _lowered(c: Compiled) -> Any:
    sizes = {b.name: c.program.sizes[::-1] for b in c.module.buffers if b.role is Role.OUTPUT}
    scalars = reference.scalars(c.program)
    return interpret(c.module, dict(c.arrays), scalars=scalars, sizes=sizes)


def selected(c: Compiled) -> Any:
    """What the selected program computes; ``UserError`` where the call is refused."""
    return c.kernel.interpret(**c.arrays, **reference.scalars(c.program), sizes=c.shape)


def _emulated(c: Compiled) -> Any:
    return emulated(c.kernel, c.shape, **c.arrays, **reference.scalars(c.program))


def emulated(kernel: Kernel, sizes: Any, **values: Any) -> Any:
    """The emitted text; for AMX it is compiled, with tile registers in software."""
    if kernel.target.family == "amx":
        return kernel(**values, sizes=sizes)
    # What is built is removed, thousands would fill a disk: no other process has the same text.
    text = f"{kernel.source}\n// {os.getpid()}\n"
    try:
        return emulation.check(kernel, sizes=sizes, timeout=60, source=text, **values)
    finally:
        emulation_build.build(text).unlink(missing_ok=True)


def _halide(c: Compiled) -> Any:
    """Halide's own run of the algorithm; numbers, not patterns."""
    kinds = {name: kind for name, (kind, _) in reference.input_kinds(c.program).items()}
    output, parameters = build(c.program, scheduled=False)
    held: list[Any] = []
    for parameter in parameters:
        name = parameter.name()
        if name in c.arrays:
            array = c.arrays[name]
            array = formats.from_bits(array) if kinds[name] == "bf16" else array
            held.append(np.ascontiguousarray(array))
            parameter.set(hl.Buffer(held[-1]))
        else:
            parameter.set(reference.scalars(c.program)[name])
    made = hl.Pipeline(output).realize(list(c.program.sizes))
    found = [np.array(one) for one in (made if isinstance(made, (list, tuple)) else [made])]
    return [formats.to_bits(one) if c.program.result == "bf16" else one for one in found]


def _on_gpu(c: Compiled) -> Any:
    from fuzzing.device import run_on_device

    return run_on_device(c.kernel, c.arrays, reference.scalars(c.program), c.shape)


ORACLES: dict[str, Callable[[Compiled], Any]] = {
    "halide": _halide,
    "lowered": _lowered,
    "selected": selected,
    "emulation": _emulated,
}


def _compared(c: Compiled, clock: Clock, gpu: bool) -> Outcome:
    oracles = {**ORACLES, "gpu": _on_gpu} if gpu and c.program.memory != "amx" else ORACLES
    wrong: dict[str, str] = {}
    notes: list[str] = []
    size = reference.spread(c.program, c.arrays)
    for name, oracle in oracles.items():
        try:
            found = outputs(clock.run(name, lambda oracle=oracle: oracle(c)))
            unrounded = name == "halide" and any(o.produce for o in c.program.operands)
            verdict = reference.all_differ(
                c.program, c.expected, found, UNROUNDED * unrounded, size
            )
        except UserError as error:
            return Outcome("refused", f"call: {_refusal(error)}", str(error), clock.seconds)
        except emulation.Unsupported as error:
            notes.append(f"{name}: {template(str(error))}")
            continue
        except Exception as error:
            verdict = f"{type(error).__name__}: {error}"
        if verdict:
            wrong[name] = verdict
    if not wrong:
        return Outcome("ok", "", "", clock.seconds, tuple(notes), c.used)
    text = "\n".join(f"{name}: {verdict[:1000]}" for name, verdict in wrong.items())
    detail = ", ".join(f"{name} ({_manner(verdict)})" for name, verdict in wrong.items())
    return Outcome("wrong", detail, text, clock.seconds, tuple(notes), c.used)


def _manner(verdict: str) -> str:
    """How a result is wrong, in a word or two."""
    if "are NaN" in verdict:
        return "NaN"
    return "values" if verdict.startswith("error") else re.sub("[()]", "", template(verdict))
