"""Every pipeline of the GPU corpus: selected as asked, the same numbers in the interpreter, the
recorded CUDA, the same numbers from it in the emulation, and it compiles. The numbers on a GPU are
``tests/gpu/run_corpus.py``'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property
from math import prod
from typing import Any

import pytest
from corpus import CORPUS
from corpus_case import output_shapes, random_inputs
from corpus_programs import PROGRAMS, TARGETS, TURNS, Compiled, compiled
from emulation import check, run
from emulation.agreement import assert_close
from known_code import assert_known
from verified import EMULATED, INTERPRETED, MACHINE_CODE, SIMULATED, Verified, text_of

from selector.diagnostics import InternalError
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.nodes import Comment, Kernel
from selector.gpu.ir.text import parse_kernels, print_kernels
from selector.gpu.ir.verify import memory_faults
from selector.gpu.simulator.protocol import protocol_faults
from selector.ir.interpreter import interpret
from selector.ir.traverse import walk_stmt
from selector.ir.types import Type
from selector.lowering.normalize import is_tensor_store
from selector.runtime import nvrtc
from selector.runtime.plan import Plan
from selector.simulate import simulate
from selector.targets import find_target

EVERY = 23  # of the programs is one for `make quick`; odd, so that it has both targets
ENTRY = 'extern "C" __global__'
WORDS = re.compile(r"[\w.]*|(const|unsigned) \w+")


@dataclass(frozen=True)
class Run:
    """A program at its smallest size."""

    program: Compiled
    arrays: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]

    @property
    def elements(self) -> dict[str, str]:
        return {b.name: str(b.type) for b in self.program.lowered.buffers if b.name in self.shapes}

    @property
    def tolerance(self) -> float:
        return max(CORPUS[self.program.name].tolerance, 1e-6)

    @cached_property
    def emitted(self) -> tuple[tuple[Kernel, ...], Plan]:
        return emit_kernels(self.program.kernel.module, find_target(self.program.target))

    @property
    def inputs(self) -> tuple[str | bytes, ...]:
        case = CORPUS[self.program.name]
        texts = repr((self.shapes, dict(case.scalars), self.tolerance, sorted(self.arrays)))
        return texts, *(self.arrays[name].tobytes() for name in sorted(self.arrays))


def marks(number: int, name: str, target: str) -> tuple[pytest.MarkDecorator, ...]:
    """By day each case has the target whose turn it is; `make digests` compares all texts."""
    if TURNS[name] != target:
        return (pytest.mark.nightly,)
    return () if number % EVERY == 0 else (pytest.mark.slow,)


# Of the module, so that the tests of one program come one after the other and share its kernel.
@pytest.fixture(
    scope="module",
    params=[pytest.param(p, marks=marks(i, *p), id="-".join(p)) for i, p in enumerate(PROGRAMS)],
)
def program(request: pytest.FixtureRequest) -> Run:
    found = compiled(*request.param)
    case = CORPUS[found.name]
    size = min(case.sizes, key=prod)
    source(*request.param)
    return Run(
        found, random_inputs(case, found.lowered, size, 7), output_shapes(found.lowered, size)
    )


@INTERPRETED
def test_selection_keeps_the_numbers(program: Run, verified: Verified) -> None:
    lowered, selected = program.program.lowered, program.program.kernel.module
    case = CORPUS[program.program.name]
    assert any(is_tensor_store(s) for s in walk_stmt(selected.body)) == case.tensor
    if verified(str(lowered), str(selected), *program.inputs):
        return
    options = {"scalars": case.scalars, "sizes": program.shapes}
    expected = interpret(lowered, program.arrays, **options)
    found = interpret(selected, program.arrays, **options)
    assert_close(expected, found, program.elements, program.tolerance)


@pytest.mark.gcc
@EMULATED
def test_text_computes_what_the_interpreter_does(program: Run, verified: Verified) -> None:
    kernel, shapes = program.program.kernel, program.shapes
    if verified(text_of(kernel), str(kernel.module), *program.inputs):
        return
    sizes = shapes if len(shapes) > 1 else next(iter(shapes.values()))
    given = {"sizes": sizes, **program.arrays, **CORPUS[program.program.name].scalars}
    expected = kernel.interpret(**given)
    assert_close(expected, check(kernel, **given), program.elements, program.tolerance)
    if "maps_ready" in kernel.source:
        without = run(kernel, maps_ready=False, **given)
        assert_close(expected, without, program.elements, program.tolerance)


@SIMULATED
def test_kernels_compute_what_the_interpreter_does(program: Run, verified: Verified) -> None:
    """As nodes, for arrays that are aligned and have maps, if their rows let them, and others."""
    module, case = program.program.kernel.module, CORPUS[program.program.name]
    if verified(program.program.kernel.source, str(module), *program.inputs):
        return
    kernels, plan = program.emitted
    expected = interpret(module, program.arrays, scalars=case.scalars, sizes=program.shapes)
    for flags in (True, False):
        inputs = {**program.arrays, **case.scalars}
        found = simulate(kernels, plan, inputs, program.shapes, flags=flags)
        assert found.faults == ()
        assert_close(expected, dict(found.outputs), program.elements, program.tolerance)


def test_the_text_is_the_recorded_one(program: Run) -> None:
    name, target = program.program.name, program.program.target
    assert_known(f"corpus/{name}", target, program.program.kernel.source)


def words(node: Any) -> Iterator[str]:
    """The strings in a node, but what readers are told."""
    match node:
        case str():
            yield node
        case tuple():
            for x in node:
                yield from words(x)
        case _ if is_dataclass(node) and not isinstance(node, Comment | Type):
            for f in fields(node):
                yield from words(getattr(node, f.name)) if f.name != "note" else ()
        case _:
            pass


@pytest.mark.verified("selector/gpu", "selector/cpu")
def test_no_node_holds_text_of_c(program: Run) -> None:
    """Its strings are names, and words that its class knows."""
    assert not [x for x in words(program.emitted[0]) if not WORDS.fullmatch(x)]


@pytest.mark.verified("selector/gpu", "selector/cpu")
def test_kernels_as_nodes(program: Run, verified: Verified) -> None:
    """They read back from their text; no thread waits forever or
    for something else, in any world.
    """
    if verified(program.program.kernel.source, str(program.program.kernel.module)):
        return
    kernels, _ = program.emitted
    assert parse_kernels(print_kernels(kernels)) == kernels
    for kernel in kernels:
        assert protocol_faults(kernel) == (), kernel.name
        assert memory_faults(kernel) == (), kernel.name


def batches(size: int) -> dict[str, tuple[str, list[str]]]:
    """Cases by target and number: compiling several at once takes less time."""
    found: dict[str, tuple[str, list[str]]] = {}
    for target in TARGETS:
        names = [name for name, turn in TURNS.items() if turn == target]
        for start in range(0, len(names), size):
            found[f"{target}-{start // size}"] = (target, names[start : start + size])
    return found


BATCHES = batches(12)


@cache
def source(name: str, target: str) -> str:
    return compiled(name, target).kernel.source


@cache
def quick() -> tuple[str, ...]:
    """Nobody runs what is compiled here: fewer passes of NVRTC's optimizer, where it has them."""
    option = "--Ofast-compile=mid"
    try:
        nvrtc.compile_to_cubin("__global__ void nothing() {}", TARGETS[0], (option,))
    except InternalError:  # an NVRTC that does not know it
        return ()
    return (option,)


@pytest.mark.slow
@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize("batch", BATCHES)
def test_emitted_source_compiles(batch: str, verified: Verified) -> None:
    """Cases take turns between the targets: what differs between those is not in the cases.

    Each has a namespace of its own in one source, so a failure names the case by its first line.
    """
    target, names = BATCHES[batch]
    sources: list[str] = []
    for number, name in enumerate(names):
        text = source(name, target)
        assert ENTRY in text
        sources.append(f"namespace n{number} {{\n{text.replace(ENTRY, '__global__')}\n}}")
    whole = "\n".join(sources)
    if verified(whole, target, nvrtc.version()):
        return
    assert nvrtc.compile_to_cubin(whole, target, quick())
