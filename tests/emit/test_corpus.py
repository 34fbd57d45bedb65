"""Every pipeline of the GPU corpus: selected as asked, the same numbers in the interpreter, and
CUDA that compiles. The numbers on a GPU are ``tests/gpu/run_corpus.py``'s.
"""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np
import pytest
from corpus import CORPUS
from corpus_case import output_shapes, random_inputs

import halide_bridge as hb
from selector.diagnostics import InternalError
from selector.emit.cuda import emit
from selector.eqsat.select import select
from selector.ir.bfloat16 import from_bits
from selector.ir.interpreter import interpret
from selector.ir.nodes import Module
from selector.ir.traverse import walk_stmt
from selector.lowering.normalize import is_tensor_store
from selector.runtime import nvrtc
from selector.targets import find_target

TARGETS = ("sm_80", "sm_90a")
ENTRY = 'extern "C" __global__'


@cache
def modules(name: str, target: str) -> tuple[Module, Module]:
    """The lowered and the selected program of a case."""
    case = CORPUS[name]
    module = hb.lower(case.build(), target=target, name=name)
    return module, select(module, find_target(target), True, case.only).module


def relative_error(expected: np.ndarray, found: np.ndarray) -> float:
    wide, other = expected.astype(np.float64), found.astype(np.float64)
    assert np.array_equal(np.isfinite(wide), np.isfinite(other))
    wide, other = np.nan_to_num(wide), np.nan_to_num(other)
    return float(np.linalg.norm(wide - other)) / (float(np.linalg.norm(wide)) or 1.0)


@pytest.mark.parametrize("name", CORPUS)
def test_selection_keeps_the_numbers(name: str) -> None:
    case = CORPUS[name]
    module, selected = modules(name, "sm_90a")
    assert any(is_tensor_store(s) for s in walk_stmt(selected.body)) == case.tensor
    size = min(case.sizes, key=prod)
    arrays, shapes = random_inputs(case, module, size, 7), output_shapes(module, size)
    expected = interpret(module, arrays, scalars=case.scalars, sizes=shapes)
    found = interpret(selected, arrays, scalars=case.scalars, sizes=shapes)
    types = {b.name: str(b.type) for b in module.buffers}
    for output, want in expected.items():
        got = found[output]
        if types[output] == "bfloat16":
            want, got = from_bits(want), from_bits(got)
        assert relative_error(want, got) <= max(case.tolerance, 1e-6)


def batches(size: int) -> dict[str, tuple[str, list[str]]]:
    """Cases by target and number: compiling several at once takes less time."""
    found: dict[str, tuple[str, list[str]]] = {}
    turns = {name: CORPUS[name].target or TARGETS[i % 2] for i, name in enumerate(CORPUS)}
    for target in TARGETS:
        names = [name for name, turn in turns.items() if turn == target]
        for start in range(0, len(names), size):
            found[f"{target}-{start // size}"] = (target, names[start : start + size])
    return found


BATCHES = batches(12)


@cache
def quick() -> tuple[str, ...]:
    """Nobody runs what is compiled here: fewer passes of NVRTC's optimizer, where it has them."""
    option = "--Ofast-compile=mid"
    try:
        nvrtc.compile_to_cubin("__global__ void nothing() {}", TARGETS[0], (option,))
    except InternalError:  # an NVRTC that does not know it
        return ()
    return (option,)


@pytest.mark.nvrtc
@pytest.mark.parametrize("batch", BATCHES)
def test_emitted_source_compiles(batch: str) -> None:
    """Cases take turns between the targets: what differs between those is not in the cases.

    Each has a namespace of its own in one source, so a failure names the case by its first line.
    """
    target, names = BATCHES[batch]
    sources: list[str] = []
    for number, name in enumerate(names):
        text = emit(modules(name, target)[1], find_target(target)).source
        assert ENTRY in text
        text = text.replace(ENTRY, "__global__")
        sources.append(f"namespace n{number} {{\n{text}\n}}")
    assert nvrtc.compile_to_cubin("\n".join(sources), target, quick())
