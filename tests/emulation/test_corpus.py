"""The CUDA text of the corpus gives what the interpreter gives: a sample of it each time, all of it
at night.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS
from corpus_case import output_shapes, random_inputs

import halide_bridge as hb
from emulation import check, run
from selector.ir.bfloat16 import from_bits

TARGETS = ("sm_80", "sm_90a")
PAIRS = [(name, t) for name, case in CORPUS.items() for t in TARGETS if case.target in (None, t)]
EVERY = 23  # of the pairs are in the sample; odd, so that it has both targets

Arrays = dict[str, np.ndarray[Any, Any]]


def sampled() -> list[Any]:
    """All pairs; those that are not in the sample wait for the night."""
    night = pytest.mark.nightly
    return [
        pytest.param(*pair, marks=() if i % EVERY == 0 else night, id="-".join(pair))
        for i, pair in enumerate(PAIRS)
    ]


def values(array: np.ndarray[Any, Any], element: str) -> np.ndarray[Any, Any]:
    return (from_bits(array) if element == "bfloat16" else array).astype(np.float64)


def assert_close(expected: Any, found: Any, elements: dict[str, str], tolerance: float) -> None:
    """Relative Frobenius error; infinities and NaN at the same places."""
    if not isinstance(expected, dict):
        (name,) = elements
        expected, found = {name: expected}, {name: found}
    for name, element in elements.items():
        want, got = values(expected[name], element), values(found[name], element)
        assert np.array_equal(np.isfinite(want), np.isfinite(got)), name
        want, got = np.nan_to_num(want), np.nan_to_num(got)
        error = float(np.linalg.norm(want - got)) / (float(np.linalg.norm(want)) or 1.0)
        assert error <= tolerance, f"{name}: relative error {error}"


@pytest.mark.parametrize(("name", "target"), sampled())
def test_text_computes_what_the_interpreter_does(name: str, target: str) -> None:
    case = CORPUS[name]
    kernel = hb.compile(case.build(), target=target, instructions=case.only, name=name)
    size = min(case.sizes, key=prod)
    arrays, shapes = random_inputs(case, kernel.module, size, 7), output_shapes(kernel.module, size)
    sizes = shapes if len(shapes) > 1 else next(iter(shapes.values()))
    given = {"sizes": sizes, **arrays, **case.scalars}
    expected = kernel.interpret(**given)
    elements = {b.name: str(b.type) for b in kernel.plan.buffers if b.name in shapes}
    tolerance = max(case.tolerance, 1e-6)
    assert_close(expected, check(kernel, **given), elements, tolerance)
    if "maps_ready" in kernel.source:
        assert_close(expected, run(kernel, maps_ready=False, **given), elements, tolerance)
